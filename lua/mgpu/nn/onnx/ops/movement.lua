--- Ops of ONNX that move elements, and those that make shapes and constants; see ops/init.lua.
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"
local values = require "mgpu.nn.onnx.values"

local ops, axis_at, plain = core.ops, values.axis_at, values.plain

local M = {}

local function fail(message, ...) core.fail("data", message:format(...)) end

local function reshaped(x, shape) return plain(ops.reshape(x:tensor(), { shape = shape })) end

-- Integers as a constant of the graph.
local function integers(c, list, shape)
  return values.constant(core.outside_trace(function()
    local t = core.tensor(#list > 0 and list or { 0 }, { dtype = "int64", device = values.HOST })
    if #list == 0 then return ops.slice(t, { start = { 0 }, stop = { 0 }, step = { 1 } }) end
    return ops.reshape(t, { shape = shape or { #list } })
  end), c.run)
end

-- ---- shapes -------------------------------------------------------------------------------------

M.Shape = { "1 | start:int=0 end:int?", function(c, x)
  local shape, list = x:shape(), {}
  local function clamped(n) return math.max(0, math.min(n < 0 and n + #shape or n, #shape)) end
  for i = clamped(c.start) + 1, clamped(c["end"] or #shape) do list[#list + 1] = shape[i] end
  return integers(c, list)
end }

M.Size = { "1", function(c, x) return integers(c, { x:count() }, {}) end }

M.Reshape = { "2 | allowzero:int=0", function(c, x, shape)
  local old, new = x:shape(), { unpack(shape:numbers "the shape") }
  for i, size in ipairs(new) do
    if size == 0 and c.allowzero == 0 then new[i] = old[i] or fail("size %d is 0, for an input of %d axes", i, #old) end
  end
  return reshaped(x, new)
end }

M.Flatten = { "1 | axis:int=1", function(c, x)
  local shape, rows, columns = x:shape(), 1, 1
  local at = c.axis < 0 and c.axis + #shape or c.axis
  if at < 0 or at > #shape then fail("the axis %d is out of range: there are %d axes", c.axis, #shape) end
  for i, size in ipairs(shape) do
    if i <= at then rows = rows * size else columns = columns * size end
  end
  return reshaped(x, { rows, columns })
end }

-- Axes are an attribute up to opset 12, and an input later.
local function axes_of(c, axes) return axes and axes:numbers "axes" or c.axes end

M.Squeeze = { "1-2 | axes:ints?", function(c, x, axes)
  local shape, kept, list, dropped = x:shape(), {}, axes_of(c, axes), {}
  for _, axis in ipairs(list or {}) do dropped[axis_at(axis, #shape) + 1] = true end
  for i, size in ipairs(shape) do
    if dropped[i] and size ~= 1 then fail("axis %d has size %d, not 1", i - 1, size) end
    if list and not dropped[i] or not list and size ~= 1 then kept[#kept + 1] = size end
  end
  return reshaped(x, kept)
end }

M.Unsqueeze = { "1-2 | axes:ints?", function(c, x, axes)
  local shape, list, added = x:shape(), axes_of(c, axes) or fail "axes are missing", {}
  local rank, out, next_size = #shape + #list, {}, 1
  for _, axis in ipairs(list) do
    local at = axis_at(axis, rank) + 1
    if added[at] then fail("the axis %d is given twice", axis) end
    added[at] = true
  end
  for i = 1, rank do
    out[i] = added[i] and 1 or shape[next_size]
    if not added[i] then next_size = next_size + 1 end
  end
  return reshaped(x, out)
end }

-- Whether the order is that of channels moved to the end (or back).
local function is_order(perm, first, second, from)
  if perm[1] ~= 0 or perm[2] ~= second or perm[#perm] ~= first then return false end
  for i = 3, #perm - 1 do if perm[i] ~= i + from then return false end end
  return true
end

M.Transpose = { "1 | perm:ints?", function(c, x)
  local rank, order, perm = x:rank(), {}, c.perm
  if not perm then
    perm = {}
    for i = 1, rank do perm[i] = rank - i end
  end
  if #perm ~= rank then fail("%d axes in perm, for an input of %d", #perm, rank) end
  for i, axis in ipairs(perm) do order[i] = axis_at(axis, rank) + 1 end
  if rank >= 3 and x:only_last() and is_order(perm, 1, 2, 0) then return plain(x:last()) end
  if rank >= 3 and not x.constant and is_order(perm, rank - 2, rank - 1, -2) then return values.last(x:tensor()) end
  return plain(ops.permute(x:tensor(), { order = order }))
end }

M.Expand = { "2", function(_, x, shape)
  local old, new = x:shape(), { unpack(shape:numbers "the shape") }
  while #new < #old do table.insert(new, 1, 1) end
  for i, size in ipairs(new) do -- a size of 1 keeps the input's
    local own = old[i - (#new - #old)] or 1
    if size == 1 then new[i] = own end
  end
  return plain(ops.broadcast_to(x:tensor(), { shape = new }))
end }

-- ---- joined and cut -----------------------------------------------------------------------------

M.Concat = { "1+ | axis:int", function(c, ...)
  local list, tensors, last, rank = { ... }, {}, false, (...):rank()
  for _, x in ipairs(list) do last = last or x:only_last() end
  local at = axis_at(c.axis, rank)
  for i, x in ipairs(list) do tensors[i] = last and x:last() or x:tensor() end
  local y = composite.concat(tensors, { axis = last and values.axis_last(at, rank) or at + 1 })
  return last and values.last(y) or plain(y)
end }

-- Parts of these sizes along an axis.
local function cut(x, at, sizes)
  local t, axis_in, wrap = values.along(x)
  local axis, starts, stops, steps = axis_in(at), {}, {}, {}
  local parts, first, sum, whole = {}, 0, 0, x:shape()[at + 1]
  for _, size in ipairs(sizes) do sum = sum + size end
  if sum ~= whole then fail("parts of %d elements together, for an axis of %d", sum, whole) end
  for i, size in ipairs(t:shape()) do starts[i], stops[i], steps[i] = 0, size, 1 end
  for i, size in ipairs(sizes) do
    starts[axis], stops[axis], first = first, first + size, first + size
    parts[i] = wrap(ops.slice(t, { start = starts, stop = stops, step = steps }))
  end
  return unpack(parts)
end

-- Without sizes the parts are equal; if their number does not divide the axis, the last one is smaller (opset 18).
M.Split = { "1-2 | axis:int=0 split:ints? num_outputs:int?", function(c, x, split)
  local at = axis_at(c.axis, x:rank())
  local size, sizes = x:shape()[at + 1], split and split:numbers "split" or c.split
  if not sizes then
    local n, left = c.num_outputs or c.outputs, size
    if n ~= c.outputs then fail("num_outputs = %d, for %d outputs", n, c.outputs) end
    local each = math.ceil(size / n)
    sizes = {}
    for i = 1, n do
      sizes[i] = math.max(0, math.min(each, left))
      left = left - sizes[i]
    end
  end
  if #sizes ~= c.outputs then fail("%d outputs for %d parts", c.outputs, #sizes) end
  return cut(x, at, sizes)
end }

-- The first position, the end and the step of a slice of an axis of this size, clamped as ONNX does it.
local function clamped(start, stop, step, size)
  if step == 0 then fail "a step is 0" end
  if step < 0 and stop > 2 ^ 53 then -- ONNX's own reference makes nothing of it, onnxruntime everything
    core.fail("unsupported", "an end beyond 2^53 with a negative step")
  end
  local high = step > 0 and size or size - 1
  local function within(n, low)
    n = n < 0 and n + size or n
    return math.max(low, math.min(n, high))
  end
  start, stop = within(start, 0), within(stop, step > 0 and 0 or -1)
  if (stop - start) * step <= 0 then return 0, 0, 1 end
  return start, stop, step
end

local function slice(x, starts, stops, axes, steps)
  local rank, shape, start, stop, step = x:rank(), x:shape(), {}, {}, {}
  local t, axis_in, wrap = values.along(x)
  for i, size in ipairs(t:shape()) do start[i], stop[i], step[i] = 0, size, 1 end
  for i = 1, #starts do
    local at = axis_at(axes and axes[i] or i - 1, rank)
    local axis = axis_in(at)
    start[axis], stop[axis], step[axis] = clamped(starts[i], stops[i] or fail "an end is missing",
      steps and steps[i] or 1, shape[at + 1])
  end
  return wrap(ops.slice(t, { start = start, stop = stop, step = step }))
end

-- Attributes in opset 9, and inputs later.
M.Slice = { "1-5 | starts:ints? ends:ints? axes:ints?", function(c, x, starts, stops, axes, steps)
  if not starts then return slice(x, c.starts or fail "starts are missing", c.ends or {}, c.axes) end
  return slice(x, starts:numbers "starts", (stops or fail "ends are missing"):numbers "ends",
    axes and axes:numbers "axes", steps and steps:numbers "steps")
end }

M.Tile = { "2", function(_, x, repeats)
  local list = repeats:numbers "repeats"
  if #list ~= x:rank() then fail("%d repeats for %d axes", #list, x:rank()) end
  if #list == 0 then return x end
  return plain(composite.tile(x:tensor(), { repeats = list }))
end }

-- ---- padding ------------------------------------------------------------------------------------

local MOST_POSITIONS = 2 ^ 24

-- The positions of an axis with `before` and `after` more, by the mode.
local function positions(size, before, after, mode)
  local list = {}
  if before + after > 2 ^ 20 then fail("a width of %d", before + after) end
  if size > MOST_POSITIONS then fail("the mode %q for an axis of %d elements", mode, size) end
  for i = -before, size + after - 1 do
    local at
    if mode == "wrap" then
      at = i % size
    elseif mode == "edge" then
      at = math.max(0, math.min(i, size - 1))
    elseif size > 1 then -- reflect, about the edges
      at = i % (2 * size - 2)
      if at >= size then at = 2 * size - 2 - at end
    else
      at = 0
    end
    list[#list + 1] = at
  end
  return list
end

local function cropped(t, widths)
  local start, stop, step, any = {}, {}, {}, false
  for i, size in ipairs(t:shape()) do
    start[i], stop[i], step[i] = math.max(0, -widths[i][1]), size - math.max(0, -widths[i][2]), 1
    any = any or widths[i][1] < 0 or widths[i][2] < 0
    if stop[i] < start[i] then fail("axis %d has %d elements, of which all and more are cut off", i - 1, size) end
  end
  return any and ops.slice(t, { start = start, stop = stop, step = step }) or t
end

-- widths: {before, after} for each axis of t; negative ones cut off.
local function padded(t, widths, mode, value)
  t = cropped(t, widths)
  local before, after = {}, {}
  for i, pair in ipairs(widths) do before[i], after[i] = math.max(0, pair[1]), math.max(0, pair[2]) end
  if mode == "constant" then return ops.pad(t, { before = before, after = after, value = value }) end
  for i, size in ipairs(t:shape()) do
    if before[i] + after[i] > 0 then
      if size == 0 then fail("axis %d is empty", i - 1) end
      local ids = core.tensor(positions(size, before[i], after[i], mode), { dtype = "int32", device = t:device() })
      t = ops.gather(t, ids, { axis = i })
    end
  end
  return t
end

local MODES = { constant = true, reflect = true, edge = true, wrap = true }

-- Attributes up to opset 10, and inputs later.
M.Pad = { '1-4 | mode:text="constant" pads:ints? value:float=0', function(c, x, pads, value, axes)
  local rank, widths, t, axis_in, wrap = x:rank(), {}, values.along(x)
  local list, n = pads and pads:numbers "pads" or c.pads or fail "pads are missing", rank
  if not MODES[c.mode] then core.fail("unsupported", ("the mode %q"):format(c.mode)) end
  local along = axes and axes:numbers "axes"
  if along then n = #along end
  if #list ~= 2 * n then fail("%d pads for %d axes", #list, n) end
  for i = 1, rank do widths[i] = { 0, 0 } end
  for i = 1, n do
    widths[axis_in(along and axis_at(along[i], rank) or i - 1)] = { list[i], list[n + i] }
  end
  local number = value and value:number "the value" or c.value
  if type(number) == "boolean" then number = number and 1 or 0 end
  return wrap(padded(t, widths, c.mode, number))
end }

-- ---- constants ----------------------------------------------------------------------------------

M.ConstantOfShape = { "1 | value:tensor?", function(c, shape)
  local sizes = shape:numbers "the shape"
  local value = c.value
  return plain(ops.full({ unpack(sizes) }, value and value:number "value" or 0, value and value:dtype() or "float32"))
end }

local MOST_NUMBERS = 2 ^ 24

M.Range = { "3", function(_, start, limit, delta)
  local from, to, step = start:number "start", limit:number "limit", delta:number "delta"
  if step == 0 then fail "delta is 0" end
  local n = math.max(0, math.ceil((to - from) / step))
  if n > MOST_NUMBERS then fail("%.0f numbers are too many", n) end
  return plain(ops.cast(ops.iota({ n }, 1, "float64") * step + from, start:dtype()))
end }

M.EyeLike = { "1 | dtype:int? k:int=0", function(c, x)
  local shape, dtype = x:shape(), c.dtype and require "mgpu.nn.onnx.types".dtype_of(c.dtype) or x:dtype()
  if #shape ~= 2 then fail("a matrix is expected, got %d axes", #shape) end
  return plain(ops.cast(ops.eq(ops.iota(shape, 1, "int32") + c.k, ops.iota(shape, 2, "int32")), dtype))
end }

M.Trilu = { "1-2 | upper:int=1", function(c, x, k)
  local fn = c.upper ~= 0 and composite.triu or composite.tril
  return plain(fn(x:tensor(), { k = k and k:number "k" or 0 }))
end }

-- ---- blocks of pixels ---------------------------------------------------------------------------

local function need_images(x)
  if x:rank() ~= 4 then fail("images of 4 axes are expected, got %d axes", x:rank()) end
  return unpack(x:last():shape())
end

M.DepthToSpace = { '1 | blocksize:int mode:text="DCR"', function(c, x)
  local batch, rows, columns, channels = need_images(x)
  local n, depth = c.blocksize, channels / c.blocksize ^ 2
  if n < 1 or depth % 1 ~= 0 then fail("%d channels cannot be cut into blocks of %d", channels, n) end
  local crd = c.mode == "CRD"
  if not crd and c.mode ~= "DCR" then core.fail("unsupported", ("the mode %q"):format(c.mode)) end
  local blocks = crd and { depth, n, n } or { n, n, depth }
  local t = ops.reshape(x:last(), { shape = { batch, rows, columns, unpack(blocks) } })
  t = ops.permute(t, { order = crd and { 1, 2, 5, 3, 6, 4 } or { 1, 2, 4, 3, 5, 6 } })
  return values.last(ops.reshape(t, { shape = { batch, rows * n, columns * n, depth } }))
end }

M.SpaceToDepth = { "1 | blocksize:int", function(c, x)
  local batch, rows, columns, channels = need_images(x)
  local n = c.blocksize
  if n < 1 or rows % n ~= 0 or columns % n ~= 0 then
    fail("{%d, %d} cannot be cut into blocks of %d", rows, columns, n)
  end
  local t = ops.reshape(x:last(), { shape = { batch, rows / n, n, columns / n, n, channels } })
  t = ops.permute(t, { order = { 1, 2, 4, 3, 5, 6 } })
  return values.last(ops.reshape(t, { shape = { batch, rows / n, columns / n, n * n * channels } }))
end }

return M
