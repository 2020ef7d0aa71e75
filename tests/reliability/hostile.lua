-- Files made to do harm: bombs, false claims, deep or long headers, random damage. Each must be read or refused in less
-- than a second of this process's time and 256 MiB of memory.
local check = require "check"
local core = require "mgpu.core"
local onnx_files = require "onnx_files"
local mgpu = require "mgpu"

local L = mgpu.layers
local SECONDS, MEBIBYTES = 1, 256

-- The largest resident size of this process since the last call, in MiB.
local function take_peak()
  local status = check.read "/proc/self/status"
  local peak = tonumber(status:match "VmHWM:%s+(%d+)") / 1024
  local file = io.open("/proc/self/clear_refs", "w") -- 5 resets the mark
  if file then
    file:write "5"
    file:close()
  end
  return peak
end

-- 8 bytes, little-endian.
local function length_bytes(n)
  local bytes = {}
  for i = 1, 8 do bytes[i], n = string.char(n % 256), math.floor(n / 256) end
  return table.concat(bytes)
end

local function safetensors(header, data) return length_bytes(#header) .. header .. (data or "") end

-- A header of about `bytes` bytes, made of entries entry(1), entry(2), ...
local function long_header(bytes, entry)
  local parts, size = {}, 0
  while size < bytes do
    parts[#parts + 1] = entry(#parts + 1)
    size = size + #parts[#parts] + 1
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

local function empty_tensor(i) return ('"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'):format(i) end

-- A model file whose configuration has `layers` layers, given as JSON.
local function configured(layers)
  local text = ('{"class_name":"Sequential","config":{"input_shape":[4],"layers":[%s]}}'):format(layers)
  text = core.json_encode(text)
  return safetensors('{"__metadata__":{"format":"mgpulua 1","config":' .. text .. "}}")
end

local function dense(units, more)
  return ('{"class_name":"Dense","config":{"units":%d%s}}'):format(units, more or "")
end

-- A graph of ONNX that takes little room and wants much: a constant of 2^40 elements, a resized axis of 2^40.
local function large_graph(path, op, constants, attributes)
  return onnx_files.write(path, function(g)
    local x, inputs = g:add_input("x", { -1, 2 }, "float32").plain, {}
    for i, list in ipairs(constants) do inputs[i] = list == "x" and x or list == "" and "" or g:integers(list) end
    local y = g:op("Cast", { g:op(op, inputs, attributes) }, { to = 1 })
    g:add_output("y", g.value(g:op("Add", { g:op("ReduceSum", { y }), x }), { -1, 2 }, "float32"))
  end)
end

-- A graph of ONNX that computes a size from many large constants.
local function long_sum(path)
  return onnx_files.write(path, function(g)
    local x = g:add_input("x", { -1, 2 }, "float32").plain
    local sum = g:op("Expand", { g:integers { 1 }, g:integers { 2 ^ 20 } })
    for _ = 1, 1000 do sum = g:op("Mul", { sum, sum }) end
    local size = g:op("ReduceMax", { sum }, { keepdims = 1 })
    g:add_output("y", g.value(g:op("Reshape", { x, size }), { -1 }, "float32"))
  end)
end

-- The files that the changes start from: name -> bytes.
local function make_seeds(folder)
  local path = folder .. "/seed.safetensors"
  local model = mgpu.Sequential { L.Input { 6, 6, 1 }, L.Conv2D { 2, 3 }, L.Flatten {}, L.Dense { 3 } }
  model:compile { optimizer = "adam", loss = "mse" }
  model:save(path)
  local onnx = folder .. "/seed.onnx"
  model:save(onnx)
  local function graph(...) return check.read(large_graph(folder .. "/graph.onnx", ...)) end
  local zeros, bomb, small = folder .. "/zeros", folder .. "/bomb.zip", folder .. "/small.npz"
  os.execute(("truncate -s 150M '%s'"):format(zeros))
  core.zip_write(bomb, { { name = "w.npy", file = zeros, deflate = true } })
  core.store_save(small, { a = mgpu.ones { 3, 4 }, b = mgpu.zeros { 5 } })
  local head = "printf '\\0\\0\\010\\001\\012\\0\\0\\0'"
  os.execute(("{ %s; head -c 167772160 '%s'; } | gzip >'%s/bomb.gz'"):format(head, zeros, folder))
  local npy = "\147NUMPY\1\0\70\0{'descr': '<f8', 'fortran_order': True, 'shape': (%s), }"
  local many = long_header(1500000, function(i)
    return ('"%x":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}'):format(i, i - 1, i)
  end)
  local _, n_many = many:gsub("dtype", "")
  return {
    { "model.safetensors", check.read(path) },
    { "empty_tensors.safetensors", safetensors(long_header(2000000, empty_tensor)) },
    { "long_header.safetensors", safetensors(long_header(15e6, empty_tensor)) },
    { "many_tensors.safetensors", safetensors(many, ("\1"):rep(n_many)) },
    { "notes.safetensors", safetensors('{"__metadata__":' .. long_header(1900000, function(i)
      return ('"k%d":"%s"'):format(i, ("v"):rep(i % 50))
    end) .. "}") },
    { "deep.safetensors", safetensors(("{\"a\":"):rep(300000)) },
    { "large_layer.safetensors", configured(dense(40000) .. "," .. dense(40000)) },
    { "orthogonal.safetensors", configured(dense(3000, ',"kernel_initializer":"orthogonal"')) },
    { "layers.safetensors", configured(('{"class_name":"Flatten","config":{}},'):rep(9000) .. dense(2)) },
    { "more_layers.safetensors", configured(('{"class_name":"Flatten","config":{}},'):rep(19000) .. dense(2)) },
    { "model.onnx", check.read(onnx) },
    { "torch.onnx", check.read "tests/golden/onnx_models/encoder_new.onnx" },
    { "large_constant.onnx", graph("ConstantOfShape", { { 2 ^ 20, 2 ^ 20 } }) },
    { "large_eye.onnx", graph("ConstantOfShape", { { 2 ^ 24 + 1 } }) },
    { "large_tile.onnx", graph("Tile", { "x", { 2 ^ 30, 2 ^ 30 } }) },
    { "large_size.onnx", graph("Resize", { "x", "", "", { 1, 2 ^ 40 } }) },
    { "large_pad.onnx", graph("Pad", { "x", { 0, 2 ^ 40, 0, 2 ^ 40 } }) },
    { "large_depth.onnx", graph("Expand", { "x", { 2 ^ 40, 2 ^ 40, 1, 2 } }) },
    { "long_sum.onnx", check.read(long_sum(folder .. "/graph.onnx")) },
    { "large_hot.onnx", graph("OneHot", { { 1, 2 }, { 2 ^ 30 }, { 0, 1 } }) },
    { "huge_shape.npy", npy:format "99999999, 99999999" },
    { "deep_shape.npy", npy:format(("1, "):rep(12)) },
    { "bomb.npz", check.read(bomb) },
    { "small.npz", check.read(small) },
    { "bomb.idx", check.read(folder .. "/bomb.gz") },
    { "claim.idx", "\0\0\14\3\255\255\255\255\0\0\0\1\0\0\0\1" },
  }
end

-- Loads a file as its ending says. Errors are fine.
local function load(path)
  if path:find "%.idx$" then return core.idx_load(path) end
  if path:find "%.safetensors$" or path:find "%.onnx$" then return mgpu.load_model(path) end
  return core.store_load(path)
end

-- `bytes` with up to 8 bytes changed, or cut off.
local function damaged(bytes, random)
  if random(4) == 1 then return bytes:sub(1, random(#bytes)) end
  for _ = 1, random(8) do
    local at = random(2) == 1 and random(math.min(#bytes, 200)) or random(#bytes)
    bytes = bytes:sub(1, at - 1) .. string.char(random(256) - 1) .. bytes:sub(at + 1)
  end
  return bytes
end

return {
  what = "hostile files: more than 1 s or 256 MiB, or a wrong kind of error",
  count = 1000,
  few = 60,
  run = function(n, folder, timed)
    local seeds, state, failed, note, slowest, largest = make_seeds(folder), 1, 0, "", 0, 0
    local function random(most)
      state = (state * 16807) % 2147483647
      return state % most + 1
    end
    for i = 1, n do
      local name, bytes = unpack(seeds[(i - 1) % #seeds + 1])
      if i > #seeds then bytes = damaged(bytes, random) end
      local path = folder .. "/" .. name
      check.write(path, bytes)
      bytes = nil -- luacheck: ignore
      collectgarbage()
      local before = tonumber(check.read("/proc/self/status"):match "VmRSS:%s+(%d+)") / 1024
      take_peak()
      local begun = os.clock()
      local ok, message = pcall(load, path)
      local seconds, peak = os.clock() - begun, take_peak() - before
      slowest, largest = math.max(slowest, seconds), math.max(largest, peak)
      local code = not ok and core.error_code()
      local wrong = code and code ~= "data" and code ~= "unsupported" and message
      if wrong or timed and seconds > SECONDS or peak > MEBIBYTES then
        failed = failed + 1
        note = ("file %d, %s: %.2f s, %.0f MiB: %s"):format(i, name, seconds, peak, tostring(message):sub(1, 200))
      end
    end
    return failed, note == "" and ("slowest %.2f s, largest %.0f MiB"):format(slowest, largest) or note
  end,
}
