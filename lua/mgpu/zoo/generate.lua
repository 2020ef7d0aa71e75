--- Writing text by a model of mgpu.models.gpt: id after id, with the keys and values of earlier steps kept.
--
-- The step is compiled for a number of new ids and any position: the position is a tensor, and the kept keys and values
-- are variables as long as the whole text, whose places behind the position are masked.
local core = require "mgpu.core"
local mgpu = require "mgpu"
local options = require "mgpu.options"
local scores_of = require "mgpu.nn.layers.attention_scores"

local ops = core.ops

local GENERATE = options.declare {
  { "max_new_tokens", "integer", default = 100, min = 0 },
  { "temperature", "number", default = 1, above = 0 },
  { "top_k", "integer", min = 1 },
  { "top_p", "number", above = 0, max = 1 },
  { "greedy", "boolean", default = false },
  { "seed", "integer", min = 0 },
  { "stop", "integer", min = 0 },
  { "cache", "boolean", default = true },
}

local CHUNK = 16 -- ids of the prompt that are read by one step
local LOWEST = -1e30 -- a logit of no chance

local function fail(...) core.fail("usage", "generate: " .. (...):format(select(2, ...))) end

-- ---- choosing an id -----------------------------------------------------------------------------

-- The probabilities of the logits {vocabulary}, those that the options leave out being 0.
local function probabilities(logits, chosen)
  logits = logits * (1 / chosen.temperature)
  if chosen.top_k and chosen.top_k < logits:shape()[1] then
    local least = mgpu.top_k(logits, chosen.top_k):slice { chosen.top_k }
    logits = ops.where(ops.lt(logits, least), LOWEST, logits)
  end
  local p = ops.softmax(logits)
  if chosen.top_p and chosen.top_p < 1 then
    local sorted = mgpu.sort(p, { descending = true })
    local before = mgpu.cumsum(sorted) - sorted
    local least = ops.min(ops.where(ops.lt(before, chosen.top_p), sorted, 2))
    p = ops.where(ops.lt(p, least), 0, p)
  end
  return p
end

-- The next id, from the logits {vocabulary} and a random number in [0, 1).
local function choose(logits, chance, chosen)
  if chosen.greedy then return ops.argmax(logits, { axis = 1 }) end
  local sums = mgpu.cumsum(probabilities(ops.cast(logits, { dtype = "float32" }), chosen))
  local total = sums:slice { sums:shape()[1] }
  -- rounded, chance * total may be the total itself, which only ids without a chance follow
  local passed = ops.logical_and(ops.le(sums, chance * total), ops.lt(sums, total))
  return ops.sum(ops.cast(passed, { dtype = "int32" }))
end

-- A function that returns random numbers in [0, 1): the same for the same seed. The generator of Park & Miller.
local function chances(seed)
  local state = (seed or mgpu.randint(0, 2 ^ 31 - 2, { 1 }):totable()[1]) % 2147483646 + 1
  local function draw()
    state = state * 16807 % 2147483647
    return state / 2147483647
  end
  for _ = 1, 3 do draw() end -- small seeds begin with small numbers
  return draw
end

-- ---- the model with kept keys and values --------------------------------------------------------

-- The blocks of the model, as arrays of their layers. Errors: another model.
local function parts_of(model)
  local by_name, parts = {}, { blocks = {} }
  for _, layer in ipairs(type(model) == "table" and model.layers or {}) do by_name[layer.name] = layer end
  parts.words, parts.positions = by_name.token_embedding, by_name.position_embedding
  parts.norm = by_name.final_norm
  if not (parts.words and parts.positions and parts.norm) then
    fail "the first argument must be a model made by mgpu.models.gpt"
  end
  while by_name[("block_%d_attention"):format(#parts.blocks)] do
    local function layer(name) return by_name[("block_%d_%s"):format(#parts.blocks, name)] end
    parts.blocks[#parts.blocks + 1] = { norm_1 = layer "norm_1", attention = layer "attention",
      norm_2 = layer "norm_2", dense_1 = layer "dense_1", gelu = layer "gelu", dense_2 = layer "dense_2" }
  end
  return parts
end

-- {1, steps, heads, size} as {1, heads, steps, size}, and back.
local function swapped(t) return ops.permute(t, { order = { 1, 3, 2, 4 } }) end

-- Puts the new rows {1, heads, n, size} into the kept ones at the position, and RETURNS all.
local function keep(kept, rows, at)
  local length, n = kept:shape()[3], rows:shape()[3]
  local place = ops.iota({ length }, 1, "int32") - at
  local spread = ops.gather(rows, ops.minimum(ops.maximum(place, 0), n - 1), { axis = 3 })
  local new = ops.logical_and(ops.ge(place, 0), ops.lt(place, n))
  kept:assign(ops.where(ops.reshape(new, { shape = { 1, 1, length, 1 } }), spread, kept:value()))
  return kept:value()
end

local function attend(block, x, at, seen)
  local attention = block.attention
  local q = swapped(attention.query_dense(x)) * (1 / math.sqrt(attention.key_dim))
  local k = keep(block.keys, swapped(attention.key_dense(x)), at)
  local v = keep(block.values, swapped(attention.value_dense(x)), at)
  local weights = scores_of.weights(ops.matmul(q, k, { transpose_b = true }), seen)
  return attention.output_dense(swapped(ops.matmul(weights, v)))
end

-- Two functions: of ids {1, n} and their first position, a tensor {} -> what the blocks make of them; and of that ->
-- the logits {vocabulary} behind the last id.
local function cached_model(model, length)
  local parts = parts_of(model)
  for _, block in ipairs(parts.blocks) do
    local shape = { 1, block.attention.num_heads, length, block.attention.key_dim }
    for _, name in ipairs { "keys", "values" } do
      block[name] = mgpu.variable(mgpu.zeros(shape, { dtype = block.attention.compute_dtype }), { trainable = false })
    end
  end
  return function(ids, at)
    local n = ids:shape()[2]
    local rows = ops.iota({ n }, 1, "int32") + at
    local seen = ops.reshape(ops.ge(ops.reshape(rows, { shape = { n, 1 } }),
      ops.iota({ 1, length }, 2, "int32")), { shape = { 1, 1, n, length } })
    local x = parts.words(ids)
    x = x + ops.cast(ops.gather(parts.positions.embeddings:value(), rows, { axis = 1 }), { dtype = x:dtype() })
    for _, block in ipairs(parts.blocks) do
      x = x + attend(block, block.norm_1(x), at, seen)
      x = x + block.dense_2(block.gelu(block.dense_1(block.norm_2(x))))
    end
    return x
  end, function(x)
    local last = x:slice { {}, { -1, -1 } }
    return parts.words(parts.norm(last), { reverse = true }):reshape { -1 }
  end
end

-- ---- generate -----------------------------------------------------------------------------------

local function check_ids(ids, parts, count)
  if type(ids) ~= "table" or #ids == 0 then fail("the second argument must be an array of at least one id") end
  local vocabulary, context = parts.words.input_dim, parts.positions.length
  for i, id in ipairs(ids) do
    if type(id) ~= "number" or id % 1 ~= 0 or id < 0 or id >= vocabulary then
      fail("id %d is %s: it must be a whole number from 0 to %d", i, tostring(id), vocabulary - 1)
    end
  end
  if #ids + count > context then
    fail("%d ids and %d new ones are more than the model's context of %d", #ids, count, context)
  end
end

-- A function of all ids so far and of a random number -> the next id, computed with kept keys and values.
local function with_cache(model, length, chosen)
  local forward, logits_of = cached_model(model, length)
  local read = mgpu.jit(function(ids, at) forward(ids, at) end)
  local step = mgpu.jit(function(ids, at, chance) return choose(logits_of(forward(ids, at)), chance, chosen) end)
  local done = 0
  return function(ids, chance)
    return core.no_grad(function()
      while true do
        local n = #ids - done >= CHUNK and CHUNK or 1
        local new = mgpu.tensor({ { unpack(ids, done + 1, done + n) } }, { dtype = "int32" })
        local at = mgpu.tensor(done, { dtype = "int32" })
        done = done + n
        if done == #ids then return step(new, at, mgpu.tensor(chance)):item() end
        read(new, at)
      end
    end)
  end
end

local function without_cache(model, chosen)
  return function(ids, chance)
    local logits = model(mgpu.tensor({ ids }, { dtype = "int32" }))
    return choose(logits:slice { 1, #ids }, chance, chosen):item()
  end
end

--- generate(model, ids, {max_new_tokens = 100, temperature = 1, top_k =, top_p =, greedy = false, seed =, stop =,
--- cache = true}) -> the ids and the new ones behind them.
-- model: of mgpu.models.gpt. ids: an array of whole numbers from 0, the start of the text. Each new id is drawn by its
-- probability, softmax(logits / temperature), among the top_k likeliest ones and among the likeliest ones whose
-- probabilities reach top_p together; greedy takes the likeliest. It ends behind max_new_tokens ids or the id `stop`.
-- seed: the same seed draws the same ids; without it mgpu.seed counts. cache = false computes all steps again for each
-- id. Errors: ids outside the vocabulary; a text longer than the model's context.
-- Example:
--     local model = mgpu.models.gpt { vocabulary = 20, context = 8, width = 8, layers = 1, heads = 2 }
--     local ids = mgpu.models.gpt.generate(model, { 7, 3 }, { max_new_tokens = 4, greedy = true })
--     print(#ids, ids[1], ids[2])  --> 6 7 3
return function(model, ids, given)
  local chosen = options.check("generate", GENERATE, given == nil and {} or given)
  check_ids(ids, parts_of(model), chosen.max_new_tokens)
  local all, draw = { unpack(ids) }, chances(chosen.seed)
  local next_id = chosen.cache and with_cache(model, #ids + chosen.max_new_tokens, chosen)
    or without_cache(model, chosen)
  for _ = 1, chosen.max_new_tokens do
    all[#all + 1] = next_id(all, draw())
    if all[#all] == chosen.stop then break end
  end
  return all
end
