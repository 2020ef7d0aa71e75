--- The curves of a training run: a chart for each value, with training and validation in it.
--
-- Values that are not finite leave a gap. A curve with more points than the picture has columns is thinned: of each
-- column the first, lowest, highest and last point are drawn, which looks the same.
local axis = require "mgpu.plot.axis"
local svg = require "mgpu.plot.svg"

local M = {}

local WIDTH, HEIGHT = 440, 300 -- of a chart
local LEFT, RIGHT, TOP, BOTTOM = 70, 28, 56, 40
local INNER_WIDTH, INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
local MOST_DOTS = 40 -- curves with at most this many points show each point

-- ---- points -------------------------------------------------------------------------------------

-- The parts of a curve without gaps: arrays of {x, y} in the picture.
local function parts_of(curve, x_axis, y_axis)
  local parts, part = {}, nil
  for i, value in ipairs(curve.values) do
    local y = axis.position(y_axis, value)
    if y then
      if not part then
        part = {}
        parts[#parts + 1] = part
      end
      part[#part + 1] = { LEFT + axis.position(x_axis, curve.epochs[i]) * INNER_WIDTH, TOP + (1 - y) * INNER_HEIGHT }
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

local function draw_axes(x_axis, y_axis, out)
  local bottom, right = TOP + INNER_HEIGHT, LEFT + INNER_WIDTH
  for i, value in ipairs(y_axis.ticks) do
    local y = bottom - axis.position(y_axis, value) * INNER_HEIGHT
    out[#out + 1] = svg.element("path", { class = "grid", d = ("M%d %sH%d"):format(LEFT, svg.number(y), right) })
    out[#out + 1] = svg.text(LEFT - 8, y + 4, y_axis.labels[i], "soft ytick", "end")
  end
  for i, value in ipairs(x_axis.ticks) do
    local x = LEFT + axis.position(x_axis, value) * INNER_WIDTH
    out[#out + 1] = svg.element("path", { class = "axis", d = ("M%s %dv4"):format(svg.number(x), bottom) })
    out[#out + 1] = svg.text(x, bottom + 17, x_axis.labels[i], "soft xtick", "middle")
  end
  out[#out + 1] = svg.element("path", { class = "axis", d = ("M%d %dV%dH%d"):format(LEFT, TOP, bottom, right) })
  out[#out + 1] = svg.text(LEFT + INNER_WIDTH / 2, HEIGHT - 7, "epoch", "soft", "middle")
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
-- ARGS panel: {title =, curves = {{label =, epochs =, values =, color =, dashed =}, ...}}.
function M.chart(panel, scale)
  local lists, first, last = {}, math.huge, -math.huge
  for i, curve in ipairs(panel.curves) do
    lists[i] = curve.values
    for k = 1, #curve.values do
      first, last = math.min(first, curve.epochs[k]), math.max(last, curve.epochs[k])
    end
  end
  if first > last then first, last = 1, 1 end
  local x_axis, y_axis, out = axis.epochs(first, last), axis.values(lists, scale), {}
  local title = y_axis.log and svg.shortened(panel.title, 30) .. " (log scale)" or svg.shortened(panel.title, 42)
  out[1] = svg.text(LEFT, 20, title, "title")
  draw_axes(x_axis, y_axis, out)
  for _, curve in ipairs(panel.curves) do draw_curve(curve, x_axis, y_axis, out) end
  draw_legend(panel.curves, out)
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

--- panels(history, each, wanted = all) -> an array of panels for chart, in the order of the values; each val_NAME is in
--- the panel of NAME.
-- ARGS each: logs.each; wanted: array of names. Where NAME is wanted, val_NAME is, too.
function M.panels(history, each, wanted)
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

return M
