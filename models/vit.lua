--- vit {input_shape = {224, 224, 3}, classes = 1000, patch = 16, width = 768, layers = 12, heads = 12, ratio = 4, ...}:
--- the vision transformer ViT of Hugging Face, which classifies images by self-attention between their patches.
-- The defaults are google/vit-base-patch16-224, 86,567,656 parameters. Images whose rows and columns are multiples of
-- patch -> {batch, classes}. A block's dense network has width * ratio units. dropout = 0: behind attention and dense
-- networks, and of the attention's weights.
--     mgpu.models.vit { weights = "model.safetensors" }     -- RETURNS an uncompiled Model
-- weights: a .safetensors file with the names of ViTForImageClassification (or of ViTModel without the top), or a file
-- that load_weights reads. Further options, preprocess_input ("tf"): lua/mgpu/zoo/classifier.lua. Without the top the
-- output is {batch, 1 + patches, width}, normalized: the class token, then the patches row by row.
-- A saved model is loaded with custom = {ClassToken = mgpu.models.vit.ClassToken, PositionEmbedding =
-- mgpu.models.vit.PositionEmbedding}.
-- Errors: sizes that are no multiples of patch; a width that is no multiple of heads; weights that do not fit.
-- Source: Dosovitskiy et al., An image is worth 16x16 words, 2020.
-- Example:
--     local model = mgpu.models.vit { input_shape = { 32, 32, 3 }, classes = 10, patch = 8, width = 16, layers = 2,
--       heads = 2 }
--     print((model:count_params()))  --> 10138
--     print(unpack(model(mgpu.rand { 2, 32, 32, 3 }):shape()))  --> 2 10
local classifier = require "mgpu.zoo.classifier"
local core = require "mgpu.core"
local hugging_face = require "mgpu.zoo.hugging_face"
local images = require "mgpu.nn.layers.images"
local initializers = require "mgpu.nn.initializers"
local L = require "mgpu.nn.layers"
local Layer = require "mgpu.nn.layer"
local transformer = require "mgpu.zoo.transformer"

local ops = core.ops

-- ---- the class token ----------------------------------------------------------------------------

--- ClassToken {}: puts a learned vector in front of the steps; the classifier reads the class from its place.
-- x {batch, steps, features} -> {batch, 1 + steps, features}. Weight: token {1, 1, features}.
local ClassToken = Layer:extend("ClassToken", { positional = 0,
  { "token_initializer", "initializer", default = "zeros" },
})

function ClassToken:build(shape)
  self:need_rank(shape, 3, "batch, steps, features")
  self.token = self:add_weight { name = "token", shape = { 1, 1, shape[3] }, initializer = self.token_initializer }
end

function ClassToken:output_shape(shape) -- luacheck: no self
  return { shape[1], shape[2] == -1 and -1 or shape[2] + 1, shape[3] }
end

-- A sum, since it broadcasts over the batch: 0 and x, the token and 0.
function ClassToken:call(x)
  return ops.pad(x, { before = { 0, 1, 0 }, after = { 0, 0, 0 } })
    + ops.pad(self.token:value(), { before = { 0, 0, 0 }, after = { 0, x:shape()[2], 0 } })
end

-- ---- the model ----------------------------------------------------------------------------------

-- The images x as {batch, patches, width}, and the number of patches.
local function patches(x, chosen, normal)
  local shape, first = x:shape(), images.is_first {}
  local rows, columns = shape[first and 3 or 2], shape[first and 4 or 3]
  if rows % chosen.patch ~= 0 or columns % chosen.patch ~= 0 then
    core.fail("usage", ("vit: images of %d x %d cannot be cut into patches of %d x %d"):format(rows, columns,
      chosen.patch, chosen.patch))
  end
  x = L.Conv2D { chosen.width, chosen.patch, strides = chosen.patch, kernel_initializer = normal,
    name = "patch_embedding" } (x)
  if first then x = L.Permute { 2, 3, 1, name = "channels_last" } (x) end
  local count = rows / chosen.patch * (columns / chosen.patch)
  return L.Reshape { { count, chosen.width }, name = "patches" } (x), count
end

local function features(x, chosen)
  transformer.check_heads("vit", chosen.width, chosen.heads)
  local normal = initializers.truncated_normal { stddev = 0.02 }
  local steps, count = patches(x, chosen, normal)
  x = ClassToken { token_initializer = normal, name = "class_token" } (steps)
  x = transformer.PositionEmbedding { count + 1, embeddings_initializer = normal, name = "position_embedding" } (x)
  if chosen.dropout > 0 then x = L.Dropout { chosen.dropout, name = "embedding_dropout" } (x) end
  for i = 0, chosen.layers - 1 do
    x = transformer.block(x, { width = chosen.width, heads = chosen.heads, ratio = chosen.ratio,
      dropout = chosen.dropout, epsilon = 1e-12, initializer = normal }, ("block_%d"):format(i))
  end
  return L.LayerNormalization { epsilon = 1e-12, name = "final_norm" } (x)
end

-- The classifier sees the class token alone.
local function head(x, chosen)
  x = L.Cropping1D { { 0, x:shape()[2] - 1 }, name = "first_step" } (x)
  x = L.Flatten { name = "flatten" } (x)
  return L.Dense { chosen.classes, activation = chosen.classifier_activation, name = "predictions",
    kernel_initializer = initializers.truncated_normal { stddev = 0.02 } } (x)
end

-- ---- weights of Hugging Face --------------------------------------------------------------------

-- The parts of a block, and the names of their weights behind encoder.layer.N.
local NORMS = { norm_1 = "layernorm_before", norm_2 = "layernorm_after" }
local DENSES = { dense_1 = "intermediate.dense", dense_2 = "output.dense" }
local PROJECTIONS = { query_dense = "attention.attention.query", key_dense = "attention.attention.key",
  value_dense = "attention.attention.value", output_dense = "attention.output.dense" }

-- The kernel and the bias of a dense layer: a Linear of PyTorch has its kernel as {out, in}.
local function copy_linear(file, layer, name)
  local out = layer.bias:count()
  local kernel = file:take(name .. ".weight", { out, layer.kernel:count() / out })
  hugging_face.set(layer.kernel, kernel:permute { 2, 1 })
  hugging_face.set(layer.bias, file:take(name .. ".bias", { out }))
end

local function copy_embeddings(file, model, chosen)
  local projection, positions = model:get_layer "patch_embedding", model:get_layer "position_embedding".embeddings
  local name, size = "embeddings.patch_embeddings.projection", chosen.patch
  local channels = projection.kernel:shape()[3]
  local kernel = file:take(name .. ".weight", { chosen.width, channels, size, size })
  hugging_face.set(projection.kernel, kernel:permute { 3, 4, 2, 1 })
  file:copy(projection.bias, name .. ".bias")
  file:copy(model:get_layer "class_token".token, "embeddings.cls_token")
  hugging_face.set(positions, file:take("embeddings.position_embeddings", { 1, unpack(positions:shape()) }))
end

local SIGN = "embeddings.cls_token"

local function load_weights(model, path, chosen)
  local file = path:find "%.safetensors$" and hugging_face.open(path, SIGN, "vit.")
  if not file or not file:find(SIGN) then return model:load_weights(path) end
  if file:find(("encoder.layer.%d.layernorm_before.weight"):format(chosen.layers)) then
    core.fail("data", ("%s has more than the model's %d layers"):format(path, chosen.layers))
  end
  copy_embeddings(file, model, chosen)
  for i = 0, chosen.layers - 1 do
    local function layer(part) return model:get_layer(("block_%d_%s"):format(i, part)) end
    local prefix = ("encoder.layer.%d."):format(i)
    for part, name in pairs(NORMS) do file:copy_norm(layer(part), prefix .. name) end
    for part, name in pairs(PROJECTIONS) do copy_linear(file, layer "attention"[part], prefix .. name) end
    for part, name in pairs(DENSES) do copy_linear(file, layer(part), prefix .. name) end
  end
  file:copy_norm(model:get_layer "final_norm", "layernorm")
  if chosen.include_top then copy_linear(file, model:get_layer "predictions", "classifier") end
end

-- ---- the options --------------------------------------------------------------------------------

local vit = classifier.define { name = "vit", mode = "tf", known_size = true, least = 1, features = features,
  head = head, load_weights = load_weights,
  options = {
    { "patch", "integer", default = 16, min = 1 },
    { "width", "integer", default = 768, min = 1 },
    { "layers", "integer", default = 12, min = 1 },
    { "heads", "integer", default = 12, min = 1 },
    { "ratio", "integer", default = 4, min = 1 },
    { "dropout", "number", default = 0, min = 0, below = 1 },
  } }
vit.ClassToken, vit.PositionEmbedding = ClassToken, transformer.PositionEmbedding
return vit
