--- transformer_encoder {vocabulary = 10000, length = 256, width = 64, layers = 2, heads = 4, classes = 2, ...}:
--- classifies texts by self-attention.
-- ids {batch, steps} from 0 to vocabulary - 1, at most `length` steps -> {batch, classes}, probabilities. Id 0 is
-- padding: its steps are masked. Behind the blocks the steps that count are averaged. Further option: dropout = 0.1.
-- A saved model is loaded with custom = {PositionEmbedding = mgpu.models.transformer_encoder.PositionEmbedding}.
--     mgpu.models.transformer_encoder { classes = 5 }     -- RETURNS an uncompiled Model
-- Errors: a width that is no multiple of heads; more steps than length.
-- Source: Vaswani et al., Attention is all you need, 2017, with normalization before each part.
-- Example:
--     local model = mgpu.models.transformer_encoder { vocabulary = 50, length = 8, width = 8, heads = 2 }
--     local y = model(mgpu.tensor({ { 4, 8, 0, 0 } }, { dtype = "int32" }))
--     print(("%.4f"):format(y:sum():item()))  --> 1.0000
local L = require "mgpu.nn.layers"
local Model = require "mgpu.nn.model"
local options = require "mgpu.options"
local transformer = require "mgpu.zoo.transformer"

local ENCODER = options.declare {
  { "vocabulary", "integer", default = 10000, min = 1 },
  { "length", "integer", default = 256, min = 1 },
  { "width", "integer", default = 64, min = 1 },
  { "layers", "integer", default = 2, min = 1 },
  { "heads", "integer", default = 4, min = 1 },
  { "classes", "integer", default = 2, min = 1 },
  { "dropout", "number", default = 0.1, min = 0, below = 1 },
}

local function make(given)
  local chosen = options.check("transformer_encoder", ENCODER, given == nil and {} or given)
  transformer.check_heads("transformer_encoder", chosen.width, chosen.heads)
  local ids = L.Input { { -1 }, dtype = "int32", name = "ids" }
  local x = L.Embedding { chosen.vocabulary, chosen.width, mask_zero = true, name = "token_embedding" } (ids)
  x = transformer.PositionEmbedding { chosen.length, name = "position_embedding" } (x)
  for i = 0, chosen.layers - 1 do
    x = transformer.block(x, { width = chosen.width, heads = chosen.heads, ratio = 4, dropout = chosen.dropout,
      epsilon = 1e-6 }, ("block_%d"):format(i))
  end
  x = L.LayerNormalization { epsilon = 1e-6, name = "final_norm" } (x)
  x = L.GlobalAveragePooling1D { data_format = "channels_last", name = "avg_pool" } (x)
  return Model { inputs = ids, name = "transformer_encoder",
    outputs = L.Dense { chosen.classes, activation = "softmax", name = "predictions" } (x) }
end

return setmetatable({ PositionEmbedding = transformer.PositionEmbedding },
  { __call = function(_, given) return make(given) end })
