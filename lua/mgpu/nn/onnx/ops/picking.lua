--- Ops of ONNX that pick elements by tensors of positions, or put elements there; see ops/init.lua.
--
-- Positions out of range are found when they are computed, as everywhere here; negative ones count from the end.
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"
local values = require "mgpu.nn.onnx.values"

local ops, axis_at, plain = core.ops, values.axis_at, values.plain

local M = {}

local function fail(message, ...) core.fail("data", message:format(...)) end

-- Positions from 0.
local function from_zero(ids, size) return ops.where(ops.lt(ids, 0), ids + size, ids) end

M.Gather = { "2 | axis:int=0", function(c, x, indices)
  local at, t = axis_at(c.axis, x:rank()) + 1, x:tensor()
  return plain(composite.gather(t, from_zero(indices:tensor(), t:shape()[at]), { axis = at }))
end }

-- The same as int64, in range: for positions that become part of another one.
local function checked(ids, size)
  local at = from_zero(ops.cast(ids, "int64"), size)
  core.guard(ops.all(ops.logical_and(ops.ge(at, 0), ops.lt(at, size))), "data",
    ("an index of ONNX is not among the %d places of its axis"):format(size))
  return at
end

-- What lies behind the sizes of indices in the other axes does not count.
local function cut_to(t, indices, at)
  local start, stop, step, given = {}, {}, {}, indices:shape()
  for i, size in ipairs(t:shape()) do
    start[i], stop[i], step[i] = 0, i == at and size or math.min(size, given[i] or fail "indices have fewer axes"), 1
  end
  return ops.slice(t, { start = start, stop = stop, step = step })
end

M.GatherElements = { "2 | axis:int=0", function(c, x, indices)
  local at = axis_at(c.axis, x:rank()) + 1
  local t, ids = cut_to(x:tensor(), indices, at), indices:tensor()
  return plain(composite.take_along_axis(t, from_zero(ids, t:shape()[at]), { axis = at }))
end }

-- indices {..., k} as positions from 0 in the first k of these sizes, in one axis, and the product of the sizes.
local function flat_places(indices, sizes)
  local shape, flat, total = indices:shape(), nil, 1
  local k = shape[#shape]
  local columns = ops.reshape(indices, { shape = { indices:count() / math.max(k, 1), k } })
  for i = 1, k do
    local column = checked(core.methods.slice(columns, { {}, i }), sizes[i])
    flat, total = flat and flat * sizes[i] + column or column, total * sizes[i]
  end
  return flat, total
end

local function product(list, first, last)
  local n = 1
  for i = first, last do n = n * list[i] end
  return n
end

-- The first `b` axes of both are the same batch: its entries are numbered as one more index.
M.GatherND = { "2 | batch_dims:int=0", function(c, x, indices)
  local s, given, b = x:shape(), indices:shape(), c.batch_dims
  local k = given[#given]
  if #given < 1 or b < 0 or b >= #given or b + k > #s or k < 1 then
    fail("indices of %d axes, the last one of %s, for an input of %d", #given, tostring(k), #s)
  end
  local t, ids, batch = x:tensor(), indices:tensor(), product(s, 1, b)
  local inner, shape, count = { unpack(s, b + 1) }, {}, product(given, b + 1, #given - 1)
  local flat, places = flat_places(ids, inner)
  for i = 1, #given - 1 do shape[i] = given[i] end
  for i = b + k + 1, #s do shape[#shape + 1] = s[i] end
  if b > 0 then
    local base = ops.reshape(ops.iota({ batch }, 1, "int64") * places, { shape = { batch, 1 } })
    flat = ops.reshape(ops.reshape(flat, { shape = { batch, count } }) + base, { shape = { batch * count } })
  end
  local rows = ops.reshape(t, { shape = { batch * places, product(s, b + k + 1, #s) } })
  return plain(ops.reshape(composite.gather(rows, flat, { axis = 1 }), { shape = shape }))
end }

-- ---- scatter ------------------------------------------------------------------------------------

local ADD, NONE = "add", "none"

-- t {places, rest} with the rows put in at the places.
local function put(c, t, flat, rows)
  if c.reduction == NONE then
    return composite.scatter_update(t, composite.expand_dims(flat, { axis = -1 }), rows)
  end
  if c.reduction ~= ADD then core.fail("unsupported", ("reduction = %q: only none and add are"):format(c.reduction)) end
  return composite.scatter_add(t, composite.expand_dims(flat, { axis = -1 }), rows)
end

M.ScatterND = { '3 | reduction:text="none"', function(c, x, indices, updates)
  local s, given = x:shape(), indices:shape()
  local k = given[#given]
  if #given < 1 or k > #s or k < 1 then fail("indices of the last size %s for an input of %d axes", tostring(k), #s) end
  local flat, places = flat_places(indices:tensor(), s)
  local rest = product(s, k + 1, #s)
  local rows = ops.reshape(updates:tensor(), { shape = { flat:count(), rest } })
  local y = put(c, ops.reshape(x:tensor(), { shape = { places, rest } }), flat, rows)
  return plain(ops.reshape(y, { shape = s }))
end }

-- Each element of indices replaces the position along the axis in its own place.
local function scatter_elements(c, x, indices, updates)
  local s, given, at = x:shape(), indices:shape(), axis_at(c.axis, x:rank()) + 1
  if #given ~= #s then fail("indices of %d axes for an input of %d", #given, #s) end
  local flat
  for i, size in ipairs(s) do
    local place = i == at and checked(indices:tensor(), size) or ops.iota(given, i, "int64")
    flat = flat and flat * size + place or place
  end
  flat = ops.reshape(flat, { shape = { flat:count() } })
  local y = put(c, composite.flatten(x:tensor()), flat, ops.reshape(updates:tensor(), { shape = { flat:count() } }))
  return plain(ops.reshape(y, { shape = s }))
end
M.ScatterElements = { '3 | axis:int=0 reduction:text="none"', scatter_elements }
M.Scatter = { "3 | axis:int=0", function(c, ...)
  return scatter_elements({ axis = c.axis, reduction = NONE }, ...)
end }

-- ---- by values ----------------------------------------------------------------------------------

M.OneHot = { "3 | axis:int=-1", function(c, indices, depth, pair)
  local n, rank, shape = depth:number "depth", indices:rank() + 1, {}
  local at = axis_at(c.axis, rank) + 1
  if n < 1 or n > 2 ^ 31 then fail("depth = %s", tostring(n)) end
  for i = 1, rank do shape[i] = i == at and n or 1 end
  local ids = ops.cast(composite.expand_dims(indices:tensor(), { axis = at }), "int64")
  local hot = ops.eq(from_zero(ids, n), ops.reshape(ops.iota({ n }, 1, "int64"), { shape = shape }))
  local t = pair:tensor()
  return plain(ops.where(hot, t[2], t[1]))
end }

-- The positions where a constant is not 0: their number must be known.
M.NonZero = { "1", function(c, x)
  local shape, places, list = x:shape(), {}, x:numbers "the input, whose positions are wanted,"
  for i, number in ipairs(list) do
    if number ~= 0 and number ~= false then places[#places + 1] = i - 1 end
  end
  local rank, flat = math.max(#shape, 1), {}
  for axis = 1, rank do
    local stride = product(shape, axis + 1, #shape)
    for _, place in ipairs(places) do flat[#flat + 1] = math.floor(place / stride) % (shape[axis] or 1) end
  end
  return values.constant(core.outside_trace(function()
    if #flat == 0 then return core.place(ops.full({ rank, 0 }, 0, "int64"), values.HOST) end
    return ops.reshape(core.tensor(flat, { dtype = "int64", device = values.HOST }), { shape = { rank, #places } })
  end), c.run)
end }

M.Compress = { "2 | axis:int?", function(c, x, condition)
  local ids, t = {}, x:tensor()
  for i, chosen in ipairs(condition:numbers "the condition") do if chosen then ids[#ids + 1] = i - 1 end end
  local at = c.axis and axis_at(c.axis, x:rank()) + 1 or 1
  if not c.axis then t = composite.flatten(t) end
  if #ids == 0 then fail "nothing is chosen" end
  return plain(composite.gather(t, core.tensor(ids, { dtype = "int32", device = t:device() }), { axis = at }))
end }

return M
