-- mgpu.models.gpt against GPT-2 of Hugging Face (golden/make_gpt2.py), its generate with and without kept keys and
-- values, and the training of transformers.
local check = require "check"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test = check.test
local gpt = mgpu.models.gpt

local GOLDEN = (debug.getinfo(1, "S").source:match "^@(.*/)" or "") .. "../../golden/gpt2/"
local SMALL = { vocabulary = 31, context = 24, width = 12, layers = 2, heads = 3 }

local function with(more) return fixtures.with(SMALL, more) end

local function golden_model() return gpt(with { weights = GOLDEN .. "model.safetensors" }) end

-- A model whose ids differ: with its first weights all logits are nearly the same.
local function random_model(context)
  mgpu.seed(3)
  local model = gpt(with { context = context })
  for _, v in ipairs(model.variables) do v:assign(mgpu.randn(v:shape())) end
  return model
end

test("gpt has the parameters of GPT-2, and those of GPT-2 small by default", function()
  -- transformers' GPT2LMHeadModel counts 124,439,808; its layers are made one by one here, without their weights
  local function params(v, context, width, layers)
    return (v + context) * width + layers * (12 * width * width + 13 * width) + 2 * width
  end
  check.equal((gpt(SMALL):count_params()), params(31, 24, 12, 2))
  check.equal(params(50257, 1024, 768, 12), 124439808)
end)

test("weights of Hugging Face give its logits and its text", function()
  local expected = mgpu.load(GOLDEN .. "expected.safetensors")
  local model = golden_model()
  check.near(model:predict(expected.ids):reshape { -1 }, expected.logits:reshape { -1 }, 2e-5) -- logits up to 5
  local start = expected.ids:slice { 1 }:totable()
  for _, cache in ipairs { true, false } do
    local ids = gpt.generate(model, start, { max_new_tokens = 12, greedy = true, cache = cache })
    check.equal(ids, expected.greedy:totable())
  end
end)

test("a file with the names of GPT2Model, without a prefix, is loaded too", function()
  local plain = {}
  for name, t in pairs(mgpu.load(GOLDEN .. "model.safetensors")) do plain[name:gsub("^transformer%.", "")] = t end
  mgpu.save(check.path "plain.safetensors", plain)
  local model = gpt(with { weights = check.path "plain.safetensors" })
  for i, w in ipairs(golden_model():get_weights()) do check.equal(w, model:get_weights()[i]) end
end)

test("kept keys and values give the ids that computing all steps again gives, however ids are chosen", function()
  local model, start = random_model(64), {}
  for i = 1, 19 do start[i] = i end -- one chunk and three ids
  for _, how in ipairs { { greedy = true }, { seed = 1 }, { seed = 2, top_k = 3 }, { seed = 3, top_p = 0.5 },
    { seed = 4, temperature = 3, top_k = 20, top_p = 0.9 } } do
    how.max_new_tokens = 30
    local kept = gpt.generate(model, start, how)
    how.cache = false
    check.equal(kept, gpt.generate(model, start, how))
    check.equal(#kept, 49)
  end
end)

test("ids are drawn as often as their probabilities say, among those that top_k and top_p leave", function()
  local model = random_model(24)
  local p = mgpu.softmax(model(mgpu.tensor({ { 5 } }, { dtype = "int32" })):slice { 1, 1 })
  local list, order = p:totable(), {}
  for id = 0, 30 do order[id + 1] = id end
  table.sort(order, function(a, b) return list[a + 1] > list[b + 1] end)
  local function frequencies(how)
    local counts = {}
    for seed = 1, 300 do
      how.seed, how.max_new_tokens, how.cache = seed, 1, false
      local id = gpt.generate(model, { 5 }, how)[2]
      counts[id] = (counts[id] or 0) + 1 / 300
    end
    return counts
  end
  local found = frequencies {}
  for id = 0, 30 do check.near(found[id] or 0, list[id + 1], 0.12) end -- four deviations of 300 draws: 4 * 0.029
  local pair = list[order[1] + 1] + list[order[2] + 1]
  found = frequencies { top_k = 2 }
  check.near(found[order[1]] or 0, list[order[1] + 1] / pair, 0.12)
  check.near((found[order[1]] or 0) + (found[order[2]] or 0), 1, 1e-9)
  check.near(frequencies { top_p = list[order[1] + 1] * 0.99 } [order[1]], 1, 1e-9)
end)

test("generate ends behind the stop id, and draws the same ids for the same seed", function()
  local model = random_model(24)
  local function drawn(more)
    local how = { max_new_tokens = 20, temperature = 5 }
    for key, value in pairs(more) do how[key] = value end
    return gpt.generate(model, { 1 }, how)
  end
  local ids = drawn { seed = 9 }
  check.equal(drawn { seed = 9 }, ids)
  mgpu.seed(4)
  local first, second = drawn {}, drawn {}
  mgpu.seed(4)
  check.equal(drawn {}, first)
  check.truthy(table.concat(first, " ") ~= table.concat(second, " "), "other ids without a seed")
  local stopped = drawn { seed = 9, stop = ids[6] }
  check.truthy(#stopped <= 6 and stopped[#stopped] == ids[6], "ends with the stop id")
end)

test("wrong arguments of gpt and generate are errors that name them", function()
  local model = random_model(24)
  local function refused(expected, fn, kind) check.raises(fn, expected, kind or "usage") end
  refused("gpt: width 10 is no multiple of the 3 heads", function() gpt { width = 10, heads = 3 } end)
  refused("gpt: weights: there is no file none.safetensors", function()
    gpt(with { weights = "none.safetensors" })
  end, "io")
  refused("model.safetensors: wte.weight has shape {31, 12}, the model needs {30, 12}", function()
    gpt(with { vocabulary = 30, weights = GOLDEN .. "model.safetensors" })
  end, "data")
  refused("model.safetensors has more than the model's 1 layers", function()
    gpt(with { layers = 1, weights = GOLDEN .. "model.safetensors" })
  end, "data")
  refused('model.safetensors: there is no tensor "transformer.h.2.ln_1.weight"', function()
    gpt(with { layers = 3, weights = GOLDEN .. "model.safetensors" })
  end, "data")
  local tensors = mgpu.load(GOLDEN .. "model.safetensors")
  tensors["transformer.h.0.attn.c_attn.weight"] = mgpu.zeros { 12, 35 }
  mgpu.save(check.path "odd.safetensors", tensors)
  refused("h.0.attn.c_attn.weight has shape {12, 35}, the model needs {12, 36}", function()
    gpt(with { weights = check.path "odd.safetensors" })
  end, "data")
  refused("the first argument must be a model made by mgpu.models.gpt", function() gpt.generate({}, { 1 }) end)
  refused("the second argument must be an array of at least one id", function() gpt.generate(model, {}) end)
  refused("id 2 is 31: it must be a whole number from 0 to 30", function() gpt.generate(model, { 1, 31 }) end)
  refused("1 ids and 24 new ones are more than the model's context of 24", function()
    gpt.generate(model, { 1 }, { max_new_tokens = 24 })
  end)
  refused('generate: option "temperature"', function() gpt.generate(model, { 1 }, { temperature = 0 }) end)
  refused("the input has 25 steps, there are 24 positions", function()
    model(mgpu.zeros({ 1, 25 }, { dtype = "int32" }))
  end)
end)

test("gpt learns, with dropout too, and comes back from a file", function()
  mgpu.seed(1)
  local model = gpt(with { dropout = 0.1 })
  local x = (mgpu.rand { 8, 10 } * 31):floor():to "int32"
  model:compile { optimizer = mgpu.optimizers.AdamW { 0.01 },
    loss = mgpu.losses.SparseCategoricalCrossentropy { from_logits = true } }
  local history = model:fit(x, x, { epochs = 30, verbose = 0 })
  check.truthy(history.history.loss[30] < history.history.loss[1] * 0.6, "the loss falls")
  model:save(check.path "gpt.keras")
  local again = mgpu.load_model(check.path "gpt.keras", { custom = { PositionEmbedding = gpt.PositionEmbedding } })
  check.near((again:predict(x) - model:predict(x)):abs():max(), 0, 1e-5) -- logits up to 10
  check.equal(gpt.generate(again, { 1, 2 }, { seed = 1, max_new_tokens = 8 }),
    gpt.generate(model, { 1, 2 }, { seed = 1, max_new_tokens = 8 }))
end)

test("a random number next to 1 draws an id of the vocabulary", function()
  mgpu.seed(1)
  local model = gpt { vocabulary = 50, context = 8, width = 8, layers = 1, heads = 2 }
  for _, cache in ipairs { true, false } do
    -- the first draw of this seed is 1 - 2^-31, which is 1 in float32
    local ids = gpt.generate(model, { 1 }, { max_new_tokens = 3, seed = 1353980667, cache = cache })
    for i = 2, 4 do check.truthy(ids[i] < 50, ids[i]) end
  end
end)

test("transformer_encoder learns, ignores padding, and comes back from a file", function()
  mgpu.seed(1)
  local encoder = mgpu.models.transformer_encoder
  local model = encoder { vocabulary = 9, length = 12, width = 8, heads = 2, classes = 3 }
  -- 9 and 12 vectors of 8; two blocks of 12 * 8 * 8 + 13 * 8; a normalization; 8 * 3 + 3
  check.equal((model:count_params()), 21 * 8 + 2 * (12 * 64 + 13 * 8) + 16 + 27)
  local x = ((mgpu.rand { 32, 6 } * 8):floor() + 1):to "int32"
  local y = (x:slice { {}, 1 } - 1):minimum(2)
  model:compile { optimizer = mgpu.optimizers.Adam { 0.01 }, loss = "sparse_categorical_crossentropy" }
  local history = model:fit(x, y, { epochs = 30, verbose = 0 })
  check.truthy(history.history.loss[30] < history.history.loss[1] * 0.6, "the loss falls")
  local longer = mgpu.concat({ x, mgpu.zeros({ 32, 4 }, { dtype = "int32" }) }, 2)
  check.near((model:predict(longer) - model:predict(x)):abs():max(), 0, 1e-5) -- sums in another order, in float32
  model:save(check.path "t.keras")
  local again = mgpu.load_model(check.path "t.keras", { custom = { PositionEmbedding = encoder.PositionEmbedding } })
  check.near((again:predict(x) - model:predict(x)):abs():max(), 0, 1e-6)
  check.raises(function() encoder { width = 9, heads = 2 } end,
    "transformer_encoder: width 9 is no multiple of the 2 heads", "usage")
end)
