-- Training on a cuda device, compared with Keras's golden loss curves and gradients, and with ref step by
-- step.
local gpu = require "tests.cuda.device"
local check = require "check"
local mgpu = require "mgpu"

-- On the fake CUDA convolutions are plain loops; the full network would take minutes.
local run_test = check.test
function check.test(name, fn)
  if not gpu.real and name:find "^mnist_cnn " then
    fn = function() check.skip "too slow on the fake CUDA" end
  end
  run_test(name, fn)
end

dofile "tests/lua/train/golden_training_spec.lua"

local test = check.test

test("LeNet-5 on the GPU and on ref: twelve steps, step by step", function()
  local train = mgpu.datasets.digits(384)
  local x = train.x:reshape { 384, 28, 28, 1 }:to "float32" / 255
  local function losses(device)
    mgpu.seed(3)
    mgpu.reset_names() -- initial weights depend on the names and the seed
    local model, list = mgpu.models.lenet5 { classes = 10 }, {}
    model:compile { optimizer = mgpu.optimizers.SGD { 0.05 }, loss = "sparse_categorical_crossentropy",
      devices = device }
    for s = 1, 12 do
      local rows = { (s - 1) * 32 + 1, s * 32 }
      list[s] = model:train_on_batch(x:slice { rows, {}, {}, {} }, train.y:slice { rows }).loss
    end
    return list
  end
  check.near(losses "cuda:0", losses "ref:0", 1e-4) -- twelve steps with float32 sums in another order
end)

test("every step draws a new dropout mask, the same as on ref", function()
  local L = mgpu.layers
  local function masks(device)
    return mgpu.with_device(device, function()
      mgpu.seed(11)
      local layer, list = L.Dropout { 0.5, name = "d" }, {}
      local step = mgpu.jit(function(x) return layer(x, { training = true }) end)
      for i = 1, 5 do list[i] = step(mgpu.ones { 4, 33 }) end
      for i = 1, 5 do list[i] = list[i]:totable() end
      return list
    end)
  end
  local ours, wanted = masks "cuda:0", masks "ref:0"
  check.equal(ours, wanted)
  local function text(mask)
    local rows = {}
    for r, row in ipairs(mask) do rows[r] = table.concat(row, " ") end
    return table.concat(rows, "\n")
  end
  for i = 2, 5 do check.falsy(text(ours[i]) == text(ours[i - 1]), "step " .. i .. " has a new mask") end
end)
