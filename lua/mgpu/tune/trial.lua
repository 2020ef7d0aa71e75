--- The trial that this process runs, in a process that mgpu.tune has started; outside of one, a trial with the values
--- that the script gives.
--
-- MGPU_TRIAL names its folder. There, trial.json says what to try (tune/search.lua writes it); fit records itself
-- there, as with its option `run`. Values that the script reports go to history.jsonl if no fit has taken the folder,
-- else to reports.jsonl.
local core = require "mgpu.core"
local facts = require "mgpu.runs.facts"
local ordered_keys = require "mgpu.ordered_keys"

local M = {}

local Trial = {}

local current -- the trial; false: this process is of no search

-- ---- reading ------------------------------------------------------------------------------------

-- What trial.json says. Raises for a file that mgpu.tune has not written.
local function read(path)
  local ok, found = pcall(core.json_decode, facts.read(path .. "/trial.json") or "")
  if not ok or type(found) ~= "table" or type(found.parameters) ~= "table" or type(found.seed) ~= "number"
    or type(found.metric) ~= "string" then
    core.fail("data", ("MGPU_TRIAL: %s/trial.json does not describe a trial: mgpu.tune sets this variable"):format(
      path))
  end
  if found.epochs == core.null then found.epochs = nil end
  return found
end

-- trial.NAME: a method, or a parameter. Unknown names raise.
function Trial.__index(self, name)
  if Trial[name] ~= nil then return Trial[name] end
  if name == "epochs" then return nil end -- without a budget
  local value = rawget(self, "parameters")[name]
  if value ~= nil then return value end
  local known = { "number", "seed", "epochs", "folder" }
  for each in pairs(self.parameters) do known[#known + 1] = each end
  table.sort(known)
  core.fail("usage", ("trial: there is no parameter %q%s"):format(tostring(name), core.did_you_mean(tostring(name),
    known)))
end

local function new(given, path)
  return setmetatable({ number = given.number, seed = given.seed, epochs = given.epochs,
    parameters = given.parameters, folder = path, given = given,
    fits = 0, files = false, size = 0, begun = false }, Trial)
end

--- here() -> the trial of this process, or nil.
function M.here()
  if current == nil then
    local path = os.getenv "MGPU_TRIAL"
    current = path and path ~= "" and new(read(path), path) or false
  end
  return current or nil
end

-- ---- recording ----------------------------------------------------------------------------------

--- options_for_fit() -> the checked option `run` for the next fit of this process; nil if it is of no search.
-- The first fit records itself in the folder of the trial, later ones in fit-2, ... in it.
function M.options_for_fit()
  local trial = M.here()
  if not trial then return nil end
  if trial.given.kind == "function" and not trial.begun then return nil end -- of the script, before it calls tune
  trial.fits = trial.fits + 1
  local parent, name = trial.folder:match "^(.*)/([^/]+)$"
  local chosen = { folder = parent or ".", name = name or trial.folder, monitor = trial.given.metric, if_there = true,
    mode = trial.given.mode or "auto", best = true, checkpoints = true, tensorboard = true }
  if trial.fits > 1 or trial.files then
    chosen.folder, chosen.name = trial.folder, "fit-" .. trial.fits + (trial.files and 1 or 0)
  end
  return chosen
end

--- parameters() -> those of the trial of this process, or nil.
function M.parameters()
  local trial = M.here()
  return trial and trial.parameters or nil
end

-- Appends a value where no fit records itself.
local function to_history(trial, step, value)
  if not trial.files then
    trial.files = require "mgpu.runs.files".new(trial.folder)
    trial.files:start({ seed = trial.seed, trial = trial.parameters }, { core.default_device() })
  end
  trial.files:line(step, { [trial.given.metric] = value })
end

local function to_reports(trial, step, value)
  local path = trial.folder .. "/reports.jsonl"
  trial.size = core.append_file(path, trial.size, core.json_encode { epoch = step,
    values = { [trial.given.metric] = require "mgpu.runs.config".plain(value) } } .. "\n")
end

--- trial:report(step, value) -> whether to go on: tells the search a value of its metric, where model:fit does not.
-- step: a whole number that grows, as the epoch. It RETURNS false when step has reached trial.epochs, the budget of
-- this trial. Of several values the best one counts. Errors: other arguments; a full disk.
-- Example:
--     local trial = mgpu.trial { rate = 0.5 } -- these values count outside of a search
--     local x = 4
--     for step = 1, 3 do
--       x = x - trial.rate * 2 * x
--       if not trial:report(step, x * x) then break end
--     end
--     print(x)  --> 0
function Trial:report(step, value)
  if type(step) ~= "number" or step % 1 ~= 0 or step < 0 then
    core.fail("usage", "trial:report: step must be a whole number from 0 on, got " .. tostring(step))
  elseif type(value) ~= "number" then
    core.fail("usage", "trial:report: value must be a number, got " .. tostring(value))
  end
  if rawget(self, "given") then
    if self.files or self.fits == 0 then to_history(self, step, value) else to_reports(self, step, value) end
  end
  local budget = rawget(self, "epochs")
  return budget == nil or step < budget
end

--- tostring(trial): its number and parameters.
function Trial:__tostring()
  return ("trial %d: %s"):format(self.number, M.words(self.parameters))
end

--- words(parameters) -> "lr = 0.01, units = 32"
function M.words(parameters)
  local list = {}
  for name, value in pairs(parameters) do
    local text = type(value) == "number" and ("%.5g"):format(value) or type(value) == "string" and value
      or core.json_encode(value)
    list[#list + 1] = ("%s = %s"):format(name, text)
  end
  table.sort(list)
  return core.printable(table.concat(list, ", "), true)
end

-- Raises if the search varies what the script, whose defaults these are, does not read.
local function check_names(trial, defaults)
  if not next(defaults) then return end
  local known = ordered_keys(defaults)
  for _, name in ipairs(ordered_keys(trial.parameters)) do
    if defaults[name] == nil then
      core.fail("usage", ("trial: the search tries %q, of which the script has no default%s"):format(name,
        core.did_you_mean(name, known, "default")))
    end
  end
end

--- trial(defaults) -> the trial that this process runs: its parameters are fields, as trial.lr.
--
-- For a script that mgpu.tune {script = ...} starts: the first call sets the seed of the trial, as mgpu.seed does.
-- Outside of a search the parameters are `defaults`, so that the script can run alone. Fields: number (from 1; 0
-- outside of a search), seed, folder, parameters, and epochs, how long to train where the search has a budget, as the
-- method "halving". Errors: a parameter that is not there; defaults that lack one of the search's.
-- Example:
--     local trial = mgpu.trial { lr = 0.01, units = 32 }
--     print(trial.lr, trial.units, trial.number)  --> 0.01 32 0
function M.trial(defaults)
  if defaults ~= nil and type(defaults) ~= "table" then
    core.fail("usage", "trial: expected a table of default values, as {lr = 0.01}, got a " .. type(defaults))
  end
  local trial = M.here()
  if not trial then
    return setmetatable({ number = 0, seed = core.rng_state().seed, parameters = defaults or {}, folder = false },
      Trial)
  end
  if not trial.begun then check_names(trial, defaults or {}) end
  for name, value in pairs(defaults or {}) do
    if trial.parameters[name] == nil then trial.parameters[name] = value end
  end
  M.begin(trial)
  return trial
end

--- begin(trial): sets its seed, once.
function M.begin(trial)
  if trial.begun then return end
  trial.begun = true
  require "mgpu".seed(trial.seed)
end

return M
