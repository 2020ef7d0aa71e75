-- Models of Keras with weights of 8 and 4 bits (tests/golden/make_quantized.py): they predict as there, are saved
-- again, and damaged ones are refused. With MGPU_KEEP=FOLDER the saved files stay there, for Keras.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local L = mgpu.layers
local test = check.test
local FOLDER = "tests/golden/quantized/"
local PREDICTS = 2e-5 -- float32, seven layers
local NAMES = { "int8", "int8_tied", "int8_untied", "int8_weights", "int4", "int4_tied", "int4_untied", "int4_channels",
  "int4_rounded" }

local can, problem = pcall(core.h5_read, "tests/golden/lora/adapted.h5")
if not can and core.error_code() == "unsupported" then check.skip(problem) end
local expected = core.store_load(FOLDER .. "expected.safetensors")

local function predict(model) return model { expected.ids, expected.x } end
local function flat(t) return t:reshape { -1 }:totable() end

for _, name in ipairs(NAMES) do
  test(name .. ".keras predicts as in Keras, and again after saving", function()
    local model = mgpu.load_model(FOLDER .. name .. ".keras")
    local y = predict(model)
    check.near(y:reshape { -1 }, flat(expected[name]), PREDICTS)
    check.near(model:predict({ expected.ids, expected.x }):reshape { -1 }, flat(expected[name]), PREDICTS)
    for _, ending in ipairs { "keras", "safetensors" } do
      local keep = os.getenv "MGPU_KEEP"
      local path = keep and ("%s/%s.%s"):format(keep, name, ending) or check.path(name .. "." .. ending)
      model:save(path)
      check.equal(flat(predict(mgpu.load_model(path))), flat(y))
      local again = mgpu.load_model(FOLDER .. name .. ".keras")
      if ending == "safetensors" then again:load_weights(path) end
      check.equal(flat(predict(again)), flat(y))
    end
    check.raises(function() model:save(check.path "a.h5") end, "which .h5 files cannot hold")
  end)
end

test("model:quantize makes the bytes and scales that Keras makes", function()
  for name, how in pairs { int8 = "int8", int4 = "int4", int4_tied = { "int4", block_size = 4 },
    int4_channels = { "int4", block_size = -1 } } do
    local theirs = mgpu.load_model(FOLDER .. name .. ".keras")
    local ours = mgpu.Sequential { mgpu.Input { 4, dtype = "int32" }, L.Embedding { 6, 5, name = "table" },
      L.EinsumDense { "abc,cd->abd", { 4, 6 } }, L.Dense { 5, name = "dense" } }
    ours:get_layer "table".embeddings:assign(expected[name .. "/table"])
    ours:get_layer "dense".kernel:assign(expected[name .. "/dense"])
    ours:quantize(how)
    for _, place in ipairs { { "table", "embeddings" }, { "table", "embeddings_scale" }, { "table", "embeddings_zero" },
      { "dense", "kernel" }, { "dense", "kernel_scale" }, { "dense", "kernel_zero" }, { "dense", "g_idx" } } do
      local a, b = ours:get_layer(place[1]), theirs:get_layer(place[1])
      local v, w = rawget(a, place[2]), rawget(b, place[2])
      check.equal(v == nil, w == nil)
      if v and place[2]:find "scale" then
        check.near(v:value():reshape { -1 }, flat(w:value()), 1e-6 * w:value():max():item())
      elseif v then
        check.equal(flat(a:stored_value(v)), flat(b:stored_value(w)))
      end
    end
    mgpu.eval(predict(theirs))
  end
end)

-- The tensors of a saved model, changed by fn, in a new file.
local function damaged(model, fn)
  local path = check.path "damaged.safetensors"
  model:save(path)
  local store = core.store_open(path)
  local notes, tensors = store:notes(), (store:read())
  store:close()
  fn(tensors)
  core.store_save(path, tensors, notes)
  return path
end

test("values that quantized weights cannot have are refused, and nothing changes", function()
  local model = mgpu.load_model(FOLDER .. "int4_tied.keras")
  local y = flat(predict(model))
  for _, case in ipairs {
    { "dense/kernel_scale", 0, "a scale that is not a positive number" },
    { "dense/kernel_scale", -1, "a scale that is not a positive number" },
    { "dense/kernel_scale", 0 / 0, "a scale that is not a positive number" },
    { "table/embeddings_scale", 1 / 0, "a scale that is not a positive number" },
    { "dense/g_idx", 7, "not a whole one from 0 to 1" },
    { "dense/g_idx", 0.5, "not a whole one from 0 to 1" },
    { "table/g_idx", -1, "not a whole one from 0 to 1" },
  } do
    local name, value, why = unpack(case)
    local path = damaged(model, function(tensors) tensors[name] = mgpu.full(tensors[name]:shape(), value) end)
    check.raises(function() model:load_weights(path) end, why, "data")
    check.raises(function() mgpu.load_model(path) end, why, "data")
    check.equal(flat(predict(model)), y)
  end
  local path = damaged(model, function(tensors) tensors["dense/kernel"] = mgpu.zeros({ 6, 2 }, { dtype = "uint8" }) end)
  check.raises(function() model:load_weights(path) end, "has shape {6, 2} in the file, the model needs {6, 3}", "data")
end)
