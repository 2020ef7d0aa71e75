--- Operations of keras.ops that move elements and compute nothing; see init.lua.
local arguments = require "mgpu.tensor.arguments"
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"

local ops = core.ops

local M = {}

-- ---- shapes -------------------------------------------------------------------------------------

-- The output's shape where sizes of the input may be unknown: the size -1 is what is left of the others, if these are
-- known.
local function reshaped(x, shape)
  local out, known, rest, open = {}, 1, 1, nil
  for _, size in ipairs(x) do
    if size == -1 then known = nil end
    known = known and known * size
  end
  for i, size in ipairs(shape) do
    out[i] = size
    if size == -1 then open = open and 0 or i else rest = rest * size end
  end
  if known and open and open > 0 and rest > 0 and known % rest == 0 then out[open] = known / rest end
  if known and not open and known ~= rest then return nil end
  return open ~= 0 and out or nil
end

M.Reshape = { "x | newshape", function(x, shape) return ops.reshape(x, { shape = shape }) end,
  shape = function(shapes, given)
    return reshaped(shapes[1], given) or core.fail("usage", ("%d axes cannot become %d of these sizes")
      :format(#shapes[1], #given))
  end }

M.BroadcastTo = { "x | shape", function(x, shape) return ops.broadcast_to(x, { shape = shape }) end,
  shape = function(_, given) return given end }

M.Ravel = { "x", function(x) return ops.reshape(x, { shape = { -1 } }) end }
M.Squeeze = { "x | axis?", function(x, axis) return composite.squeeze(x, { axis = axis }) end }

-- Several axes are positions of the result.
M.ExpandDims = { "x | axis", function(x, axis)
  local list, rank = {}, x:rank() + (type(axis) == "table" and #axis or 1)
  for i, a in ipairs(type(axis) == "table" and axis or { axis }) do
    list[i] = arguments.axis_at("expand_dims", a, rank)
  end
  table.sort(list)
  for _, at in ipairs(list) do x = composite.expand_dims(x, { axis = at }) end
  return x
end }

-- ---- axes in another order ----------------------------------------------------------------------

M.Transpose = { "x | axes?", function(x, order) return composite.transpose(x, { order = order }) end }

local function swapped(x, a, b)
  local order, rank = {}, x:rank()
  for i = 1, rank do order[i] = i end
  local i, j = arguments.axis_at("swapaxes", a, rank), arguments.axis_at("swapaxes", b, rank)
  order[i], order[j] = j, i
  return ops.permute(x, { order = order })
end
M.Swapaxes = { "x | axis1 axis2", swapped }

M.Moveaxis = { "x | source destination", function(x, source, destination)
  local from = type(source) == "table" and source or { source }
  local to = type(destination) == "table" and destination or { destination }
  local rank, order, taken = x:rank(), {}, {}
  for i, axis in ipairs(from) do
    local at = arguments.axis_at("moveaxis", axis, rank)
    order[arguments.axis_at("moveaxis", to[i], rank)], taken[at] = at, true
  end
  local next_axis = 1
  for i = 1, rank do
    if not order[i] then
      while taken[next_axis] do next_axis = next_axis + 1 end
      order[i], taken[next_axis] = next_axis, true
    end
  end
  return ops.permute(x, { order = order })
end }

M.Flip = { "x | axis?", function(x, axis) return composite.flip(x, { axis = axis }) end }
M.Fliplr = { "x", function(x) return composite.flip(x, { axis = 2 }) end }
M.Flipud = { "x", function(x) return composite.flip(x, { axis = 1 }) end }
M.Roll = { "x | shift axis?", function(x, shift, axis) return composite.roll(x, { shift = shift, axis = axis }) end }

M.Rot90 = { "array | k? axes?", function(x, k, axes)
  if axes and (type(axes) ~= "table" or #axes ~= 2) then arguments.fail "rot90: axes must be two axes" end
  local a, b = unpack(axes or { 1, 2 })
  k = (k or 1) % 4
  if k == 0 then return x end
  if k == 2 then return composite.flip(x, { axis = { a, b } }) end
  if k == 1 then return swapped(composite.flip(x, { axis = b }), a, b) end
  return composite.flip(swapped(x, a, b), { axis = b })
end }

-- ---- joined and cut -----------------------------------------------------------------------------

M.Concatenate = { "xs | axis?", function(xs, axis) return composite.concat(xs, { axis = axis or 1 }) end }
M.Stack = { "x:tensors | axis?", function(xs, axis) return composite.stack(xs, { axis = axis or 1 }) end }
M.Append = { "x1 x2 | axis?", function(a, b, axis)
  if axis then return composite.concat({ a, b }, { axis = axis }) end
  return composite.concat { composite.flatten(a), composite.flatten(b) }
end }
M.Dstack = { "xs", function(xs)
  for i, x in ipairs(xs) do
    local s = x:shape()
    if #s < 3 then xs[i] = ops.reshape(x, { shape = #s == 2 and { s[1], s[2], 1 } or { 1, s[1] or 1, 1 } }) end
  end
  return composite.concat(xs, { axis = 3 })
end }
M.Hstack = { "xs", function(xs) return composite.concat(xs, { axis = xs[1]:rank() == 1 and 1 or 2 }) end }
M.Vstack = { "xs", function(xs)
  if xs[1]:rank() == 1 then return composite.stack(xs) end
  return composite.concat(xs, { axis = 1 })
end }

local MOST_PARTS = 4096
local MOST_LISTED = 2 ^ 20 -- positions of elements that are listed one by one

-- The parts of x that end before each of the positions, which count from 0, and the rest.
local function cut(x, positions, at)
  local size, ranges, parts, first = x:shape()[at], {}, {}, 0
  for i = 1, x:rank() do ranges[i] = {} end
  for i = 1, #positions + 1 do
    local last = positions[i] or size
    if last < 0 then last = last + size end
    last = math.max(first, math.min(last, size))
    if last == first then -- an empty part
      local shape = x:shape()
      shape[at] = 0
      parts[i] = ops.full(shape, 0, x:dtype())
    else
      ranges[at] = { first + 1, last }
      parts[i] = composite.slice(x, ranges)
    end
    first = last
  end
  return parts
end

local function split(x, sections, axis)
  local at = arguments.axis_at("split", axis or 1, x:rank())
  if type(sections) == "table" then
    for _, position in ipairs(sections) do arguments.whole("split", "a position", position, -math.huge) end
    return cut(x, sections, at)
  end
  arguments.whole("split", "the number of parts", sections, 1)
  if sections > MOST_PARTS then arguments.fail("split: %d parts are more than %d", sections, MOST_PARTS) end
  return composite.split(x, { n = sections, axis = at })
end
M.Split = { "x | indices_or_sections axis?", split }
M.Hsplit = { "x | indices_or_sections", function(x, n) return split(x, n, x:rank() == 1 and 1 or 2) end }
M.Vsplit = { "x | indices_or_sections", function(x, n) return split(x, n, 1) end }

-- As Split, but the first parts may be one longer.
M.ArraySplit = { "x | indices_or_sections axis?", function(x, sections, axis)
  if type(sections) == "table" then return split(x, sections, axis) end
  local at = arguments.axis_at("array_split", axis or 1, x:rank())
  arguments.whole("array_split", "the number of parts", sections, 1)
  if sections > MOST_PARTS then arguments.fail("array_split: %d parts are more than %d", sections, MOST_PARTS) end
  local size, positions, position = x:shape()[at], {}, 0
  for i = 1, sections - 1 do
    position = position + math.floor(size / sections) + (i <= size % sections and 1 or 0)
    positions[i] = position
  end
  return cut(x, positions, at)
end }

-- ---- repeated and padded ------------------------------------------------------------------------

M.Tile = { "x | repeats", function(x, repeats) return composite.tile(x, { repeats = repeats }) end }
M.Repeat = { "x | repeats axis?", function(x, repeats, axis)
  if type(repeats) == "table" and #repeats == 1 then repeats = repeats[1] end
  local sum = 0
  for _, n in ipairs(type(repeats) == "table" and repeats or {}) do
    sum = sum + arguments.whole("repeat", "each of repeats", n, 0)
  end
  if sum > MOST_LISTED then arguments.fail("repeat: %.0f elements are too many for a list of repeats", sum) end
  return composite.repeat_elements(x, { repeats = repeats, axis = axis })
end }

-- {before, after} of each axis from n, {before, after} for all axes, or one pair for each.
local function pad_widths(width, rank)
  local list = {}
  local pairs_given = type(width) == "table" and type(width[1]) == "table" and #width or 1
  if pairs_given ~= 1 and pairs_given ~= rank then
    arguments.fail("pad: %d pairs of widths for %d axes", pairs_given, rank)
  end
  for i = 1, rank do
    local pair = type(width) ~= "table" and { width } or type(width[1]) ~= "table" and width or width[i] or width[1]
    if type(pair) ~= "table" then arguments.fail "pad: the widths must be numbers, or a pair for each axis" end
    local after = pair[2] or pair[1]
    list[i] = { arguments.whole("pad", "a width", pair[1], 0), arguments.whole("pad", "a width", after, 0) }
  end
  return list
end

-- x with `before` and `after` elements of itself along an axis: mirrored about the edge (offset 1: without the edge
-- itself), or with the edge repeated.
local function padded_by_itself(x, at, before, after, mode)
  local size, ids = x:shape()[at], {}
  local offset = mode == "reflect" and 1 or 0
  if mode ~= "edge" and math.max(before, after) > size - offset then
    arguments.fail("pad: %d elements cannot be mirrored %d times", size, math.max(before, after))
  end
  for i = -before, size + after - 1 do
    local from = i
    if i < 0 then from = mode == "edge" and 0 or -i - 1 + offset end
    if i >= size then from = mode == "edge" and size - 1 or 2 * size - 1 - i - offset end
    ids[#ids + 1] = from
  end
  return ops.gather(x, core.tensor(ids, { dtype = "int32", device = x:device() }), { axis = at })
end

M.Pad = { "x constant_values? | pad_width mode?", function(x, value, width, mode)
  mode = (mode or "constant"):lower()
  local widths, before, after = pad_widths(width, x:rank()), {}, {}
  for i, pair in ipairs(widths) do before[i], after[i] = pair[1], pair[2] end
  if mode == "constant" then
    if value ~= nil and type(value) ~= "number" then arguments.fail "pad: constant_values must be a number" end
    return ops.pad(x, { before = before, after = after, value = value or 0 })
  end
  if mode ~= "reflect" and mode ~= "symmetric" and mode ~= "edge" then
    arguments.fail("pad: the mode %q is not supported", mode)
  end
  for i, pair in ipairs(widths) do
    if pair[1] + pair[2] > MOST_LISTED then arguments.fail("pad: a width of %d is too large", pair[1] + pair[2]) end
    if pair[1] + pair[2] > 0 then x = padded_by_itself(x, i, pair[1], pair[2], mode) end
  end
  return x
end }

-- ---- of the same shape --------------------------------------------------------------------------

local function like(value)
  return { "x | dtype?", function(x, dtype) return ops.full(x:shape(), value, dtype or x:dtype()) end }
end
M.ZerosLike, M.EmptyLike, M.OnesLike = like(0), like(0), like(1)
M.FullLike = { "x fill_value | dtype?", function(x, value, dtype)
  if type(value) == "number" then return ops.full(x:shape(), value, dtype or x:dtype()) end
  return ops.cast(ops.broadcast_to(value, { shape = x:shape() }), dtype or x:dtype())
end }

M.Meshgrid = { "*x:tensors | indexing?", function(xs, indexing)
  return composite.meshgrid(xs, { indexing = indexing or "xy" })
end }

return M
