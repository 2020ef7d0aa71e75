--- unet {input_shape = {256, 256, 1}, classes = 1, filters = 64, depth = 4, batch_normalization = false, dropout = 0}:
--- a U-Net for segmentation, whose output has a class for each pixel of the input.
--     mgpu.models.unet { input_shape = { 128, 128, 3 }, classes = 21, filters = 32 }     -- RETURNS an uncompiled Model
-- classes = 1: a sigmoid, for binary_crossentropy; more: a softmax over the classes. filters: of the first of `depth`
-- levels; each further level has half the size and twice the filters. dropout: a rate, before the deepest level.
-- Convolutions are "same"-padded, so that the output has the size of the input (in the paper it is smaller).
-- Errors: a size that 2 ^ depth does not divide. Source: Ronneberger, Fischer & Brox, U-Net, 2015.
-- Example:
--     local model = mgpu.models.unet { input_shape = { 32, 32, 3 }, classes = 4, filters = 8, depth = 2 }
--     print(unpack(model:predict(mgpu.rand { 1, 32, 32, 3 }):shape())) -- four probabilities for each pixel
--     --> 1 32 32 4
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local mgpu = require "mgpu"
local options = require "mgpu.options"
local L = mgpu.layers

local UNET = options.declare {
  { "input_shape", "shape", default = { 256, 256, 1 } },
  { "classes", "integer", default = 1, min = 1 },
  { "filters", "integer", default = 64, min = 1 },
  { "depth", "integer", default = 4, min = 1, max = 8 },
  { "batch_normalization", "boolean", default = false },
  { "dropout", "number", default = 0, min = 0, below = 1 },
}

local function check_shape(shape, depth)
  if #shape ~= 3 then
    core.fail("usage", ('unet: option "input_shape" must have three sizes, got %d'):format(#shape))
  end
  for i = 1, 2 do
    local size = shape[images.rows_axis({}, 3) + i - 1]
    if size ~= -1 and size % 2 ^ depth ~= 0 then
      core.fail("usage", ("unet: with depth %d the size of the images must be a multiple of %d, got %d"):format(depth,
        2 ^ depth, size))
    end
  end
end

-- Two 3 x 3 convolutions NAME_conv1 and NAME_conv2.
local function convolutions(x, filters, name, chosen)
  for i = 1, 2 do
    local own = ("%s_conv%d"):format(name, i)
    x = L.Conv2D { filters, 3, padding = "same", use_bias = not chosen.batch_normalization, name = own,
      kernel_initializer = "he_normal" } (x)
    if chosen.batch_normalization then
      x = L.BatchNormalization { axis = images.channels_axis(), name = own .. "_bn" } (x)
    end
    x = L.Activation { "relu", name = own .. "_relu" } (x)
  end
  return x
end

return function(given)
  local chosen = options.check("unet", UNET, given == nil and {} or given)
  check_shape(chosen.input_shape, chosen.depth)
  local input = L.Input(chosen.input_shape)
  local x, skips = input, {}
  for level = 1, chosen.depth do
    skips[level] = convolutions(x, chosen.filters * 2 ^ (level - 1), "down" .. level, chosen)
    x = L.MaxPooling2D { 2, name = ("down%d_pool"):format(level) } (skips[level])
  end
  if chosen.dropout > 0 then x = L.Dropout { chosen.dropout, name = "dropout" } (x) end
  x = convolutions(x, chosen.filters * 2 ^ chosen.depth, "bottom", chosen)
  for level = chosen.depth, 1, -1 do
    local filters, name = chosen.filters * 2 ^ (level - 1), "up" .. level
    x = L.Conv2DTranspose { filters, 2, strides = 2, name = name .. "_transpose" } (x)
    x = L.Concatenate { axis = images.channels_axis(), name = name .. "_concat" } { skips[level], x }
    x = convolutions(x, filters, name, chosen)
  end
  x = L.Conv2D { chosen.classes, 1, name = "predictions_conv" } (x)
  if chosen.classes > 1 then
    x = L.Softmax { axis = images.channels_axis(), name = "predictions" } (x)
  else
    x = L.Activation { "sigmoid", name = "predictions" } (x)
  end
  return mgpu.Model { inputs = input, outputs = x, name = "unet" }
end
