--- Sizes of transposed convolutions of sequences and volumes, as in Keras.
local spaces = require "mgpu.nn.layers.spaces"

local M = {}

--- check(layer, output_padding, strides): raises unless each output_padding is below its stride.
function M.check(layer, output_padding, strides)
  for i, p in ipairs(output_padding or {}) do
    if p >= strides[i] then
      layer:fail("output_padding {%s} must be below the strides {%s}", table.concat(output_padding, ", "),
        table.concat(strides, ", "))
    end
  end
end

--- output_size(layer, size, span, stride, output_padding) -> the size that an axis of this size is brought to.
function M.output_size(layer, size, span, stride, output_padding)
  if size == -1 then return -1 end
  if output_padding then
    local pad = layer.padding == "same" and math.floor(span / 2) or 0
    return (size - 1) * stride + span - 2 * pad + output_padding
  end
  return size * stride + (layer.padding == "valid" and math.max(span - stride, 0) or 0)
end

--- output_shape(layer, shape, spans, strides, output_padding) -> the layer's output shape. Errors: an empty output.
function M.output_shape(layer, shape, spans, strides, output_padding)
  local out = spaces.shape_last(layer, shape)
  for i, span in ipairs(spans) do
    local size = out[i + 1]
    out[i + 1] = M.output_size(layer, size, span, strides[i], output_padding and output_padding[i])
    if out[i + 1] < 1 and size ~= -1 then
      layer:fail("the output for the input %s would be empty: give a larger output_padding, or none",
        layer.shape_text(shape))
    end
  end
  out[#out] = layer.filters
  return spaces.shape_back(layer, out)
end

--- pads(layer, size, out, span, stride) -> the zeros before and after an axis of the convolution whose transpose the
--- layer is; that one goes from `out` to `size`.
function M.pads(layer, size, out, span, stride)
  if layer.padding ~= "same" then return 0, 0 end
  local total = math.max((size - 1) * stride + span - out, 0)
  return math.floor(total / 2), math.ceil(total / 2)
end

return M
