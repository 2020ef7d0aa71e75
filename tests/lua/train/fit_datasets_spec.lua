-- fit, evaluate and predict over datasets, and over data on another device than the model.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

local fixtures = require "fixtures"
local line, linear = fixtures.line, fixtures.linear

local quiet = { verbose = 0 }

local function with(options)
  options.verbose = 0
  return options
end

local function rows_of_line(n) return mgpu.data.from_tensors { line(n) } end

-- fit, evaluate and predict of a dataset must all fail with `expected` after their name.
local function all_refuse(dataset, options, expected)
  for _, name in ipairs { "fit", "evaluate", "predict" } do
    local model = linear()
    check.raises(function()
      local _ = model[name](model, dataset, with(options))
    end, "fit_datasets_spec.lua:%d+: " .. name .. ": " .. expected, "usage")
  end
end

test("a dataset of unknown length is evaluated with a line of its steps", function()
  local given = mgpu.data.from_tensors { mgpu.ones { 6, 2 }, mgpu.ones { 6, 1 } }:batch(2)
  local unknown = { iter = function() return given:iter() end }
  local lines, output = {}, mgpu.output
  mgpu.output = function(text) lines[#lines + 1] = text end
  local ok, message = pcall(function() linear():evaluate(unknown, { verbose = 2 }) end)
  mgpu.output = output
  if not ok then error(message, 0) end
  check.matches(table.concat(lines), "^3/3 - ")
end)

test("an empty dataset is an error wherever it is given", function()
  local empty = rows_of_line(4):take(0):batch(2)
  all_refuse(empty, {}, "the dataset is empty: it gave no batch")
  local x, y = line(4)
  check.raises(function() linear():fit(x, y, with { validation_data = empty }) end,
    "fit: validation_data: the dataset is empty", "usage")
  local silent = { iter = function() return function() end end } -- a dataset of unknown length
  for _, run in ipairs { function() linear():evaluate(silent, quiet) end, function() linear():predict(silent) end,
    function() linear():fit(silent, with { steps_per_epoch = 1 }) end } do
    check.raises(run, "the dataset is empty: it gave no batch", "usage")
  end
end)

test("a dataset without :batch is an error unless its elements are batches", function()
  all_refuse(rows_of_line(4), {}, "the dataset is not batched: x of its elements has shape {2}, the model takes "
    .. "{None, 2}: add :batch%(n%)")
  local x, y = line(6)
  local parts = mgpu.data.from_tensors { x:reshape { 3, 2, 2 }, y:reshape { 3, 2, 1 } }
  local a, b = linear(), linear()
  local ha = a:fit(parts, with {})
  local hb = b:fit(x, y, with { batch_size = 2, shuffle = false })
  check.near(ha.history.loss[1], hb.history.loss[1], 1e-6)
end)

test("elements that are single numbers are not taken for batches", function()
  local model = mgpu.Sequential { L.Input { 1 }, L.Dense { 1 } }
  model:compile { loss = "mse" }
  local column = mgpu.ones { 4, 1 }
  check.raises(function() model:fit(mgpu.data.from_tensors { column, column }, quiet) end, "is not batched", "usage")
end)

test("batch_size with a dataset is an error, as in Keras", function()
  all_refuse(rows_of_line(4):batch(2), { batch_size = 2 }, "batch_size: a dataset has its batches already")
  local x, y = line(4)
  check.raises(function()
    linear():fit(x, y, with { validation_data = rows_of_line(4):batch(2), validation_batch_size = 2 })
  end, "validation_batch_size: a dataset has its batches already", "usage")
end)

test("a fourth part of a dataset's batches is an error", function()
  local x, y = line(4)
  all_refuse(mgpu.data.from_tensors { x, y, mgpu.ones { 4 }, mgpu.ones { 4 } }:batch(2), {},
    "the dataset's batches have more than three parts")
end)

test("data on another device than the model are copied to the model's device", function()
  check.needs "cpu"
  local x, y = line(8)
  local function numbers(to)
    local model = linear()
    local a, b = to(x), to(y)
    local loss = model:fit(a, b, with { shuffle = false, sample_weight = to(mgpu.ones { 8 }) }).history.loss[1]
    local batches = mgpu.data.from_tensors { a, b }:batch(4)
    return { loss, model:evaluate(a, b, quiet).loss, model:evaluate(batches, quiet).loss,
      model:predict(a):totable(), mgpu.Sequential { L.Input { 2 }, L.Flatten {} }:predict(a):totable() }
  end
  check.equal(numbers(function(t) return t:to "cpu:1" end), numbers(function(t) return t end))
end)

-- ---- generators ---------------------------------------------------------------------------------

-- A function that gives the line's rows in batches of four, again and again, and counts its calls.
local function batches_of_line()
  local x, y = line(8)
  local count = { calls = 0 }
  return function()
    count.calls = count.calls + 1
    local rows = { { count.calls % 2 * 4 + 1, count.calls % 2 * 4 + 4 } }
    return x:slice(rows), y:slice(rows)
  end, count
end

test("fit, evaluate and predict take generators with a number of steps", function()
  for _, devices in ipairs { { "cpu:0" }, { "cpu:0", "cpu:1" } } do
    local model, generator, count = linear(), batches_of_line()
    model:set_devices(devices)
    local history = model:fit(generator, with { steps_per_epoch = 3, epochs = 2, validation_data = batches_of_line(),
      validation_steps = 2 }).history
    check.equal({ #history.loss, #history.val_loss, count.calls }, { 2, 2, 6 })
    local x, y = line(8)
    check.near(model:evaluate(batches_of_line(), with { steps = 2 }).loss, model:evaluate(x, y, quiet).loss, 1e-6)
    check.equal(model:predict(function() return x end, with { steps = 2 }):shape()[1], 16)
  end
end)

test("a generator may be a coroutine, which goes on from epoch to epoch", function()
  local generator = batches_of_line()
  local function limited(n)
    return coroutine.create(function()
      for _ = 1, n do coroutine.yield(generator()) end
    end)
  end
  check.equal(#linear():fit(limited(4), with { steps_per_epoch = 2, epochs = 2 }).history.loss, 2)
  check.raises(function() linear():fit(limited(3), with { steps_per_epoch = 2, epochs = 2 }) end,
    "fit: the generator ended after 3 batches", "usage")
  check.raises(function()
    linear():fit(coroutine.create(function() error("mine", 0) end), with { steps_per_epoch = 2 })
  end, "mine")
end)

test("a generator without a number of steps, or as one batch, is refused", function()
  local model, generator = linear(), batches_of_line()
  check.raises(function() model:fit(generator, with {}) end, "give steps_per_epoch", "usage")
  check.raises(function() model:evaluate(generator, with {}) end, "give steps", "usage")
  check.raises(function() model:predict(generator, with {}) end, "give steps", "usage")
  check.raises(function()
    model:fit(generator, with { steps_per_epoch = 1, validation_data = generator })
  end, "give validation_steps", "usage")
  check.raises(function() model:train_on_batch(generator) end, "one batch, .* use model:fit", "usage")
  check.raises(function() model:predict_on_batch(generator) end, "one batch, .* use model:predict", "usage")
end)
