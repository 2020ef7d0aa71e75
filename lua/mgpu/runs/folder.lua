--- Where a run is recorded: fit's option `run`, and choosing or making the folder.
--
-- The files of a run's folder:
--   state.json     whether it runs, how it ended, and which process it is; replaced when that changes
--   run.json       configuration, seed, versions, machine, command line; written when the run starts
--   script.lua     the text of the script;   model.json: the model's layers
--   history.jsonl  a line of JSON for each epoch, appended when it ends;   history.csv: the same for spreadsheets
--   best.safetensors, or best.weights.safetensors where the model itself cannot be saved
--   checkpoints/   to continue from (train/checkpoint)
--   train/, validation/   TensorBoard's event files
--   report.html    when the run has ended
-- Files that are replaced are the old or the new one at any time; of an appended file at most the last line is cut.
local core = require "mgpu.core"
local facts = require "mgpu.runs.facts"
local options = require "mgpu.options"

local M = {}

-- The option `run`, as a table; a text is the folder.
M.RUN = options.declare { positional = 1,
  { "folder", "string", required = true },
  { "name", "string" },
  { "monitor", "string" },
  { "mode", "string", default = "auto", values = { "auto", "min", "max" } },
  { "best", "boolean", default = true },
  { "checkpoints", "boolean", default = true },
  { "tensorboard", "boolean", default = true },
}

local MOST_TRIES = 10000 -- runs of one script that start in the same second

--- literal(path) -> the path as a pattern of core.glob that matches only itself.
function M.literal(path) return (path:gsub("[%*%?%[%]\\]", "\\%0")) end

--- exists(path) -> whether a folder is there.
function M.exists(path) return core.glob(M.literal(path) .. "/.")[1] ~= nil end

--- holds_run(path) -> whether a run was recorded there.
function M.holds_run(path) return core.file_exists(path .. "/state.json") or core.file_exists(path .. "/run.json") end

-- "2026-11-29_03-11-22_train"
local function new_name()
  local script = (facts.script_path() or ""):match "([^/]*)$":gsub("%.lua$", ""):gsub("[^%w._-]", "_"):sub(1, 40)
  return os.date "%Y-%m-%d_%H-%M-%S" .. (script ~= "" and "_" .. script or "")
end

-- Makes a folder in `folder` that no other process has.
local function make_new(folder, who)
  core.make_folder(folder, who)
  local name = new_name()
  for i = 1, MOST_TRIES do
    local path = ("%s/%s%s"):format(folder, name, i > 1 and "-" .. i or "")
    if core.new_folder(path, who) then return path end
  end
  core.fail("io", ("%s: %s has too many folders called %s"):format(who, folder, name))
end

--- check(who, given) -> the checked options of `run`: given is a text or a table.
function M.check(who, given)
  if type(given) ~= "string" and type(given) ~= "table" then
    core.fail("usage", ('%s: option "run" must be a folder, as "runs/", or a table of options, got a %s'):format(who,
      type(given)))
  end
  local chosen = options.check(who .. ": run", M.RUN, given)
  if chosen.folder == "" or chosen.folder:find "%z" then
    core.fail("usage", ('%s: option "run" must name a folder, got %q'):format(who, chosen.folder))
  end
  local name = chosen.name
  if name and (name == "" or name:find "^%.%.?$" or name:find "[/%z]") then
    core.fail("usage", ('%s: run: option "name" must be the name of a folder in %s, got %q'):format(who, chosen.folder,
      name))
  end
  return chosen
end

-- Whether a fit is being recorded in the folder.
local function is_locked(path, who)
  local lock = core.lock_folder(path .. "/.", who)
  if lock then core.unlock_folder(lock) end
  return not lock
end

--- make(who, folder, name) -> the path of the folder to record in, which is there afterwards.
-- With a name it is the folder NAME in the folder. Otherwise a folder that holds a run, and one that does not exist,
-- are taken as they are; with a slash at its end, or if it exists without a run, a new one is made in it.
function M.make(who, folder, name)
  local path = folder:gsub("/+$", "")
  if path == "" then path = "/" end
  if name then
    core.make_folder(path .. "/" .. name, who)
    return path .. "/" .. name
  end
  if M.holds_run(path) then return path end
  if folder:sub(-1) == "/" or M.exists(path) and not is_locked(path, who) then return make_new(path, who) end
  core.make_folder(path, who) -- or another process does, and the lock tells
  return path
end

return M
