-- The data of fit, evaluate and predict: checked once, then handed out in batches.
--
-- A source is {x, y, weight, order, rows}: the whole tensors, and an int32 tensor of the row
-- numbers to use, in order. A step gathers its rows from `order` itself, so a batch costs no copy
-- outside the step, and a validation split is the same tensors with another order. Everything that
-- can be wrong with the data is found here, before the first step.

local core = require "mgpu.core"

local ops = core.ops
local M = {}

local SHUFFLE_STREAM = 1 -- of the random numbers, apart from the layers' streams

local function show(shape) return "{" .. table.concat(shape, ", ") .. "}" end

local function fail(what, text, ...)
  core.fail("usage", ("%s: " .. text):format(what, ...))
end

-- ---- tensors ------------------------------------------------------------------------------------

-- A tensor of the user's value, on the device; `label` is how messages call it.
local function tensor(value, what, label, device)
  if value == nil then fail(what, "%s is missing", label) end
  if type(value) == "table" then
    if value.x and value.y then
      fail(what, "%s is a data set; give its parts, as in train.x, train.y", label)
    elseif type(value[1]) == "userdata" then
      core.fail("unsupported", ("%s: %s is an array of tensors, but models with several inputs or "
        .. "outputs are not supported yet"):format(what, label))
    elseif type(value.iter) == "function" then
      core.fail("unsupported", ("%s: datasets that make batches are not supported yet; give "
        .. "tensors"):format(what))
    elseif next(value) == nil then
      fail(what, "%s is empty", label)
    end
    value = core.tensor(value)
  elseif type(value) ~= "userdata" then
    fail(what, "%s must be a tensor or an array of numbers, got a %s", label, type(value))
  end
  if value:rank() == 0 then
    fail(what, "%s is a single number, but its first axis must be rows", label)
  elseif value:count() == 0 then
    fail(what, "%s is empty: its shape is %s", label, show(value:shape()))
  end
  if device and value:device() ~= device then value = value:to(device) end
  return value
end

local function rows_of(t) return t:shape()[1] end

local function same_rows(t, rows, what, label)
  if rows_of(t) ~= rows then
    fail(what, "x has %d rows but %s has %d", rows, label, rows_of(t))
  end
end

-- 0 .. rows-1, as row numbers from `first` on.
local function range(first, rows)
  return ops.add(ops.iota { shape = { rows }, axis = 1, dtype = "int32" }, first)
end

-- ---- labels -------------------------------------------------------------------------------------

-- The first row (from 1) where the bool tensor `bad`, one value a row, is true.
local function first_row(bad)
  return ops.argmax(ops.cast(bad, { dtype = "int32" }), { axis = 1 }):item() + 1
end

local function any_in_row(bad)
  if bad:rank() == 1 then return bad end
  local axes = {}
  for axis = 2, bad:rank() do axes[#axes + 1] = axis end
  return ops.any(bad, { axis = axes })
end

-- A label of the given row that `wrong` says is bad.
local function label_at(y, row, wrong)
  local values = ops.gather(y, core.tensor({ row - 1 }, { dtype = "int32" }), { axis = 1 })
  for _, value in ipairs(ops.reshape(values, { shape = { -1 } }):totable()) do
    if wrong(value) then return value end
  end
end

-- Labels must be whole numbers in 0 .. classes-1.
local function check_labels(y, classes, what)
  if y:dtype():find "float" then
    local bad = any_in_row(ops.ne(y, ops.floor(y)))
    if ops.any(bad):item() then
      local row = first_row(bad)
      fail(what, "the label in row %d of y is %s, but labels are whole numbers", row,
        tostring(label_at(y, row, function(v) return v ~= math.floor(v) end)))
    end
  end
  local lowest, highest = ops.min(y):item(), ops.max(y):item()
  if tonumber(lowest) >= 0 and tonumber(highest) < classes then return end
  local row = first_row(any_in_row(ops.logical_or(ops.lt(y, 0), ops.ge(y, classes))))
  local label = label_at(y, row, function(v) return v < 0 or v >= classes end)
  fail(what, "the label in row %d of y is %s, but the model has %d classes, numbered 0 to %d%s",
    row, tostring(label), classes, classes - 1,
    tonumber(label) == classes and " (labels start at 0)" or "")
end

-- The shape of the model's output for these rows; builds the model if it is not built yet.
local function prediction_shape(model, x)
  local row = ops.gather(x, core.tensor({ 0 }, { dtype = "int32" }), { axis = 1 })
  local shape = core.no_grad(function() return model(row) end):shape()
  shape[1] = rows_of(x)
  return shape
end

local function check_targets(loss, y, shape, what)
  if loss.custom then return end
  loss:check_shape(y:shape(), shape, what)
  if loss.labels then check_labels(y, shape[#shape], what) end
end

-- ---- weights ------------------------------------------------------------------------------------

-- One weight a class as one weight a row. Keys are class ids, so the first is [0].
local function class_weights(weights, y, classes, what)
  if weights[0] == nil then
    fail(what, "class_weight has no entry [0]: classes are numbered from 0, as in "
      .. "{[0] = 1, [1] = 5}")
  end
  local list = {}
  for class = 0, classes - 1 do list[class + 1] = weights[class] or 1 end
  for class, weight in pairs(weights) do
    if type(class) ~= "number" or list[class + 1] == nil or class % 1 ~= 0 then
      fail(what, "class_weight[%s]: the classes are 0 to %d", tostring(class), classes - 1)
    elseif type(weight) ~= "number" or not (weight >= 0) then
      fail(what, "class_weight[%d] must be a number >= 0, got %s", class, tostring(weight))
    end
  end
  local ids = y
  if y:rank() > 1 then
    ids = y:shape()[2] == 1 and ops.reshape(y, { shape = { rows_of(y) } })
      or ops.argmax(y, { axis = -1 })
  end
  return ops.gather(core.tensor(list), ops.cast(ids, { dtype = "int32" }), { axis = 1 })
end

-- The weight of each row in training, and in validation; nil where all count alike.
local function combined_weights(given, y, rows, classes, what)
  local sample = given.sample_weight
    and tensor(given.sample_weight, what, "sample_weight", y:device())
  if sample then
    same_rows(sample, rows, what, "sample_weight")
    if sample:rank() ~= 1 then
      fail(what, "sample_weight must hold one number a row, but its shape is %s",
        show(sample:shape()))
    end
  end
  if not given.class_weight then return sample, sample end
  if y:rank() > 2 then fail(what, "class_weight needs one label a row") end
  local by_class = class_weights(given.class_weight, y, classes, what)
  by_class = sample and ops.mul(sample, by_class) or by_class
  core.eval(by_class)
  return by_class, sample
end

-- ---- sources ------------------------------------------------------------------------------------

-- ARGS
--   what     how messages call the caller, "fit" for example
--   model    compiled; its loss says which y are right
--   given    sample_weight and class_weight, each may be nil
-- RETURNS a source of all rows in their order
function M.new(what, model, x, y, given)
  local device = model.compiled.device
  x, y = tensor(x, what, "x", device), tensor(y, what, "y", device)
  local rows = rows_of(x)
  same_rows(y, rows, what, "y")
  if rows >= 2 ^ 31 then fail(what, "x has more than 2147483647 rows") end
  local shape = prediction_shape(model, x)
  check_targets(model.compiled.loss, y, shape, what)
  local weight, sample = combined_weights(given, y, rows, math.max(shape[#shape], 2), what)
  local order = range(0, rows)
  core.eval(order)
  return { x = x, y = y, weight = weight, sample_weight = sample, order = order, rows = rows }
end

-- A source without y, for predict.
function M.inputs(what, model, x)
  x = tensor(x, what, "x", model.compiled and model.compiled.device)
  local source = { x = x, order = range(0, rows_of(x)), rows = rows_of(x) }
  core.eval(source.order)
  return source
end

-- The first rows for training and the last `fraction` for validation, as Keras splits.
function M.split(source, fraction, what)
  local first = math.floor(source.rows * (1 - fraction))
  if first < 1 or first >= source.rows then
    fail(what, "validation_split = %g of %d rows leaves nothing to %s", fraction, source.rows,
      first < 1 and "train on" or "validate on")
  end
  local function part(from, rows)
    local order = range(from, rows)
    core.eval(order)
    return { x = source.x, y = source.y, weight = source.weight, order = order, rows = rows }
  end
  local validation = part(first, source.rows - first)
  validation.weight = source.sample_weight -- weights by class are for training
  return part(0, first), validation
end

-- The source in a random order, a function of the seed and `pass` alone.
function M.shuffled(source, pass)
  local order = core.permutation(source.rows, SHUFFLE_STREAM, pass)
  return { x = source.x, y = source.y, weight = source.weight, order = order, rows = source.rows }
end

function M.steps(source, batch_size) return math.ceil(source.rows / batch_size) end

-- The arguments of a step for batch number i (from 1): x, y, weight, order, first, rows.
function M.batch(source, batch_size, i)
  local first = (i - 1) * batch_size
  return source.x, source.y, source.weight, source.order, core.tensor(first, { dtype = "int32" }),
    math.min(batch_size, source.rows - first)
end

return M
