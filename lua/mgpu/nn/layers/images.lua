--- Helpers that the layers over images share: data formats, windows, padding.
-- Windows follow Keras; sizes of -1 are unknown.
local core = require "mgpu.core"
local ops = core.ops

local M = { default_format = "channels_last" }

--- The option data_format of image layers.
M.data_format = { "data_format", "string", values = { "channels_last", "channels_first" } }

--- is_first(layer): whether its data are channels_first.
function M.is_first(layer) return (layer.data_format or M.default_format) == "channels_first" end

--- channels_axis(layer = {}, rank = 4) -> the axis of the channels, from 1, of images, or with rank 3 of one image;
--- rows_axis is that of the rows, before the columns. {} stands for the default format.
function M.channels_axis(layer, rank)
  rank = rank or 4
  return M.is_first(layer or {}) and rank - 2 or rank
end

function M.rows_axis(layer, rank) return (rank or 4) - (M.is_first(layer or {}) and 1 or 2) end

--- to_last(x) -> channels_first x as channels_last; to_first(x) is the inverse.
function M.to_last(x) return ops.permute(x, { order = { 1, 3, 4, 2 } }) end
function M.to_first(x) return ops.permute(x, { order = { 1, 4, 2, 3 } }) end

--- as_last(layer, x, fn) -> what fn returns for x as {batch, rows, columns, channels}, in the layer's data format.
function M.as_last(layer, x, fn)
  if not M.is_first(layer) then return fn(x) end
  local y = fn(M.to_last(x))
  return y:rank() == 4 and M.to_first(y) or y
end

--- shape_last(layer, shape) -> {batch, rows, columns, channels} from a shape in the layer's data format. shape_back is
--- the inverse.
function M.shape_last(layer, shape)
  if not M.is_first(layer) then return shape end
  return { shape[1], shape[3], shape[4], shape[2] }
end

function M.shape_back(layer, shape)
  if not M.is_first(layer) or #shape ~= 4 then return shape end
  return { shape[1], shape[4], shape[2], shape[3] }
end

--- channels_of(layer, shape) -> the number of channels. Errors: an unknown number.
function M.channels_of(layer, shape)
  local channels = shape[M.is_first(layer) and 2 or #shape]
  if channels == -1 then
    layer:fail("the number of channels must be known to make weights, got shape %s",
      layer.shape_text(shape))
  end
  return channels
end

--- check_input(layer, x): raises unless x has the channels that the layer was built for, and windows fit in it.
function M.check_input(layer, x)
  local shape = x:shape()
  local channels = M.channels_of(layer, shape)
  if channels ~= layer.channels then
    layer:fail("the input has %d channels, the layer was built for %d", channels, layer.channels)
  end
  layer:output_shape(shape)
end

--- check_groups(layer, channels): raises unless the layer's groups divide its filters and (if known) the channels.
function M.check_groups(layer, channels)
  if layer.filters % layer.groups ~= 0 then
    layer:fail("%d filters cannot be divided into %d groups", layer.filters, layer.groups)
  elseif channels and channels % layer.groups ~= 0 then
    layer:fail("%d channels cannot be divided into %d groups", channels, layer.groups)
  end
end

--- check_steps(layer): raises if strides and dilation are both above 1, as Keras does.
function M.check_steps(layer)
  local function above_1(steps) return math.max(unpack(type(steps) == "table" and steps or { steps })) > 1 end
  if above_1(layer.strides) and above_1(layer.dilation_rate) then
    layer:fail("strides above 1 cannot be combined with a dilation_rate above 1")
  end
end

--- spans(sizes, dilations) -> the extent of a dilated window along each axis.
function M.spans(sizes, dilations)
  local spans = {}
  for i, size in ipairs(sizes) do spans[i] = (size - 1) * dilations[i] + 1 end
  return spans
end

--- window_shape(layer, shape, spans, strides, channels, what) -> the layer's output shape for windows over rows and
--- columns. `what` names the window in the error for an input that is too small.
function M.window_shape(layer, shape, spans, strides, channels, what)
  local s, out = M.shape_last(layer, shape), {}
  for i = 1, 2 do
    out[i] = M.output_size(s[i + 1], spans[i], strides[i], layer.padding)
    if out[i] < 1 and s[i + 1] ~= -1 then
      layer:fail("the %s {%d, %d} does not fit into the input %s: pad it or use a smaller one", what,
        spans[1], spans[2], layer.shape_text(shape))
    end
  end
  return M.shape_back(layer, { s[1], out[1], out[2], channels or s[4] })
end

--- output_size(size, window, stride, padding) -> the number of windows along an axis; padding: "valid" or "same".
function M.output_size(size, window, stride, padding)
  if size == -1 then return -1 end
  if padding == "same" then return math.ceil(size / stride) end
  return math.floor((size - window) / stride) + 1
end

--- pads(padding, rows, columns, windows, strides) -> {top, bottom, left, right}. With "same" an odd number of pads has
--- the larger half at the end, as in TensorFlow.
function M.pads(padding, rows, columns, windows, strides)
  if padding ~= "same" then return { 0, 0, 0, 0 } end
  local pads = {}
  for i, size in ipairs { rows, columns } do
    local out = math.ceil(size / strides[i])
    local total = math.max((out - 1) * strides[i] + windows[i] - size, 0)
    pads[2 * i - 1], pads[2 * i] = math.floor(total / 2), math.ceil(total / 2)
  end
  return pads
end

--- depthwise(t, kernel, strides, dilations, padding, span) -> the depthwise convolution of t {batch, rows, columns,
--- channels} with kernel {rows, columns, channels, multiplier}: a grouped one with a group for each channel.
function M.depthwise(t, kernel, strides, dilations, padding, span)
  local s, k = t:shape(), kernel:shape()
  return ops.conv2d(t, ops.reshape(kernel, { shape = { k[1], k[2], 1, k[3] * k[4] } }), {
    strides = strides, dilations = dilations, groups = k[3],
    pads = M.pads(padding, s[2], s[3], span, strides) })
end

return M
