--- Fits with parameter servers, whose numbers must be equal on all ranks, for servers_spec.lua. "off": how far weights,
--- losses and the optimizer's state are from those of strategy "mirrored", relative to the largest of each.
local core = require "mgpu.core"
local mgpu = require "mgpu"

local L, O = mgpu.layers, mgpu.optimizers
local SIZE = mgpu.world().size

local function options_of(given, options)
  options = options or {}
  options.devices = given.devices
  return options
end

local function new_model(given, compile, layers)
  mgpu.reset_names()
  mgpu.seed(5)
  local model = mgpu.Sequential(layers or { L.Input { 6 }, L.Dense { 16, activation = "relu" }, L.Dense { 1 } })
  compile.loss, compile.metrics, compile.devices = "mse", { "mae" }, given.devices
  model:compile(compile)
  return model
end

local function new_data(rows)
  local x = mgpu.rand { rows, 6 }
  mgpu.eval(x)
  return x, x:sum { axis = 2, keepdims = true }
end

local function state_of(model)
  local list = {}
  for _, v in ipairs(model.variables) do list[#list + 1] = v:value() end
  for _, v in ipairs(model.compiled.optimizer:variables()) do
    list[#list + 1] = core.ops.cast(v:value(), { dtype = "float64" })
  end
  return list
end

local function result(model, h)
  local losses = h.history.loss
  local found = { history = h.history, learned = losses[#losses] < losses[1] / 2 }
  for i, t in ipairs(state_of(model)) do found["state " .. i] = t end
  return found
end

-- The largest difference of two lists of tensors.
local function off(a, b)
  local most = 0
  for i, t in ipairs(a) do
    local largest = math.max(1e-3, t:abs():max():item())
    most = math.max(most, (t - b[i]):abs():max():item() / largest)
  end
  return most
end

local M = {}

-- ---- the numbers of "mirrored" --------------------------------------------------------------------

local function as_arrays(model, x, y, epochs, given)
  given = given or {}
  given.batch_size, given.epochs, given.verbose, given.validation_split = 20, epochs, 0, 0.2
  return model:fit(x, y, given)
end

local function as_dataset(model, x, y, epochs)
  return model:fit(mgpu.data.from_tensors { x, y }:shuffle(200, 1):batch(20), { epochs = epochs, verbose = 0,
    validation_data = { x, y } })
end

-- fit on 203 rows, so that batches are dealt unevenly and the last has 2 rows: fewer than workers.
local function compare(name, strategy, options, compile, fit, rows)
  M[#M + 1] = { name = name, fn = function(given)
    if options and options.servers and options.servers >= SIZE then options.servers = SIZE - 1 end
    local function train(how)
      local chosen = compile()
      chosen.strategy = how
      local model = new_model(given, chosen)
      local h = (fit or as_arrays)(model, new_data(rows or 203))
      return model, h
    end
    local mirrored, h0 = train "mirrored"
    local model, h = train(mgpu.parallel.strategy(strategy, options_of(given, options)))
    local found = result(model, h)
    local numbers, expected = state_of(model), state_of(mirrored)
    for key, values in pairs(h0.history) do
      expected[#expected + 1], numbers[#numbers + 1] = mgpu.tensor(values), mgpu.tensor(h.history[key])
    end
    found.off = off(expected, numbers)
    return found
  end }
end

local function fit_arrays(model, x, y) return as_arrays(model, x, y, 3) end
local function fit_dataset(model, x, y) return as_dataset(model, x, y, 3) end
local function adam() return { optimizer = O.Adam { 0.01 } } end

compare("one server", "parameter_server", nil, adam, fit_arrays)
compare("two servers", "parameter_server", { servers = 2 }, adam, fit_arrays)
compare("central", "central", nil, adam, fit_arrays)
compare("a dataset", "parameter_server", nil, adam, fit_dataset)
compare("a dataset and central", "central", nil, adam, fit_dataset)
compare("fewer rows than workers", "parameter_server", nil, adam, fit_arrays, 27)
compare("an optimizer with all options", "parameter_server", { servers = 2 }, function()
  return { optimizer = O.AdamW { mgpu.schedules.ExponentialDecay { 0.01, 10, 0.5 }, clipnorm = 0.1,
    weight_decay = 0.1, use_ema = true, ema_overwrite_frequency = 3 } }
end, fit_arrays)
compare("the norm of all gradients", "parameter_server", nil, function()
  return { optimizer = O.SGD { 0.05, momentum = 0.9, global_clipnorm = 0.1 } }
end, fit_arrays)
compare("gradients of several batches", "parameter_server", { servers = 2 }, function()
  return { optimizer = O.Adam { 0.01, gradient_accumulation_steps = 3 } }
end, fit_arrays)
compare("a callback after each batch", "parameter_server", nil, adam, function(model, x, y)
  return as_arrays(model, x, y, 3, { callbacks = { mgpu.callbacks.LambdaCallback {
    on_train_batch_end = function(step) if step == 3 then model.optimizer.learning_rate = 0.002 end end } } })
end)

-- ---- fits by themselves -----------------------------------------------------------------------------

local function own_layers()
  return { L.Input { 6 }, L.Dense { 16, activation = "relu" }, L.BatchNormalization {}, L.Dropout { 0.1 },
    L.Dense { 1 } }
end

local function learns(name, options, fit)
  M[#M + 1] = { name = name, floatx = "float32", fn = function(given)
    local model = new_model(given, { optimizer = O.Adam { 0.02 },
      strategy = mgpu.parallel.strategy("parameter_server", options_of(given, options)) }, own_layers())
    local x, y = new_data(300)
    local h = fit and fit(model, x, y) or as_arrays(model, x, y, 20)
    local found = result(model, h)
    local workers = SIZE - (options.servers or 1)
    local bound = type(options.staleness) == "number" and (workers - 1) * (2 * options.staleness + 1) or math.huge
    found.bounded = not h.history.staleness_max or math.max(unpack(h.history.staleness_max)) <= bound
    return found
  end }
end

learns("batch normalization and dropout", {})
learns("staleness 1", { staleness = 1 })
learns("staleness 4", { staleness = 4 })
learns("staleness without a bound", { staleness = "unbounded" })
learns("staleness of a dataset", { staleness = 2 }, function(model, x, y) return as_dataset(model, x, y, 20) end)

-- In float32, where the first scales are too large: all servers skip the same steps.
M[#M + 1] = { name = "loss scaling", floatx = "float32", fn = function(given)
  local function train(how)
    local model = new_model(given, { strategy = how, optimizer = O.LossScaleOptimizer { O.SGD { 0.05 },
      initial_scale = 2 ^ 126 } })
    local x, y = new_data(203)
    return model, as_arrays(model, x, y, 3)
  end
  local mirrored = train "mirrored"
  local model, h = train(mgpu.parallel.strategy("parameter_server", options_of(given,
    { servers = math.min(2, SIZE - 1) })))
  local found = result(model, h)
  found.skipped = model.optimizer.skipped:value():item()
  found["off in float32"] = off(state_of(mirrored), state_of(model))
  return found
end }

M[#M + 1] = { name = "early stopping", floatx = "float32", fn = function(given)
  local model = new_model(given, { optimizer = O.Adam { 0.02 },
    strategy = mgpu.parallel.strategy("parameter_server", options_of(given, { staleness = 1 })) })
  local x, y = new_data(200)
  return result(model, as_arrays(model, x, y, 30, { callbacks = {
    mgpu.callbacks.EarlyStopping { patience = 2, min_delta = 0.05, restore_best_weights = true } } }))
end }

M[#M + 1] = { name = "resumed", fn = function(given)
  local function train(epochs, dir)
    local model = new_model(given, { optimizer = O.Adam { 0.01 },
      strategy = mgpu.parallel.strategy("parameter_server", options_of(given)) })
    local x, y = new_data(100)
    return model, as_arrays(model, x, y, epochs, { resume = dir })
  end
  local dir = given.out:gsub("%.%d$", "") .. ".servers"
  local whole, h = train(6)
  train(3, dir)
  local found = result(whole, h)
  found.off = off(state_of(whole), state_of((train(6, dir))))
  return found
end }

for _, staleness in ipairs { 0, 1 } do
  M[#M + 1] = { name = "a loss that is not finite, staleness " .. staleness, fn = function(given)
    local model = new_model(given, { optimizer = O.Adam { 0.01 },
      strategy = mgpu.parallel.strategy("parameter_server", options_of(given, { staleness = staleness })) })
    local x, y = new_data(60)
    local values = y:totable()
    values[60][1] = 0 / 0
    y = mgpu.tensor(values)
    local ok, message = pcall(model.fit, model, x, y, { batch_size = 20, epochs = 2, verbose = 0 })
    local h = model:fit(x, y, { batch_size = 20, epochs = 5, verbose = 0,
      callbacks = { mgpu.callbacks.TerminateOnNaN {} } })
    return { ok = ok, message = tostring(message):match "the loss is not finite", epochs = #h.history.loss }
  end }
end

return M
