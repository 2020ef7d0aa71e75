--- The data that users give fit, evaluate and predict, as checked tensors: inputs, targets, weights of rows.
--
-- Everything that can be wrong with them is found here, before the first step. `what` names the caller in errors
-- ("fit"), `label` the argument ("x"). With several inputs or outputs an argument is an array in their order or a
-- table by their names.
local core = require "mgpu.core"
local host_part = require "mgpu.nn.host_part"
local label_checks = require "mgpu.train.label_checks"
local trial = require "mgpu.nn.trial"

local ops = core.ops
local M = {}

local MOST_ROWS = 2 ^ 31 - 1 -- row numbers are int32
local ONE_INPUT, ONE_OUTPUT = { "input" }, { "output" }

local function shape_text(shape) return "{" .. table.concat(shape, ", ") .. "}" end

local function fail(what, text, ...)
  core.fail("usage", ("%s: " .. text):format(what, ...))
end

--- rows_of(t) -> the size of the first axis, or the length of an array of texts.
function M.rows_of(t) return type(t) == "table" and #t or t:shape()[1] end
local rows_of = M.rows_of

--- first_rows(t, n) -> the first n rows of t, or t if it has no more.
function M.first_rows(t, n)
  if n >= rows_of(t) then return t end
  return ops.gather(t, ops.iota { shape = { n }, axis = 1, dtype = "int32" }, { axis = 1 })
end

-- ---- one argument -------------------------------------------------------------------------------

-- The user's value as a tensor on `device` (nil: where it is).
local function to_tensor(value, what, label, device)
  if value == nil then fail(what, "%s is missing", label) end
  if type(value) == "table" then
    if value.x and value.y then
      fail(what, "%s is a data set; give its parts, as in train.x, train.y", label)
    elseif next(value) == nil then
      fail(what, "%s is empty", label)
    end
    value = core.tensor(value)
  elseif not core.is_tensor(value) and not core.is_variable(value) then
    fail(what, "%s must be a tensor or an array of numbers, got a %s", label, type(value))
  end
  if value:rank() == 0 then
    fail(what, "%s is a single number, but its first axis must be rows", label)
  elseif value:count() == 0 then
    fail(what, "%s is empty: its shape is %s", label, shape_text(value:shape()))
  end
  if device and value:device() ~= device then value = value:to(device) end
  return value
end

local function check_rows(t, rows, what, label)
  if rows_of(t) ~= rows then
    fail(what, "x has %d rows but %s has %d", rows, label, rows_of(t))
  end
end

local function is_array_of_tensors(value)
  return type(value) == "table" and not getmetatable(value) and type(value[1]) == "userdata"
end

local function check_keys(value, names, what, label)
  for key in pairs(value) do
    local known = type(key) == "number" and key >= 1 and key <= #names
    for _, name in ipairs(names) do known = known or key == name end
    if not known then
      fail(what, "%s has an entry %s, but the model has %s", label, tostring(key),
        #names == 1 and "one" or #names .. ": " .. table.concat(names, ", "))
    end
  end
end

--- arrange(value, names, what, label) -> the data for each of `names` as an array.
local function arrange(value, names, what, label)
  if value == nil then fail(what, "%s is missing", label) end
  if #names == 1 and not is_array_of_tensors(value) then
    if type(value) == "table" and value[names[1]] ~= nil then value = value[names[1]] end
    return { value }
  end
  if type(value) ~= "table" or getmetatable(value) then
    fail(what, "%s must be an array of %d tensors, or a table by the names %s", label, #names,
      table.concat(names, ", "))
  end
  local list = {}
  for i, name in ipairs(names) do
    list[i] = value[i]
    if list[i] == nil then list[i] = value[name] end
  end
  check_keys(value, names, what, label)
  return list
end

M.arrange, M.tensor = arrange, to_tensor

--- label_of(base, names, i) -> what messages call input or output i of these names: base is "x" or "y".
function M.label_of(base, names, i)
  return #names > 1 and ("%s (%s)"):format(base, names[i]) or base
end

-- The shape that the model takes for input i, or nil if it has not been built.
local function wanted_shape(model, i)
  local shape = model.built_shape
  if type(shape) == "table" and type(shape[1]) == "table" then return shape[i] end
  return i == 1 and shape or nil
end

-- Raises unless x can be input i of the model, which adds or drops a last axis of size 1 (Network.with_rank).
local function check_shape(t, model, i, what, label)
  local wanted, shape = wanted_shape(model, i), t:shape()
  if not wanted then return end
  local fits = #shape == #wanted or #shape == #wanted - 1 and wanted[#wanted] == 1
    or #shape == #wanted + 1 and shape[#shape] == 1
  for axis = 2, math.min(#shape, #wanted) do
    fits = fits and (wanted[axis] == -1 or shape[axis] == wanted[axis])
  end
  if not fits then
    fail(what, "%s has shape %s, the model takes %s", label, shape_text(shape), model.shape_text(wanted))
  end
end

-- ---- inputs, targets, weights -------------------------------------------------------------------

-- Input i as a tensor, or as an array of texts where the model takes these.
local function input_of(what, model, i, value, device, label)
  if model.takes_text and model.inputs[i]:dtype() == "string" then
    return host_part.texts(value, wanted_shape(model, i), function(message, ...)
      fail(what, label .. " " .. message, ...)
    end)
  end
  local t = to_tensor(value, what, label, device)
  check_shape(t, model, i, what, label)
  return t
end

--- inputs(what, model, x, device) -> array of input tensors with equal numbers of rows; texts are an array of these.
function M.inputs(what, model, x, device)
  local names, list = model.input_names or ONE_INPUT, {}
  local given = arrange(x, names, what, "x")
  for i = 1, #names do
    list[i] = input_of(what, model, i, given[i], device, M.label_of("x", names, i))
  end
  for i = 2, #names do check_rows(list[i], rows_of(list[1]), what, M.label_of("x", names, i)) end
  if rows_of(list[1]) > MOST_ROWS then fail(what, "x has more than %d rows", MOST_ROWS) end
  return list
end

-- The shapes of the model's outputs for these inputs, found with the first `rows` rows, and the outputs for these rows,
-- lazy. Builds the model if it is not built yet.
local function predict_first(model, x, rows)
  local first, home = {}, model.compiled.home
  for i, t in ipairs(x) do
    first[i] = M.first_rows(t, rows)
    if home and first[i]:device() ~= home then first[i] = first[i]:to(home) end
  end
  local y = trial.call(model, #first == 1 and first[1] or first)
  local shapes, predictions = {}, type(y) == "table" and y or { y }
  for i, t in ipairs(predictions) do
    shapes[i] = t:shape()
    shapes[i][1] = rows_of(x[1])
  end
  return shapes, predictions
end

--- targets(what, model, y, x, device, rows, window) -> the targets by output number, the shapes of the model's
--- predictions, and the predictions for the first rows, lazy. An output without loss and metrics needs no target.
--- window: of row_share.window, the rows that have values; nil: all.
function M.targets(what, model, y, x, device, rows, window)
  local outputs, names, list = model.compiled.outputs, model.output_names or ONE_OUTPUT, {}
  local given, shapes, predictions = arrange(y, names, what, "y"), predict_first(model, x, rows)
  for i, output in ipairs(outputs) do
    local wanted = output.loss or #output.metrics + #output.weighted_metrics > 0
    if given[i] ~= nil and given[i] ~= false or wanted then
      local label = M.label_of("y", names, i)
      list[i] = to_tensor(given[i] or nil, what, label, device)
      check_rows(list[i], rows_of(x[1]), what, label)
      label_checks.check(output.loss, list[i], shapes[i],
        #names > 1 and ('%s: output "%s"'):format(what, names[i]) or what, window)
    end
  end
  return list, shapes, predictions
end

--- sample_weights(what, model, given, rows, device) -> one weight a row for each output, by output number. A lone
--- tensor or array of numbers is for all outputs; otherwise it is distributed as y is.
function M.sample_weights(what, model, given, rows, device)
  local names, list = model.output_names or ONE_OUTPUT, {}
  if given == nil then return list end
  local lone = type(given) == "userdata" or type(given[1]) == "number"
  local each = not lone and arrange(given, names, what, "sample_weight")
  for i = 1, #names do
    local value = lone and given or each[i]
    if value then
      list[i] = to_tensor(value, what, "sample_weight", device)
      label_checks.check_weight(list[i], rows, what)
    end
  end
  return list
end

--- training_weights(what, class_weight, y, shapes, sample, window) -> the weights of rows in training: the sample
--- weights times the weights of the rows' classes. `class_weight` may be nil; window: as for targets.
function M.training_weights(what, class_weight, y, shapes, sample, window)
  if not class_weight then return sample end
  if #shapes > 1 then fail(what, "class_weight is for models with one output; use sample_weight") end
  if y[1]:rank() > 2 then fail(what, "class_weight needs one label a row") end
  local classes = math.max(shapes[1][#shapes[1]], 2)
  local weight = label_checks.class_weights(class_weight, y[1], classes, what, window)
  weight = sample[1] and ops.mul(sample[1], weight) or weight
  core.eval(weight)
  return { weight }
end

return M
