-- Low-rank adaptation: models of Keras are loaded, predict, train and are saved as there (tests/golden/make_lora.py);
-- enable_lora in each class, on several devices, and its errors.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local L = mgpu.layers
local test = check.test
local FOLDER = "tests/golden/lora/"
local PREDICTS = 2e-5 -- float32, six layers
local TRAINS = 1e-4 -- rounding of PREDICTS in the gradients of three steps

local can, problem = pcall(core.h5_read, FOLDER .. "adapted.h5")
if not can and core.error_code() == "unsupported" then check.skip(problem) end
local expected = core.store_load(FOLDER .. "expected.safetensors")

local function near(t, wanted, tolerance)
  check.equal(t:shape(), wanted:shape())
  check.near(t:reshape { -1 }, wanted:reshape { -1 }:totable(), tolerance)
end

-- The variables in Keras's order: the trainable ones first.
local function variables_of(model)
  local list = model.trainable_variables
  for _, v in ipairs(model.non_trainable_variables) do list[#list + 1] = v end
  return list
end

local function assign(model, at)
  for i, v in ipairs(variables_of(model)) do v:assign(expected[at .. "/" .. i]) end
end

for _, ending in ipairs { "keras", "h5" } do
  test(("a .%s file of Keras predicts as there, and again after saving in each format"):format(ending), function()
    local model = mgpu.load_model(FOLDER .. "adapted." .. ending)
    near(model:predict(expected.x, { verbose = 0 }), expected.y, PREDICTS)
    for _, format in ipairs { "keras", "h5", "safetensors" } do
      local path = check.path(("lora_from_%s.%s"):format(ending, format))
      model:save(path)
      local again = mgpu.load_model(path)
      near(again:predict(expected.x, { verbose = 0 }), expected.y, PREDICTS)
      check.equal(again:get_config(), model:get_config())
      local keep = os.getenv "MGPU_KEEP"
      if keep and format ~= "safetensors" then model:save(("%s/lora_from_%s.%s"):format(keep, ending, format)) end
    end
  end)
end

test("the weights after three steps are Keras's, on one, two and three devices", function()
  for n = 1, 3 do
    local model = mgpu.load_model(FOLDER .. "adapted.keras")
    assign(model, "before")
    near(model:predict(expected.x, { verbose = 0 }), expected.y, PREDICTS)
    model:compile { optimizer = mgpu.optimizers.SGD { 0.05 }, loss = "mse",
      devices = { unpack({ "cpu:0", "cpu:1", "cpu:2" }, 1, n) } }
    for _ = 1, 3 do model:train_on_batch(expected.x, mgpu.zeros(expected.y:shape())) end
    for i, v in ipairs(variables_of(model)) do near(v:value(), expected["after/" .. i], TRAINS) end
  end
end)

-- layer and input of each class
local CASES = {
  { "Dense", { 3 }, mgpu.ones { 2, 4 } },
  { "EinsumDense", { "abc,cd->abd", { -1, 3 } }, mgpu.ones { 2, 3, 4 } },
  { "Conv1D", { 3, 2 }, mgpu.ones { 2, 4, 4 } },
  { "Conv2D", { 4, 2, groups = 2 }, mgpu.ones { 2, 4, 3, 4 } },
  { "Conv3D", { 3, 2, data_format = "channels_first" }, mgpu.ones { 2, 4, 3, 3, 3 } },
  { "Embedding", { 5, 3 }, mgpu.tensor({ { 1, 2 }, { 3, 4 } }, { dtype = "int32" }) },
  { "ReversibleEmbedding", { 5, 3, tie_weights = false }, mgpu.tensor({ { 1, 2 } }, { dtype = "int32" }) },
}

for _, case in ipairs(CASES) do
  local class, options, x = unpack(case)
  test(class .. ": enable_lora changes nothing at first, freezes the kernel, and then learns", function()
    for _, dtype in ipairs { "float32", "float64", "mixed_bfloat16" } do
      local given = { dtype = dtype }
      for key, value in pairs(options) do given[key] = value end
      local model = mgpu.Sequential { L[class](given) }
      local before = model(x)
      local layer = model.layers[1]
      local frozen = (layer.kernel or layer.embeddings):value()
      layer:enable_lora { 2, lora_alpha = 4 }
      check.equal(model(x):eq(before):all():item(), true)
      model:compile { optimizer = mgpu.optimizers.SGD { 0.02 }, loss = "mse" }
      local first = model:train_on_batch(x, mgpu.ones(before:shape()))
      local last
      for _ = 1, 5 do last = model:train_on_batch(x, mgpu.ones(before:shape())) end
      check.truthy(last.loss < first.loss, "a smaller loss")
      check.equal((layer.kernel or layer.embeddings):value():eq(frozen):all():item(), true)
      local path = check.path(class .. ".weights.h5")
      local after = model(x):to "float32"
      model:save_weights(path)
      model:load_weights(path) -- the sum is the kernel now, and b is 0
      -- the sum is rounded once more, for bfloat16 to 8 bits
      near(model(x):to "float32", after, dtype == "mixed_bfloat16" and 0.05 or 1e-6)
    end
  end)
end

test("wrong uses of low-rank adaptation are errors that say what to do", function()
  local function fails(text, fn) check.raises(fn, text) end
  fails("the layer has no weights yet: call it on an input first", function() L.Dense { 3 }:enable_lora(2) end)
  local dense = L.Dense { 3 }
  dense:ensure_built { -1, 2 }
  fails("rank", function() dense:enable_lora(0) end)
  dense:enable_lora(1)
  fails("low-rank adaptation is enabled already", function() dense:enable_lora(1) end)
  fails("lora_alpha has no effect without lora_rank", function() L.Dense { 3, lora_alpha = 4 }(mgpu.ones { 1, 2 }) end)
  local kept = L.Dense { 3, kernel_constraint = "non_neg", lora_rank = 1 }
  fails("a kernel_constraint cannot be combined with low-rank adaptation", function() kept(mgpu.ones { 1, 2 }) end)
end)

test("a small file whose configuration asks for a large product is refused", function()
  local blank = require "mgpu.nn.blank_weights"
  check.raises(function()
    blank.with_room(100, "small.keras", function()
      L.Dense { 3, lora_rank = 1000000 }:ensure_built { -1, 4 }
    end)
  end, "the file is too small for the model in it")
end)
