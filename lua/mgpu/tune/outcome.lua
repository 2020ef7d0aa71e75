--- What became of a trial: read from its folder after its process has ended, and from result.json later.
local core = require "mgpu.core"
local facts = require "mgpu.runs.facts"
local read_run = require "mgpu.runs.read"
local config = require "mgpu.runs.config"

local M = {}

local MOST_OUTPUT, MOST_ERROR = 64 * 2 ^ 20, 600 -- bytes

-- ---- values -------------------------------------------------------------------------------------

-- The best finite value of an array, by "min" or "max"; only of the first epochs, up to `epochs`.
local function best(values, epochs_of, mode, epochs)
  local found
  for i, value in ipairs(values or {}) do
    local counts = type(value) == "number" and value - value == 0 and (not epochs or epochs_of[i] <= epochs)
    if counts and (not found or mode == "max" and value > found or mode == "min" and value < found) then
      found = value
    end
  end
  return found
end

-- The values in reports.jsonl, in the form of a run's history.
local function reports_of(folder, metric)
  local values, epochs = {}, {}
  for line in (facts.read(folder .. "/reports.jsonl", 2 ^ 28) or ""):gmatch "([^\n]*)\n" do
    local ok, entry = pcall(core.json_decode, line)
    local value = ok and type(entry) == "table" and type(entry.values) == "table" and entry.values[metric]
    if type(value) == "number" and type(entry.epoch) == "number" then
      values[#values + 1], epochs[#epochs + 1] = value, entry.epoch
    end
  end
  return values, epochs
end

local function names_of(history)
  local list = {}
  for name in pairs(history) do list[#list + 1] = name end
  table.sort(list)
  return #list > 0 and "its history has " .. table.concat(list, ", ") or "it has no history"
end

-- The value that counts, or nil and why there is none.
local function value_of(folder, search, epochs)
  local values, places = reports_of(folder, search.metric)
  local run = read_run.read(folder, "")
  if #values == 0 then values, places = run.history[search.metric], run.epochs_of[search.metric] end
  local value = best(values, places, search.mode, epochs)
  if value then return value end
  if values and #values > 0 then return nil, ("%s was never finite"):format(search.metric) end
  return nil, ("no value of %q was reported: %s"):format(search.metric, names_of(run.history))
end

-- ---- ends ---------------------------------------------------------------------------------------

-- The end of what the process printed since `from`: the line with its error, if there is one.
local function last_words(folder, from)
  local text = facts.read(folder .. "/output.txt", MOST_OUTPUT) or ""
  text = text:sub(from + 1)
  local message = text:match ".*\n(mgpulua: [^\n]*)" or text:match "^(mgpulua: [^\n]*)"
  for line in (message and "" or text):gmatch "[^\n]+" do message = line end
  return message and message:gsub("^mgpulua: ", ""):sub(1, MOST_ERROR) or nil
end

--- of(folder, search, job) -> {state =, value =, error =}. job: {epochs =, status =, signal =, printed = bytes of
--- output.txt before}. state: "done" or "failed".
function M.of(folder, search, job)
  if job.signal then
    return { state = "failed", error = ("killed by signal %d: %s"):format(job.signal, last_words(folder, job.printed)
      or "it printed nothing") }
  elseif job.status ~= 0 then
    return { state = "failed", error = last_words(folder, job.printed) or "exit status " .. job.status }
  end
  local value, why = value_of(folder, search, job.epochs)
  if not value then return { state = "failed", error = why } end
  return { state = "done", value = value }
end

-- ---- files of the run ---------------------------------------------------------------------------

-- The object in a file, or {}.
local function object(path)
  local ok, found = pcall(core.json_decode, facts.read(path) or "")
  return ok and type(found) == "table" and found or {}
end

--- complete(folder, trial, result): what the trial did not write itself, so that its folder is a run's: run.json where
--- no fit and no report was made, and the end in state.json where the process could not write it.
function M.complete(folder, trial, result)
  if not core.file_exists(folder .. "/run.json") then
    core.write_file(folder .. "/run.json", core.json_encode { format = "mgpulua run 1", trial = trial.parameters,
      seed = trial.seed })
  end
  local state = object(folder .. "/state.json")
  if state.state ~= result.state or result.state == "failed" and type(state.error) ~= "string" then
    state.state, state.error = result.state, config.plain(result.error)
    state.ended = os.date "%Y-%m-%d %H:%M:%S"
    core.write_file(folder .. "/state.json", core.json_encode(state))
  end
end

--- saved(folder) -> what result.json says: {rounds = {{epochs =, state =, value =, error =}, ...}}; without rounds if
--- there is none, or it is damaged.
function M.saved(folder)
  local found, rounds = object(folder .. "/result.json"), {}
  for i, each in ipairs(type(found.rounds) == "table" and found.rounds or {}) do
    local ok = type(each) == "table" and (each.state == "failed" or each.state == "done"
      and type(each.value) == "number")
    if not ok then break end
    rounds[i] = { state = each.state, value = each.state == "done" and each.value or nil,
      error = type(each.error) == "string" and each.error or nil, seconds = tonumber(each.seconds) or 0,
      epochs = type(each.epochs) == "number" and each.epochs or nil }
  end
  return rounds
end

return M
