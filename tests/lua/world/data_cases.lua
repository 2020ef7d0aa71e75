--- Trainings from datasets whose numbers must not depend on how many processes share them, for data_spec.lua.
--
-- A case is as one of rank_cases.lua. Its number `rows read` counts the rows that all ranks together have read: as many
-- as one process reads, since each row is read by one rank only. Files are in the folder `data` beside given.out.
local mgpu = require "mgpu"
local core = require "mgpu.core"

local L, data = mgpu.layers, mgpu.data

local M = {}

-- ---- training -----------------------------------------------------------------------------------

local function total(number)
  local sum = 0
  for _, n in ipairs(core.world_gather(number)) do sum = sum + n end
  return sum
end

-- fn() and the rows that it has read, on all ranks.
local function counting(more, fn)
  local before = core.rows_read()
  fn()
  more["rows read"] = total(core.rows_read() - before)
  return more
end

local function points(rows)
  local x = mgpu.rand({ rows, 5 }, { dtype = mgpu.ones({ 1 }):dtype() })
  local y = x:sum { axis = 2, keepdims = true }
  mgpu.eval(x, y)
  return x, y
end

local function dense() return mgpu.Sequential { L.Input { 5 }, L.Dense { 7, activation = "tanh" }, L.Dense { 1 } } end

local function of_images(shape)
  return mgpu.Sequential { L.Input(shape or { 6, 5, 3 }), L.Rescaling { 1 / 255 }, L.Flatten {},
    L.Dense { 2, activation = "softmax" } }
end

-- Trains and evaluates on the dataset, and returns what comes of it. more.whole: every rank reads more than its rows.
local function train(model, given, ds, more)
  more = more or {}
  local result = {}
  model:compile { optimizer = mgpu.optimizers.Adam { 0.01 }, loss = more.loss or "mse",
    metrics = more.metrics or { "mae" }, devices = given.devices }
  counting(result, function()
    local history = model:fit(ds, { epochs = more.epochs or 2, verbose = 0, class_weight = more.class_weight,
      steps_per_epoch = more.steps, validation_data = more.validation, callbacks = more.callbacks })
    result.history = history.history
    if not more.steps then result.evaluated = model:evaluate(ds, { verbose = 0 }) end
  end)
  for i, w in ipairs(model:get_weights()) do result[("weight %d"):format(i)] = w end
  if more.whole then result["rows read"] = nil end
  return result
end

-- fn(given, folder) RETURNS train's arguments after given: model, dataset, options.
local function add(name, fn, floatx)
  M[#M + 1] = { name = name, floatx = floatx, bound = floatx == "float32" and 1e-5 or nil, fn = function(given)
    local model, ds, more = fn(given, given.out:match "^(.*/)" .. "data/")
    return train(model, given, ds, more)
  end }
end

local LABELS = { loss = "sparse_categorical_crossentropy", metrics = { "accuracy" } }

M[1] = { name = "predictions", fn = function(given)
  local model, result = dense(), {}
  model:compile { loss = "mse", devices = given.devices }
  return counting(result, function()
    result.predicted = model:predict(data.from_tensors({ (points(14)) }):batch(4), { verbose = 0 })
  end)
end }

-- ---- sources ------------------------------------------------------------------------------------

add("tensors, shuffled ahead of need", function()
  return dense(), data.from_tensors({ points(23) }):shuffle(23, 1):batch(5):prefetch(2, { threads = 3 })
end)

add("fewer rows than ranks", function() return dense(), data.from_tensors({ points(5) }):batch(1) end)

add("a last batch of one row, and validation", function()
  return dense(), data.from_tensors({ points(9) }):batch(4), { validation = data.from_tensors({ points(5) }):batch(3) }
end)

add("rows with weights", function()
  local x, y = points(14)
  return dense(), data.from_tensors({ x, y, x:sum { axis = 2 } }):shuffle(4, 1):batch(4)
end)

add("classes with weights", function()
  local x = points(17)
  local model = mgpu.Sequential { L.Input { 5 }, L.Dense { 3, activation = "softmax" } }
  return model, data.from_tensors({ x, mgpu.randint(0, 3, { 17 }) }):batch(4),
    { loss = LABELS.loss, metrics = LABELS.metrics, class_weight = { [0] = 1, 2, 3 } }
end)

add("epochs that end within a pass", function()
  return dense(), data.from_tensors({ points(23) }):shuffle(23, 1):batch(4):cycle(), { steps = 4, epochs = 3 }
end)

add("device groups", function(given)
  local groups = {}
  for i = 0, tonumber(given.devices:match "%-(%d+)$" or 0) do
    groups[i + 1] = { "cpu:" .. 2 * i, "cpu:" .. 2 * i + 1 }
  end
  given.devices = groups
  local model = mgpu.Sequential { L.Input { 5 }, L.Dense { 7, device = 1 }, L.Dense { 1, device = 2 } }
  return model, data.from_tensors({ points(23) }):shuffle(23, 1):batch(5)
end)

add("windows in batches", function()
  local x, y = points(30)
  local model = mgpu.Sequential { L.Input { 2, 5 }, L.Dense { 4, activation = "tanh" }, L.Dense { 1 } }
  return model, data.from_tensors({ x, y }):window(2):batch(4):shuffle(3, 1)
end)

add("two datasets one after the other", function()
  return dense(), data.from_tensors({ points(7) }):concatenate(data.from_tensors({ points(6) })):batch(4)
end)

add("arrays of NumPy", function(_, folder)
  return dense(), data.npz(folder .. "rows.npz", { "x", "y" }):shuffle(13, 2):batch(4)
end, "float32")

add("a table of text", function(_, folder)
  return dense(), data.csv(folder .. "rows.csv", { label = { "sum" } }):batch(4)
end, "float32")

add("records of two files", function(_, folder)
  local schema = { { "x", "float32", shape = { 5 } }, { "y", "float32", shape = { 1 } } }
  return dense(), data.tfrecord(folder .. "rows.tfrecord-*", schema):shuffle(13, 3):batch(4)
end, "float32")

add("images, changed at random", function(_, folder)
  local ds = data.image_folder(folder .. "images", { size = { 8, 8 } }):shuffle(11, 1)
  ds = ds:augment { random_crop = { 6, 5 }, horizontal_flip = true, brightness = 0.2 }
  return of_images(), ds:batch(4):prefetch(2, { threads = 2 }), LABELS
end, "float32")

add("rows kept in memory", function(_, folder)
  return of_images { 8, 8, 3 }, data.image_folder(folder .. "images", { size = { 8, 8 } }):cache():batch(4), LABELS
end, "float32")

add("rows kept in a file", function(given, folder)
  local ds = data.image_folder(folder .. "images", { size = { 8, 8 } })
  return of_images { 8, 8, 3 }, ds:cache(given.out .. ".cache"):batch(4), LABELS
end, "float32")

-- ---- what every rank reads ------------------------------------------------------------------------

add("images of their own sizes", function(_, folder)
  return of_images { 8, 8, 3 }, data.image_folder(folder .. "images"):batch(4),
    { loss = LABELS.loss, metrics = LABELS.metrics, whole = true }
end, "float32")

-- A case of `make`'s dataset of 13 points, whose elements are made in Lua.
local function add_lua(name, make)
  add(name, function() return dense(), make(data.from_tensors { points(13) }), { whole = true } end)
end

add_lua("a map of batches", function(ds)
  return ds:batch(4):map(function(x, y) return x - x:mean { axis = 1, keepdims = true }, y end)
end)
add_lua("a map of rows", function(ds)
  return ds:map(function(x, y) return x * 2, y end):shuffle(13, 1):batch(4)
end)
add_lua("a filter", function(ds) return ds:filter(function(_, y) return y:sum():lt(2.5) end):batch(4) end)
add_lua("a generator", function(ds)
  return data.generator(function()
    local it = ds:batch(4):iter()
    return function() return it() end
  end)
end)

add("a callback that evaluates", function()
  local model, ds = dense(), data.from_tensors({ points(13) }):batch(4)
  return model, ds, { callbacks = { mgpu.callbacks.LambdaCallback {
    on_epoch_end = function(_, logs) logs.again = model:evaluate(ds, { verbose = 0 }).loss end,
  } } }
end)

add("datasets that a loop has gone through", function()
  local ds, sum = data.from_tensors({ points(13) }):batch(4), 0
  for x in ds:iter() do sum = sum + x:sum():item() end
  local seen = mgpu.callbacks.LambdaCallback { on_epoch_end = function(_, logs) logs.sum = sum end }
  return dense(), ds, { callbacks = { seen } }
end)

return M
