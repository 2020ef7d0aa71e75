-- One bit of a checkpoint is flipped: of its state, its manifest, or the file `latest`.
local check = require "check"
local core = require "mgpu.core"
local resumed = require "reliability.resumed"

return {
  what = "flipped bits in a checkpoint: not detected",
  count = 10000,
  few = 300,
  run = function(n, folder)
    local run_folder, failed, note = folder .. "/run", 0, ""
    resumed.continue(run_folder, resumed.command(run_folder, folder .. "/result", ""), { at = 0 })
    local number = core.checkpoint_list(run_folder)[1]
    local name = ("%s/checkpoint-%06d/"):format(run_folder, number)
    local files, total = { name .. "state.safetensors", name .. "manifest", run_folder .. "/latest" }, 0
    for i, path in ipairs(files) do
      files[i] = { path = path, bytes = check.read(path), verify = i == 3 and core.checkpoint_latest
        or core.checkpoint_verify }
      total = total + #files[i].bytes
    end
    for _ = 1, n do
      local file = files[math.random() < 0.2 and math.random(2, 3) or 1]
      local at, mask = math.random(#file.bytes), 2 ^ math.random(0, 7)
      check.write(file.path, file.bytes:sub(1, at - 1) .. string.char(bit.bxor(file.bytes:byte(at), mask))
        .. file.bytes:sub(at + 1))
      if pcall(file.verify, run_folder, number) or core.error_code() ~= "data" then
        failed, note = failed + 1, ("%s, byte %d, mask %d"):format(file.path, at, mask)
      end
      check.write(file.path, file.bytes)
    end
    core.checkpoint_verify(run_folder, number)
    return failed, note ~= "" and note or ("%d bytes in three files"):format(total)
  end,
}
