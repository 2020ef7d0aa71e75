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
