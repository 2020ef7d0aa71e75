-- What the checks of checkpoints share: a training in a process of its own (resumed_run.lua) that is stopped, started
-- again, and compared with one that was not disturbed.
local check = require "check"
local core = require "mgpu.core"

local M = {}

--- command(folder, result, options, ...) -> the command of a training; options with %d and the like are formatted.
function M.command(folder, result, options, ...)
  return ("%s tests/reliability/resumed_run.lua %s %s '%s'"):format(check.program, folder, result, options:format(...))
end

local undisturbed = {} -- options -> the result of a training that was not disturbed

--- expected(folder, options) -> the result of a training that is not disturbed. folder: for temporary files.
function M.expected(folder, options)
  if not undisturbed[options] then
    local result = folder .. "/undisturbed"
    local text, status = check.run(M.command("none", result, options))
    if status ~= 0 then error(text, 0) end
    undisturbed[options] = check.read(result)
  end
  return undisturbed[options]
end

--- compare(folder, result, options) -> a problem, if the result is not the expected one to the last byte; else nil.
function M.compare(folder, result, options)
  return check.read(result) ~= M.expected(folder, options) and ("other numbers with %q"):format(options) or nil
end

-- Epoch and step as one number.
local function position(epoch, step) return epoch * 10000 + step end

-- The position of the newest checkpoint, 0 if there is none. Raises if any is damaged.
local function newest(folder)
  local at = 0
  for i, number in ipairs(core.checkpoint_list(folder)) do
    local _, notes = core.checkpoint_load(folder, number)
    local data = core.json_decode(notes.fit)
    if i == 1 then at = position(data.epoch, data.step) end
  end
  return at
end

--- continue(folder, command, known) -> the exit status of the training, and a problem or nil: a damaged checkpoint, one
--- older than an acknowledged one, an error. known.at: the last acknowledged position, 0 at first; it is updated.
function M.continue(folder, command, known)
  local text, status = check.run(command)
  local epoch, step = text:match "first%s+(%d+)%s+(%d+)"
  if epoch and position(epoch, step) <= known.at then
    return status, ("began at epoch %s, step %s, before an acknowledged checkpoint"):format(epoch, step)
  end
  for e, s in text:gmatch "saved%s+(%d+)%s+(%d+)" do known.at = position(e, s) end
  local ok, found = pcall(newest, folder)
  if not ok then return status, tostring(found) end
  if found < known.at then return status, "the newest checkpoint is older than an acknowledged one" end
  if status ~= 0 and status ~= 75 and status < 128 then return status, text end
  return status
end

--- stopped_and_resumed(folder, i, options, first) -> a problem or nil: runs the command `first`, which does not come to
--- its end, then the whole training, and compares. i: a number for the names of files.
function M.stopped_and_resumed(folder, i, options, first)
  local run_folder, result, known = ("%s/run%d"):format(folder, i), folder .. "/result", { at = 0 }
  os.remove(result)
  local _, problem = M.continue(run_folder, M.command(run_folder, result, "%s", first), known)
  local status, other = M.continue(run_folder, M.command(run_folder, result, "%s", options), known)
  return problem or other or status ~= 0 and "exit status " .. status or M.compare(folder, result, options)
end

return M
