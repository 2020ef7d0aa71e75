--- Helpers that the layers over sequences share. A sequence is handled as an image of one row.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"

local ops = core.ops
local M = { data_format = images.data_format, is_first = images.is_first }

--- shape_last(layer, shape) -> {batch, steps, channels} from a shape in the layer's data format. shape_back is the
--- inverse.
function M.shape_last(layer, shape)
  if not M.is_first(layer) then return shape end
  return { shape[1], shape[3], shape[2] }
end
M.shape_back = M.shape_last

local function swap_axes(x) return ops.permute(x, { order = { 1, 3, 2 } }) end

--- as_image(layer, x, fn) -> what fn returns for x as {batch, 1, steps, channels}, in the layer's data format.
function M.as_image(layer, x, fn)
  local first = M.is_first(layer)
  if first then x = swap_axes(x) end
  local s = x:shape()
  local y = fn(ops.reshape(x, { shape = { s[1], 1, s[2], s[3] } }))
  local t = y:shape()
  y = ops.reshape(y, { shape = { t[1], t[3], t[4] } })
  return first and swap_axes(y) or y
end

--- output_size(size, span, stride, padding) -> the number of windows; padding: "valid", "same" or "causal".
function M.output_size(size, span, stride, padding)
  if padding == "causal" then padding = "same" end
  return images.output_size(size, span, stride, padding)
end

--- window_shape(layer, shape, span, stride, channels, what) -> the output's shape. `what` names the window in the error
--- for an input that is too short.
function M.window_shape(layer, shape, span, stride, channels, what)
  local s = M.shape_last(layer, shape)
  local out = M.output_size(s[2], span, stride, layer.padding)
  if out < 1 and s[2] ~= -1 then
    layer:fail("the %s of %d steps does not fit into the input %s: pad it or use a smaller one", what,
      span, layer.shape_text(shape))
  end
  return M.shape_back(layer, { s[1], out, channels or s[3] })
end

--- pads(padding, steps, span, stride) -> {0, 0, before, after}, the pads of the image of one row.
function M.pads(padding, steps, span, stride)
  if padding == "causal" then return { 0, 0, span - 1, 0 } end
  return images.pads(padding, 1, steps, { 1, span }, { 1, stride })
end

return M
