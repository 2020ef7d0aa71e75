--- gpt {vocabulary = 50257, context = 1024, width = 768, layers = 12, heads = 12, dropout = 0, weights =}: GPT-2.
-- ids {batch, steps} from 0 to vocabulary - 1 -> {batch, steps, vocabulary}: the logits of the next id behind each
-- step. The table of the embedding gives the logits, too. The defaults are GPT-2 small, 124,439,808 parameters.
--     local model = mgpu.models.gpt { weights = "model.safetensors" }     -- RETURNS an uncompiled Model
--     local ids = mgpu.models.gpt.generate(model, { 464, 3280 }, { max_new_tokens = 20, top_k = 40 })
-- weights: a .safetensors file of GPT-2 from Hugging Face, with the names of its GPT2LMHeadModel or GPT2Model; its
-- sizes are the options. dropout: behind attention and dense networks, and of the attention's weights. A saved model is
-- loaded with custom = {PositionEmbedding = mgpu.models.gpt.PositionEmbedding}.
-- Errors: a width that is no multiple of heads; weights that are missing or do not fit; more steps than context.
-- Source: Radford et al., Language models are unsupervised multitask learners, 2019.
-- Example:
--     local model = mgpu.models.gpt { vocabulary = 50, context = 16, width = 8, layers = 2, heads = 2 }
--     print(unpack(model(mgpu.zeros({ 1, 5 }, { dtype = "int32" })):shape()))  --> 1 5 50
--     print(#mgpu.models.gpt.generate(model, { 3, 1, 4 }, { max_new_tokens = 5, seed = 1 }))  --> 8
local core = require "mgpu.core"
local generate = require "mgpu.zoo.generate"
local hugging_face = require "mgpu.zoo.hugging_face"
local L = require "mgpu.nn.layers"
local Model = require "mgpu.nn.model"
local initializers = require "mgpu.nn.initializers"
local options = require "mgpu.options"
local transformer = require "mgpu.zoo.transformer"

local GPT = options.declare {
  { "vocabulary", "integer", default = 50257, min = 1 },
  { "context", "integer", default = 1024, min = 1 },
  { "width", "integer", default = 768, min = 1 },
  { "layers", "integer", default = 12, min = 1 },
  { "heads", "integer", default = 12, min = 1 },
  { "dropout", "number", default = 0, min = 0, below = 1 },
  { "weights", "string" },
}

-- ---- weights of Hugging Face --------------------------------------------------------------------

-- The weights of an attention: c_attn holds the kernels of query, key and value side by side.
local function set_attention(attention, prefix, width, file)
  local set = hugging_face.set
  local kernel = file:take(prefix .. "c_attn.weight", { width, 3 * width })
  local bias = file:take(prefix .. "c_attn.bias", { 3 * width })
  for i, dense in ipairs { attention.query_dense, attention.key_dense, attention.value_dense } do
    local columns = { (i - 1) * width + 1, i * width }
    set(dense.kernel, kernel:slice { {}, columns })
    set(dense.bias, bias:slice { columns })
  end
  set(attention.output_dense.kernel, file:take(prefix .. "c_proj.weight", { width, width }))
  set(attention.output_dense.bias, file:take(prefix .. "c_proj.bias", { width }))
end

local function load_weights(model, path, chosen)
  if not core.file_exists(path) then core.fail("io", ("gpt: weights: there is no file %s"):format(path)) end
  local file = hugging_face.open(path, "wte.weight", "transformer.")
  file:copy(model:get_layer "token_embedding".embeddings, "wte.weight")
  file:copy(model:get_layer "position_embedding".embeddings, "wpe.weight")
  if file:find(("h.%d.ln_1.weight"):format(chosen.layers)) then
    core.fail("data", ("%s has more than the model's %d layers"):format(path, chosen.layers))
  end
  for i = 0, chosen.layers - 1 do
    local function layer(part) return model:get_layer(("block_%d_%s"):format(i, part)) end
    local prefix = ("h.%d."):format(i)
    file:copy_norm(layer "norm_1", prefix .. "ln_1")
    set_attention(layer "attention", prefix .. "attn.", chosen.width, file)
    file:copy_norm(layer "norm_2", prefix .. "ln_2")
    for part, dense in pairs { c_fc = layer "dense_1", c_proj = layer "dense_2" } do
      file:copy(dense.kernel, prefix .. "mlp." .. part .. ".weight")
      file:copy(dense.bias, prefix .. "mlp." .. part .. ".bias")
    end
  end
  file:copy_norm(model:get_layer "final_norm", "ln_f")
end

-- ---- the model ----------------------------------------------------------------------------------

local function make(given)
  local chosen = options.check("gpt", GPT, given == nil and {} or given)
  transformer.check_heads("gpt", chosen.width, chosen.heads)
  local normal = initializers.random_normal { stddev = 0.02 }
  local ids = L.Input { { -1 }, dtype = "int32", name = "ids" }
  local words = L.ReversibleEmbedding { chosen.vocabulary, chosen.width, embeddings_initializer = normal,
    name = "token_embedding" }
  local x = transformer.PositionEmbedding { chosen.context, embeddings_initializer = normal,
    name = "position_embedding" } (words(ids))
  if chosen.dropout > 0 then x = L.Dropout { chosen.dropout, name = "embedding_dropout" } (x) end
  for i = 0, chosen.layers - 1 do
    x = transformer.block(x, { width = chosen.width, heads = chosen.heads, ratio = 4, dropout = chosen.dropout,
      epsilon = 1e-5, causal = true, tanh = true, initializer = normal }, ("block_%d"):format(i))
  end
  x = L.LayerNormalization { epsilon = 1e-5, name = "final_norm" } (x)
  local model = Model { inputs = ids, outputs = words(x, { reverse = true }), name = "gpt" }
  if chosen.weights then load_weights(model, chosen.weights, chosen) end
  return model
end

return setmetatable({ generate = generate, PositionEmbedding = transformer.PositionEmbedding },
  { __call = function(_, given) return make(given) end })
