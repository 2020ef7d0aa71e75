-- Layers and activations against Keras's numbers in float64 (tests/golden/layers, activations).

local check = require "check"
local mgpu = require "mgpu"

package.path = "tests/golden/?.lua;" .. package.path
local hash = require "hash"

local test = check.test
local TOLERANCE = 1e-9 -- both sides compute in double; sums of about 100 terms

local function tensor(recipe, shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return mgpu.tensor(hash.array(n, recipe.salt, recipe.scale, recipe.offset),
    { dtype = "float64" }):reshape(shape)
end

local function flat(t) return t:reshape { -1 } end

local function in_float64(fn)
  mgpu.set_floatx "float64"
  local ok, message = pcall(fn)
  mgpu.set_floatx "float32"
  if not ok then error(message, 0) end
end

-- Output, gradient of the input, gradients of the weights for an upstream gradient.
local function gradients(call, x, upstream, weights)
  local input, y = mgpu.variable(x), nil
  local _, grads = mgpu.value_and_grad(function()
    y = call(input:value())
    return (y * upstream(y:shape())):sum()
  end, { input, unpack(weights) })()
  return y, grads
end

-- An axis counted from 0 as one counted from 1.
local function arguments(case)
  local args = {}
  for key, value in pairs(case.args) do args[key] = value end
  if args.axis and args.axis >= 0 then args.axis = args.axis + 1 end
  return args
end

local function trainable(layer)
  local list, moving = {}, {}
  for _, v in ipairs(layer.weights) do
    if v.trainable then list[#list + 1] = v else moving[#moving + 1] = v end
  end
  return list, moving
end

local function compare(case)
  local layer = mgpu.layers[case.layer](arguments(case))
  layer:ensure_built { -1, select(2, unpack(case.input_shape)) }
  local weights = {}
  for k, recipe in ipairs(case.weights) do weights[k] = tensor(recipe, recipe.shape) end
  layer:set_weights(weights)
  local list, moving = trainable(layer)
  local y, grads = gradients(function(x) return layer(x, { training = case.training }) end,
    tensor(case.input, case.input_shape),
    function(shape) return tensor(case.upstream, shape) end, list)
  check.equal(y:shape(), case.output_shape)
  check.near(flat(y), case.output, TOLERANCE)
  check.near(flat(grads[1]), case.input_gradient, TOLERANCE)
  for k, wanted in ipairs(case.weight_gradients) do
    check.near(flat(grads[k + 1]), wanted, TOLERANCE)
  end
  for k, wanted in ipairs(case.after or {}) do check.near(flat(moving[k]), wanted, TOLERANCE) end
end

local built = {}
for _, name in ipairs(mgpu.layers()) do built[name] = true end

for i, case in ipairs(require("layers").cases) do
  if built[case.layer] then
    test(("case %d: %s gives Keras's output and gradients"):format(i, case.layer), function()
      in_float64(function() compare(case) end)
    end)
  end
end

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
