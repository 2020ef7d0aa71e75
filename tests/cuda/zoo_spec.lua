-- The model zoo on a cuda device: each model trains and predicts, and every op has a kernel there: none
-- falls back to the host.
local device = require "tests.cuda.device"
local check = require "check"
local mgpu = require "mgpu"

local test = check.test

local MODELS = { lenet5 = { 28, 28, 1 }, mnist_cnn = { 28, 28, 1 }, mlp = { 28, 28, 1 } }

-- Runs a script -> its log of ops that fell back to the host; "": none.
local function fallbacks(script)
  local path = check.path "script.lua"
  check.write(path, script)
  local out, status = check.run("MGPU_LOG=fallback " .. check.program .. " " .. path)
  check.equal(status, 0)
  return out
end

for name, shape in pairs(MODELS) do
  test(name .. " trains and predicts without host fallback", function()
    if name == "mnist_cnn" and not device.real then check.skip "too slow on the fake CUDA" end
    for _, precision in ipairs { "float32", "mixed_float16" } do
      local out = fallbacks(([[
package.path = "./?.lua;" .. package.path
require("mgpu.core").default_device "cuda:0"
local mgpu = require "mgpu"
local model = mgpu.models.%s { input_shape = { %d, %d, %d }, classes = 10 }
model:compile { loss = "sparse_categorical_crossentropy", optimizer = "adam", metrics = { "accuracy" },
  precision = "%s" }
local x, y = mgpu.rand { 4, 28, 28, 1 }, mgpu.zeros({ 4 }, { dtype = "int32" })
model:fit(x, y, { batch_size = 2, epochs = 1, verbose = 0, validation_data = { x, y } })
model:predict(x)
]]):format(name, shape[1], shape[2], shape[3], precision))
      check.equal(out, "")
    end
  end)
end

test("every model of the zoo is tested", function()
  local listed = {}
  for file in io.popen("ls models"):lines() do
    local name = file:match "^(.*)%.lua$"
    if name and name ~= "init" then listed[#listed + 1] = name end
  end
  for _, name in ipairs(listed) do check.truthy(MODELS[name], name) end
  check.truthy(mgpu.models.lenet5)
end)
