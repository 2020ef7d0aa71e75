--- Runs of before beside those of this process: of pages that were saved, and of histories.
local core = require "mgpu.core"
local events = require "mgpu.dashboard.events"
local logs = require "mgpu.train.logs"
local page = require "mgpu.dashboard.page"
local tables = require "mgpu.dashboard.tables"

local M = {}

local KINDS = { r = true, e = true, b = true, p = true, x = true } -- the events that describe a run

local function fail(message, ...) core.fail("usage", "dashboard: runs: " .. message:format(...)) end

local function read(path)
  local file, why = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  if not text then core.fail("io", ("dashboard: runs: cannot read %s"):format(why or path)) end
  return text
end

-- Calls sink(line) for the events of a saved page; number(n): the number that its run n gets here.
local function add_page(path, number, sink)
  local text = page.events_of(read(path))
  if not text then core.fail("data", ("dashboard: runs: %s is no page that a dashboard has saved"):format(path)) end
  local from = ('"from":%s,'):format(events.name(path))
  for line in text:gmatch "[^\n]+" do
    local kind, run, rest = line:match '^{"t":"(%a)","r":(%d+),(.*)$'
    if kind == "r" then rest = rest:gsub('^"from":"[^"]*",', "") end
    if KINDS[kind] and not rest:find("<", 1, true) and pcall(core.json_decode, line) then
      sink(('{"t":"%s","r":%d,%s%s\n'):format(kind, number(tonumber(run)), kind == "r" and from or "", rest))
    end
  end
end

local function add_history(history, number, sink)
  if not history.epoch or #history.epoch == 0 then fail "a history has no epoch" end
  local run, values, seconds = number(1), {}, 0
  sink(tables.run_line(run, { name = history.model and history.model.name or "history", history = history,
    model = history.model, compiled = history.compiled, from = "a history" }))
  for name, list in logs.each(history.history) do
    for i, epoch in ipairs(history.epochs_of[name]) do
      values[epoch] = values[epoch] or logs.new()
      values[epoch][name] = list[i]
    end
  end
  local steps = history.params and history.params.steps
  for i, epoch in ipairs(history.epoch) do
    seconds = seconds + (history.seconds[i] or 0)
    sink(events.line(14, { "t", "e", "r", run, "e", epoch, "s", steps, "g", steps and steps * epoch, "w", seconds, "v",
      events.values(logs.each, values[epoch] or logs.new()) }))
  end
  sink(events.line(8, { "t", "x", "r", run, "w", seconds, "state", "done" }))
end

--- check(list): raises unless each entry is the path of a page or a history.
function M.check(list)
  local fault = core.array_fault(list)
  if fault then fail("%s", fault) end
  for i, each in ipairs(list) do
    local is_history = type(each) == "table" and each.class == "History"
    if not is_history and type(each) ~= "string" then
      fail("entry %d must be the path of a saved page, or what fit has returned, got a %s", i, type(each))
    end
  end
end

--- add(list, next_number, sink): the events of all runs in the list; next_number() -> the number of a new run.
function M.add(list, next_number, sink)
  for _, each in ipairs(list) do
    local numbers = {}
    local function number(n)
      numbers[n] = numbers[n] or next_number()
      return numbers[n]
    end
    if type(each) == "string" then
      add_page(each, number, sink)
    else
      add_history(each, number, sink)
    end
  end
end

return M
