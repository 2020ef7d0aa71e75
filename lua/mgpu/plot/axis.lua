--- Axes: from data to positions, and the ticks between.
--
-- An axis is {low, high, log = whether it is logarithmic, ticks = array of values, labels = array of texts}.
local M = {}

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

return M
