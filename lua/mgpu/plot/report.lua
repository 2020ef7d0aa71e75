--- history:report: a page about a run, as one HTML file without scripts, which loads nothing else.
local core = require "mgpu.core"
local model_picture = require "mgpu.plot.model"
local more_is_better = require "mgpu.runs.direction"
local options = require "mgpu.options"
local plot = require "mgpu.plot.history"
local summary = require "mgpu.nn.summary"
local svg = require "mgpu.plot.svg"
local tables = require "mgpu.plot.run_tables"

local M = {}

local REPORT = options.declare { { "title", "string" } }

local MOST_ROWS = 500 -- of the table of epochs; a longer run shows every k-th

local STYLE = [[
body{margin:0 auto;max-width:60rem;padding:1.5rem 1.2rem 4rem;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
h1{font-size:1.6rem;margin:0}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}p{margin:.3rem 0}
.soft{color:var(--soft)}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .9rem .25rem 0;text-align:left;border-bottom:1px solid var(--grid);vertical-align:top}
td.n,th.n{text-align:right}th{font-weight:600;color:var(--soft)}
.wide{overflow-x:auto}summary{cursor:pointer;color:var(--soft)}
svg{max-width:100%;height:auto}.wide svg{max-width:none}]]

-- ---- pieces of HTML -----------------------------------------------------------------------------

--- table_of(heads, rows, numeric) -> an HTML table. ARGS heads: array of texts, or nil; rows: arrays of texts; numeric:
--- the first column of numbers, which are aligned to the right.
local function table_of(heads, rows, numeric)
  local out = {}
  local function add(tag, cells)
    local list = {}
    for i, cell in ipairs(cells) do
      list[i] = svg.element(tag, i >= numeric and { class = "n" } or {}, svg.escape(cell))
    end
    out[#out + 1] = "<tr>" .. table.concat(list) .. "</tr>"
  end
  if heads then add("th", heads) end
  for _, row in ipairs(rows) do add("td", row) end
  return '<div class="wide"><table>' .. table.concat(out, "\n") .. "</table></div>"
end

local function section(title, ...)
  return ("<h2>%s</h2>\n%s"):format(svg.escape(title), table.concat({ ... }, "\n"))
end

local function folded(title, content)
  return ("<details><summary>%s</summary>%s</details>"):format(svg.escape(title), content)
end

local function number(x)
  if type(x) ~= "number" then return x == nil and "" or "…" end
  return ("%.5g"):format(x)
end

local function duration(seconds)
  if seconds < 60 then return ("%.3g s"):format(seconds) end
  if seconds < 3600 then return ("%d min %d s"):format(seconds / 60, seconds % 60) end
  return ("%d h %d min"):format(seconds / 3600, seconds % 3600 / 60)
end

-- ---- the parts of the page ----------------------------------------------------------------------

local function best(values, epochs, more)
  local at
  for i, x in ipairs(values) do
    local finite = type(x) == "number" and x - x == 0
    if finite and (not at or (more and x > values[at]) or (not more and x < values[at])) then at = i end
  end
  if not at then return "", "" end
  return number(values[at]), ("%d"):format(epochs[at])
end

local function results(history, each)
  local rows = {}
  for name, values in each(history.history) do
    local more = more_is_better(name)
    local value, epoch = "", ""
    if more ~= nil then value, epoch = best(values, history.epochs_of[name], more) end
    rows[#rows + 1] = { name, number(values[#values]), value, epoch }
  end
  return table_of({ "value", "last", "best", "in epoch" }, rows, 2)
end

-- RETURNS the epochs' values by name and epoch, and the names in order.
local function by_epoch(history, each)
  local found, names = {}, {}
  for name, values in each(history.history) do
    names[#names + 1], found[name] = name, {}
    for i, value in ipairs(values) do found[name][history.epochs_of[name][i]] = value end
  end
  return found, names
end

local function epochs(history, each)
  local found, names = by_epoch(history, each)
  local step, rows = math.ceil(#history.epoch / MOST_ROWS), {}
  for i, epoch in ipairs(history.epoch) do
    if (#history.epoch - i) % step == 0 then -- the last one is there
      local row = { ("%d"):format(epoch) }
      for k, name in ipairs(names) do row[k + 1] = number(found[name][epoch]) end
      row[#row + 1] = number(history.seconds[i])
      rows[#rows + 1] = row
    end
  end
  local heads = { "epoch", unpack(names) }
  heads[#heads + 1] = "seconds"
  return folded(step > 1 and ("every %dth epoch"):format(step) or "every epoch", table_of(heads, rows, 1))
end

local function timing(history)
  local times, total = {}, 0
  for i = 1, #history.epoch do
    times[#times + 1] = history.seconds[i]
    total = total + (history.seconds[i] or 0)
  end
  if #times == 0 then return "" end
  local panel = { title = "seconds per epoch", curves = { { label = "seconds", values = times, epochs = history.epoch,
    color = 3 } } }
  local sorted = { unpack(times, 1, math.min(#times, 7000)) }
  table.sort(sorted)
  local rows = { { "all epochs", duration(total) }, { "fastest epoch", duration(sorted[1]) },
    { "median epoch", duration(sorted[math.ceil(#sorted / 2)]) }, { "slowest epoch", duration(sorted[#sorted]) } }
  local samples = history.params and history.params.samples
  if samples and total > 0 then
    rows[#rows + 1] = { "training samples per second", summary.grouped(math.floor(samples * #times / total)) }
  end
  return section("Time", '<p class="soft">with validation and callbacks</p>', table_of(nil, rows, 2),
    plot.picture({ panel }, { styled = false }))
end

local function model_part(model)
  local rows = tables.model(model)
  local picture = #model.layers <= tables.MOST_LAYERS and folded("graph", ('<div class="wide">%s</div>'):format(
    model_picture.picture(model, { nested = true, styled = false }))) or ""
  return section("Model " .. model.name, table_of(rows.heads, rows, 4), picture)
end

-- ---- the page -----------------------------------------------------------------------------------

local PAGE = [[<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>%s</title>
<style>%s
%s</style></head>
<body>
%s
</body></html>]]

--- page(title, parts) -> an HTML page. ARGS title: text; parts: array of HTML.
function M.page(title, parts)
  return PAGE:format(svg.escape(title), svg.style ":root", STYLE, table.concat(parts, "\n"))
end

M.table_of = table_of

--- html(history, title) -> the page as text.
function M.html(history, title)
  local panels = plot.panels("history:report", history)
  local each = require "mgpu.train.logs".each
  local model, compiled = history.model, history.compiled
  title = title or ("Training of %s"):format(model and model.name or "a model")
  local parts = { ("<h1>%s</h1>"):format(svg.escape(title)),
    ('<p class="soft">%d epochs, %s, mgpulua %s</p>'):format(#history.epoch, os.date "%Y-%m-%d %H:%M", core.version),
    section("Results", results(history, each)),
    section("Curves", plot.picture(panels, { styled = false }), epochs(history, each)),
    timing(history) }
  local function add(text) parts[#parts + 1] = text end
  if model then add(model_part(model)) end
  if compiled then add(section("Compiled with", table_of(nil, tables.compiled(compiled), 3))) end
  add(section("Fitted with", table_of(nil, tables.fitted(history), 3)))
  add(section("Devices and versions", table_of(nil, tables.machine(compiled), 3)))
  return M.page(title, parts)
end

--- write(history, path, given): see History:report.
function M.write(history, path, given)
  local chosen = svg.check_file("history:report", path, ".html", REPORT, given)
  svg.write_file(path, M.html(history, chosen.title))
end

return M
