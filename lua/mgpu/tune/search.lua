--- Search: one search for parameters: its folder, its trials, and the rounds in which they are trained.
--
-- The folder holds search.json, what is searched for, and a folder for each trial, which is that of a run, too:
-- trial.json, what to try; output.txt, what the process prints; result.json, the outcome of each round. A trial whose
-- result is there is not trained again, so a search that was ended goes on when it is started again; a trial that was
-- being trained continues from its checkpoint, if model:fit has saved one.
local core = require "mgpu.core"
local facts = require "mgpu.runs.facts"
local methods = require "mgpu.tune.methods"
local outcome = require "mgpu.tune.outcome"
local spaces = require "mgpu.tune.spaces"
local trial_words = require "mgpu.tune.trial".words
local workers = require "mgpu.tune.workers"

local Search = { class = "Search" }
Search.__index = Search

local function fail(message, ...) core.fail("usage", "tune: " .. message:format(...)) end

local function say(search, message, ...)
  if search.given.verbose > 0 then require "mgpu.say"("tune: " .. message .. "\n", ...) end
end

-- ---- the folder ---------------------------------------------------------------------------------

-- What must be the same when a search goes on, as text by name.
local function fixed(search)
  local given = search.given
  local found = { method = given.method, metric = search.metric, mode = search.mode,
    seed = search.seed, min_epochs = given.min_epochs, max_epochs = given.max_epochs, factor = given.factor }
  for _, each in ipairs(search.space) do found["space." .. each.name] = tostring(each.space) end
  if given.method == "halving" then found.trials = given.trials end -- more of them would change the rounds
  return found
end

-- Raises if the folder holds another search; writes search.json if it holds none.
local function claim_folder(search)
  local path, now = search.folder .. "/search.json", fixed(search)
  if not core.file_exists(path) then
    core.write_file(path, core.json_encode(now))
    return
  end
  local ok, before = pcall(core.json_decode, facts.read(path) or "")
  if not ok or type(before) ~= "table" then
    core.fail("data", ("tune: %s is damaged: remove the folder, or give another one"):format(path))
  end
  for _, name in ipairs(require "mgpu.ordered_keys"(now)) do
    if before[name] ~= now[name] then
      fail("%s holds a search with %s = %s, this one has %s: give another folder, or remove it", search.folder, name,
        tostring(before[name]), tostring(now[name]))
    end
  end
  for name, value in pairs(before) do
    if now[name] == nil then
      fail("%s holds a search with %s = %s, which this one has not: give another folder, or remove it", search.folder,
        name, tostring(value))
    end
  end
end

local function open_trials(search)
  for number, parameters in ipairs(methods[search.given.method].parameters(search)) do
    local folder = ("%s/trial-%04d"):format(search.folder, number)
    local trial = { number = number, parameters = parameters, folder = folder, state = "waiting", reached = 0,
      seed = spaces.seed_of(search.seed, number), rounds = outcome.saved(folder) }
    search.trials[number] = trial
  end
end

--- new(chosen) -> the search, not begun. chosen: tune's options, checked; space: of spaces.check.
function Search.new(chosen)
  local search = setmetatable({ given = chosen, space = chosen.space, metric = chosen.metric, mode = chosen.mode,
    seed = chosen.seed, folder = (chosen.folder:gsub("(.)/+$", "%1")), trials = {} }, Search)
  open_trials(search)
  return search
end

-- ---- one trial ----------------------------------------------------------------------------------

local function size_of(path)
  local file = core.file_exists(path) and io.open(path, "rb")
  local size = file and file:seek "end" or 0
  if file then file:close() end
  return size
end

-- What the process of the trial is to know.
local function describe(search, trial, epochs)
  core.make_folder(trial.folder, "tune")
  core.write_file(trial.folder .. "/trial.json", core.json_encode { format = "mgpulua trial 1", number = trial.number,
    seed = trial.seed, parameters = trial.parameters, epochs = epochs, metric = search.metric, mode = search.mode,
    call = search.call, kind = search.given.script and "script" or "function" })
end

-- Takes over an outcome: of a process that has ended, or a saved one.
local function take(trial, round, result)
  trial.rounds[round] = result
  trial.state, trial.error, trial.epochs = result.state, result.error, result.epochs
  if result.state == "done" then trial.value, trial.reached = result.value, round end
  trial.seconds = (trial.seconds or 0) + result.seconds
end

local function ended(search, trial, round, job)
  local result = outcome.of(trial.folder, search, job)
  result.epochs, result.seconds = job.epochs, job.seconds
  take(trial, round, result)
  outcome.complete(trial.folder, trial, result)
  core.write_file(trial.folder .. "/result.json", core.json_encode { number = trial.number, rounds = trial.rounds })
  say(search, "trial %d of %d: %s%s: %s", trial.number, #search.trials, trial_words(trial.parameters),
    job.epochs and (", %d epoch%s"):format(job.epochs, job.epochs == 1 and "" or "s") or "",
    result.value and ("%s %.5g"):format(search.metric, result.value) or "failed: " .. result.error)
end

-- ---- rounds -------------------------------------------------------------------------------------

-- Whether the trial needs no process for this round.
local function is_settled(search, trial, round)
  local saved = trial.rounds[round]
  if not saved or saved.state == "failed" and search.given.retry and not search.loads then return false end
  take(trial, round, saved)
  return true
end

local function run_round(search, round, plan)
  local jobs = {}
  for _, trial in ipairs(plan.trials) do
    if not is_settled(search, trial, round) then
      jobs[#jobs + 1] = { trial = trial, folder = trial.folder, epochs = plan.epochs }
    end
  end
  if search.loads and #jobs > 0 then
    fail("the trials of an earlier search of the script are not complete in %s", search.folder)
  end
  workers.run(jobs, { parallel = search.given.parallel, command = search.command,
    begun = function(job)
      describe(search, job.trial, job.epochs)
      job.printed = size_of(job.folder .. "/output.txt")
      job.trial.state = "running"
    end,
    ended = function(job, status, signal, seconds)
      job.status, job.signal, job.seconds = status, signal, seconds
      ended(search, job.trial, round, job)
    end })
end

local function run_rounds(search)
  local round = 1
  while true do
    local plan = methods[search.given.method].next_round(search, round)
    if not plan then return end
    run_round(search, round, plan)
    round = round + 1
  end
end

local function raise_interrupted(search)
  local complete = 0
  for _, trial in ipairs(search.trials) do
    if trial.state == "done" or trial.state == "failed" then complete = complete + 1 end
  end
  core.fail("interrupted", ("tune: interrupted; %d of %d trials are complete in %s: run it again to continue"):format(
    complete, #search.trials, search.folder))
end

--- search:run(command, call): trains the trials. ARGS command: the words of the command line of a trial; call: which
--- call of tune in the script this is. Errors: a folder that cannot be written, or that holds another search; Ctrl-C.
function Search:run(command, call)
  self.command, self.call = command, call
  core.make_folder(self.folder, "tune")
  local lock = core.lock_folder(self.folder .. "/.", "tune")
  if not lock then fail("%s: another search is running in it", self.folder) end
  local ok, problem = pcall(function()
    claim_folder(self)
    run_rounds(self)
  end)
  local code = core.error_code()
  core.unlock_folder(lock)
  if not ok and code == "interrupted" then raise_interrupted(self) end
  if not ok then error(problem, 0) end
end

--- search:load(): takes the outcomes from the folder, where all trials must be complete.
function Search:load()
  self.loads = true
  run_rounds(self)
end

-- ---- results ------------------------------------------------------------------------------------

-- In halving, the trials that came further are before the others.
local function before(search)
  return function(a, b)
    if (a.value == nil) ~= (b.value == nil) then return b.value == nil end
    if a.reached ~= b.reached then return a.reached > b.reached end
    if a.value ~= b.value then
      if search.mode == "max" then return a.value > b.value end
      return a.value < b.value
    end
    return a.number < b.number
  end
end

--- search:ranked() -> array of the trials, the best first; those that failed last.
function Search:ranked()
  local list = { unpack(self.trials) }
  table.sort(list, before(self))
  return list
end

--- search:best() -> the best trial: {number, parameters, value, seed, folder, epochs, seconds, state, error}. If it has
--- failed in a later round, the value of the round before counts. Errors: no trial has a value.
-- Example:
--     local file = io.open("trial.lua", "w")
--     file:write 'local t = require "mgpu".trial {} t:report(1, t.x * t.x)'
--     file:close()
--     local search = mgpu.tune { script = "trial.lua", method = "grid", space = { x = { 3, 2 } }, verbose = 0 }
--     print(search:best().number, search:best().value)  --> 2 4
function Search:best()
  local first = self:ranked()[1]
  if not first or first.value == nil then
    fail("no trial has a value: trial %d: %s", first and first.number or 0, first and first.error or "there is none")
  end
  return first
end

--- search:table() -> all trials as text, a line for each, the best first.
-- Example:
--     local file = io.open("trial.lua", "w")
--     file:write 'local t = require "mgpu".trial {} t:report(1, t.x * t.x)'
--     file:close()
--     local search = mgpu.tune { script = "trial.lua", method = "grid", space = { x = { 3, 2 } }, verbose = 0 }
--     print(search:table())
--     --> trial state val_loss x epochs
--     --> 2 done 4 2
--     --> 1 done 9 3
function Search:table()
  local heads, rows = { "trial", "state", self.metric }, {}
  for _, each in ipairs(self.space) do heads[#heads + 1] = each.name end
  heads[#heads + 1] = "epochs"
  for i, trial in ipairs(self:ranked()) do
    local row = { tostring(trial.number), trial.state, trial.value and ("%.6g"):format(trial.value) or "" }
    for _, each in ipairs(self.space) do
      row[#row + 1] = (trial_words { x = trial.parameters[each.name] }:gsub("^x = ", ""))
    end
    row[#row + 1] = trial.epochs and tostring(trial.epochs) or ""
    rows[i] = row
  end
  table.insert(rows, 1, heads)
  local widest, lines = {}, {}
  for _, row in ipairs(rows) do
    for i, text in ipairs(row) do widest[i] = math.max(widest[i] or 0, #text) end
  end
  for i, row in ipairs(rows) do
    local cells = {}
    for k, text in ipairs(row) do cells[k] = text .. (" "):rep(widest[k] - #text) end
    lines[i] = (table.concat(cells, "  "):gsub("%s+$", ""))
  end
  for _, trial in ipairs(self.trials) do
    if trial.error then lines[#lines + 1] = ("trial %d: %s"):format(trial.number, core.printable(trial.error, true)) end
  end
  return table.concat(lines, "\n")
end

--- tostring(search): its table.
function Search:__tostring() return self:table() end

return Search
