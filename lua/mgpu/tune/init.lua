--- tune {fn, space = {...}, ...} or tune {script = "train.lua", space = {...}, ...} -> the search, when it has ended:
--- tries values of parameters, each in a process of its own.
--
--     local search = mgpu.tune { script = "train.lua", trials = 20, folder = "runs/first",
--       space = { lr = mgpu.tune.loguniform(1e-4, 1e-1), units = { 32, 64, 128 } } }
--     print(search:best().parameters.lr)
--     print(search)                                          -- all trials, the best first
-- A trial runs the script, which gets its parameters by mgpu.trial(); or it runs the script that has called tune again,
-- up to this call, and there fn(trial). What model:fit records there is the run of the trial; the value that counts is
-- the best of `metric` over its epochs, of what trial:report was told, or what fn returns.
--   space          parameter = an array of values, tune.choice, tune.uniform, tune.loguniform, tune.int, or a value
--   method         "random" (the default), "grid": all combinations, or "halving": successive halving, in which all
--                  trials get min_epochs and the best go on; trial.epochs says how long to train
--   trials         10, of halving 9: how many parameters are drawn
--   min_epochs = 1, max_epochs =, factor = 3   of halving; max_epochs also for the others, as trial.epochs
--   metric         "val_loss";   mode  "auto", "min" or "max"
--   seed           0: of the parameters and of the trials' own seeds
--   folder         "runs/tune": holds a folder for each trial, which mgpulua --runs shows. A search that was ended goes
--                  on when it is started again: finished trials are kept
--   parallel       trials at a time: the number of GPUs, or half the number of cores, which are shared out
--   args           array of arguments for the script;   retry  false: true starts failed trials again
--   verbose        1: a line for each trial
-- The same seed gives the same trials and values, however many run at a time. A trial that fails is noted, with its
-- error, and the search goes on. Ctrl-C ends all processes and keeps what is complete.
-- RETURNS search:best(), search:table(), search.trials {number, parameters, seed, state, value, error, folder, ...}.
-- Errors: a wrong space; a folder with another search; several ranks; a program made by --pack.
-- Source of halving: Jamieson and Talwalkar, 2016.
-- Example:
--     local file = io.open("train.lua", "w")
--     file:write [[
--       local mgpu = require "mgpu"
--       local trial = mgpu.trial { x = 0 }
--       trial:report(1, (trial.x - 2) ^ 2)
--     ]]
--     file:close()
--     local search = mgpu.tune { script = "train.lua", method = "grid", space = { x = { 1, 2, 4 } }, verbose = 0 }
--     print(search:best().parameters.x, search:best().value, #search.trials)  --> 2 0 3
local core = require "mgpu.core"
local direction = require "mgpu.runs.direction"
local facts = require "mgpu.runs.facts"
local options = require "mgpu.options"
local Search = require "mgpu.tune.search"
local methods = require "mgpu.tune.methods"
local spaces = require "mgpu.tune.spaces"
local trials = require "mgpu.tune.trial"
local workers = require "mgpu.tune.workers"

local tune = { uniform = spaces.uniform, loguniform = spaces.loguniform, int = spaces.int, choice = spaces.choice }

local TUNE = options.declare { positional = 1,
  { "fn", "function" },
  { "script", "string" },
  { "space", "any", required = true },
  { "method", "string", default = "random", values = { "random", "grid", "halving" } },
  { "trials", "integer", min = 1, max = 100000 },
  { "min_epochs", "integer", min = 1 },
  { "max_epochs", "integer", min = 1 },
  { "factor", "number", min = 2 },
  { "metric", "string", default = "val_loss" },
  { "mode", "string", default = "auto", values = { "auto", "min", "max" } },
  { "seed", "integer", default = 0, min = 0, max = 2 ^ 53 },
  { "folder", "string", default = "runs/tune" },
  { "parallel", "integer", min = 1, max = 1000 },
  { "args", "table", default = {} },
  { "retry", "boolean", default = false },
  { "verbose", "integer", default = 1, min = 0, max = 1 },
}

local n_calls = 0 -- of tune, in this process

local function fail(message, ...) core.fail("usage", "tune: " .. message:format(...)) end

-- ---- options ------------------------------------------------------------------------------------

local function check(given)
  if core.is_packed() then
    core.fail("unsupported", "tune: a program made by --pack cannot start its trials, since it runs only its own "
      .. "script: search with mgpulua itself")
  end
  if type(given) ~= "table" or getmetatable(given) then
    fail "options are one table, as {script = \"train.lua\", space = {units = {32, 64}}}"
  end
  local chosen = options.check("tune", TUNE, given)
  if (chosen.fn == nil) == (chosen.script == nil) then
    fail "give either a function, as the first field, or script = \"train.lua\""
  end
  if chosen.folder == "" or chosen.folder:find "%z" then fail("option \"folder\" must name a folder") end
  if chosen.mode == "auto" then
    local more = direction(chosen.metric)
    if more == nil then
      fail("whether %q should rise or fall is not known: give mode = \"max\" or mode = \"min\"", chosen.metric)
    end
    chosen.mode = more and "max" or "min"
  end
  for i, word in ipairs(chosen.args) do
    if type(word) ~= "string" and type(word) ~= "number" then fail("args: entry %d is a %s", i, type(word)) end
  end
  chosen.space = spaces.check(chosen.space)
  methods[chosen.method].check(chosen)
  chosen.parallel = chosen.parallel or workers.default_parallel()
  return chosen
end

-- ---- command lines ------------------------------------------------------------------------------

-- The command line of this process again, for a trial that comes to the same call.
local function same_command()
  if not facts.script_path() then
    fail "a function needs a script that the trials can run again: write one, or give script = \"train.lua\""
  end
  local words, kept, first = facts.command(), {}, 0
  while arg[first - 1] ~= nil do first = first - 1 end
  local i, has_gpus = 1, #core.devices "cuda" > 0
  while words[i] do
    local option = i <= -first and has_gpus and words[i] -- a trial sees one GPU, so that no list fits it
    if option == "--devices" then
      i = i + 1
    elseif not (option and option:find "^%-%-devices=") then
      kept[#kept + 1] = words[i]
    end
    i = i + 1
  end
  return kept
end

local function script_command(chosen)
  if not core.file_exists(chosen.script) then
    core.fail("io", ("tune: cannot open %s: there is no such file"):format(chosen.script))
  end
  local command = { facts.command()[1] or "mgpulua", "--", chosen.script }
  for _, word in ipairs(chosen.args) do command[#command + 1] = tostring(word) end
  return command
end

-- ---- in a trial's process -----------------------------------------------------------------------

-- Runs the function for the trial, and ends the process.
local function run_trial(trial, fn)
  trials.begin(trial)
  local value = fn(trial)
  if type(value) == "number" then trial:report(trial.epochs or 1, value) end
  os.exit(0)
end

-- Earlier calls of the script have been completed: their results are in their folders.
local function in_trial(trial, chosen)
  if trial.given.kind ~= "function" then fail "a trial cannot begin a search of its own" end
  if n_calls == trial.given.call then run_trial(trial, chosen.fn) end
  local search = Search.new(chosen)
  search:load()
  return search
end

return setmetatable(tune, {
  __call = function(_, given)
    local chosen, trial = check(given), trials.here()
    if core.world().size > 1 then
      core.fail("unsupported", "tune: it starts processes itself: run the script without --np or another launcher")
    end
    n_calls = n_calls + 1
    if trial then return in_trial(trial, chosen) end
    local search = Search.new(chosen)
    search:run(chosen.fn and same_command() or script_command(chosen), n_calls)
    return search
  end,
})
