--- Windows over volumes x {batch, depth, rows, columns, channels}, composed of those over images.
--
-- A convolution of volumes is one of images whose channels are those of all planes that a window covers. Pooling goes
-- over rows and columns, then over the depth.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local spaces = require "mgpu.nn.layers.spaces"

local ops = core.ops
local M = {}

local function reshape(x, shape) return ops.reshape(x, { shape = shape }) end

-- Every `stride`-th element along axis 2, `count` of them, from `first` (from 0) on.
local function planes(x, first, stride, count)
  local shape = x:shape()
  if stride == 1 then return spaces.sliced(x, 2, first, first + count) end
  local stop = first + count * stride
  x = spaces.padded(x, 2, 0, math.max(stop - shape[2], 0))
  x = reshape(spaces.sliced(x, 2, first, stop), { shape[1], count, stride, unpack(shape, 3) })
  return reshape(spaces.sliced(x, 3, 0, 1), { shape[1], count, unpack(shape, 3) })
end

-- kernel {depth, rows, columns, a, b} as {rows, columns, depth * a, b}.
local function flat_kernel(kernel)
  local k = kernel:shape()
  kernel = ops.permute(kernel, { order = { 2, 3, 1, 4, 5 } })
  return reshape(kernel, { k[2], k[3], k[1] * k[4], k[5] })
end

--- conv(x, kernel, how) -> the convolution with a kernel {depth, rows, columns, channels / groups, filters}.
-- ARGS how: {strides =, dilations = three each, padding =, groups =}.
function M.conv(x, kernel, how)
  local s, k, strides, dilations = x:shape(), kernel:shape(), how.strides, how.dilations
  local span = images.spans({ k[1], k[2], k[3] }, dilations)
  local before, after = spaces.pads(how.padding, s[2], span[1], strides[1])
  local depth = math.floor((s[2] + before + after - span[1]) / strides[1]) + 1
  x = spaces.padded(x, 2, before, after)
  local groups, list = how.groups or 1, {}
  for tap = 1, k[1] do
    local plane = planes(x, (tap - 1) * dilations[1], strides[1], depth)
    list[tap] = reshape(plane, { s[1] * depth, s[3], s[4], groups, s[5] / groups })
  end
  local image = reshape(#list > 1 and ops.concat(list, { axis = 5 }) or list[1],
    { s[1] * depth, s[3], s[4], k[1] * s[5] })
  local y = ops.conv2d(image, flat_kernel(kernel), { strides = { strides[2], strides[3] },
    dilations = { dilations[2], dilations[3] }, groups = groups,
    pads = images.pads(how.padding, s[3], s[4], { span[2], span[3] }, { strides[2], strides[3] }) })
  local t = y:shape()
  return reshape(y, { s[1], depth, t[2], t[3], t[4] })
end

--- transpose(x, kernel, how) -> the transpose of a convolution, with a kernel {depth, rows, columns, filters,
-- channels}.
-- ARGS how: {strides =, dilations =, sizes = of the output, before = zeros that the convolution has before each axis}.
function M.transpose(x, kernel, how)
  local s, k, strides, sizes = x:shape(), kernel:shape(), how.strides, how.sizes
  local span = images.spans({ k[1], k[2], k[3] }, how.dilations)
  local pads = {}
  for i = 2, 3 do
    local total = (s[i + 1] - 1) * strides[i] + span[i] - sizes[i]
    pads[#pads + 1], pads[#pads + 2] = how.before[i], math.max(total - how.before[i], 0)
  end
  local y = ops.conv2d_grad_input(reshape(x, { s[1] * s[2], s[3], s[4], s[5] }), flat_kernel(kernel),
    { strides = { strides[2], strides[3] }, dilations = { how.dilations[2], how.dilations[3] }, pads = pads,
      input_shape = { s[1] * s[2], sizes[2], sizes[3], k[1] * k[4] } })
  y = reshape(y, { s[1], s[2], sizes[2], sizes[3], k[1], k[4] })
  local whole, sum = (s[2] - 1) * strides[1] + span[1], nil
  for tap = 1, k[1] do
    local part = reshape(spaces.sliced(y, 5, tap - 1, tap), { s[1], s[2], sizes[2], sizes[3], k[4] })
    local first = (tap - 1) * how.dilations[1]
    part = spaces.padded(part, 2, first, span[1] - 1 - first, strides[1] - 1)
    sum = sum and sum + part or part
  end
  sum = spaces.padded(sum, 2, 0, math.max(sizes[1] + how.before[1] - whole, 0))
  return spaces.sliced(sum, 2, how.before[1], how.before[1] + sizes[1])
end

--- pool(op, x, size, strides, padding) -> the pooled volumes; op: "max_pool2d" or "avg_pool2d".
function M.pool(op, x, size, strides, padding)
  local s = x:shape()
  local function pooled(t, window, steps)
    local shape = t:shape()
    return ops[op](t, { size = window, strides = steps,
      pads = images.pads(padding, shape[2], shape[3], window, steps) })
  end
  local y = pooled(reshape(x, { s[1] * s[2], s[3], s[4], s[5] }), { size[2], size[3] }, { strides[2], strides[3] })
  local t = y:shape()
  y = pooled(reshape(y, { s[1], s[2], t[2] * t[3], s[5] }), { size[1], 1 }, { strides[1], 1 })
  return reshape(y, { s[1], y:shape()[2], t[2], t[3], s[5] })
end

return M
