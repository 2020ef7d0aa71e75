--- history:plot: the curves of a run as a picture, and their ticks.
local core = require "mgpu.core"
local options = require "mgpu.options"
local svg = require "mgpu.plot.svg"

local M = {}

-- ---- axes ---------------------------------------------------------------------------------------

-- Axes: from data to positions, and the ticks between.
--
-- An axis is {low, high, log = whether it is logarithmic, ticks = array of values, labels = array of texts}.

local WIDE = 100 -- positive values whose largest is this many times the smallest get a logarithmic axis

local LARGEST = 8e307 -- so that the difference of two numbers is finite, too

-- Whether the number can be shown.
local function finite(x) return x == x and math.abs(x) <= LARGEST end

-- The step 1, 2 or 5 times a power of ten that gives about n steps over the range.
local function nice_step(range, n)
  local rough = range / n
  local power = 10 ^ math.floor(math.log10(rough))
  local digit = rough / power
  return (digit < 1.5 and 1 or digit < 3.5 and 2 or digit < 7.5 and 5 or 10) * power
end

--- label(x, step) -> the text of a tick: as many digits as the step between ticks needs.
function M.label(x, step)
  local size = math.max(math.abs(x), step)
  if size >= 1e6 or size < 1e-4 then
    if x == 0 then return "0" end
    local digits = math.max(0, math.floor(math.log10(math.abs(x)) + 1e-9) - math.floor(math.log10(step) + 1e-9))
    return (("%%.%de"):format(math.min(digits, 15)):format(x):gsub("e%+?(%-?)0*(%d)", "e%1%2"))
  end
  local digits = math.max(0, -math.floor(math.log10(step) + 1e-9))
  return ("%%.%df"):format(math.min(digits, 15)):format(x == 0 and 0 or x)
end

local function linear(low, high, n, whole)
  if low == high then
    local margin = whole and 1 or low ~= 0 and math.abs(low) * 0.1 or 1
    low, high = low - margin, high + margin
  end
  local step = nice_step(high - low, n)
  if whole then step = math.max(1, step) end
  local axis = { low = low, high = high, log = false, ticks = {}, labels = {} }
  for i = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6) do
    axis.ticks[#axis.ticks + 1] = i * step
    axis.labels[#axis.labels + 1] = M.label(i * step, step)
  end
  return axis
end

-- Over many decades every k-th power of ten, over few also 2 and 5 times the powers; where that gives fewer than two
-- ticks, the ticks of a linear axis.
local function logarithmic(low, high, n)
  local first, last = math.log10(low), math.log10(high)
  local every = math.max(1, math.ceil((last - first) / n))
  local digits = last - first < 3 and { 1, 2, 5 } or { 1 }
  local axis = { low = low, high = high, log = true, ticks = {}, labels = {} }
  for power = math.floor(first), math.ceil(last) do
    for _, digit in ipairs(power % every == 0 and digits or {}) do
      local value = digit * 10 ^ power
      if value >= low * (1 - 1e-9) and value <= high * (1 + 1e-9) then
        axis.ticks[#axis.ticks + 1] = value
        axis.labels[#axis.labels + 1] = M.label(value, 10 ^ power)
      end
    end
  end
  if #axis.ticks < 2 then
    local even = linear(low, high, n)
    axis.ticks, axis.labels = even.ticks, even.labels
  end
  return axis
end

--- values(lists, scale = "auto", n = 6) -> an axis for the finite numbers of the lists, with some room at both ends.
--- scale: "linear", "log" (of the positive numbers), or "auto": logarithmic where all are positive and span decades.
function M.values(lists, scale, n)
  local low, high, positive = math.huge, -math.huge, math.huge
  for _, list in ipairs(lists) do
    for _, x in ipairs(list) do
      if finite(x) then
        low, high = math.min(low, x), math.max(high, x)
        if x > 0 then positive = math.min(positive, x) end
      end
    end
  end
  if low > high then low, high = 0, 1 end
  local wanted = scale == "log" or (scale ~= "linear" and low > 0 and high / low >= WIDE)
  if wanted and positive < math.huge and high > positive then
    local room = (high / positive) ^ 0.04
    return logarithmic(math.max(positive / room, 1e-307), math.min(high * room, LARGEST), n or 6)
  end
  local room = (high - low) * 0.04
  return linear(math.max(low - room, -LARGEST), math.min(high + room, LARGEST), n or 6)
end

--- epochs(first, last) -> an axis of whole numbers.
function M.epochs(first, last)
  local axis = linear(first, last, 6, true)
  if first == last then axis.ticks, axis.labels = { first }, { M.label(first, 1) } end
  return axis
end

--- position(axis, x) -> where x lies, from 0 (low) to 1 (high); nil for a number that the axis cannot show.
function M.position(axis, x)
  if not finite(x) or (axis.log and x <= 0) then return nil end
  if axis.log then
    return (math.log10(x) - math.log10(axis.low)) / (math.log10(axis.high) - math.log10(axis.low))
  end
  return (x - axis.low) / (axis.high - axis.low)
end

-- ---- curves -------------------------------------------------------------------------------------

-- The curves of a training run: a chart for each value, with training and validation in it.
--
-- Values that are not finite leave a gap. A curve with more points than the picture has columns is thinned: of each
-- column the first, lowest, highest and last point are drawn, which looks the same.

local WIDTH, HEIGHT = 440, 300 -- of a chart
local LEFT, RIGHT, TOP, BOTTOM = 70, 28, 56, 40
local INNER_WIDTH, INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
local MOST_DOTS = 40 -- curves with at most this many points show each point

-- ---- points -------------------------------------------------------------------------------------

-- The parts of a curve without gaps: arrays of {x, y} in the picture.
local function parts_of(curve, x_axis, y_axis)
  local parts, part = {}, nil
  for i, value in ipairs(curve.values) do
    local y = M.position(y_axis, value)
    if y then
      if not part then
        part = {}
        parts[#parts + 1] = part
      end
      part[#part + 1] = { LEFT + M.position(x_axis, curve.epochs[i]) * INNER_WIDTH, TOP + (1 - y) * INNER_HEIGHT }
    else
      part = nil
    end
  end
  return parts
end

-- The points that are drawn for all points of one column, in their order.
local function of_column(points, first, last)
  local low, high = first, first
  for i = first, last do
    if points[i][2] < points[low][2] then low = i end
    if points[i][2] > points[high][2] then high = i end
  end
  local list, seen = {}, {}
  for _, i in ipairs { first, math.min(low, high), math.max(low, high), last } do
    if not seen[i] then list[#list + 1] = points[i] end
    seen[i] = true
  end
  return list
end

-- The points, thinned if there are many.
local function thinned(points)
  if #points <= 4 * INNER_WIDTH then return points end
  local list, first = {}, 1
  for i = 1, #points do
    if i == #points or math.floor(points[i + 1][1]) ~= math.floor(points[first][1]) then
      for _, point in ipairs(of_column(points, first, i)) do list[#list + 1] = point end
      first = i + 1
    end
  end
  return list
end

-- ---- a chart ------------------------------------------------------------------------------------

local function draw_axes(x_axis, y_axis, x_label, out)
  local bottom, right = TOP + INNER_HEIGHT, LEFT + INNER_WIDTH
  for i, value in ipairs(y_axis.ticks) do
    local y = bottom - M.position(y_axis, value) * INNER_HEIGHT
    out[#out + 1] = svg.element("path", { class = "grid", d = ("M%d %sH%d"):format(LEFT, svg.number(y), right) })
    out[#out + 1] = svg.text(LEFT - 8, y + 4, y_axis.labels[i], "soft ytick", "end")
  end
  for i, value in ipairs(x_axis.ticks) do
    local x = LEFT + M.position(x_axis, value) * INNER_WIDTH
    out[#out + 1] = svg.element("path", { class = "axis", d = ("M%s %dv4"):format(svg.number(x), bottom) })
    out[#out + 1] = svg.text(x, bottom + 17, x_axis.labels[i], "soft xtick", "middle")
  end
  out[#out + 1] = svg.element("path", { class = "axis", d = ("M%d %dV%dH%d"):format(LEFT, TOP, bottom, right) })
  out[#out + 1] = svg.text(LEFT + INNER_WIDTH / 2, HEIGHT - 7, x_label or "epoch", "soft", "middle")
end

local function draw_curve(curve, x_axis, y_axis, out)
  local path, dots, style = {}, {}, ("s%d%s"):format(curve.color, curve.dashed and " val" or "")
  for _, part in ipairs(parts_of(curve, x_axis, y_axis)) do
    for i, p in ipairs(thinned(part)) do
      path[#path + 1] = ("%s%s %s"):format(i == 1 and "M" or "L", svg.number(p[1]), svg.number(p[2]))
      if #part == 1 or #curve.values <= MOST_DOTS then
        dots[#dots + 1] = svg.element("circle", { cx = p[1], cy = p[2], r = 2.6, class = "f" .. curve.color })
      end
    end
  end
  if #path > 0 then out[#out + 1] = svg.element("path", { class = "curve " .. style, d = table.concat(path) }) end
  out[#out + 1] = table.concat(dots)
end

local function draw_legend(curves, out)
  if #curves == 1 and not curves[1].dashed then return end
  local x = LEFT
  for _, curve in ipairs(curves) do
    local style = ("curve s%d%s"):format(curve.color, curve.dashed and " val" or "")
    out[#out + 1] = svg.element("path", { class = style, d = ("M%s 40h22"):format(svg.number(x)) })
    out[#out + 1] = svg.text(x + 28, 44, curve.label, "soft")
    x = x + 28 + 6.6 * #curve.label + 16
  end
end

--- chart(panel, scale) -> the elements of a chart of WIDTH x HEIGHT.
-- ARGS panel: {title =, x_label = "epoch", curves = {{label =, epochs =, values =, color =, dashed =}, ...},
--   legend = true}.
function M.chart(panel, scale)
  local lists, first, last = {}, math.huge, -math.huge
  for i, curve in ipairs(panel.curves) do
    lists[i] = curve.values
    for k = 1, #curve.values do
      first, last = math.min(first, curve.epochs[k]), math.max(last, curve.epochs[k])
    end
  end
  if first > last then first, last = 1, 1 end
  local x_axis, y_axis, out = M.epochs(first, last), M.values(lists, scale), {}
  local title = y_axis.log and svg.shortened(panel.title, 30) .. " (log scale)" or svg.shortened(panel.title, 42)
  out[1] = svg.text(LEFT, 20, title, "title")
  draw_axes(x_axis, y_axis, panel.x_label, out)
  for _, curve in ipairs(panel.curves) do draw_curve(curve, x_axis, y_axis, out) end
  if panel.legend ~= false then draw_legend(panel.curves, out) end
  return table.concat(out, "\n")
end

-- ---- a history ----------------------------------------------------------------------------------

-- The epochs of the values of `name`, which may be fewer than all (validation_freq).
local function epochs_of(history, name, values)
  local list = history.epochs_of and history.epochs_of[name]
  if list and #list == #values then return list end
  list = {}
  for i = 1, #values do list[i] = history.epoch[#history.epoch - #values + i] or i end
  return list
end

-- Whether the values can be drawn: numbers.
local function is_curve(values)
  for _, value in ipairs(values) do
    if type(value) ~= "number" then return false end
  end
  return #values > 0
end

-- panels_of(history, each, wanted = all) -> an array of panels for chart, in the order of the values; each
-- val_NAME is in the panel of NAME.
-- ARGS each: logs.each; wanted: array of names. Where NAME is wanted, val_NAME is, too.
local function panels_of(history, each, wanted)
  local by_name, list, shown = {}, {}, nil
  for _, name in ipairs(wanted or {}) do
    shown = shown or {}
    shown[name] = true
  end
  for name, values in each(history.history) do
    local base = name:match "^val_(.+)$" or name
    if is_curve(values) and (not shown or shown[base] or shown[name]) then
      local panel = by_name[base]
      if not panel then
        panel = { title = base, curves = {} }
        by_name[base], list[#list + 1] = panel, panel
      end
      local validation = name ~= base
      table.insert(panel.curves, { label = validation and "validation" or "training", values = values,
        epochs = epochs_of(history, name, values), color = validation and 2 or 1, dashed = validation })
    end
  end
  return list
end

--- picture(panels, {title =, scale =, styled =}) -> an <svg> element with the charts in two columns.
function M.picture(panels, given)
  local columns = math.min(2, #panels)
  local top = given.title and 36 or 0
  local out = {}
  if given.title then out[1] = svg.text(16, 26, svg.shortened(given.title, 50 * columns), "title") end
  for i, panel in ipairs(panels) do
    local x, y = (i - 1) % columns * WIDTH, top + math.floor((i - 1) / columns) * HEIGHT
    out[#out + 1] = svg.element("g", { transform = ("translate(%d %d)"):format(x, y) }, M.chart(panel, given.scale))
  end
  local rows = math.ceil(#panels / columns)
  return svg.picture(columns * WIDTH, top + rows * HEIGHT, table.concat(out, "\n"), given.title or "Training curves",
    given.styled)
end

-- ---- history:plot -------------------------------------------------------------------------------

local PLOT = options.declare {
  { "metrics", "string|table" },
  { "scale", "string", default = "auto", values = { "auto", "linear", "log" } },
  { "title", "string" },
}

-- The names to show, or nil for all. Raises for a name that the history does not have.
local function check_names(history, each, wanted)
  if wanted == nil then return nil end
  local names, known = type(wanted) == "table" and wanted or { wanted }, {}
  for name in each(history.history) do known[#known + 1] = name end
  for i, name in ipairs(names) do
    if type(name) ~= "string" or not history.history[name] then
      core.fail("usage", ("history:plot: option \"metrics\": no value is called %q%s; there are %s"):format(
        tostring(name), core.did_you_mean(tostring(name), known), table.concat(known, ", ")))
    end
    for _, other in ipairs(known) do -- acc and accuracy are one
      if history.history[other] == history.history[name] then names[i] = other end
    end
  end
  return names
end

--- panels(who, history, metrics = all) -> an array of panels, as panels_of returns. Errors: no epoch; an unknown name.
function M.panels(who, history, metrics)
  local each = require "mgpu.train.logs".each
  if not history.epoch or #history.epoch == 0 then
    core.fail("usage", who .. ": the history has no epoch")
  end
  local names = metrics and check_names(history, each, metrics)
  local list = panels_of(history, each, names)
  if #list == 0 then core.fail("usage", who .. ": no value is a number for each epoch") end
  return list
end

--- plot(history, path, given): see History:plot.
function M.plot(history, path, given)
  local chosen = svg.check_file("history:plot", path, ".svg", PLOT, given)
  local panels = M.panels("history:plot", history, chosen.metrics)
  svg.write_file(path, M.picture(panels, { title = chosen.title, scale = chosen.scale }))
end

return M
