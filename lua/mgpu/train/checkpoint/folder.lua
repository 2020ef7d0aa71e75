--- Folders of checkpoints, read: the newest whole one, and the report of --verify. Writing is in backup.lua and in C
--- (runtime/io/checkpoint.h describes the files).
local core = require "mgpu.core"

local M = { folder = nil, fits = 0 }

-- ---- --resume -----------------------------------------------------------------------------------

-- The program sets M.folder to the DIR of --resume: where the fits of the script save their checkpoints and continue
-- from. M.fits counts them.

--- next_folder() -> the folder for the next fit: DIR for the first, DIR/fit-2, ... for later ones; nil without the
--- option.
function M.next_folder()
  if not M.folder then return nil end
  M.fits = M.fits + 1
  return M.fits == 1 and M.folder or ("%s/fit-%d"):format(M.folder, M.fits)
end

-- ---- reading ------------------------------------------------------------------------------------

--- path_of(folder, number) -> the path of a checkpoint.
function M.path_of(folder, number) return ("%s/checkpoint-%06d"):format(folder, number) end

-- The message without the user's line at its beginning.
local function bare(message) return (tostring(message):gsub("^[^:]*:%d+: ", "")) end

-- Calls fn(...); a damaged or unreadable file is not an error. RETURNS whether it succeeded, and its results or the
-- reason.
local function attempt(fn, ...)
  local results = { pcall(fn, ...) }
  local code = core.error_code()
  if not results[1] and code ~= "data" and code ~= "io" then error(results[2], 0) end
  return unpack(results)
end

-- ---- the newest checkpoint ------------------------------------------------------------------------

-- Reports a file `latest` that is damaged, or names a checkpoint that is gone. It is only a hint: the numbers decide.
local function check_latest(folder, numbers, say)
  local ok, latest = attempt(core.checkpoint_latest, folder)
  if not ok then
    say(bare(latest) .. "; the numbers of the checkpoints tell which is the newest")
    return
  end
  for _, number in ipairs(numbers) do
    if number == latest then return end
  end
  if latest then say(("%s/latest names checkpoint %d, which is not there"):format(folder, latest)) end
end

--- load(folder, say) -> the newest checkpoint that is whole: {number, path, tensors, data, damaged}, or nil if the
--- folder has none at all. damaged: the numbers of newer ones that are not.
-- ARGS say(text): is told of each that is skipped, and why. Errors: there are checkpoints, but none is whole.
function M.load(folder, say)
  local numbers, damaged = core.checkpoint_list(folder), {}
  if #numbers == 0 then return nil end
  check_latest(folder, numbers, say)
  for _, number in ipairs(numbers) do
    local ok, tensors, notes = attempt(core.checkpoint_load, folder, number)
    if ok then
      return { number = number, path = M.path_of(folder, number), tensors = tensors, damaged = damaged,
        data = core.json_decode(notes.fit) }
    end
    say(("%s is skipped: %s"):format(M.path_of(folder, number), bare(tensors)))
    if core.error_code() == "data" then damaged[#damaged + 1] = number end
  end
  core.fail("data", ("fit: none of the checkpoints in %s is whole; to begin anew, remove the folder"):format(folder))
end

-- ---- --verify -----------------------------------------------------------------------------------

local function describe(folder, number)
  local _, notes = core.checkpoint_load(folder, number)
  local data = core.json_decode(notes.fit)
  return ("whole: epoch %d, %s"):format(data.epoch, data.within and "step " .. data.step or "complete")
end

-- Reports one folder. RETURNS the numbers of things that are whole, and that are not.
local function verify_one(folder, report)
  local whole, damaged = 0, 0
  local function add(name, ok, text)
    report(("%s  %s"):format(name, text))
    if ok then whole = whole + 1 else damaged = damaged + 1 end
  end
  for _, number in ipairs(core.checkpoint_list(folder)) do
    local ok, text = attempt(describe, folder, number)
    add(M.path_of(folder, number), ok, bare(text))
  end
  local ok, latest = attempt(core.checkpoint_latest, folder)
  if not ok then add(folder .. "/latest", false, bare(latest)) end
  return whole, damaged
end

--- verify(folder, report): reports each checkpoint of the folder, and of the folders fit-2, ... in it, as lines.
--- RETURNS whether there is one and all are whole.
function M.verify(folder, report)
  local whole, damaged = verify_one(folder, report)
  for n = 2, math.huge do
    local inner = ("%s/fit-%d"):format(folder, n)
    if #core.checkpoint_list(inner) == 0 then break end
    local more_whole, more_damaged = verify_one(inner, report)
    whole, damaged = whole + more_whole, damaged + more_damaged
  end
  if whole + damaged == 0 then report(folder .. " holds no checkpoint") end
  return whole > 0 and damaged == 0
end

return M
