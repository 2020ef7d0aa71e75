--- Curves in the terminal: points of braille characters, 2 x 4 to a character, or of ASCII.
local plot = require "mgpu.plot.history"
local core = require "mgpu.core"
local terminal = require "mgpu.show.terminal"

local M = {}

local DOTS = { [0] = { [0] = 1, 8 }, { [0] = 2, 16 }, { [0] = 4, 32 }, { [0] = 64, 128 } } -- of a braille character
local MARKS = { "*", "o", "+", "x", "#", "%" } -- of training, validation, or runs, in ASCII
local COLORS = { "\27[34m", "\27[33m", "\27[32m", "\27[35m", "\27[36m", "\27[31m" } -- blue, yellow, green ...
local MOST_COLUMNS = 100

-- ---- a canvas -----------------------------------------------------------------------------------

-- A canvas of characters; each cell is {bits, color}. In ASCII a character is one point.
local function new_canvas(columns, rows, plain)
  return { columns = columns, rows = rows, plain = plain, cells = {}, wide = plain and columns or columns * 2,
    high = plain and rows or rows * 4 }
end

-- Sets the point x, y, from 0 at the top left.
local function set_point(canvas, x, y, color)
  if x < 0 or y < 0 or x >= canvas.wide or y >= canvas.high then return end
  local across, down = canvas.plain and 1 or 2, canvas.plain and 1 or 4
  local column, row = math.floor(x / across), math.floor(y / down)
  local key = row * canvas.columns + column
  local cell = canvas.cells[key] or { bits = 0 }
  local dot = DOTS[y % down][x % across]
  if math.floor(cell.bits / dot) % 2 == 0 then cell.bits = cell.bits + dot end
  cell.color = color
  canvas.cells[key] = cell
end

local function draw_line(canvas, x0, y0, x1, y1, color)
  local steps = math.max(math.abs(x1 - x0), math.abs(y1 - y0), 1)
  for i = 0, steps do
    set_point(canvas, math.floor(x0 + (x1 - x0) * i / steps + 0.5), math.floor(y0 + (y1 - y0) * i / steps + 0.5), color)
  end
end

-- The braille character of these dots: U+2800 and the bits, in UTF-8.
local function braille(bits) return string.char(0xE2, 0xA0 + math.floor(bits / 64), 0x80 + bits % 64) end

local function row_text(canvas, row)
  local out, color = {}, nil
  for column = 0, canvas.columns - 1 do
    local cell = canvas.cells[row * canvas.columns + column]
    if canvas.plain then
      out[#out + 1] = cell and MARKS[cell.color] or " "
    elseif cell then
      out[#out + 1] = (cell.color ~= color and COLORS[cell.color] or "") .. braille(cell.bits)
      color = cell.color
    else
      out[#out + 1] = " "
    end
  end
  return (table.concat(out):gsub("%s+$", "")) .. (color and "\27[0m" or "")
end

-- ---- a chart ------------------------------------------------------------------------------------

local function draw_curve(canvas, curve, x_axis, y_axis)
  local before
  for i, value in ipairs(curve.values) do
    local y, here = plot.position(y_axis, value), nil
    if y then
      here = { plot.position(x_axis, curve.epochs[i]) * (canvas.wide - 1), (1 - y) * (canvas.high - 1) }
      draw_line(canvas, before and before[1] or here[1], before and before[2] or here[2], here[1], here[2], curve.color)
    end
    before = here
  end
end

-- The label of the tick nearest to the row, if one is in it.
local function tick_label(y_axis, row, rows)
  for i, value in ipairs(y_axis.ticks) do
    local place = (1 - plot.position(y_axis, value)) * (rows - 1)
    if math.floor(place + 0.5) == row then return y_axis.labels[i] end
  end
  return ""
end

local function legend(curves, plain)
  if #curves == 1 and not curves[1].dashed then return "" end
  local parts = {}
  for i, curve in ipairs(curves) do
    local label = core.printable(curve.label, true)
    parts[i] = plain and MARKS[curve.color] .. " " .. label or COLORS[curve.color] .. "──\27[0m " .. label
  end
  return "   " .. table.concat(parts, "  ")
end

-- The ticks below the chart, each centered at its place where there is room.
local function x_labels(x_axis, columns)
  local line, room = "", 0
  for i, value in ipairs(x_axis.ticks) do
    local label = x_axis.labels[i]
    local at = math.floor(plot.position(x_axis, value) * (columns - 1) + 0.5) - math.floor(#label / 2)
    at = math.max(0, math.min(at, columns - #label))
    if at >= room then
      line = line .. (" "):rep(at - #line) .. label
      room = #line + 1
    end
  end
  return line
end

-- ARGS panel: as in plot/history.lua; x_axis; chosen: width and height in characters.
local function chart_text(panel, x_axis, chosen)
  local plain, lists, margin = terminal.is_plain(), {}, 0
  for i, curve in ipairs(panel.curves) do lists[i] = curve.values end
  local y_axis = plot.values(lists, chosen.scale, math.max(2, math.floor(chosen.height / 3)))
  for _, label in ipairs(y_axis.labels) do margin = math.max(margin, #label) end
  local width = chosen.width or math.min(terminal.size() - 1, MOST_COLUMNS)
  local canvas = new_canvas(math.max(4, width - margin - 2), chosen.height, plain)
  for _, curve in ipairs(panel.curves) do draw_curve(canvas, curve, x_axis, y_axis) end
  local title = core.printable(panel.title, true)
  local lines = { title .. (y_axis.log and " (log scale)" or "") .. legend(panel.curves, plain) }
  for row = 0, chosen.height - 1 do
    local label = tick_label(y_axis, row, chosen.height)
    local line = ("%" .. margin .. "s %s%s"):format(label, plain and "|" or label ~= "" and "┤" or "│",
      row_text(canvas, row))
    lines[#lines + 1] = line
  end
  lines[#lines + 1] = (" "):rep(margin + 1) .. (plain and "+" or "└") .. (plain and "-" or "─"):rep(canvas.columns)
  lines[#lines + 1] = (" "):rep(margin + 2) .. x_labels(x_axis, canvas.columns)
  return table.concat(lines, "\n") .. "\n"
end

--- of_history(history, chosen) -> the charts of what fit returned, one below the other.
function M.of_history(history, chosen)
  local out, last = {}, history.epoch[#history.epoch]
  for i, panel in ipairs(plot.panels("show", history, chosen.metrics)) do
    out[i] = chart_text(panel, plot.epochs(history.epoch[1], last), chosen)
  end
  return table.concat(out, "\n")
end

M.COLORS = #COLORS -- how many colors curves can have

--- of_panels(panels, first, last, chosen) -> charts over the epochs from first to last. panels: as in plot/history.lua.
function M.of_panels(panels, first, last, chosen)
  local out = {}
  for i, panel in ipairs(panels) do out[i] = chart_text(panel, plot.epochs(first, last), chosen) end
  return table.concat(out, "\n")
end

--- of_numbers(tensor, chosen) -> a chart of the numbers of a tensor {n}, from 1 to n.
function M.of_numbers(x, chosen)
  local n, values, places = x:count(), x:to("float64"):totable(), {}
  if n == 0 then core.fail("usage", "show: the tensor has no numbers") end
  for i = 1, n do places[i] = i end
  local curve = { values = values, epochs = places, color = 1 }
  return chart_text({ title = ("{%d} %s"):format(n, x:dtype()), curves = { curve } }, plot.epochs(1, n), chosen)
end

return M
