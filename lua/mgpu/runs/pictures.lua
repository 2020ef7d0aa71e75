--- Pictures of several runs: a chart for each metric, with a curve for each run, as SVG, HTML, or in the terminal.
local core = require "mgpu.core"
local plot = require "mgpu.plot.history"
local report = require "mgpu.plot.report"
local svg = require "mgpu.plot.svg"
local table_text = require "mgpu.runs.table"

local M = {}

local WIDTH, LINE = 840, 20 -- of the legend

-- The metrics of the runs that are numbers; or those that are wanted. Raises for one that no run has.
local function metrics_of(who, runs, wanted)
  local known, list = {}, {}
  for _, run in ipairs(runs) do
    for name, values in pairs(run.history) do
      if not known[name] and type(values[1]) == "number" then list[#list + 1] = name end
      known[name] = true
    end
  end
  table.sort(list)
  if #list == 0 then core.fail("usage", who .. ": the runs have no epoch whose values are numbers") end
  wanted = type(wanted) == "string" and { wanted } or wanted
  for _, name in ipairs(wanted or {}) do
    if not known[name] then
      core.fail("usage", ("%s: no run has a metric %q%s"):format(who, tostring(name),
        core.did_you_mean(tostring(name), list)))
    end
  end
  return wanted or list
end

-- Panels for plot.chart, with `colors` colors in turn; a run has the same color in all.
local function panels_of(who, runs, wanted, colors)
  local panels, first, last = {}, math.huge, -math.huge
  for i, name in ipairs(metrics_of(who, runs, wanted)) do
    local panel = { title = name, curves = {}, legend = false }
    for k, run in ipairs(runs) do
      local values = run.history[name]
      if values and type(values[1]) == "number" then
        local epochs = run.epochs_of[name]
        table.insert(panel.curves, { label = run.name, values = values, epochs = epochs,
          color = (k - 1) % colors + 1, dashed = math.floor((k - 1) / colors) % 2 == 1 })
        first, last = math.min(first, epochs[1]), math.max(last, epochs[#epochs])
      end
    end
    panels[i] = panel
  end
  return panels, first, last
end

-- A sample of a run's curve.
local function sample(i)
  local dashed = math.floor((i - 1) / svg.COLORS) % 2 == 1
  return svg.element("path", { class = ("curve s%d%s"):format((i - 1) % svg.COLORS + 1, dashed and " val" or ""),
    d = "M0 0h22" })
end

-- The charts, and below them a line for each run.
local function picture(panels, runs, given)
  local charts = plot.picture(panels, { title = given.title, scale = given.scale, styled = given.styled })
  if given.legend == false then return charts end
  local rows = {}
  for i, run in ipairs(runs) do
    rows[i] = svg.element("g", { transform = ("translate(16 %d)"):format(LINE * i) },
      sample(i) .. svg.text(30, 4, svg.shortened(run.name, 110), "soft"))
  end
  local wide, high = charts:match 'viewBox="0 0 (%d+) (%d+)"'
  local height = tonumber(high) + LINE * (#runs + 1)
  local inside = charts .. svg.element("g", { transform = ("translate(0 %s)"):format(high) }, table.concat(rows, "\n"))
  return svg.picture(math.max(tonumber(wide), math.min(WIDTH, 480)), height, inside, given.title or "Runs", false)
end

-- A table of the runs with the color of each.
local function html_table(runs)
  local options, rows = table_text.differing(runs), {}
  local heads = { "", "run", "state", "epochs" }
  local metrics = {}
  for _, run in ipairs(runs) do
    for name in pairs(run.best) do metrics[name] = true end
  end
  local names = {}
  for name in pairs(metrics) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do heads[#heads + 1] = "best " .. name end
  for _, name in ipairs(options) do heads[#heads + 1] = name end
  local function shown(value)
    return value == nil and "" or type(value) == "number" and ("%.5g"):format(value) or tostring(value)
  end
  for i, run in ipairs(runs) do
    local row = { ("@%d@"):format(i), run.name, run.state, ("%d"):format(run.epochs) }
    for _, name in ipairs(names) do row[#row + 1] = shown(run.best[name]) end
    for _, name in ipairs(options) do row[#row + 1] = shown(run.config[name]) end
    rows[i] = row
  end
  local text = report.table_of(heads, rows, 4)
  return (text:gsub("<td>@(%d+)@</td>", function(i)
    return "<td>" .. svg.element("svg", { width = 24, height = 12 }, svg.element("g", { transform = "translate(1 6)" },
      sample(tonumber(i)))) .. "</td>"
  end))
end

--- write(who, runs, path, {metrics =, scale =, title =}): an .svg picture, or an .html page with a table of the runs,
--- too. Errors: another ending; a metric that no run has; no run with an epoch; the disk.
function M.write(who, runs, path, chosen)
  local panels = panels_of(who, runs, chosen.metrics, svg.COLORS)
  local title = chosen.title or ("%d runs"):format(#runs)
  if path:lower():sub(-4) == ".svg" then
    svg.write_file(path, picture(panels, runs, { title = title, scale = chosen.scale }))
    return
  end
  svg.write_file(path, report.page(title, { "<h1>" .. svg.escape(title) .. "</h1>", html_table(runs),
    picture(panels, runs, { scale = chosen.scale, styled = false, legend = false }) }))
end

--- text(runs, chosen) -> charts for the terminal; chosen: the options of mgpu.show for what fit returns.
function M.text(runs, chosen)
  local chart = require "mgpu.show.chart"
  local panels, first, last = panels_of("show", runs, chosen.metrics, chart.COLORS)
  return chart.of_panels(panels, first, last, chosen)
end

return M
