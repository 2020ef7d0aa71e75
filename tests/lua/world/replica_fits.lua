--- Fits of replicas whose numbers must be equal on all ranks, for replicas_spec.lua. "learned" is what is expected.
local mgpu = require "mgpu"

local L = mgpu.layers

local function new_model(given, strategy, options)
  local model = mgpu.Sequential { L.Input { 6 }, L.Dense { 16, activation = "relu" }, L.BatchNormalization {},
    L.Dropout { 0.1 }, L.Dense { 1 } }
  options = options or {}
  options.devices = given.devices
  model:compile { loss = "mse", metrics = { "mae" }, optimizer = mgpu.optimizers.Adam { 0.01 },
    strategy = mgpu.parallel.strategy(strategy, options) }
  return model
end

local function new_data(rows)
  local x = mgpu.rand { rows, 6 }
  mgpu.eval(x)
  return x, x:sum { axis = 2, keepdims = true }
end

local function result(model, h)
  local losses = h.history.val_loss
  local found = { history = h.history, learned = losses[#losses] < losses[1] / 2 }
  for i, v in ipairs(model.variables) do found["weight " .. i] = v:value() end
  for i, v in ipairs(model.compiled.optimizer:variables()) do found["state " .. i] = v:value() end
  return found
end

local STRATEGIES = { { "local_sgd", { period = 4 } }, { "elastic", { period = 4 } }, { "adasum", {} },
  { "mirrored", { compression = "bfloat16" } }, { "mirrored", { compression = { top_k = 0.2 } } } }

local M = {}

for number, each in ipairs(STRATEGIES) do
  local name, options = each[1] .. " " .. number, each[2]
  M[#M + 1] = { name = name .. ": arrays", floatx = "float32", fn = function(given)
    local model, x, y = new_model(given, each[1], options), new_data(200)
    return result(model, model:fit(x, y, { batch_size = 20, epochs = 6, verbose = 0, validation_split = 0.2 }))
  end }
  M[#M + 1] = { name = name .. ": a dataset", floatx = "float32", fn = function(given)
    local model, x, y = new_model(given, each[1], options), new_data(170)
    local ds = mgpu.data.from_tensors { x, y }:shuffle(170, 1):batch(20):prefetch(1)
    return result(model, model:fit(ds, { epochs = 6, verbose = 0, validation_data = { x, y } }))
  end }
end

-- The weights of the best epoch, which a callback on rank 0 restores, are those of all ranks.
M[#M + 1] = { name = "early stopping", floatx = "float32", fn = function(given)
  local model, x, y = new_model(given, "local_sgd", { period = 3 }), new_data(100)
  local h = model:fit(x, y, { batch_size = 20, epochs = 30, verbose = 0, validation_split = 0.2,
    callbacks = { mgpu.callbacks.EarlyStopping { patience = 2, min_delta = 0.05, restore_best_weights = true } } })
  return result(model, h)
end }

-- A row of the last rank in the first batch has no finite loss: all ranks know it when they meet, and TerminateOnNaN
-- ends the fit on all.
for _, each in ipairs { { "local_sgd", { period = 2 } }, { "mirrored", { compression = "bfloat16" } } } do
  M[#M + 1] = { name = each[1] .. ": a loss that is not finite", floatx = "float32", fn = function(given)
    local model, x, y = new_model(given, each[1], each[2]), new_data(60)
    local values = y:totable()
    values[20][1] = 0 / 0
    y = mgpu.tensor(values)
    local function fit(callbacks)
      return model:fit(x, y, { batch_size = 20, epochs = 3, shuffle = false, verbose = 0, callbacks = callbacks })
    end
    local ok, message = pcall(fit)
    local h = fit { mgpu.callbacks.TerminateOnNaN {} }
    return { ok = ok, message = tostring(message):match "epoch 1, (step.*);",
      epochs = #h.history.loss }
  end }
end

-- A fit that is interrupted after an epoch and goes on from its checkpoint ends with the weights of one that is not.
M[#M + 1] = { name = "resumed", floatx = "float32", fn = function(given)
  local function train(epochs, dir)
    mgpu.reset_names()
    mgpu.seed(3)
    local model, x, y = new_model(given, "elastic", { period = 3 }), new_data(100)
    return model, model:fit(x, y, { batch_size = 20, epochs = epochs, verbose = 0, validation_split = 0.2,
      resume = dir })
  end
  local whole, h = train(6)
  local dir = given.out .. ".resume"
  train(3, dir)
  local resumed = train(6, dir)
  local off = 0
  for i, w in ipairs(whole:get_weights()) do
    off = math.max(off, (w - resumed:get_weights()[i]):abs():max():item())
  end
  local found = result(whole, h)
  found.off = off
  return found
end }

return M
