-- Layers and activations against Keras's numbers (tests/golden/layers, more_layers, activations).

local check = require "check"
local mgpu = require "mgpu"

package.path = "tests/golden/?.lua;" .. package.path
local hash = require "hash"

local test = check.test
local TOLERANCE = 1e-9 -- of activations: both sides compute in double

local function tensor(recipe, shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return mgpu.tensor(hash.array(n, recipe.salt, recipe.scale, recipe.offset),
    { dtype = "float64" }):reshape(shape)
end

local function flat(t) return t:reshape { -1 } end

-- Output, gradient of the input, gradients of the weights for an upstream gradient.
local function gradients(call, x, upstream, weights)
  local input, y = mgpu.variable(x), nil
  local _, grads = mgpu.value_and_grad(function()
    y = call(input:value())
    return (y * upstream(y:shape())):sum()
  end, { input, unpack(weights) })()
  return y, grads
end

-- Axes counted from 0 as axes counted from 1.
local function from_one(axis)
  if type(axis) == "number" then return axis >= 0 and axis + 1 or axis end
  local list = {}
  for i, a in ipairs(axis) do list[i] = from_one(a) end
  return list
end

local function arguments(case)
  local args = {}
  for key, value in pairs(case.args) do args[key] = value end
  for _, name in ipairs { "axis", "axes", "shared_axes" } do
    if args[name] then args[name] = from_one(args[name]) end
  end
  return args
end

local function trainable(layer)
  local list, moving = {}, {}
  for _, v in ipairs(layer.weights) do
    if v.trainable then list[#list + 1] = v else moving[#moving + 1] = v end
  end
  return list, moving
end

-- f64 on ref and on the default device; f32 on the default device.
local SETTINGS = {
  { dtype = "float64", device = "ref:0", tolerance = 1e-10 }, -- both sides compute in double
  { dtype = "float64", tolerance = 1e-10 },
  -- float32 sums of about 100 terms; relative to the larger of the number and the tensor's rms
  { dtype = "float32", tolerance = 1e-5 },
}

-- |a - b| <= tolerance * (|b| + rms b)
local function near(t, wanted, tolerance)
  local got, squares = flat(t):totable(), 0
  check.equal(#got, #wanted)
  for _, b in ipairs(wanted) do squares = squares + b * b end
  local rms = math.sqrt(squares / math.max(1, #wanted))
  for i, b in ipairs(wanted) do
    if not (math.abs(got[i] - b) <= tolerance * (math.abs(b) + rms) + 1e-300) then
      check.fail(("element %d is %.17g, expected %.17g within %g (rms %g)"):format(i, got[i], b,
        tolerance, rms))
    end
  end
end

local function compare(case, setting)
  local layer = mgpu.layers[case.layer](arguments(case))
  layer:ensure_built { -1, select(2, unpack(case.input_shape)) }
  local weights = {}
  for k, recipe in ipairs(case.weights) do weights[k] = setting.tensor(recipe, recipe.shape) end
  layer:set_weights(weights)
  local list, moving = trainable(layer)
  local y, grads = gradients(function(x) return layer(x, { training = case.training }) end,
    setting.tensor(case.input, case.input_shape),
    function(shape) return setting.tensor(case.upstream, shape) end, list)
  check.equal(layer:output_shape { -1, select(2, unpack(case.input_shape)) },
    { -1, select(2, unpack(case.output_shape)) })
  check.equal(y:shape(), case.output_shape)
  near(y, case.output, setting.tolerance)
  near(grads[1] or y * 0, case.input_gradient, setting.tolerance)
  for k, wanted in ipairs(case.weight_gradients) do near(grads[k + 1], wanted, setting.tolerance) end
  for k, wanted in ipairs(case.after or {}) do near(moving[k], wanted, setting.tolerance) end
end

local function compare_merge(case, setting)
  local layer, inputs, list = mgpu.layers[case.layer](arguments(case)), {}, {}
  for k, recipe in ipairs(case.inputs) do
    inputs[k] = mgpu.variable(setting.tensor(recipe, case.input_shapes[k]))
  end
  local y
  local _, grads = mgpu.value_and_grad(function()
    for k, v in ipairs(inputs) do list[k] = v:value() end
    y = layer(list)
    return (y * setting.tensor(case.upstream, y:shape())):sum()
  end, inputs)()
  check.equal(y:shape(), case.output_shape)
  near(y, case.output, setting.tolerance)
  for k, wanted in ipairs(case.input_gradients) do near(grads[k], wanted, setting.tolerance) end
end

local function compare_embedding(case, setting)
  local layer = mgpu.layers.Embedding { 6, 3 }
  layer:ensure_built { -1, select(2, unpack(case.shape)) }
  layer:set_weights { setting.tensor(case.weight, case.weight.shape) }
  local n = 1
  for _, size in ipairs(case.shape) do n = n * size end
  local ids = mgpu.tensor(hash.labels(n, case.ids_salt, 6), { dtype = "int32" }):reshape(case.shape)
  local y
  local _, grads = mgpu.value_and_grad(function()
    y = layer(ids)
    return (y * setting.tensor(case.upstream, y:shape())):sum()
  end, layer.weights)()
  near(y, case.output, setting.tolerance)
  near(grads[1], case.weight_gradient, setting.tolerance)
end

-- Runs fn(case, setting) in every dtype and on every device of SETTINGS.
local core = require "mgpu.core"

local function in_all_settings(fn, case)
  for _, given in ipairs(SETTINGS) do
    local setting, before = { tolerance = given.tolerance }, core.default_device()
    function setting.tensor(recipe, shape)
      return tensor(recipe, shape):to(given.dtype):to(core.default_device())
    end
    mgpu.set_floatx(given.dtype)
    core.default_device(given.device or before)
    local ok, message = pcall(fn, case, setting)
    core.default_device(before)
    mgpu.set_floatx "float32"
    if not ok then error(("%s on %s: %s"):format(given.dtype, given.device or before, message), 0) end
  end
end

local function tests_of(name, cases, fn)
  for i, case in ipairs(cases) do
    test(("%s %d: %s gives Keras's output and gradients"):format(name, i, case.layer or "Embedding"),
      function() in_all_settings(fn, case) end)
  end
end

tests_of("case", require("layers").cases, compare)
local more = require "more_layers"
tests_of("further case", more.cases, compare)
tests_of("merge", more.merges, compare_merge)
tests_of("embedding", more.embeddings, compare_embedding)

local golden = require "activations"
for _, case in ipairs(golden.cases) do
  test(("activation %s gives Keras's output and gradient"):format(case.name), function()
    local fn = case.name == "gelu_approximate"
      and function(x) return mgpu.activations.gelu(x, true) end or mgpu.activations.get(case.name)
    local y, grads = gradients(fn, tensor(golden.input, golden.shape),
      function(shape) return tensor(golden.upstream, shape) end, {})
    check.near(flat(y), case.output, TOLERANCE)
    check.near(flat(grads[1]), case.input_gradient, TOLERANCE)
  end)
end
