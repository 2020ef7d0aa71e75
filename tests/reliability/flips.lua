-- One bit of a model file is flipped, anywhere. Each must be detected when the model is loaded.
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local L = mgpu.layers

return {
  what = "flipped bits in a model file: not detected",
  count = 10000,
  few = 200,
  run = function(n, folder)
    local path, failed, note, seed = folder .. "/flip.safetensors", 0, "", 1
    local model = mgpu.Sequential { L.Input { 8 }, L.Dense { 4, activation = "relu" }, L.BatchNormalization {},
      L.Dense { 2 } }
    model:compile { optimizer = "adam", loss = "mse" }
    model:fit(mgpu.rand { 8, 8 }, mgpu.rand { 8, 2 }, { verbose = 0 })
    model:save(path)
    local bytes = check.read(path)
    for _ = 1, n do
      seed = (seed * 16807) % 2147483647
      local at, mask = seed % #bytes + 1, 2 ^ (math.floor(seed / 65536) % 8)
      check.write(path, bytes:sub(1, at - 1) .. string.char(bit.bxor(bytes:byte(at), mask)) .. bytes:sub(at + 1))
      local ok, message = pcall(mgpu.load_model, path)
      local code = core.error_code()
      if ok or code ~= "data" and code ~= "unsupported" then
        failed, note = failed + 1, ("byte %d, mask %d: %s"):format(at, mask, ok and "loaded" or message)
      end
    end
    check.write(path, bytes)
    mgpu.load_model(path)
    return failed, note == "" and ("a file of %d bytes"):format(#bytes) or note
  end,
}
