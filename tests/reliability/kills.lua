-- Processes are killed while they save to one path: half of them at one of their file calls, the others at any moment.
--
-- A process reports each save once it is done. Afterwards the file must be whole, and hold the last save that was
-- reported or the one after it; and the temporary files of the dead must be gone after the next save.
local check = require "check"
local core = require "mgpu.core"

local SAVES = [[
  local core = require "mgpu.core"
  local path, kill_at, round = arg[1], tonumber(arg[2]), tonumber(arg[3])
  io.stdout:setvbuf "no"
  if kill_at > 0 then core.file_fault { at = kill_at, error = "kill" } end
  while true do
    round = round + 1
    local t = core.ops.full({ 5000 }, round, "float32")
    core.store_save(path, { a = t, b = t }, { round = tostring(round) })
    print(round)
  end
]]

-- The round of the file, whose numbers must all be the same.
local function read_round(path)
  local tensors, notes = core.store_load(path)
  local round = tonumber(notes.round)
  for _, name in ipairs { "a", "b" } do
    local low, high = tensors[name]:min():item(), tensors[name]:max():item()
    if low ~= round or high ~= round then error(("round %d holds %g to %g"):format(round, low, high)) end
  end
  return round
end

local function count_files(folder)
  return tonumber((check.run(("ls -A '%s' | wc -l"):format(folder))))
end

return {
  what = "kills during saves: files lost, torn or orphaned",
  count = 10000,
  few = 20,
  run = function(n, folder)
    local path, script, failed, note = folder .. "/files/k.safetensors", folder .. "/saves.lua", 0, ""
    os.execute(("mkdir '%s/files'"):format(folder))
    check.write(script, SAVES)
    core.store_save(path, { a = core.ops.full({ 1 }, 0, "float32"), b = core.ops.full({ 1 }, 0, "float32") },
      { round = "0" })
    local round, orphans = 0, 0
    for i = 1, n do
      local at = i % 2 == 0 and (i * 7919) % 40 + 1 or 0
      local limit = at == 0 and ("timeout -s KILL %.3f "):format(0.02 + (i * 31 % 97) / 2000) or ""
      local out = check.run(("%s%s --devices ref:0 %s %s %d %d 2>/dev/null"):format(limit, check.program, script, path,
        at, round))
      local reported = tonumber(out:match "(%d+)\n[^\n]*$") or round
      local ok, found = pcall(read_round, path)
      if not ok or found < reported or found > reported + 1 then
        failed, note = failed + 1, ("kill %d: reported %d, found %s"):format(i, reported, tostring(found))
      end
      round = ok and found or reported
      orphans = orphans + count_files(folder .. "/files") - 1
    end
    core.store_save(path, { a = core.ops.full({ 1 }, 0, "float32") })
    failed = failed + count_files(folder .. "/files") - 1
    if note == "" then note = ("%d rounds saved; orphans seen on the way: %d"):format(round, orphans) end
    return failed, note
  end,
}
