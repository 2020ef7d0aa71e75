--- Trainings with callbacks, which run on rank 0 and whose decisions reach all ranks: for ranks_spec.lua, as
--- rank_cases.lua.
local mgpu = require "mgpu"

local L = mgpu.layers
local callbacks = mgpu.callbacks

local M = {}

local function add(name, fn) M[#M + 1] = { name = name, fn = fn, bound = name:find "^error: " and math.huge or nil } end

local function data(rows)
  local x = mgpu.rand({ rows or 23, 3 }, { dtype = "float64" })
  mgpu.eval(x)
  return x, x:sum { axis = 2, keepdims = true }
end

local function compiled(given)
  local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 4, activation = "tanh" }, L.Dropout { 0.2 }, L.Dense { 1 } }
  model:compile { optimizer = mgpu.optimizers.Adam { 0.05 }, loss = "mse", metrics = { "mae" },
    devices = given.devices }
  return model
end

local function copied(from, more)
  for name, value in pairs(from) do
    if more[name] == nil then more[name] = value end
  end
  return more
end

-- What all ranks must agree on after a fit.
local function result(model, history, more)
  return copied({ weights = model:get_weights(), history = history and history.history, epochs = history
    and history.epoch, stopped = tostring(model.stop_training), rate = model.compiled.optimizer.learning_rate,
    variables = (function(list)
      for i, v in ipairs(model.compiled.optimizer:variables()) do list[i] = v:value() end
      return list
    end) {} }, more or {})
end

-- A fit with these callbacks; `read` returns more to record.
local function add_fit(name, make, options, read)
  add(name, function(given)
    local model, x, y = compiled(given), data()
    local history = model:fit(x, y, copied({ epochs = 6, batch_size = 8, verbose = 0, validation_split = 0.25 },
      copied(options or {}, { callbacks = make(given) })))
    return result(model, history, read and read(given))
  end)
end

local function contents(given, ending)
  mgpu.world():barrier() -- rank 0 has written it
  local f = assert(io.open(given.out .. ending))
  local text = f:read "*a"
  f:close()
  return (text:gsub("\n", " | "):gsub(",", " "))
end

-- ---- those of the library ---------------------------------------------------------------------------

add_fit("EarlyStopping with the best weights", function()
  return { callbacks.EarlyStopping { patience = 1, min_delta = 0.05, restore_best_weights = true } }
end, { epochs = 30 })
add_fit("ReduceLROnPlateau", function()
  return { callbacks.ReduceLROnPlateau { monitor = "loss", patience = 1, min_delta = 0.2, factor = 0.5 } }
end)
add_fit("LearningRateScheduler", function()
  return { callbacks.LearningRateScheduler(function(epoch, rate) return rate * (epoch % 2 == 0 and 0.5 or 0.9) end) }
end)
add_fit("CSVLogger", function(given) return { callbacks.CSVLogger(given.out .. ".csv") } end, nil,
  function(given) return { csv = contents(given, ".csv") } end)

add("ModelCheckpoint of the best", function(given)
  local path = given.out .. ".safetensors"
  local model, x, y = compiled(given), data()
  local history = model:fit(x, y, { epochs = 5, batch_size = 8, verbose = 0, callbacks = { callbacks.ModelCheckpoint {
    path, monitor = "loss", save_best_only = true, save_weights_only = true } } })
  mgpu.world():barrier()
  local saved = compiled(given)
  saved:load_weights(path)
  return result(model, history, { saved = saved:get_weights() })
end)

-- ---- a user's --------------------------------------------------------------------------------------------

add_fit("values added to the logs", function()
  return { { on_epoch_end = function(_, epoch, logs)
    logs.tenth, logs.large, logs.nan = epoch / 10, math.huge, 0 / 0
  end } }
end)
add_fit("a callback runs once", function(given)
  return { { on_epoch_end = function(_, epoch)
    local f = assert(io.open(given.out .. ".calls", "a"))
    f:write("epoch ", epoch, "\n")
    f:close()
  end } }
end, nil, function(given) return { calls = contents(given, ".calls") } end)
add_fit("stop_training after an epoch", function()
  return { { on_epoch_end = function(self, epoch) self.model.stop_training = epoch == 2 end } }
end)
add_fit("stop_training after a batch", function()
  return { { on_train_batch_end = function(self, batch) self.model.stop_training = batch == 2 end } }
end)
add_fit("stop_training as soon as the loss of a batch is small", function()
  return { { on_train_batch_end = function(self, _, logs) self.model.stop_training = logs.loss < 0.3 end } }
end, { epochs = 20 })
add_fit("a callback that sets weights and the learning rate", function()
  return { { on_train_batch_end = function(self, batch)
    local w = self.model:get_weights()
    w[1] = w[1] * 0.9
    if batch == 2 then self.model:set_weights(w) end
  end, on_epoch_begin = function(self, epoch)
    self.model.compiled.optimizer.learning_rate = 0.05 / epoch
  end } }
end)
add_fit("a callback that evaluates and predicts", function()
  return { { on_epoch_end = function(self, _, logs)
    local x, y = data(5)
    logs.again = self.model:evaluate(x, y, { verbose = 0 }).loss
    logs.guess = mgpu.sum(self.model:predict(x)):item()
  end } }
end)
add_fit("a callback that draws random numbers", function()
  return { { on_train_batch_end = function() mgpu.eval(mgpu.rand { 3 }) end } }
end)

add("a callback of evaluate and one of predict that stop them", function(given)
  local model, x, y = compiled(given), data()
  local found = model:evaluate(x, y, { batch_size = 4, verbose = 0,
    callbacks = { { on_test_batch_end = function(self, batch) self.model.stop_evaluating = batch == 2 end } } })
  local predicted = model:predict(x, { batch_size = 4,
    callbacks = { { on_predict_batch_end = function(self, batch) self.model.stop_predicting = batch == 3 end } } })
  return result(model, nil, { found = found, predicted = predicted })
end)

-- ---- errors ----------------------------------------------------------------------------------------------

-- The error without its place, which ranks other than 0 name differently.
local function plain(message)
  return tostring(message):gsub("\n.*", ""):gsub("rank 0: ", ""):gsub("fit: epoch %d+, step %d+: ", "")
    :gsub("%S+:%d+: ", ""):gsub("table: %w+", "a table"):gsub("\\255", "\255")
end

-- fn raises on all ranks; then a fit works as ever.
local function add_error(name, fn)
  add("error: " .. name, function(given)
    local model, x, y = compiled(given), data()
    local before = model:get_weights()
    local ok, message = pcall(fn, model, x, y)
    local same, after = true, model:get_weights()
    for i, w in ipairs(before) do same = same and mgpu.sum(mgpu.abs(w - after[i])):item() == 0 end
    mgpu.seed(3)
    local history = model:fit(x, y, { epochs = 2, batch_size = 8, verbose = 0 })
    return result(model, history, { same = tostring(same), said = ok and "nothing" or plain(message) })
  end)
end

for _, method in ipairs { "on_train_begin", "on_train_batch_begin", "on_epoch_end", "on_train_end" } do
  add_error(method .. " raises", function(model, x, y)
    model:fit(x, y, { batch_size = 23, verbose = 0, callbacks = { { [method] = function() error "no more" end } } })
  end)
end

add_error("a callback raises something that is no text", function(model, x, y)
  model:fit(x, y, { verbose = 0, callbacks = { { on_epoch_begin = function() error { 1 } end } } })
end)
add_error("a callback raises a text that is no UTF-8", function(model, x, y)
  model:fit(x, y, { verbose = 0, callbacks = { { on_epoch_begin = function() error "\255 bytes" end } } })
end)
add_error("a loss that is not finite", function(model, x, y)
  local wrong = mgpu.concat({ x:slice { { 1, 22 }, {} }, x:slice { { 1, 1 }, {} } * (0 / 0) }, 1)
  model:fit(wrong, y, { batch_size = 23, verbose = 0 })
end)
add_error("a row that is infinite", function(model, x, y)
  local wrong = mgpu.concat({ y:slice { { 1, 1 }, {} } / 0, y:slice { { 2, 23 }, {} } }, 1)
  model:train_on_batch(x, wrong)
end)
add_error("nothing with TerminateOnNaN", function(model, x, y)
  local wrong = mgpu.concat({ x:slice { { 1, 22 }, {} }, x:slice { { 1, 1 }, {} } * (0 / 0) }, 1)
  model:fit(wrong, y, { batch_size = 23, verbose = 0, callbacks = { callbacks.TerminateOnNaN {} } })
end)

return M
