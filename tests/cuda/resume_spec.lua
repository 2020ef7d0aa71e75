-- BackupAndRestore on cuda devices: a step may still be running when its call has returned, and tensors are copied to
-- the host before they are written.
require "tests.cuda.device"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local L = mgpu.layers

-- Fits, or raises "stop" after `stop` steps. RETURNS the history, the weights and the optimizer's variables, as text.
local function fit(devices, dir, stop)
  mgpu.seed(5)
  local x, y, steps = mgpu.rand { 60, 6 }, mgpu.randint(0, 3, { 60 }), 0
  local model = mgpu.Sequential { L.Input { 6 }, L.Dense { 16, activation = "relu" }, L.BatchNormalization {},
    L.Dropout { 0.3 }, L.Dense { 3, activation = "softmax" } }
  model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy", metrics = "accuracy",
    devices = devices }
  local callbacks = { { on_train_batch_end = function()
    steps = steps + 1
    if steps == stop then error("stop", 0) end
  end } }
  callbacks[2] = dir and mgpu.callbacks.BackupAndRestore { dir, save_freq = 5 }
  local history = model:fit(x, y, { epochs = 3, batch_size = 8, validation_split = 0.2, verbose = 0,
    callbacks = callbacks })
  local lines = { core.json_encode(history.history) }
  for _, list in ipairs { model.variables, model.optimizer:variables() } do
    for _, v in ipairs(list) do lines[#lines + 1] = core.json_encode(v:value():totable()) end
  end
  return table.concat(lines, "\n")
end

for _, devices in ipairs { { "cuda:0" }, { "cuda:0/0", "cuda:0/1" } } do
  check.test("a fit on " .. table.concat(devices, " and ") .. " continues exactly", function()
    mgpu.deterministic(true) -- kernels chosen by timing may differ from fit to fit
    local straight, dir = fit(devices), check.path("run" .. #devices)
    for _, stop in ipairs { 6, 13 } do
      check.raises(function() fit(devices, dir, stop) end, "stop")
      check.equal(#core.checkpoint_list(dir) > 0, true)
      check.equal(fit(devices, dir), straight)
    end
    mgpu.deterministic(false)
  end)
end
