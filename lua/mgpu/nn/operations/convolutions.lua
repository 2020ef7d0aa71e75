--- Convolutions, pooling and blocks of pixels in keras.ops.nn, over sequences {batch, steps, channels} and images
--- {batch, rows, columns, channels}; see init.lua.
local arguments = require "mgpu.tensor.arguments"
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"

local ops = core.ops

local M = {}

-- {rows, columns} of a number or a list; a sequence is an image of one row.
local function pair(who, value, default, axes)
  local list = type(value) == "table" and value or { value or default, axes == 2 and (value or default) or nil }
  if #list ~= axes then arguments.fail("%s: got %d numbers for %d axes", who, #list, axes) end
  for _, n in ipairs(list) do arguments.whole(who, "each number", n, 1) end
  return axes == 2 and list or { 1, list[1] }
end

-- Calls fn(x, axes) with x as an image, channels last, and gives its result the form of x again.
local function over_images(who, x, data_format, fn)
  local rank = x:rank()
  local axes = rank - 2
  if axes ~= 1 and axes ~= 2 then
    core.fail("unsupported", ("%s: only inputs of 3 or 4 axes are supported, got %d"):format(who, rank))
  end
  local first = data_format == "channels_first"
  if first then x = ops.permute(x, { order = axes == 1 and { 1, 3, 2 } or { 1, 3, 4, 2 } }) end
  local s = x:shape()
  if axes == 1 then x = ops.reshape(x, { shape = { s[1], 1, s[2], s[3] } }) end
  local y = fn(x, axes)
  local t = y:shape()
  if axes == 1 then y = ops.reshape(y, { shape = { t[1], t[3], t[4] } }) end
  return first and ops.permute(y, { order = axes == 1 and { 1, 3, 2 } or { 1, 4, 2, 3 } }) or y
end

local function check_padding(who, padding)
  padding = (padding or "valid"):lower()
  if padding ~= "valid" and padding ~= "same" then arguments.fail('%s: padding must be "valid" or "same"', who) end
  return padding
end

-- Raises unless windows of this extent fit into the image.
local function check_fit(who, padding, s, span)
  if padding == "valid" and (s[2] < span[1] or s[3] < span[2]) then
    arguments.fail("%s: the window {%d, %d} does not fit into {%d, %d}", who, span[1], span[2], s[2], s[3])
  end
end

-- A kernel of a sequence as one of an image.
local function image_kernel(who, kernel, axes)
  local k = kernel:shape()
  if #k ~= axes + 2 then arguments.fail("%s: a kernel of %d axes for an input of %d", who, #k, axes + 2) end
  return axes == 1 and ops.reshape(kernel, { shape = { 1, unpack(k) } }) or kernel
end

local WINDOWS = "| strides? padding? data_format? dilation_rate?"

-- convolve(x, kernel, strides, dilations, padding, span) for the kernels in the form of an image.
local function define(who, operands, convolve)
  return { operands .. " " .. WINDOWS, function(x, kernel, strides, padding, data_format, dilation)
    padding = check_padding(who, padding)
    return over_images(who, x, data_format, function(t, axes)
      kernel = image_kernel(who, kernel, axes)
      local k, dilations = kernel:shape(), pair(who, dilation, 1, axes)
      local span = images.spans({ k[1], k[2] }, dilations)
      check_fit(who, padding, t:shape(), span)
      return convolve(t, kernel, pair(who, strides, 1, axes), dilations, padding, span)
    end)
  end }
end

local function convolve(t, kernel, strides, dilations, padding, span)
  local s, k = t:shape(), kernel:shape()
  if s[4] % k[3] ~= 0 then arguments.fail("conv: %d channels for a kernel of %d", s[4], k[3]) end
  return ops.conv2d(t, kernel, { strides = strides, dilations = dilations, groups = s[4] / k[3],
    pads = images.pads(padding, s[2], s[3], span, strides) })
end

M.Conv = define("conv", "inputs kernel", convolve)
M.DepthwiseConv = define("depthwise_conv", "inputs kernel", images.depthwise)

M.SeparableConv = { "inputs depthwise_kernel pointwise_kernel " .. WINDOWS,
  function(x, depthwise, pointwise, strides, padding, data_format, dilation)
    local y = M.DepthwiseConv[2](x, depthwise, strides, padding, data_format, dilation)
    return M.Conv[2](y, pointwise, 1, "valid", data_format, 1)
  end }

local function pool(who, op)
  return { "inputs | pool_size strides? padding? data_format?", function(x, size, strides, padding, data_format)
    padding = check_padding(who, padding)
    return over_images(who, x, data_format, function(t, axes)
      local window, s = pair(who, size, 1, axes), t:shape()
      local steps = pair(who, strides or size, 1, axes)
      check_fit(who, padding, s, window)
      return op(t, { size = window, strides = steps, pads = images.pads(padding, s[2], s[3], window, steps) })
    end)
  end }
end
M.MaxPool, M.AveragePool = pool("max_pool", ops.max_pool2d), pool("average_pool", ops.avg_pool2d)

-- ---- blocks of pixels ---------------------------------------------------------------------------

M.DepthToSpace = { "x | block_size data_format?", function(x, n, data_format)
  return over_images("depth_to_space", x, data_format, function(t)
    local s = t:shape()
    arguments.whole("depth_to_space", "the block", n, 1)
    if s[4] % (n * n) ~= 0 then arguments.fail("depth_to_space: %d channels for blocks of %d", s[4], n) end
    local depth = s[4] / (n * n)
    t = ops.permute(ops.reshape(t, { shape = { s[1], s[2], s[3], n, n, depth } }), { order = { 1, 2, 4, 3, 5, 6 } })
    return ops.reshape(t, { shape = { s[1], s[2] * n, s[3] * n, depth } })
  end)
end }

M.SpaceToDepth = { "x | block_size data_format?", function(x, n, data_format)
  return over_images("space_to_depth", x, data_format, function(t)
    local s = t:shape()
    arguments.whole("space_to_depth", "the block", n, 1)
    if s[2] % n ~= 0 or s[3] % n ~= 0 then
      arguments.fail("space_to_depth: {%d, %d} cannot be cut into blocks of %d", s[2], s[3], n)
    end
    t = ops.reshape(t, { shape = { s[1], s[2] / n, n, s[3] / n, n, s[4] } })
    return ops.reshape(ops.permute(t, { order = { 1, 2, 4, 3, 5, 6 } }),
      { shape = { s[1], s[2] / n, s[3] / n, n * n * s[4] } })
  end)
end }

return M
