-- The model zoo on a cuda device: each model trains and predicts, and every op has a kernel there: none
-- falls back to the host.
local device = require "tests.cuda.device"
local check = require "check"
local mgpu = require "mgpu"

local test = check.test

local MNIST, CIFAR = { 28, 28, 1 }, { 32, 32, 3 }
-- The images of each model, and whether its steps are too much for the fake CUDA.
local MODELS = {
  lenet5 = { MNIST }, mlp = { MNIST }, mnist_cnn = { MNIST, slow = true }, mnist_tfrecord_cnn = { MNIST, slow = true },
  cifar10_cnn = { CIFAR, slow = true }, cifar10_cnn_small = { CIFAR }, vae_deconv = { MNIST, slow = true },
  unet = { CIFAR, slow = true }, mobilenet_v2 = { CIFAR, slow = true }, densenet121 = { CIFAR, slow = true },
  efficientnet_b0 = { CIFAR, slow = true },
}
for _, name in ipairs { "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg16", "vgg19" } do
  MODELS[name] = { CIFAR, slow = true }
end

-- Models with other options, most of them of sequences: how they are made, what they get, and their targets.
local OTHERS = {
  char_lstm = { "{ classes = 10, units = 8, layers = 1, embedding = 4 }", "mgpu.zeros({ 4, 5 }, { dtype = 'int32' })",
    "mgpu.zeros({ 4, 5 }, { dtype = 'int32' })" },
  seq2seq = { "{ classes = 5, units = 8 }", "{ mgpu.rand { 4, 3, 5 }, mgpu.rand { 4, 2, 5 } }",
    "mgpu.zeros({ 4, 2 }, { dtype = 'int32' })" },
  gpt = { "{ vocabulary = 10, context = 8, width = 8, layers = 1, heads = 2 }",
    "mgpu.zeros({ 4, 5 }, { dtype = 'int32' })",
    skip = "placing the causal mask falls back to the host" },
  transformer_encoder = { "{ vocabulary = 10, length = 8, width = 8, layers = 1, heads = 2 }",
    "mgpu.ones({ 4, 5 }, { dtype = 'int32' })", "mgpu.zeros({ 4 }, { dtype = 'int32' })" },
  text_cnn = { "{ vocabulary = 10, width = 4, filters = 3 }", "mgpu.zeros({ 4, 5 }, { dtype = 'int32' })",
    "mgpu.zeros({ 4 }, { dtype = 'int32' })" },
  convnext = { "{ input_shape = { 32, 32, 3 }, classes = 3, depths = { 1, 1, 1, 1 }, projection_dims = { 4, 4, 4, 8 }"
    .. ", drop_path_rate = 0.5 }", "mgpu.rand { 4, 32, 32, 3 }", "mgpu.zeros({ 4 }, { dtype = 'int32' })" },
  vit = { "{ input_shape = { 32, 32, 3 }, classes = 3, patch = 16, width = 8, layers = 1, heads = 2 }",
    "mgpu.rand { 4, 32, 32, 3 }", "mgpu.zeros({ 4 }, { dtype = 'int32' })" },
}

-- The targets and the loss of the models whose targets are not class ids or whose outputs are no probabilities.
local TARGETS = {
  unet = { "mgpu.zeros({ 4, 32, 32 }, { dtype = 'int32' })", "'sparse_categorical_crossentropy'" },
  vae_deconv = { "x", "mgpu.models.vae_deconv.reconstruction" },
  gpt = { "mgpu.zeros({ 4, 5 }, { dtype = 'int32' })",
    "mgpu.losses.SparseCategoricalCrossentropy { from_logits = true }" },
}

-- Runs a script -> its log of ops that fell back to the host; "": none.
local function fallbacks(script)
  local path = check.path "script.lua"
  check.write(path, script)
  local out, status = check.run("MGPU_LOG=fallback " .. check.program .. " " .. path)
  check.equal(status, 0)
  return out
end

-- The model is made by a call with `arguments`; x, y and loss are Lua text.
local function check_model(name, arguments, x, y, loss)
  for _, precision in ipairs { "float32", "mixed_float16" } do
    local out = fallbacks(([[
package.path = "./?.lua;" .. package.path
require("mgpu.core").default_device "cuda:0"
local mgpu = require "mgpu"
local model = mgpu.models.%s %s
local x = %s
local y = %s
model:compile { loss = %s, optimizer = "adam", precision = "%s" }
model:fit(x, y, { batch_size = 2, epochs = 1, verbose = 0, validation_data = { x, y } })
model:predict(x)
]]):format(name, arguments, x, y, loss, precision))
    check.equal(out, "")
  end
end

for name, case in pairs(MODELS) do
  test(name .. " trains and predicts without host fallback", function()
    if case.slow and not device.real then check.skip "too slow on the fake CUDA" end
    local target = TARGETS[name] or { "mgpu.zeros({ 4 }, { dtype = 'int32' })", "'sparse_categorical_crossentropy'" }
    local shape = table.concat(case[1], ", ")
    check_model(name, ("{ input_shape = { %s }%s }"):format(shape, name ~= "vae_deconv" and ", classes = 10" or ""),
      ("mgpu.rand { 4, %s }"):format(shape), target[1], target[2])
  end)
end

for name, case in pairs(OTHERS) do
  test(name .. " trains and predicts without host fallback", function()
    if case.skip then check.skip(case.skip) end
    local target = TARGETS[name] or { case[3], "'sparse_categorical_crossentropy'" }
    check_model(name, case[1], case[2], unpack(target))
  end)
end

test("every model of the zoo is tested", function()
  local listed = {}
  for file in io.popen("ls models"):lines() do
    local name = file:match "^(.*)%.lua$"
    if name and name ~= "init" then listed[#listed + 1] = name end
  end
  for _, name in ipairs(listed) do check.truthy(MODELS[name] or OTHERS[name], name) end
  check.truthy(mgpu.models.lenet5)
end)
