-- Two processes save to one path at the same time. Each save must succeed, and each reader must see one of the two
-- files, whole; at the end no other file is left.
local check = require "check"
local core = require "mgpu.core"

local WRITES = [[
  local core = require "mgpu.core"
  local path, mine, n = arg[1], tonumber(arg[2]), tonumber(arg[3])
  local t = core.ops.full({ 5000 }, mine, "float32")
  for _ = 1, n do core.store_save(path, { a = t, b = t }, { mine = tostring(mine) }) end
]]

return {
  what = "saves of two processes to one path: failed or torn",
  count = 10000,
  few = 50,
  run = function(n, folder)
    local path, script, failed, note = folder .. "/files/w.safetensors", folder .. "/writes.lua", 0, ""
    os.execute(("mkdir '%s/files'"):format(folder))
    check.write(script, WRITES)
    local each, commands = math.ceil(n / 2), {}
    for mine = 1, 2 do
      commands[mine] = ("{ %s --devices ref:0 %s %s %d %d 2>&1; echo ended $?; } >'%s/out%d' &"):format(check.program,
        script, path, mine, each, folder, mine)
      os.execute(commands[mine])
    end
    local reads = 0
    local function ended(mine)
      local ok, out = pcall(check.read, ("%s/out%d"):format(folder, mine))
      return ok and out:match "ended (%d+)"
    end
    repeat
      local done = ended(1) and ended(2)
      if core.file_exists(path) then
        local ok, tensors, notes = pcall(core.store_load, path)
        reads = reads + 1
        local mine = ok and tonumber(notes.mine)
        if not ok or tensors.a:min():item() ~= mine or tensors.b:max():item() ~= mine then
          failed, note = failed + 1, ok and "torn" or tensors
        end
      end
    until done
    for mine = 1, 2 do
      if ended(mine) ~= "0" then failed, note = failed + 1, check.read(("%s/out%d"):format(folder, mine)) end
    end
    failed = failed + tonumber((check.run(("ls -A '%s/files' | wc -l"):format(folder)))) - 1
    return failed, note == "" and ("read %d times meanwhile"):format(reads) or note
  end,
}
