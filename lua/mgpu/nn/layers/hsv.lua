--- Colors as red, green and blue, and as hue, saturation and value, by TensorFlow's formulas.
local core = require "mgpu.core"

local ops = core.ops
local M = {}

-- The three channels of x {batch, rows, columns, 3}, each {batch, rows, columns, 1}.
local function channels(x)
  local shape, list = x:shape(), {}
  for i = 1, 3 do
    list[i] = ops.slice(x, { start = { 0, 0, 0, i - 1 }, stop = { shape[1], shape[2], shape[3], i } })
  end
  return unpack(list)
end

--- planes(rgb) -> hue, saturation (both 0 to 1) and value (the largest of the three), {batch, rows, columns, 1} each,
--- of rgb {batch, rows, columns, 3}.
function M.planes(rgb)
  local r, g, b = channels(rgb)
  local value = r:maximum(g):maximum(b)
  local range = value - r:minimum(g):minimum(b)
  local saturation = ops.where(ops.gt(value, 0), range / ops.where(ops.gt(value, 0), value, 1), 0)
  local colored = ops.gt(range, 0)
  local norm = 1 / (6 * ops.where(colored, range, 1))
  local hue = ops.where(ops.eq(r, value), norm * (g - b),
    ops.where(ops.eq(g, value), norm * (b - r) + 2 / 6, norm * (r - g) + 4 / 6))
  hue = ops.where(colored, hue, 0)
  return ops.where(ops.lt(hue, 0), hue + 1, hue), saturation, value
end

--- rgb(hue, saturation, value) -> {batch, rows, columns, 3}; the inverse of planes.
function M.rgb(hue, saturation, value)
  local turn, gray = hue * 6, 1 - saturation
  local function channel(share) return (gray + saturation * share:clip(0, 1)) * value end
  return ops.concat({ channel((turn - 3):abs() - 1), channel(2 - (turn - 2):abs()), channel(2 - (turn - 4):abs()) },
    { axis = 4 })
end

return M
