--- How the images of ImageNet were prepared for published weights.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local options = require "mgpu.options"

local ops = core.ops

local M = {}

local OPTIONS = options.declare { images.data_format }

-- Means and standard deviations over ImageNet: CAFFE_MEAN of blue, green and red, the others of red, green and blue.
local CAFFE_MEAN = { 103.939, 116.779, 123.68 }
local TORCH_MEAN, TORCH_DEVIATION = { 0.485, 0.456, 0.406 }, { 0.229, 0.224, 0.225 }

--- preprocess_input(x, mode, {data_format =}) -> x, pixels from 0 to 255 with red, green and blue, prepared.
-- x {..., rows, columns, 3} or channels_first, one image or a batch; integers become floats.
-- mode: "caffe" (blue first, less the mean of ImageNet), "tf" (from -1 to 1) or "torch" (from 0 to 1, less the mean,
-- divided by the standard deviation); nil: x itself. Errors: other than three channels.
-- Source: keras.applications.imagenet_utils.
function M.preprocess_input(x, mode, given)
  if not core.is_tensor(x) then
    core.fail("usage", "preprocess_input: expected a tensor of images, got a " .. type(x))
  end
  local chosen = options.check("preprocess_input", OPTIONS, given or {})
  local rank, shape = x:rank(), x:shape()
  local axis = images.channels_axis(chosen, rank)
  if rank < 3 or shape[axis] ~= 3 then
    core.fail("usage", ("preprocess_input: images need three channels on axis %d, got shape {%s}"):format(axis,
      table.concat(shape, ", ")))
  end
  if not mode then return x end
  if not x:dtype():find "float" then x = x:cast(core.floatx()) end
  if mode == "tf" then return x / 127.5 - 1 end
  local sizes = {}
  for i = 1, rank do sizes[i] = i == axis and 3 or 1 end
  local function along_channels(numbers) return core.tensor(numbers, { dtype = x:dtype() }):reshape(sizes) end
  if mode == "torch" then return (x / 255 - along_channels(TORCH_MEAN)) / along_channels(TORCH_DEVIATION) end
  return ops.reverse(x, { axis = axis }) - along_channels(CAFFE_MEAN)
end

return M
