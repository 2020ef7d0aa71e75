--- The event that begins a run: its name, its tables and the graph of its model.
local events = require "mgpu.dashboard.events"
local pictures = require "mgpu.dashboard.pictures"
local run_tables = require "mgpu.plot.run_tables"

local M = {}

-- {json =}: the tables that the page shows: {title, names of columns or [], rows}.
local function tables_of(run)
  local list = {}
  local function add(title, rows) list[#list + 1] = { title, rows.heads or {}, rows } end
  if run.model then add("Layers", run_tables.model(run.model)) end
  if run.compiled then add("Compiled with", run_tables.compiled(run.compiled)) end
  if run.history then add("Fitted with", run_tables.fitted(run.history)) end
  if run.compiled then add("Devices and versions", run_tables.machine(run.compiled)) end
  return events.texts(list)
end

--- run_line(number, run) -> the event. run: {name =, model =, compiled =, history =, from = where a run of before is
--- from, began = seconds since 1970, epochs =, first =, steps =}. All but name may be nil.
function M.run_line(number, run)
  local picture = run.model and pictures.model(run.model)
  return events.line(20, { "t", "r", "r", number, "from", run.from, "name", run.name, "began", run.began,
    "epochs", run.epochs, "first", run.first, "steps", run.steps, "tables", tables_of(run),
    "graph", picture and events.bytes(picture) or nil })
end

return M
