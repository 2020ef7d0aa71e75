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
local L = require "mgpu.nn.layers"
local Model = require "mgpu.nn.model"
local initializers = require "mgpu.nn.initializers"
local options = require "mgpu.options"
local tensor_file = require "mgpu.io.tensor_file"
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

local function set(v, t) v:assign(t:reshape(v:shape()):cast(v:dtype()):to(v:device())) end

local function need_shape(path, name, t, wanted)
  local shape = table.concat(t:shape(), ", ")
  wanted = table.concat(wanted, ", ")
  if shape ~= wanted then
    core.fail("data", ("%s: %s has shape {%s}, the model needs {%s}"):format(path, name, shape, wanted))
  end
end

-- The weights of an attention: c_attn holds the kernels of query, key and value side by side.
local function set_attention(attention, prefix, width, take)
  local kernel = take(prefix .. "c_attn.weight", { width, 3 * width })
  local bias = take(prefix .. "c_attn.bias", { 3 * width })
  for i, dense in ipairs { attention.query_dense, attention.key_dense, attention.value_dense } do
    local columns = { (i - 1) * width + 1, i * width }
    set(dense.kernel, kernel:slice { {}, columns })
    set(dense.bias, bias:slice { columns })
  end
  set(attention.output_dense.kernel, take(prefix .. "c_proj.weight", { width, width }))
  set(attention.output_dense.bias, take(prefix .. "c_proj.bias", { width }))
end

local function load_weights(model, path, chosen)
  if not core.file_exists(path) then core.fail("io", ("gpt: weights: there is no file %s"):format(path)) end
  local tensors = tensor_file.load(path)
  local start = tensors["transformer.wte.weight"] and "transformer." or ""
  local function take(name, shape)
    local t = tensors[start .. name]
    if not t then core.fail("data", ("%s: there is no tensor %q"):format(path, start .. name)) end
    need_shape(path, name, t, shape)
    return t
  end
  local function copy(name, v) set(v, take(name, v:shape())) end
  local function norm(prefix, layer)
    copy(prefix .. ".weight", layer.gamma)
    copy(prefix .. ".bias", layer.beta)
  end
  copy("wte.weight", model:get_layer "token_embedding".embeddings)
  copy("wpe.weight", model:get_layer "position_embedding".embeddings)
  if tensors[("%sh.%d.ln_1.weight"):format(start, chosen.layers)] then
    core.fail("data", ("%s has more than the model's %d layers"):format(path, chosen.layers))
  end
  for i = 0, chosen.layers - 1 do
    local function layer(part) return model:get_layer(("block_%d_%s"):format(i, part)) end
    local prefix = ("h.%d."):format(i)
    norm(prefix .. "ln_1", layer "norm_1")
    set_attention(layer "attention", prefix .. "attn.", chosen.width, take)
    norm(prefix .. "ln_2", layer "norm_2")
    for part, dense in pairs { c_fc = layer "dense_1", c_proj = layer "dense_2" } do
      copy(prefix .. "mlp." .. part .. ".weight", dense.kernel)
      copy(prefix .. "mlp." .. part .. ".bias", dense.bias)
    end
  end
  norm("ln_f", model:get_layer "final_norm")
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
