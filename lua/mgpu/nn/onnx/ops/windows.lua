--- Convolutions and pooling of ONNX, over one, two or three spatial axes; see ops/init.lua.
--
-- Everything here computes with the channels last. A sequence {batch, channels, steps} is an image of one row.
local core = require "mgpu.core"
local pad_axes = require "mgpu.nn.onnx.pad_axes"
local values = require "mgpu.nn.onnx.values"
local volumes = require "mgpu.nn.layers.volumes"

local ops = core.ops

local M = {}

local function fail(message, ...) core.fail("data", message:format(...)) end

-- ---- windows ------------------------------------------------------------------------------------

-- A list of n numbers: the attribute, or `default` for each axis.
local function per_axis(list, default, n, what)
  if not list then
    list = {}
    for i = 1, n do list[i] = default end
  end
  if #list ~= n then fail("%d numbers in %s, for %d spatial axes", #list, what, n) end
  for _, size in ipairs(list) do
    if size < (what == "pads" and 0 or 1) then fail("%s has %d", what, size) end
  end
  return list
end

local AUTO_PADS = { NOTSET = true, VALID = true, SAME_UPPER = true, SAME_LOWER = true }

-- The windows of a node over x, which has n spatial axes: w.size, w.strides, w.dilations, w.span (the extent of a
-- window), w.before and w.after (padding), all lists of n, and w.sizes, those of x.
local function windows(c, x, size)
  local n = x:rank() - 2
  if n < 1 or n > 3 then core.fail("unsupported", ("%d spatial axes: one, two or three are"):format(n)) end
  local w = { n = n, size = per_axis(c.kernel_shape or size, 1, n, "kernel_shape"), sizes = { unpack(x:shape(), 3) },
    strides = per_axis(c.strides, 1, n, "strides"), dilations = per_axis(c.dilations, 1, n, "dilations"),
    span = {}, before = {}, after = {} }
  local pads = per_axis(c.pads, 0, 2 * n, "pads")
  for i = 1, n do
    w.span[i] = (w.size[i] - 1) * w.dilations[i] + 1
    w.before[i], w.after[i] = pads[i], pads[n + i]
  end
  if not AUTO_PADS[c.auto_pad] then core.fail("unsupported", ("auto_pad = %q"):format(c.auto_pad)) end
  return w
end

-- Half of the padding before, the odd one by the mode.
local function share(c, total)
  local small, large = math.floor(total / 2), math.ceil(total / 2)
  if c.auto_pad == "SAME_UPPER" then return small, large end
  return large, small
end

-- Padding by auto_pad, where x is what windows go over.
local function pad_automatically(c, w)
  if c.auto_pad == "NOTSET" then return end
  for i = 1, w.n do
    local total = 0
    if c.auto_pad ~= "VALID" then
      local count = math.ceil(w.sizes[i] / w.strides[i])
      total = math.max((count - 1) * w.strides[i] + w.span[i] - w.sizes[i], 0)
    end
    w.before[i], w.after[i] = share(c, total)
  end
end

-- {a} as {b, a}, for the one row of a sequence.
local function rows(list, one) return #list == 1 and { one, list[1] } or list end

-- The value of a sequence from its image.
local function as_sequence(y)
  local s = y:shape()
  return values.last(ops.reshape(y, { shape = { s[1], s[3], s[4] } }))
end

-- x with the channels last, as an image if it is a sequence; and a function for the way back.
local function as_image(x, n)
  local t = x:last()
  local s = t:shape()
  if n ~= 1 then return t, values.last end
  return ops.reshape(t, { shape = { s[1], 1, s[2], s[3] } }), as_sequence
end

local function image_pads(w)
  if w.n == 1 then return { 0, 0, w.before[1], w.after[1] } end
  return { w.before[1], w.after[1], w.before[2], w.after[2] }
end

local function image_kernel(kernel, n)
  local k = kernel:kernel()
  return n == 1 and ops.reshape(k, { shape = { 1, unpack(k:shape()) } }) or k
end

-- ---- convolutions -------------------------------------------------------------------------------

local function check_kernel(c, x, kernel, channels)
  local sizes = { unpack(kernel:shape(), 3) }
  if c.kernel_shape and table.concat(c.kernel_shape, ", ") ~= table.concat(sizes, ", ") then
    fail("kernel_shape is {%s}, for a kernel of {%s}", table.concat(c.kernel_shape, ", "), table.concat(sizes, ", "))
  end
  if kernel:rank() ~= x:rank() then fail("a kernel of %d axes for an input of %d", kernel:rank(), x:rank()) end
  local given = x:shape()[2]
  if given ~= channels then fail("%d channels for a kernel of %d", given, channels) end
end

local WINDOWS = 'auto_pad:text="NOTSET" dilations:ints? kernel_shape:ints? pads:ints? strides:ints?'

M.Conv = { "2-3 | group:int=1 " .. WINDOWS, function(c, x, kernel, bias)
  local k = kernel:shape()
  check_kernel(c, x, kernel, (k[2] or 0) * c.group)
  local w = windows(c, x, { unpack(k, 3) })
  pad_automatically(c, w)
  local y, back
  if w.n == 3 then
    back = values.last
    y = volumes.conv(pad_axes(x:last(), 2, w.before, w.after), kernel:kernel(), { strides = w.strides,
      dilations = w.dilations, padding = "valid", groups = c.group })
  else
    local t
    t, back = as_image(x, w.n)
    y = ops.conv2d(t, image_kernel(kernel, w.n), { strides = rows(w.strides, 1), dilations = rows(w.dilations, 1),
      groups = c.group, pads = image_pads(w) })
  end
  return back(bias and y + bias:tensor() or y)
end }

-- Of the whole transposed convolution {(size - 1) * stride + span}: how much is cut off before and after each axis;
-- below 0 zeros are added.
local function cuts(c, w)
  local extra = per_axis(c.output_padding, 0, w.n, "pads")
  for i = 1, w.n do
    local whole = (w.sizes[i] - 1) * w.strides[i] + w.span[i]
    local wanted = c.output_shape and c.output_shape[#c.output_shape - w.n + i]
    if not wanted and c.auto_pad ~= "NOTSET" and c.auto_pad ~= "VALID" then wanted = w.sizes[i] * w.strides[i] end
    if wanted then
      if whole + extra[i] < wanted and not c.output_shape then -- ONNX wants zeros there, onnxruntime adds none
        core.fail("unsupported", ("auto_pad = %q for a kernel smaller than its strides"):format(c.auto_pad))
      end
      w.before[i], w.after[i] = share(c, whole + extra[i] - wanted)
    elseif c.auto_pad == "VALID" then
      w.before[i], w.after[i] = 0, 0
    end
    w.after[i] = w.after[i] - extra[i]
    if whole - w.before[i] - w.after[i] < 1 then fail "the output would be empty" end
  end
end

local function transposed_volume(c, x, kernel, w, sizes, before)
  if c.group ~= 1 then core.fail("unsupported", "groups over three spatial axes") end
  return volumes.transpose(x:last(), kernel:kernel(), { strides = w.strides, dilations = w.dilations, sizes = sizes,
    before = before })
end

local function transposed_image(c, x, kernel, w, sizes)
  local t = as_image(x, w.n)
  return ops.conv2d_grad_input(t, image_kernel(kernel, w.n), { strides = rows(w.strides, 1),
    dilations = rows(w.dilations, 1), groups = c.group, pads = image_pads(w),
    input_shape = { t:shape()[1], rows(sizes, 1)[1], rows(sizes, 1)[2], kernel:shape()[2] * c.group } })
end

-- The transpose of a convolution is the gradient with respect to its image.
M.ConvTranspose = { "2-3 | group:int=1 output_padding:ints? output_shape:ints? " .. WINDOWS,
  function(c, x, kernel, bias)
    local k = kernel:shape()
    check_kernel(c, x, kernel, k[1])
    local w = windows(c, x, { unpack(k, 3) })
    cuts(c, w)
    local sizes, before, after, lacking, beyond = {}, {}, {}, {}, {}
    for i = 1, w.n do
      before[i], after[i] = math.max(w.before[i], 0), math.max(w.after[i], 0)
      lacking[i], beyond[i] = math.max(-w.before[i], 0), math.max(-w.after[i], 0)
      sizes[i] = (w.sizes[i] - 1) * w.strides[i] + w.span[i] - before[i] - after[i]
    end
    local y = w.n == 3 and transposed_volume(c, x, kernel, w, sizes, before)
      or transposed_image(c, x, kernel, { n = w.n, strides = w.strides, dilations = w.dilations, before = before,
        after = after }, sizes)
    y = pad_axes(y, w.n == 1 and 3 or 2, lacking, beyond)
    if bias then y = y + bias:tensor() end
    return w.n == 1 and as_sequence(y) or values.last(y)
  end }

-- ---- pooling ------------------------------------------------------------------------------------

-- With ceil_mode one more window may begin inside the image or its padding at the start; what it lacks is added as
-- `w.lacking`. A window that would begin in the padding at the end is left out.
local function add_partial_windows(c, w)
  w.lacking = {}
  for i = 1, w.n do
    local room = w.sizes[i] + w.before[i] + w.after[i] - w.span[i]
    w.lacking[i] = 0
    if room < 0 and c.ceil_mode == 0 then fail("a window of %d for an axis of %d", w.span[i], w.sizes[i]) end
    local count = (c.ceil_mode ~= 0 and math.ceil or math.floor)(room / w.strides[i]) + 1
    if c.ceil_mode ~= 0 and (count - 1) * w.strides[i] >= w.sizes[i] + w.before[i] then count = count - 1 end
    w.lacking[i] = math.max(0, (count - 1) * w.strides[i] - room)
  end
end

-- The cells of the windows that tap {i, ...} reads, from padded images with the channels last.
local function tapped(t, w, tap, counts)
  local start, stop, step = { 0 }, { t:shape()[1] }, { 1 }
  for i = 1, w.n do
    start[i + 1] = tap[i] * w.dilations[i]
    stop[i + 1], step[i + 1] = start[i + 1] + (counts[i] - 1) * w.strides[i] + 1, w.strides[i]
  end
  start[w.n + 2], stop[w.n + 2], step[w.n + 2] = 0, t:shape()[w.n + 2], 1
  return ops.slice(t, { start = start, stop = stop, step = step })
end

local MOST_TAPS = 1024

-- The cells of each window combined by `join`, tap by tap: for windows that the pooling ops do not have.
local function over_taps(t, w, join)
  local counts, taps, y = {}, 1, nil
  for i = 1, w.n do
    counts[i] = math.floor((t:shape()[i + 1] - w.span[i]) / w.strides[i]) + 1
    taps = taps * w.size[i]
  end
  if taps > MOST_TAPS then
    core.fail("unsupported", ("a window of %d cells with this padding or dilation"):format(taps))
  end
  for number = 0, taps - 1 do
    local tap, rest = {}, number
    for i = w.n, 1, -1 do
      tap[i] = rest % w.size[i]
      rest = math.floor(rest / w.size[i])
    end
    local part = tapped(t, w, tap, counts)
    y = y and join(y, part) or part
  end
  return y
end

-- Whether our op has the windows: on images, undilated, each with a cell of the image.
local function is_plain(w)
  for i = 1, w.n do
    if w.dilations[i] ~= 1 or w.before[i] >= w.size[i] or w.after[i] + w.lacking[i] >= w.size[i] then return false end
  end
  return w.n < 3
end

local function pad_lacking(w)
  for i = 1, w.n do w.after[i] = w.after[i] + w.lacking[i] end
end

local function pool_images(op, x, w)
  local t, back = as_image(x, w.n)
  pad_lacking(w)
  return back(op(t, { size = rows(w.size, 1), strides = rows(w.strides, 1), pads = image_pads(w) }))
end

local function pool_windows(c, x)
  if not c.kernel_shape then fail "kernel_shape is missing" end
  local w = windows(c, x)
  pad_automatically(c, w)
  add_partial_windows(c, w)
  return w
end

M.MaxPool = { "1 | ceil_mode:int=0 storage_order:int=0 " .. WINDOWS, function(c, x)
  if c.outputs > 1 then core.fail("unsupported", "the output Indices") end
  local w, dtype = pool_windows(c, x), x:dtype()
  local wide = values.map(function(t) return dtype:find "float" and t or ops.cast(t, "float32") end, x)
  local y
  if is_plain(w) then
    y = pool_images(ops.max_pool2d, wide, w)
  else
    pad_lacking(w)
    y = values.last(over_taps(pad_axes(wide:last(), 2, w.before, w.after, -math.huge), w, ops.maximum))
  end
  return values.map(function(t) return ops.cast(t, dtype) end, y)
end }

-- The mean of the cells that are in the image, and with count_include_pad of the padding, too.
M.AveragePool = { "1 | ceil_mode:int=0 count_include_pad:int=0 " .. WINDOWS, function(c, x)
  local w = pool_windows(c, x)
  if c.count_include_pad ~= 0 then
    x = values.last(pad_axes(x:last(), 2, w.before, w.after))
    for i = 1, w.n do w.before[i], w.after[i] = 0, 0 end
  end
  if is_plain(w) then return pool_images(ops.avg_pool2d, x, w) end
  pad_lacking(w)
  local t = x:last()
  local shape = t:shape()
  shape[1], shape[#shape] = 1, 1
  local cells = over_taps(pad_axes(ops.full(shape, 1, t:dtype()), 2, w.before, w.after), w, ops.add)
  return values.last(over_taps(pad_axes(t, 2, w.before, w.after), w, ops.add) / cells)
end }

M.LpPool = { "1 | p:int=2 ceil_mode:int=0 " .. WINDOWS, function(c, x)
  local w = pool_windows(c, x)
  pad_lacking(w)
  local powers = pad_axes(ops.pow(ops.abs(x:last()), c.p), 2, w.before, w.after)
  return values.last(ops.pow(over_taps(powers, w, ops.add), 1 / c.p))
end }

-- fn over all spatial axes, which become 1.
local function global(fn)
  return { "1 | p:int=2", function(c, x)
    local axes = {}
    for i = 3, x:rank() do axes[#axes + 1] = i - 1 end
    if #axes == 0 then fail "there is no spatial axis" end
    return values.last(fn(x:last(), { axis = axes, keepdims = true }, c.p))
  end }
end
M.GlobalAveragePool = global(function(t, how) return core.methods.mean(t, how) end)
M.GlobalMaxPool = global(function(t, how) return ops.max(t, how) end)
M.GlobalLpPool = global(function(t, how, p)
  return ops.pow(ops.sum(ops.pow(ops.abs(t), p), how), 1 / p)
end)

return M
