--- What the image classifiers of mgpu.models share with keras.applications: options, input, last layers, weights.
--
--     mgpu.models.resnet50 { classes = 10, input_shape = { 32, 32, 3 } }      -- RETURNS an uncompiled Model
--     mgpu.models.resnet50 { weights = "resnet50_weights_tf_dim_ordering_tf_kernels.h5" }
--     mgpu.models.resnet50 { include_top = false, pooling = "avg", input_shape = { 96, 96, 3 } }
--     mgpu.models.resnet50.preprocess_input(images)      -- what the published weights were trained with
--     mgpu.models.resnet50.decode_predictions(model:predict(x))    -- names and scores; see predictions.lua
-- Layers have the names of keras.applications, so that its weight files load. Options of each classifier:
--   input_shape             {224, 224, 3}; {-1, -1, 3} (any size) without the top
--   include_top = true      false: leaves out the classifier, so that the output is the last feature maps
--   pooling                 without the top: "avg" or "max", a global pooling of the feature maps
--   classes = 1000, classifier_activation = "softmax" ("linear": the logits)
--   weights                 path of a file of weights, in any format that load_weights reads
--   name                    of the model
-- Errors: images smaller than 32 x 32, or of unknown size with the top; weights that are missing or do not fit.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local L = require "mgpu.nn.layers"
local Model = require "mgpu.nn.model"
local options = require "mgpu.options"
local predictions = require "mgpu.zoo.predictions"
local preprocessing = require "mgpu.zoo.preprocessing"

local M = {}

local OPTIONS = {
  { "input_shape", "shape" },
  { "classes", "integer", default = 1000, min = 1 },
  { "include_top", "boolean", default = true },
  { "pooling", "string", values = { "avg", "max" } },
  { "classifier_activation", "activation", default = "softmax" },
  { "weights", "string" },
  { "name", "string" },
}

local SIZE, LEAST = 224, 32 -- of the images by default, and at least

-- Images as {rows, columns, channels} in the image data format.
local function in_format(rows, columns, channels)
  return images.is_first {} and { channels, rows, columns } or { rows, columns, channels }
end

-- The shape of an image.
local function input_shape(set, chosen)
  local who, shape = set.name, chosen.input_shape
  if not shape then
    local size = (chosen.include_top or set.known_size) and SIZE or -1
    return in_format(size, size, 3)
  end
  if #shape ~= 3 then
    core.fail("usage", ('%s: option "input_shape" must have three sizes, got %d'):format(who, #shape))
  end
  for i = 1, 2 do
    local size = shape[images.rows_axis({}, 3) + i - 1]
    local least = set.least or LEAST
    if size ~= -1 and size < least then
      core.fail("usage", ("%s: images must be at least %d x %d, got input_shape {%s}"):format(who, least, least,
        table.concat(shape, ", ")))
    elseif size == -1 and set.known_size then
      core.fail("usage", who .. ": images must have a known size: give its numbers in input_shape")
    elseif size == -1 and chosen.include_top then
      core.fail("usage", who .. ": images of unknown size need include_top = false")
    end
  end
  return shape
end

-- What follows the features without the top: {batch, rows, columns, channels} or {batch, steps, channels}.
local function pooled(x, pooling, named)
  if not pooling then return x end
  local axes = #x:shape() - 2
  local class = (pooling == "avg" and "GlobalAveragePooling%dD" or "GlobalMaxPooling%dD"):format(axes)
  return L[class] { name = named and pooling .. "_pool" or nil, data_format = axes == 1 and "channels_last" or nil } (x)
end

-- x after global average pooling and the Dense layer "predictions".
local function head(x, chosen, named)
  x = pooled(x, "avg", named)
  return L.Dense { chosen.classes, activation = chosen.classifier_activation, name = "predictions" } (x)
end

-- Raises before any work if there is no such file of weights.
local function check_weights(who, path)
  if path == "imagenet" then
    core.fail("usage", who .. ': no weights are downloaded: give the path of a file in place of "imagenet"')
  elseif path and not core.file_exists(path) then
    core.fail("io", ("%s: weights: there is no file %s"):format(who, path))
  end
end

local function declare(more)
  local list = {}
  for _, option in ipairs(OPTIONS) do list[#list + 1] = option end
  for _, option in ipairs(more or {}) do list[#list + 1] = option end
  return options.declare(list)
end

--- define(set) -> {preprocess_input =, decode_predictions =}, which makes a model when it is called with options.
-- ARGS
--   set.name       of the function and, if there is no set.model_name(chosen, shape), of the model
--   set.features   function(x, chosen) -> the last feature maps for the input x
--   set.head       function(x, chosen) -> the classifier's output; by default global average pooling and a Dense
--                  layer "predictions"
--   set.without_top   function(x) -> the output without the top, from the features or what is pooled of them; by
--                  default x
--   set.known_size    whether the images must have a known size without the top, too
--   set.load_weights  function(model, path, chosen) in place of model:load_weights(path)
--   set.pools_named   whether the global pooling layer is called avg_pool or max_pool
--   set.mode       of preprocess_input: "caffe", "tf" or "torch"; nil if the model takes pixels from 0 to 255
--   set.least      rows and columns that images must have at least; 32 by default
--   set.options    further options, as options.declare takes them
function M.define(set)
  local declared = declare(set.options)
  local load_weights = set.load_weights or function(model, path) model:load_weights(path) end
  local function make(given)
    local chosen = options.check(set.name, declared, given == nil and {} or given)
    check_weights(set.name, chosen.weights)
    local shape = input_shape(set, chosen)
    local input = L.Input(shape)
    local x = set.features(input, chosen)
    if chosen.include_top then
      x = (set.head or head)(x, chosen, set.pools_named)
    else
      x = pooled(x, chosen.pooling, set.pools_named)
      if set.without_top then x = set.without_top(x) end
    end
    local name = chosen.name or (set.model_name and set.model_name(chosen, shape)) or set.name
    local model = Model { inputs = input, outputs = x, name = name }
    if chosen.weights then load_weights(model, chosen.weights, chosen) end
    return model
  end
  --- preprocess_input(x, {data_format =}) -> x as the published weights expect it; see preprocessing.lua.
  -- Example:
  --     local pixels = mgpu.full({ 1, 224, 224, 3 }, 255)
  --     -- this model takes numbers from -1 to 1
  --     print(mgpu.models.mobilenet_v2.preprocess_input(pixels):max():item())  --> 1
  local function preprocess_input(x, given)
    return preprocessing.preprocess_input(x, set.mode, given)
  end
  return setmetatable({ preprocess_input = preprocess_input, decode_predictions = predictions.decode_predictions },
    { __call = function(_, given) return make(given) end })
end

return M
