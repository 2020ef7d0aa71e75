--- Helpers of layers over sequences, images and volumes alike: x {batch, sizes..., channels}, or channels_first.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"

local ops = core.ops
local M = {}

--- What the axes are called, by the number of sizes.
M.AXES = { "batch, steps, channels", "batch, rows, columns, channels", "batch, depth, rows, columns, channels" }

--- shape_last(layer, shape) -> the shape with the channels last; shape_back is the inverse.
function M.shape_last(layer, shape)
  if not images.is_first(layer) then return { unpack(shape) } end
  local out = { shape[1], unpack(shape, 3) }
  out[#out + 1] = shape[2]
  return out
end

function M.shape_back(layer, shape)
  if not images.is_first(layer) then return shape end
  local out = { shape[1], shape[#shape] }
  for i = 2, #shape - 1 do out[#out + 1] = shape[i] end
  return out
end

--- as_last(layer, x, fn) -> what fn returns for x with the channels last, in the layer's data format.
function M.as_last(layer, x, fn)
  if not images.is_first(layer) then return fn(x) end
  local rank = x:rank()
  local there, back = { 1 }, { 1, rank }
  for axis = 3, rank do there[#there + 1], back[axis] = axis, axis - 1 end
  there[rank] = 2
  return ops.permute(fn(ops.permute(x, { order = there })), { order = back })
end

--- sliced(x, axis, start, stop) -> the elements start to stop - 1, from 0, along the axis.
function M.sliced(x, axis, start, stop)
  local first, last = {}, x:shape()
  if start == 0 and stop == last[axis] then return x end
  for i = 1, #last do first[i] = 0 end
  first[axis], last[axis] = start, stop
  return ops.slice(x, { start = first, stop = last })
end

--- padded(x, axis, before, after, interior) -> x with zeros around, and `interior` of them between neighbours.
function M.padded(x, axis, before, after, interior)
  if before == 0 and after == 0 and (interior or 0) == 0 then return x end
  local b, a, i = {}, {}, {}
  for k = 1, x:rank() do b[k], a[k], i[k] = 0, 0, 0 end
  b[axis], a[axis], i[axis] = before, after, interior or 0
  return ops.pad(x, { before = b, after = a, interior = i })
end

--- pads(padding, size, window, stride) -> how many zeros before and after an axis.
function M.pads(padding, size, window, stride)
  local list = images.pads(padding, 1, size, { 1, window }, { 1, stride })
  return list[3], list[4]
end

--- window_shape(layer, shape, spans, strides, channels, what) -> the layer's output shape for windows over all sizes.
--- `what` names the window in the error for an input that is too small.
function M.window_shape(layer, shape, spans, strides, channels, what)
  local out = M.shape_last(layer, shape)
  for i, span in ipairs(spans) do
    local size = out[i + 1]
    out[i + 1] = images.output_size(size, span, strides[i], layer.padding)
    if out[i + 1] < 1 and size ~= -1 then
      layer:fail("the %s {%s} does not fit into the input %s: pad it or use a smaller one", what,
        table.concat(spans, ", "), layer.shape_text(shape))
    end
  end
  out[#out] = channels or out[#out]
  return M.shape_back(layer, out)
end

return M
