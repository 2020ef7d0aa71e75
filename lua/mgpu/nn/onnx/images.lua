--- Layers over images and sequences as ops of ONNX: convolutions, pooling, padding, cropping, enlarging.
--
-- ONNX has the channels as the second axis. A layer with data_format = "channels_first" has them there already, so its
-- values are taken as they are; others use the tensors that graph:first keeps.
local activations = require "mgpu.nn.onnx.activations"
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local lora = require "mgpu.nn.layers.lora"

local ops = core.ops

-- ---- the two orders of axes ---------------------------------------------------------------------

-- The name of v with the channels as the second axis.
local function channels_second(g, layer, v)
  if images.is_first(layer) then return g:plain(v) end
  return g:first(v)
end

-- The value, in the layer's shape, of a tensor with the channels second that the layer has computed.
local function from_second(g, layer, name, shape, dtype)
  if images.is_first(layer) then return g.value(name, shape, dtype) end
  return g.first_value(name, shape, dtype)
end

-- The sizes of the axes after batch and channels: {rows, columns} or {steps}.
local function sizes_of(layer, v)
  local first = images.is_first(layer) and 3 or 2
  return { unpack(v.shape, first, first + #v.shape - 3) }
end

-- One number, or a list of them, as a list.
local function list_of(value) return type(value) == "table" and value or { value } end

-- ---- windows ------------------------------------------------------------------------------------

-- The attributes that say how windows move. Keras pads more at the end if the number of pads is odd. Sizes that are not
-- known are padded by ONNX's rule, which is the same one.
local function window_attributes(layer, v, spans, strides)
  local attributes, before, after = { strides = strides }, {}, {}
  if layer.padding == "valid" then return attributes end
  for i, size in ipairs(sizes_of(layer, v)) do
    local total = (math.ceil(size / strides[i]) - 1) * strides[i] + spans[i] - size
    if layer.padding == "causal" then
      before[i], after[i] = spans[i] - 1, 0
    elseif size == -1 then
      attributes.auto_pad = "SAME_UPPER"
    else
      total = math.max(total, 0)
      before[i], after[i] = math.floor(total / 2), math.ceil(total / 2)
    end
  end
  if attributes.auto_pad then return attributes end
  attributes.pads = before
  for _, pad in ipairs(after) do table.insert(before, pad) end
  return attributes
end

-- Adds the layer's activation to the name of what it computed before.
local function activated(g, layer, name, v)
  return activations.apply(g, layer, from_second(g, layer, name, layer:output_shape(v.shape), v.dtype))
end

-- x as {..., b, a}: the first axes keep their places.
local function permuted(order)
  return function(t) return ops.permute(t, { order = order }) end
end
local TO_OIHW, TO_OIW = permuted { 4, 3, 1, 2 }, permuted { 3, 2, 1 }

-- The kernel {rows, columns, channels, multiplier} of a depthwise convolution, whose groups are the channels.
local function depthwise(t)
  local s = t:shape()
  return TO_OIHW(ops.reshape(t, { shape = { s[1], s[2], 1, s[3] * s[4] } }))
end

-- A convolution of the tensor called x. spec: {kernel = name, bias = variable or nil, groups =, attributes =}.
local function convolve(g, layer, x, spec, op_type)
  local inputs, attributes = { x, spec.kernel }, spec.attributes
  if spec.bias then inputs[3] = g:weight(spec.bias, layer.compute_dtype) end
  attributes.group = spec.groups or 1
  return g:op(op_type or "Conv", inputs, attributes)
end

local M = {}

local function conv(g, layer, v)
  local strides, dilations = list_of(layer.strides), list_of(layer.dilation_rate)
  local attributes = window_attributes(layer, v, list_of(layer.span), strides)
  attributes.dilations = dilations
  local kernel = g:weight(lora.weight(layer), layer.compute_dtype, "first", #strides == 2 and TO_OIHW or TO_OIW)
  return activated(g, layer, convolve(g, layer, channels_second(g, layer, v), { kernel = kernel, bias = layer.bias,
    groups = layer.groups, attributes = attributes }), v)
end
M.Conv1D, M.Conv2D = conv, conv

-- The depthwise convolution with this kernel, as the name of its result.
local function depthwise_conv(g, layer, v, kernel, bias)
  local attributes = window_attributes(layer, v, layer.span, layer.strides)
  attributes.dilations = layer.dilation_rate
  return convolve(g, layer, channels_second(g, layer, v), { attributes = attributes, groups = layer.channels,
    kernel = g:weight(kernel, layer.compute_dtype, "depthwise", depthwise), bias = bias })
end

function M.DepthwiseConv2D(g, layer, v)
  return activated(g, layer, depthwise_conv(g, layer, v, layer.kernel, layer.bias), v)
end

function M.SeparableConv2D(g, layer, v)
  local kernel = g:weight(layer.pointwise_kernel, layer.compute_dtype, "first", TO_OIHW)
  return activated(g, layer, convolve(g, layer, depthwise_conv(g, layer, v, layer.depthwise_kernel),
    { kernel = kernel, bias = layer.bias, attributes = {} }), v)
end

-- The pads cut off from the full transposed convolution, and the rows that it is too short by. They do not depend on
-- the size of the input, so any will do.
local function transposed_attributes(layer)
  local size = 64
  local out = images.shape_last(layer, layer:output_shape(images.shape_back(layer, { -1, size, size, layer.channels })))
  local attributes = { strides = layer.strides, dilations = layer.dilation_rate, pads = {}, output_padding = {} }
  for i = 1, 2 do
    local surplus = (size - 1) * layer.strides[i] + layer.span[i] - out[i + 1]
    local total = math.max(surplus, 0)
    attributes.pads[i], attributes.pads[i + 2] = math.floor(total / 2), math.ceil(total / 2)
    attributes.output_padding[i] = math.max(-surplus, 0)
  end
  return attributes
end

function M.Conv2DTranspose(g, layer, v)
  return activated(g, layer, convolve(g, layer, channels_second(g, layer, v), { bias = layer.bias,
    kernel = g:weight(layer.kernel, layer.compute_dtype, "first", TO_OIHW),
    attributes = transposed_attributes(layer) }, "ConvTranspose"), v)
end

-- ---- pooling ------------------------------------------------------------------------------------

local function pool(op_type)
  return function(g, layer, v)
    local size = list_of(layer.pool_size)
    local attributes = window_attributes(layer, v, size, list_of(layer.strides or size))
    attributes.kernel_shape = size
    local name = g:op(op_type, { channels_second(g, layer, v) }, attributes)
    return from_second(g, layer, name, layer:output_shape(v.shape), v.dtype)
  end
end
M.MaxPooling1D, M.MaxPooling2D = pool "MaxPool", pool "MaxPool"
M.AveragePooling1D, M.AveragePooling2D = pool "AveragePool", pool "AveragePool"

-- Whole images: in whichever order of axes there is.
local function global_pool(op_type)
  return function(g, layer, v)
    local second = images.is_first(layer) or not v.plain
    local axes, first = {}, second and 2 or 1
    for i = 1, #v.shape - 2 do axes[i] = first + i - 1 end
    local name = g:op(op_type, { images.is_first(layer) and g:plain(v) or v.plain or v.first },
      { axes = axes, keepdims = layer.keepdims and 1 or 0 })
    local shape = layer:output_shape(v.shape)
    if not layer.keepdims or v.plain then return g.value(name, shape, v.dtype) end
    return from_second(g, layer, name, shape, v.dtype)
  end
end
M.GlobalMaxPooling1D, M.GlobalMaxPooling2D = global_pool "ReduceMax", global_pool "ReduceMax"
M.GlobalAveragePooling1D, M.GlobalAveragePooling2D = global_pool "ReduceMean", global_pool "ReduceMean"

-- ---- edges and sizes ----------------------------------------------------------------------------

function M.ZeroPadding2D(g, layer, v)
  local p = layer.padding
  local pads = { 0, 0, p[1][1], p[2][1], 0, 0, p[1][2], p[2][2] }
  local name = g:op("Pad", { channels_second(g, layer, v), g:integers(pads) })
  return from_second(g, layer, name, layer:output_shape(v.shape), v.dtype)
end

-- 2^53 stands for the end of an axis.
function M.Cropping2D(g, layer, v)
  local starts, ends = {}, {}
  for i, c in ipairs(layer.cropping) do starts[i], ends[i] = c[1], c[2] > 0 and -c[2] or 2 ^ 53 end
  local name = g:op("Slice", { channels_second(g, layer, v), g:integers(starts), g:integers(ends),
    g:integers { 2, 3 } })
  return from_second(g, layer, name, layer:output_shape(v.shape), v.dtype)
end

-- How ONNX's Resize interpolates, by our name.
local RESIZES = {
  nearest = { mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor" },
  bilinear = { mode = "linear", coordinate_transformation_mode = "half_pixel" },
  bicubic = { mode = "cubic", coordinate_transformation_mode = "half_pixel", cubic_coeff_a = { float = -0.5 },
    exclude_outside = 1 },
}

function M.UpSampling2D(g, layer, v)
  local attributes = RESIZES[layer.interpolation]
  if not attributes then layer:fail("interpolation %q cannot be saved as .onnx", layer.interpolation) end
  if layer.interpolation ~= "nearest" and not v.dtype:find "float" then v = g:cast(v, core.floatx()) end
  local name = g:op("Resize", { channels_second(g, layer, v), "", g:floats { 1, 1, layer.size[1], layer.size[2] } },
    attributes)
  return from_second(g, layer, name, layer:output_shape(v.shape), v.dtype)
end

return M
