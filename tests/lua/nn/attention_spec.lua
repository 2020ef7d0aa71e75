-- Attention, layers with call options, wrappers and volumes: what layer_models_spec.lua, against files of Keras, does
-- not reach.
local check = require "check"
local mgpu = require "mgpu"
local masks = require "mgpu.nn.masks"
local in_float64 = require "fixtures".in_float64

local test = check.test
local L = mgpu.layers

local function near(a, b, tolerance) check.near(a:reshape { -1 }, b:reshape { -1 }:totable(), tolerance or 1e-6) end

test("a query that may see no key gets weights of 0 and the bias of the last projection", function()
  local layer = L.MultiHeadAttention { 2, 3, bias_initializer = "ones" }
  local x, allowed = mgpu.randn { 1, 2, 4 }, mgpu.tensor { { { false, false }, { true, true } } }
  local y, weights = unpack(layer({ x, x }, { attention_mask = allowed, return_attention_scores = true }))
  check.equal(weights:shape(), { 1, 2, 2, 2 })
  check.equal(weights:slice { 1, {}, 1 }:abs():sum():item(), 0)
  near(y:slice { 1, 1 }, mgpu.ones { 4 })
end)

test("tensors of a call are given by position or by name, with the same result", function()
  local layer = L.MultiHeadAttention { 2, 3 }
  local q, v, k = mgpu.randn { 2, 3, 4 }, mgpu.randn { 2, 5, 4 }, mgpu.randn { 2, 5, 6 }
  near(layer { q, v, k }, layer({ q, v }, { key = k }))
  near(layer { q, v, k }, layer(q, { value = v, key = k }))
  check.raises(function() layer({ q, v, k }, { key = k }) end, "key is given twice", "usage")
  check.raises(function() layer({ q, v }, { use_casual_mask = true }) end,
    'unknown option "use_casual_mask" (did you mean "use_causal_mask"?)', "usage")
  check.raises(function() layer { q, v, k, q, q, q, q, q } end, "takes at most 7 tensors", "usage")
  check.raises(function() layer { q } end, "needs query and value", "usage")
  check.raises(function() layer { q, v, q } end, "must have the same steps", "usage")
  check.raises(function() layer(q) end, "takes an array", "usage")
  check.raises(function() L.Dense { 2 } (q, { use_causal_mask = true }) end,
    'unknown option "use_causal_mask"', "usage")
end)

test("masks of the inputs hide keys, and the output has the mask of the query", function()
  local x = mgpu.tensor { { { 1, 2 }, { 3, 4 }, { 0, 0 } } }
  local masked = L.Masking {} (x)
  local layer = L.MultiHeadAttention { 1, 2 }
  near(layer { x, masked }, layer({ x, x }, { value_mask = mgpu.tensor { { true, true, false } } }))
  near(layer { x, masked }, layer { x, x:slice { {}, { 1, 2 } } })
  check.equal(masks.get(layer { masked, x }), { { true, true, false } })
  local plain = L.Attention {}
  near(plain { x, masked }, plain { x, x:slice { {}, { 1, 2 } } })
  check.equal(masks.get(plain { masked, x }), { { true, true, false } })
  check.equal(plain({ masked, x }):slice { 1, 3 }, { 0, 0 })
end)

test("a causal query does not depend on later keys, with a sliding window not on far ones", function()
  local function gradient_of(options, how)
    local layer = L.GroupQueryAttention(options)
    local x = mgpu.variable(mgpu.randn { 1, 5, 4 })
    local _, grads = mgpu.value_and_grad(function()
      local t = x:value()
      return layer({ t, t }, how):slice({ 1, 3 }):sum()
    end, { x })()
    return grads[1]:abs():sum(3):gt(0)
  end
  check.equal(gradient_of({ 2, 4, 2 }, { use_causal_mask = true }), { { true, true, true, false, false } })
  check.equal(gradient_of({ 2, 4, 2, sliding_window = 2 }), { { false, true, true, true, false } })
end)

test("dropout of attention acts in training only and keeps the mean of the weights", function()
  local x = mgpu.ones { 1, 40, 2 }
  for _, layer in ipairs { L.Attention { dropout = 0.5 }, L.AdditiveAttention { dropout = 0.5 } } do
    near(layer { x, x }, x)
    local y = layer({ x, x }, { training = true })
    check.truthy(math.abs(y:mean():item() - 1) < 0.15 and not y:eq(1):all():item())
  end
  local heads = L.MultiHeadAttention { 1, 2, dropout = 0.5 }
  near(heads { x, x }, heads { x, x })
  check.truthy((heads({ x, x }, true) - heads { x, x }):abs():sum():item() > 0)
  local groups = L.GroupQueryAttention { 2, 4, 2, dropout = 0.5 }
  near(groups { x, x }, groups { x, x }, 0)
  check.truthy((groups({ x, x }, { training = true }) - groups { x, x }):abs():max():item() > 1e-3, "the difference")
  check.raises(function() L.MultiHeadAttention { 1, 2, dropout = 0.5, flash_attention = true } end,
    "cannot be combined with dropout", "usage")
  local flash = L.MultiHeadAttention { 1, 2, flash_attention = true }
  check.raises(function() flash({ x, x }, { return_attention_scores = true }) end, "cannot return the attention scores",
    "usage")
end)

test("attention refuses inputs that do not fit", function()
  local x = mgpu.ones { 1, 2, 3 }
  check.raises(function() L.Attention {} { x } end, "takes an array {query, value}", "usage")
  check.raises(function() L.Attention {} { x, mgpu.ones { 1, 2, 4 } } end, "do not fit", "usage")
  check.raises(function() L.GroupQueryAttention { 2, 3, 2 } end, "cannot share 2 heads", "usage")
  check.raises(function() L.MultiHeadAttention { 1, 2 } { mgpu.ones { 1, 2 }, x } end,
    "must have at least 3 axes", "usage")
  check.raises(function() L.MultiHeadAttention { 1, 2, attention_axes = 3 } { x, x } end,
    "attention_axes: axis 3", "usage")
end)

test("EinsumDense refuses equations and sizes that do not fit", function()
  local function made(...) return L.EinsumDense { ... } (mgpu.ones { 2, 3, 4 }) end
  check.raises(function() made("abc->ab", 2) end, "must have the form", "usage")
  check.raises(function() made("ab,bc->ac", 2) end, "does not fit the input", "usage")
  check.raises(function() made("abc,cd->abd", 2) end, "does not fit output_shape", "usage")
  check.raises(function() made("abc,cd->abd", { 5, 2 }) end, 'axis "b" has size 3', "usage")
  check.raises(function() made("abc,ce->abd", { -1, 2 }) end, 'axis "e" of the kernel', "usage")
  check.raises(function() L.EinsumDense { "abc,cd->abd", { -1, 2 }, bias_axes = "x" } (mgpu.ones { 2, 3, 4 }) end,
    'axis "x" of bias_axes', "usage")
end)

test("a ReversibleEmbedding goes back by its own table", function()
  local layer = L.ReversibleEmbedding { 5, 3 }
  local y = layer(layer(mgpu.tensor { { 1, 4 } }), { reverse = true })
  near(y:slice { 1, 1 }, layer.embeddings:value():matmul(layer.embeddings:value():slice { 2 }:reshape { 3, 1 }))
  check.raises(function() layer(mgpu.ones { 1, 2 }, { reverse = true }) end, "must have 3 features", "usage")
end)

test("normalizations refuse axes and groups that do not fit", function()
  local x = mgpu.ones { 2, 6 }
  check.raises(function() L.GroupNormalization { 4 } (x) end, "cannot be divided into 4 groups", "usage")
  check.raises(function() L.GroupNormalization { 2, axis = 3 } (x) end, "axis 3 is out of range", "usage")
  check.raises(function() L.UnitNormalization { axis = { 2, -1 } } (x) end, "axis 2 is given twice", "usage")
  check.raises(function() L.UnitNormalization { axis = {} } (x) end, "empty list", "usage")
  check.raises(function() L.RMSNormalization { axis = 2 } (mgpu.ones { 2, 3, 4 }) end,
    "does not fit the last axes", "usage")
  local layer = L.GroupNormalization { 2 }
  layer(x)
  check.raises(function() layer(mgpu.ones { 2, 4 }) end, "does not fit the layer", "usage")
  check.raises(function() L.GroupNormalization {}:build { -1, -1 } end, "must be known", "usage")
end)

test("wrappers refuse what they cannot wrap", function()
  check.raises(function() L.TimeDistributed { L.Flatten {} } (mgpu.ones { 2, 3 }) end, "at least 3 axes", "usage")
  check.raises(function() L.SpectralNormalization { L.Flatten {} } (mgpu.ones { 2, 3 }) end,
    "has neither kernel", "usage")
  check.raises(function() L.TimeDistributed { 5 } end, 'option "layer" must be a layer', "usage")
end)

-- A convolution of volumes, number by number.
local function naive(x, kernel, how)
  local out = {}
  local s, k = #x, #kernel
  for z = 0, (s - (k - 1) * how.dilation - 1) / how.stride do
    local sum = 0
    for i = 1, k do sum = sum + x[z * how.stride + (i - 1) * how.dilation + 1] * kernel[i] end
    out[#out + 1] = sum
  end
  return out
end

test("volumes are convolved along each axis as by hand, also dilated and with strides", function()
  local numbers, weights = { 3, 1, 4, 1, 5, 9, 2, 6 }, { 2, -1, 3 }
  for axis = 1, 3 do
    for _, how in ipairs { { stride = 1, dilation = 1 }, { stride = 2, dilation = 1 }, { stride = 1, dilation = 2 } } do
      local shape, size, steps, apart = { 1, 1, 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }
      shape[axis + 1], size[axis], steps[axis], apart[axis] = 8, 3, how.stride, how.dilation
      local layer = L.Conv3D { 1, size, strides = steps, dilation_rate = apart, use_bias = false }
      local x = mgpu.tensor(numbers):reshape(shape)
      layer(x)
      layer.kernel:assign(mgpu.tensor(weights):reshape(layer.kernel:shape()))
      check.equal(layer(x):reshape { -1 }, naive(numbers, weights, how))
    end
  end
end)

test("groups and channels_first of volumes are those of channels_last by parts", function()
  local x = mgpu.randn { 2, 4, 3, 5, 4 }
  local whole = L.Conv3D { 6, 2, groups = 2, use_bias = false, padding = "same" }
  local y = whole(x)
  for g = 0, 1 do
    local part = L.Conv3D { 3, 2, use_bias = false, padding = "same" }
    local mine = x:slice { {}, {}, {}, {}, { 2 * g + 1, 2 * g + 2 } }
    part(mine)
    part.kernel:assign(whole.kernel:value():slice { {}, {}, {}, {}, { 3 * g + 1, 3 * g + 3 } })
    near(part(mine), y:slice { {}, {}, {}, {}, { 3 * g + 1, 3 * g + 3 } }, 1e-5)
  end
  local first = x:permute { 1, 5, 2, 3, 4 }
  for _, make in ipairs { function(f) return L.Conv3D { 2, 2, data_format = f } end,
    function(f) return L.Conv3DTranspose { 2, 2, strides = 2, data_format = f } end,
    function(f) return L.MaxPooling3D { data_format = f } end,
    function(f) return L.AveragePooling3D { data_format = f } end,
    function(f) return L.AdaptiveMaxPooling3D { 2, data_format = f } end,
    function(f) return L.ZeroPadding3D { data_format = f } end,
    function(f) return L.Cropping3D { { 1, 0, 1 }, data_format = f } end,
    function(f) return L.UpSampling3D { data_format = f } end } do
    local a, b = make "channels_last", make "channels_first"
    local last = a(x)
    b(first)
    b:set_weights(a:get_weights())
    near(b(first), last:permute { 1, 5, 2, 3, 4 }, 1e-5)
    check.equal(b:output_shape { -1, 4, 4, 3, 5 }, { -1, unpack(b(first):shape(), 2) })
  end
end)

test("layers over volumes and sequences refuse sizes that do not fit", function()
  local x = mgpu.ones { 1, 3, 3, 3, 2 }
  check.raises(function() L.Conv3D { 1, 4 } (x) end, "the kernel {4, 4, 4} does not fit", "usage")
  check.raises(function() L.MaxPooling3D { 4 } (x) end, "the window {4, 4, 4} does not fit", "usage")
  check.raises(function() L.Conv3DTranspose { 1, 2, strides = 2, output_padding = 2 } end, "must be below the strides",
    "usage")
  local none = L.Conv3DTranspose { 1, 1, padding = "same", strides = 2, output_padding = 0 }
  check.raises(function() none(mgpu.ones { 1, 0, 1, 1, 1 }) end, "would be empty", "usage")
  check.raises(function() L.Cropping3D { 2 } (x) end, "leaves nothing", "usage")
  check.raises(function() L.Conv1DTranspose { 1, 2 } (x) end, "must have 3 axes", "usage")
  check.raises(function() L.AdaptiveMaxPooling1D { 1 } (mgpu.ones { 1, 0, 1 }) end, "is empty", "usage")
end)

test("a ReversibleEmbedding masks ids of any dtype, and no scores", function()
  local words = L.ReversibleEmbedding { 9, 3, mask_zero = true }
  local y = words(mgpu.tensor { { 4, 0 } }) -- ids in float32
  check.equal(masks.of(y):totable(), { { true, false } })
  check.equal(masks.of(words(y:stop_gradient(), { reverse = true })), nil)
end)

test("adaptive means of halves do not overflow", function()
  local x = mgpu.full({ 1, 1000, 1 }, 100):to "float16" -- their sum is 1e5
  check.equal(L.AdaptiveAveragePooling1D { 1, dtype = "float16" } (x):item(), 100)
end)

test("a class made of another one has its own options of the call", function()
  local Base = mgpu.Layer:extend("Base", {})
  Base.call_tensors, Base.call_options = { "x", "y" }, { { "first", "boolean" } }
  function Base:call(x) return x[1] or x end -- luacheck: no self
  local Inner = Base:extend("Inner", {})
  Inner.call_options = { { "second", "boolean" } }
  local x = mgpu.ones { 1, 2 }
  Base {} ({ x, x }, { first = true })
  Inner {} ({ x, x }, { second = true })
  check.raises(function() Inner {} ({ x, x }, { first = true }) end, 'unknown option "first"', "usage")
end)

-- fn with scores in blocks of at most that many elements, whatever their number.
local function in_blocks(most, fn)
  local scores = require "mgpu.nn.layers.attention_scores"
  local before = { scores.most_scores, scores.most_in_block }
  scores.most_scores, scores.most_in_block = 0, most
  local ok, result = pcall(fn)
  scores.most_scores, scores.most_in_block = before[1], before[2]
  if not ok then error(result, 0) end
  return result
end

test("long sequences attend in blocks, with the numbers and gradients of all scores at once", function()
  in_float64(function()
    local x, other = mgpu.rand { 2, 12, 6 }, mgpu.rand { 2, 5, 6 }
    local keys = mgpu.tensor { { true, true, true, false, false }, { true, true, true, true, true } }
    local layer = L.MultiHeadAttention { 2, 4 }
    local grouped = L.GroupQueryAttention { head_dim = 4, num_query_heads = 4, num_key_value_heads = 2 }
    local image = L.MultiHeadAttention { 2, 3, attention_axes = { 2, 3 } }
    local calls = {
      function() return layer({ x, x }) end,
      function() return layer({ x, x }, { use_causal_mask = true }) end,
      function() return layer({ x, other }, { value_mask = keys, training = true }) end,
      function() return grouped({ x, x }, { use_causal_mask = true }) end,
      function() return image({ x:reshape { 2, 3, 4, 6 }, x:reshape { 2, 3, 4, 6 } }) end,
    }
    for _, l in ipairs { layer, grouped } do l({ x, x }) end
    calls[5]()
    local variables = {}
    for _, l in ipairs { layer, grouped, image } do
      for _, v in ipairs(l.trainable_variables) do variables[#variables + 1] = v end
    end
    for i, call in ipairs(calls) do
      local function run()
        local step = mgpu.jit(function()
          local y
          local loss, grads = mgpu.value_and_grad(function()
            y = call()
            return (y * y):sum()
          end, variables)()
          local list = { y:reshape { -1 }, loss:reshape { 1 } }
          for _, g in ipairs(grads) do if g then list[#list + 1] = g:reshape { -1 } end end
          return mgpu.concat(list, 1)
        end)
        return { step():totable(), (select(2, step:dump():gsub("scan", ""))) }
      end
      local whole = run()
      check.equal(whole[2], 0)
      for _, most in ipairs { 1, 100, 200 } do -- one query at a time, and several; a number of blocks that divides 12
        local cut = in_blocks(most, run)
        check.truthy(cut[2] > 0, ("case %d was not cut"):format(i))
        check.near(mgpu.tensor(cut[1]), whole[1], 1e-12)
      end
    end
  end)
end)

test("blocks of a long sequence are sharded over devices by the batch", function()
  local layer = L.MultiHeadAttention { 2, 4 }
  local x = mgpu.rand { 6, 8, 5 }
  layer({ x, x })
  local function run(n)
    local step = mgpu.jit(function(rows)
      rows = rows:shard()
      local loss, grads = mgpu.value_and_grad(function()
        return (layer({ rows, rows }, { use_causal_mask = true }) ^ 2):mean()
      end, layer.trainable_variables)()
      return loss, grads[1]
    end, n > 1 and { devices = n == 2 and { "cpu:0", "cpu:1" } or { "cpu:0", "cpu:1", "cpu:2" } } or nil)
    local loss, grad = step(x)
    return loss:item(), grad:to "cpu:0":reshape({ -1 }):totable(), step
  end
  local loss, grad = run(1)
  for _, n in ipairs { 2, 3 } do
    in_blocks(400, function()
      local other, gradient, step = run(n)
      check.near(other, loss, 1e-5) -- rounding of sums in another order
      check.near(mgpu.tensor(gradient), grad, 1e-6)
      check.falsy(step:dump():find "all_gather", "no device needs the others' rows")
    end)
  end
end)
