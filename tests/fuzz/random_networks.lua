-- Draws random small networks for devices.lua, and runs one: output, and gradients of its weights.
local mgpu = require "mgpu"
local cases = require "ops.cases"

local random = math.random
local function pick(list) return list[random(#list)] end

local ACTIVATIONS = { "relu", "relu", "tanh", "sigmoid", "elu", "softplus", "gelu", "linear" }
local FILTERS = { 1, 3, 4, 7, 8, 16, 17, 32, 33 }
local function padding() return pick { "same", "valid" } end

-- Each maker returns the name of a layer and its arguments.
local IMAGE_LAYERS = {
  function() return { "Conv2D", { pick(FILTERS), pick { 1, 3, 3, 5 }, strides = pick { 1, 1, 2 }, padding = padding(),
    activation = pick(ACTIVATIONS), use_bias = random(2) == 1 } } end,
  function() return { "DepthwiseConv2D", { pick { 2, 3 }, padding = padding(), activation = pick(ACTIVATIONS) } } end,
  function() return { "Conv2DTranspose", { pick(FILTERS), pick { 2, 3 }, strides = pick { 1, 2 } } } end,
  function() return { "BatchNormalization", {} } end,
  -- of whole images: one channel minus its mean is 0, and the next norm would amplify its rounding error
  function() return { "LayerNormalization", { axis = { -3, -2, -1 } } } end,
  function() return { pick { "MaxPooling2D", "AveragePooling2D" }, { pick { 2, 3 }, padding = padding() } } end,
  function() return { "UpSampling2D", { 2 } } end,
  function() return { "ZeroPadding2D", { 1 } } end,
  function() return { "Dropout", { 0.3 } } end,
  function() return { "Activation", { pick(ACTIVATIONS) } } end,
}

-- Whether the gradient jumps somewhere: rounding may decide on which side a number lies.
local function jumps(layers)
  for _, layer in ipairs(layers) do
    if layer[1] == "MaxPooling2D" or layer[2].activation == "relu" or layer[2][1] == "relu" then return true end
  end
  return false
end

local M = {}

--- A random network as a case: its input, its layers, and whether it runs under mgpu.jit.
function M.draw()
  local layers = {}
  for i = 1, random(4) do layers[i] = pick(IMAGE_LAYERS)() end
  layers[#layers + 1] = { pick { "Flatten", "GlobalAveragePooling2D" }, {} }
  layers[#layers + 1] = { "Dense", { pick { 1, 3, 10, 65 }, activation = pick { "softmax", "linear", "tanh" } } }
  local shape = { pick { 1, 2, 3, 5 }, random(3, 20), random(3, 20), pick { 1, 2, 3, 8, 17 } }
  return { "network", { shape, -1, 1 }, layers = layers, jit = random(2) == 1, dtypes = { "float32" }, tol = 1e-4,
    scale = 0.1 }
end

local function build(case)
  local shape = case[2][1]
  local list = { mgpu.layers.Input { shape[2], shape[3], shape[4] } }
  for i, layer in ipairs(case.layers) do
    local arguments = { name = "layer" .. i } -- the same in the messages of both devices
    for k, v in pairs(layer[2]) do arguments[k] = v end
    list[i + 1] = mgpu.layers[layer[1]](arguments)
  end
  return mgpu.Sequential(list)
end

--- The output of a training step on the default device and the gradients of the weights, as devices.lua compares them;
--- no gradients if they may differ at a jump.
function M.compute(case)
  mgpu.seed(3)
  local model = build(case)
  local x = cases.tensor(cases.fill(case[2], case.salt), case[2][1], "float32")
  local function step(input)
    local y
    local _, found = mgpu.value_and_grad(function()
      y = model(input, { training = true })
      return (y * y):sum()
    end, model.trainable_variables)()
    return y, unpack(found)
  end
  local results = { (case.jit and mgpu.jit(step) or step)(x) }
  local y = table.remove(results, 1)
  for i, gradient in ipairs(results) do results[i] = cases.flat(gradient) end
  return { shape = y:shape(), dtype = y:dtype(), values = cases.flat(y),
    gradients = jumps(case.layers) and {} or results }
end

return M
