--- Slices of tensors in Lua's terms: positions from 1, both ends included, negative from the end.
--
-- slice(t, ranges): ranges has one entry for each axis: {first, last, step}, {} for all, or a number, which drops the
-- axis. Axes without an entry are taken whole. The op below wants positions from 0 and an excluded end.
-- Errors: positions out of range or 0; a step of 0; entries for axes that t lacks.
local core = require "mgpu.core"

local ops = core.ops

local function fail(message, ...) core.fail("usage", ("slice: " .. message):format(...)) end

-- The position i (1 .. size, or -1 .. -size from the end) as one from 1.
local function position(i, size, axis)
  if type(i) ~= "number" or i % 1 ~= 0 then
    fail("axis %d: positions are whole numbers, got %s", axis, tostring(i))
  end
  if i == 0 then fail("axis %d: positions count from 1, or from -1 at the end; got 0", axis) end
  local at = i < 0 and size + i + 1 or i
  if at < 1 or at > size then
    fail("axis %d has %d entries, there is no position %d", axis, size, i)
  end
  return at
end

-- The range of one axis as the op wants it: start and stop from 0, stop excluded, and the step. And its length.
local function range(r, size, axis)
  if type(r) ~= "table" then
    fail("axis %d: expected a number or {first, last, step}, got %s", axis, type(r))
  end
  for key in pairs(r) do
    if key ~= 1 and key ~= 2 and key ~= 3 then
      fail("axis %d: a range is {first, last, step}, but it has the key %s", axis, tostring(key))
    end
  end
  local step = r[3] or 1
  if type(step) ~= "number" or step % 1 ~= 0 or step == 0 then
    fail("axis %d: the step must be a whole number other than 0, got %s", axis, tostring(step))
  end
  if r[1] == nil and r[2] == nil and size == 0 then return 0, 0, 1, 0 end
  local up = step > 0
  local first = r[1] == nil and (up and 1 or size) or position(r[1], size, axis)
  local last = r[2] == nil and (up and size or 1) or position(r[2], size, axis)
  local n = math.max(0, math.floor((last - first) / step) + 1)
  local stop = up and math.max(last, first - 1) or math.min(last - 2, first - 1)
  return first - 1, stop, step, n
end

local function check_ranges(ranges, rank)
  if type(ranges) ~= "table" then
    fail("expected a table of ranges such as {{1, 10}, {}, 3}, got %s", type(ranges))
  end
  for axis in pairs(ranges) do
    if type(axis) ~= "number" or axis % 1 ~= 0 or axis < 1 or axis > rank then
      fail("no axis %s: the tensor has %d", tostring(axis), rank)
    end
  end
end

--- slice(t, ranges) -> the part of t.
return function(t, ranges)
  if type(t) == "table" then t = core.tensor(t) end
  local shape = core.methods.shape(t)
  check_ranges(ranges, #shape)
  local start, stop, step, kept = {}, {}, {}, {}
  for axis, size in ipairs(shape) do
    local r = ranges[axis]
    if type(r) == "number" then
      local at = position(r, size, axis)
      start[axis], stop[axis], step[axis] = at - 1, at, 1
    else
      local n
      start[axis], stop[axis], step[axis], n = range(r or {}, size, axis)
      kept[#kept + 1] = n
    end
  end
  local part = ops.slice(t, { start = start, stop = stop, step = step })
  if #kept == #shape then return part end
  return ops.reshape(part, { shape = kept })
end
