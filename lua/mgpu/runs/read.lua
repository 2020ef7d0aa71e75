--- Runs as their folders describe them, read with distrust: a file that is missing, cut, huge or no run's file makes
--- its run "damaged", or leaves a value out, and never an error.
local core = require "mgpu.core"
local direction = require "mgpu.runs.direction"
local facts = require "mgpu.runs.facts"
local folder = require "mgpu.runs.folder"

local M = {}

local MOST_JSON, MOST_HISTORY = 16 * 2 ^ 20, 256 * 2 ^ 20 -- bytes of a file
local MOST_LINE = 2 ^ 20                                  -- of a line of the history
local MOST_KEYS, DEEPEST = 2000, 8                        -- of a configuration

local STATES = { running = true, done = true, stopped = true, failed = true }

-- ---- one file -----------------------------------------------------------------------------------

-- The object in a file of JSON, {} if there is no file; notes in run.damaged why it cannot be read.
local function object(run, name)
  local path = run.path .. "/" .. name
  if not core.file_exists(path) then return {} end
  local text = facts.read(path, MOST_JSON)
  local ok, value = pcall(core.json_decode, text or "")
  if ok and type(value) == "table" then return value end
  run.damaged[#run.damaged + 1] = ("%s: %s"):format(name, not text and "it cannot be read, or is larger than 16 MiB"
    or ok and "it is not an object" or "it is not JSON")
  return {}
end

local function text_in(value, most)
  return type(value) == "string" and value:sub(1, most or 4096) or nil
end

local function number_in(value) return type(value) == "number" and value == value and value or nil end

local function table_in(value) return type(value) == "table" and value or {} end

-- ---- the configuration --------------------------------------------------------------------------

-- A value of the configuration as one word; nil for null.
local function word(value, depth)
  if type(value) == "number" or type(value) == "string" or type(value) == "boolean" then return value end
  if type(value) ~= "table" or depth > DEEPEST then return nil end
  local list, n = {}, #value
  for i = 1, math.min(n, 100) do list[i] = tostring(word(value[i], depth + 1)) end
  return "{" .. table.concat(list, ", ") .. (n > 100 and ", ...}" or "}")
end

-- Adds the leaves of a tree to `flat`, by their names joined with dots. Arrays are leaves.
local function flatten(tree, prefix, flat, depth)
  for key, value in pairs(tree) do
    if type(key) == "string" and flat.n < MOST_KEYS then
      local name = prefix .. key
      if type(value) == "table" and next(value) ~= nil and value[1] == nil and depth < DEEPEST then
        flatten(value, name .. ".", flat, depth + 1)
      else
        flat.values[name] = word(value, 0)
        flat.n = flat.n + 1
      end
    end
  end
end

-- Names and values of what was set: "fit.batch_size", "optimizer.learning_rate", "loss", "trial.units", "MGPU_ISA".
local function configuration(run)
  local flat = { values = {}, n = 0 }
  flatten(table_in(run.fit), "fit.", flat, 0)
  flatten(table_in(run.compile), "", flat, 0)
  flatten(table_in(run.trial), "trial.", flat, 0)
  flatten(table_in(run.environment), "", flat, 0)
  flatten({ samples = run.samples, ranks = run.ranks }, "", flat, 0)
  flat.values["fit.verbose"], flat.values["fit.style"] = nil, nil
  return flat.values
end

-- ---- the history --------------------------------------------------------------------------------

local SPECIAL = { nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }

-- A number of the history, or an array of numbers; nil for anything else.
local function metric(value)
  if type(value) == "number" then return value end
  if type(value) == "string" then return SPECIAL[value] end
  if type(value) ~= "table" or #value == 0 then return nil end
  local list = {}
  for i, item in ipairs(value) do
    list[i] = type(item) == "number" and item or SPECIAL[item]
    if not list[i] then return nil end
  end
  return list
end

-- Adds a line. RETURNS whether it is one of a history.
local function add_line(run, line)
  local ok, entry = pcall(core.json_decode, line)
  local epoch = ok and type(entry) == "table" and number_in(entry.epoch)
  if not epoch or epoch % 1 ~= 0 or epoch < 0 or epoch > 2 ^ 53 then return false end
  run.epoch[#run.epoch + 1] = epoch
  for name, value in pairs(table_in(entry.values)) do
    local kept = type(name) == "string" and metric(value)
    if kept then
      if not run.history[name] then run.history[name], run.epochs_of[name] = {}, {} end
      table.insert(run.history[name], kept)
      table.insert(run.epochs_of[name], epoch)
    end
  end
  return true
end

local function read_history(run)
  run.epoch, run.history, run.epochs_of = {}, {}, {}
  local path = run.path .. "/history.jsonl"
  local text = core.file_exists(path) and facts.read(path, MOST_HISTORY)
  if text == false then return end
  if not text then
    run.damaged[#run.damaged + 1] = "history.jsonl: it cannot be read, or is larger than 256 MiB"
    return
  end
  local wrong = 0
  for line in text:gmatch "([^\n]*)\n" do -- what follows the last line end was cut off
    if #line > MOST_LINE or not add_line(run, line) then wrong = wrong + 1 end
  end
  if wrong > 0 then
    run.damaged[#run.damaged + 1] = ("history.jsonl: %d lines are not of a history"):format(wrong)
  end
end

-- The last and the best values of each metric, and the epoch of the best.
local function summarize(run)
  run.last, run.best, run.best_epoch = {}, {}, {}
  for name, values in pairs(run.history) do
    local more = direction(name)
    if type(values[#values]) == "number" then run.last[name] = values[#values] end
    for i, value in ipairs(more ~= nil and values or {}) do
      local best = run.best[name]
      if type(value) == "number" and value - value == 0 and (not best or (more and value > best)
        or not more and value < best) then
        run.best[name], run.best_epoch[name] = value, run.epochs_of[name][i]
      end
    end
  end
end

-- ---- a run --------------------------------------------------------------------------------------

-- "killed" for a run whose process is gone. Of another machine nobody knows.
local function state_of(state)
  local name = text_in(state.state)
  if not STATES[name] then return "damaged" end
  if name ~= "running" or state.host ~= facts.host() then return name end
  local pid = number_in(state.pid)
  if not pid or pid % 1 ~= 0 or pid < 1 or pid > 2 ^ 31 then return name end
  local began = facts.process_start(("%d"):format(pid))
  if began == nil or began and number_in(state.process_start) and began ~= state.process_start then return "killed" end
  return name
end

--- read(path, name) -> the run in that folder: {name, path, state, error, started, ended, seconds, epochs, epoch,
--- history, epochs_of, last, best, best_epoch, seed, config, script, versions, machine, command, damaged}.
-- damaged: array of what is wrong with its files; config: see `configuration` above.
function M.read(path, name)
  local run = { name = name, path = path, damaged = {} }
  local state, facts_of = object(run, "state.json"), object(run, "run.json")
  for _, key in ipairs { "fit", "compile", "trial", "environment" } do run[key] = table_in(facts_of[key]) end
  run.samples, run.ranks = number_in(facts_of.samples), number_in(facts_of.ranks)
  run.config = configuration(run)
  run.environment, run.compile, run.fit = nil, nil, nil
  run.state, run.error, run.seconds = state_of(state), text_in(state.error), number_in(state.seconds)
  run.started, run.ended = text_in(facts_of.started) or text_in(state.started), text_in(state.ended)
  run.seed, run.host = number_in(facts_of.seed), text_in(state.host)
  run.versions, run.machine = table_in(facts_of.versions), table_in(facts_of.machine)
  run.command = table_in(facts_of.command)
  local script = table_in(facts_of.script)
  run.script = { path = text_in(script.path), sha256 = text_in(script.sha256, 64),
    commit = text_in(table_in(script.git).commit, 64) }
  read_history(run)
  run.epochs = #run.epoch
  summarize(run)
  return run
end

--- find(path) -> array of {path, name}: the folder itself, if it holds a run, and those in it, three levels deep, by
--- their names.
function M.find(path)
  local base, list, seen = path:gsub("(.)/+$", "%1"), {}, {}
  local function add(found)
    local at = found:match "^(.*)/[^/]*$"
    if seen[at] then return end
    seen[at] = true
    list[#list + 1] = { path = at, name = at == base and (at:match "([^/]+)$" or at) or at:sub(#base + 2) }
  end
  for _, depth in ipairs { "", "/*", "/*/*", "/*/*/*" } do
    for _, file in ipairs { "/run.json", "/state.json" } do
      for _, found in ipairs(core.glob(folder.literal(base) .. depth .. file)) do add(found) end
    end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

return M
