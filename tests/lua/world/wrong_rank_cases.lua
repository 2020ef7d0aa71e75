--- Trainings in which rank 1 does something else than rank 0, for ranks_spec.lua: each returns the error `said`, and
--- then trains as if nothing had been.
--
-- Rank 0 of a world of one trains the same, and has no error.
local mgpu = require "mgpu"

local L = mgpu.layers
local rank = mgpu.world().rank

local M = {}

local function compiled(units, optimizer)
  local model = mgpu.Sequential { L.Input { 3 }, L.Dense { units or 4, activation = "tanh" }, L.Dropout { 0.2 },
    L.Dense { 1 } }
  model:compile { optimizer = optimizer or "sgd", loss = "mse" }
  return model
end

local function data(rows)
  local x = mgpu.rand({ rows, 3 }, { dtype = "float64" })
  mgpu.eval(x)
  return x, x:sum { axis = 2, keepdims = true }
end

-- An error without its place, which differs between ranks.
local function plain(message)
  return (message:gsub("\n.*", ""):gsub("%S+:%d+: ", ""):gsub("^fit: epoch .* rank 0: ", ""))
end

-- fn(is_wrong) raises on all ranks, and not if is_wrong is false.
local function add(name, fn)
  M[#M + 1] = { name = name, fn = function()
    local ok, said = pcall(fn, rank == 1)
    mgpu.seed(5)
    mgpu.reset_names()
    local model, x, y = compiled(), data(11)
    local history = model:fit(x, y, { batch_size = 4, verbose = 0 }).history
    return { said = ok and "nothing" or plain(said), history = history, weights = model:get_weights() }
  end }
end

add("nothing", function() compiled() end)

add("variables of a step of its own", function(is_wrong)
  local v = mgpu.variable(mgpu.full({ 3 }, is_wrong and 2 or 1))
  mgpu.jit(function(x) return (x:shard() * v:value()):sum() end, { devices = mgpu.devices()[1] })(mgpu.ones { 4, 3 })
end)

add("rows", function(is_wrong)
  local model, x, y = compiled(), data(11)
  if is_wrong then x, y = x:slice { { 1, 7 }, {} }, y:slice { { 1, 7 }, {} } end
  model:train_on_batch(x, y)
end)

add("values of x", function(is_wrong)
  local model, x, y = compiled(), data(11)
  if is_wrong then x = x + mgpu.one_hot(mgpu.tensor(10, { dtype = "int32" }), 11):reshape { 11, 1 } * 1e-9 end
  model:fit(x, y, { verbose = 0 })
end)

add("values of the labels", function(is_wrong)
  local model, x, y = compiled(), data(11)
  model:fit(x, is_wrong and y * 2 or y, { verbose = 0 })
end)

add("values of weights", function(is_wrong)
  local model, x, y = compiled(), data(11)
  model:evaluate(x, y, { verbose = 0, sample_weight = mgpu.full({ 11 }, is_wrong and 2 or 1) })
end)

add("weights on one rank", function(is_wrong)
  local model, x, y = compiled(), data(11)
  model:fit(x, y, { verbose = 0, sample_weight = is_wrong and mgpu.ones { 11 } or nil })
end)

add("weights of classes", function(is_wrong)
  local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 2, activation = "softmax" } }
  model:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy" }
  model:fit((data(11)), mgpu.zeros { 11 }, { verbose = 0, class_weight = { [0] = is_wrong and 2 or 1, 1 } })
end)

add("validation data", function(is_wrong)
  local model, x, y = compiled(), data(11)
  model:fit(x, y, { verbose = 0, validation_data = { x, is_wrong and y + 1 or y } })
end)

-- 8 MB, of which samples are compared.
add("rows in another order", function(is_wrong)
  local model = compiled()
  local x = mgpu.arange(0, 3 * 2 ^ 19, 1, { dtype = "float64" }):reshape { 2 ^ 19, 3 } / 2 ^ 20
  if is_wrong then x = x:flip { axis = 1 } end
  model:predict(x, { batch_size = 2 ^ 17 })
end)

add("a fourth batch", function(is_wrong)
  local model, x, y = compiled(), data(11)
  for i = 1, 4 do model:train_on_batch(i == 4 and is_wrong and x + 1 or x, y) end
end)

add("batch size", function(is_wrong)
  local model, x, y = compiled(), data(32)
  model:fit(x, y, { batch_size = is_wrong and 8 or 16, verbose = 0 })
end)

add("rows of a last batch", function(is_wrong)
  local model, x, y = compiled(), data(11)
  if is_wrong then x, y = x:slice { { 1, 10 }, {} }, y:slice { { 1, 10 }, {} } end
  model:fit(x, y, { batch_size = 8, verbose = 0 })
end)

add("units", function(is_wrong)
  local model = compiled(is_wrong and 5 or 4)
  model:train_on_batch(data(8))
end)

add("optimizer", function(is_wrong)
  local model = compiled(4, is_wrong and "adam" or "sgd")
  model:train_on_batch(data(8))
end)

add("layers", function(is_wrong)
  local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 1, activation = is_wrong and "relu" or nil } }
  model:compile { optimizer = "sgd", loss = "mse" }
  model:train_on_batch(data(8))
end)

add("seed", function(is_wrong)
  local model, x, y = compiled(), data(8)
  mgpu.seed(is_wrong and 6 or 7)
  model:train_on_batch(x, y)
end)

add("draws", function(is_wrong)
  local model, x, y = compiled(), data(8)
  if is_wrong then mgpu.eval(mgpu.rand { 3 }) end
  model:train_on_batch(x, y)
end)

add("predict", function(is_wrong)
  local model = compiled()
  model:predict((data(is_wrong and 8 or 9)))
end)

-- A dataset of so many batches of two rows.
local function batches(n)
  local i = 0
  return mgpu.data.generator(function()
    i = 0
    return function()
      i = i + 1
      if i <= 2 * n then return mgpu.ones({ 3 }, { dtype = "float64" }), mgpu.ones({ 1 }, { dtype = "float64" }) end
    end
  end):batch(2)
end

add("batches to fit", function(is_wrong)
  compiled():fit(batches(is_wrong and 2 or 3), { verbose = 0, epochs = 2 })
end)
add("batches to evaluate", function(is_wrong) compiled():evaluate(batches(is_wrong and 2 or 3), { verbose = 0 }) end)
add("batches to predict", function(is_wrong) compiled():predict(batches(is_wrong and 2 or 3)) end)
add("batches to validate with", function(is_wrong)
  compiled():fit(batches(3), { verbose = 0, validation_data = batches(is_wrong and 2 or 3) })
end)

add("another step", function(is_wrong)
  local model, x, y = compiled(), data(8)
  model:train_on_batch(x, y)
  model:test_on_batch(x, y)
  if is_wrong then model:train_on_batch(x, y) else model:test_on_batch(x, y) end
end)

add("a step that rank 0 does not make", function(is_wrong)
  local model, x, y = compiled(), data(8)
  if is_wrong then model:train_on_batch(x, y) end
  mgpu.world():barrier()
end)

add("draws between two steps", function(is_wrong)
  local model, x, y = compiled(), data(8)
  model:train_on_batch(x, y)
  if is_wrong then mgpu.eval(mgpu.rand { 3 }) end
  model:train_on_batch(x, y)
end)

add("a seed between two steps", function(is_wrong)
  local model, x, y = compiled(), data(8)
  model:train_on_batch(x, y)
  if is_wrong then mgpu.seed(9) end
  model:train_on_batch(x, y)
end)

add("a callback that one rank lacks", function(is_wrong)
  local model, x, y = compiled(), data(8)
  model:fit(x, y, { verbose = 0, callbacks = not is_wrong and { { on_epoch_end = function() end } } or nil })
  model:evaluate(x, y, { verbose = 0 })
end)

-- ---- what several processes cannot do, on all ranks ----------------------------------------------------

for _, case in ipairs { { "run_eagerly", "run_eagerly", true },
  { "async", "strategy", "async" } } do
  add("alone: " .. case[1], function() compiled():compile { loss = "mse", [case[2]] = case[3] } end)
end

add("alone: set_devices in a callback", function()
  local model, x, y = compiled(), data(8)
  model:fit(x, y, { verbose = 0,
    callbacks = { { on_epoch_end = function(self) self.model:set_devices { "cpu:0", "cpu:1" } end } } })
end)

add("alone: trainable in a callback", function()
  local model, x, y = compiled(), data(8)
  model:fit(x, y, { verbose = 0,
    callbacks = { { on_epoch_end = function(self) self.model.layers[1].trainable = false end } } })
end)

return M
