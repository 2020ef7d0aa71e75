-- The data of fit, evaluate and predict: checked, then handed out in batches.
--
-- A source is {tensors, shape, order, rows}: whole tensors (inputs, then targets, then weights; see
-- Compiled.pack for the shape) and an int32 tensor of the row numbers to use, in order. A step
-- gathers its rows from `order` itself, so a batch costs no copy outside the step, and a validation
-- split is the same tensors with another order. Everything that can be wrong with the data is found
-- here, before the first step. A source of a dataset is {dataset, check} instead; its batches are
-- checked as they come.
--
-- A cursor goes through a source: cursor:take(limit) returns the next batches for one call of a step,
-- or nil at the end of the pass.

local core = require "mgpu.core"
local Compiled = require "mgpu.train.train_step"
local targets = require "mgpu.train.label_checks"

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
  local order = ops.add(ops.iota { shape = { rows }, axis = 1, dtype = "int32" }, first)
  core.eval(order)
  return order
end

local function is_array_of_tensors(value)
  return type(value) == "table" and not getmetatable(value) and type(value[1]) == "userdata"
end

-- The data for each of `names`: an array in their order, a table by name, or the data of the only one.
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
  for key in pairs(value) do
    local known = type(key) == "number" and key >= 1 and key <= #names
    for _, name in ipairs(names) do known = known or key == name end
    if not known then
      fail(what, "%s has an entry %s, but the model has %s", label, tostring(key),
        #names == 1 and "one" or #names .. ": " .. table.concat(names, ", "))
    end
  end
  return list
end

local function label_of(base, names, i)
  return #names > 1 and ("%s (%s)"):format(base, names[i]) or base
end

local ONE_INPUT, ONE_OUTPUT = { "input" }, { "output" }

-- Where the data must lie: nil for where they do, as several devices deal them out.
local function device_of(model)
  local compiled = model.compiled
  if compiled and compiled.devices then return compiled.device end
  return core.default_device()
end

local function names_of_inputs(model) return model.input_names or ONE_INPUT end

local function inputs_of(what, model, x, device)
  local names, list = names_of_inputs(model), {}
  local given = arrange(x, names, what, "x")
  for i = 1, #names do list[i] = tensor(given[i], what, label_of("x", names, i), device) end
  for i = 2, #names do same_rows(list[i], rows_of(list[1]), what, label_of("x", names, i)) end
  if rows_of(list[1]) >= 2 ^ 31 then fail(what, "x has more than 2147483647 rows") end
  return list
end

-- The shapes of the model's outputs for these rows; builds the model if it is not built yet.
local function prediction_shapes(model, x)
  local row, home = {}, model.compiled.home
  for i, t in ipairs(x) do
    row[i] = ops.gather(t, ops.full({ 1 }, 0, "int32"), { axis = 1 })
    if home and row[i]:device() ~= home then row[i] = row[i]:to(home) end
  end
  local y = core.no_grad(function() return model(#row == 1 and row[1] or row) end)
  local shapes = {}
  for i, t in ipairs(type(y) == "table" and y or { y }) do
    shapes[i] = t:shape()
    shapes[i][1] = rows_of(x[1])
  end
  return shapes
end

-- ---- targets and weights ------------------------------------------------------------------------

-- The targets by output; those without a loss or metrics may be missing.
local function targets_of(what, model, y, x, device)
  local outputs, names, list = model.compiled.outputs, model.output_names or ONE_OUTPUT, {}
  local given, shapes = arrange(y, names, what, "y"), prediction_shapes(model, x)
  for i, output in ipairs(outputs) do
    local wanted = output.loss or #output.metrics + #output.weighted_metrics > 0
    if given[i] ~= nil and given[i] ~= false or wanted then
      local label = label_of("y", names, i)
      list[i] = tensor(given[i] or nil, what, label, device)
      same_rows(list[i], rows_of(x[1]), what, label)
      targets.check(output.loss, list[i], shapes[i],
        #names > 1 and ('%s: output "%s"'):format(what, names[i]) or what)
    end
  end
  return list, shapes
end

-- One weight a row for each output: the same for all, or dealt out like y.
local function sample_weights(what, model, given, rows, device)
  local names, list = model.output_names or ONE_OUTPUT, {}
  if given == nil then return list end
  local lone = type(given) == "userdata" or type(given[1]) == "number"
  local each = not lone and arrange(given, names, what, "sample_weight")
  for i = 1, #names do
    local value = lone and given or each[i]
    if value then
      list[i] = tensor(value, what, "sample_weight", device)
      targets.check_weight(list[i], rows, what)
    end
  end
  return list
end

-- The weights in training: by class and by row.
local function by_class(what, given, y, shapes, sample)
  if not given.class_weight then return sample end
  if #shapes > 1 then fail(what, "class_weight is for models with one output; use sample_weight") end
  if y[1]:rank() > 2 then fail(what, "class_weight needs one label a row") end
  local classes = math.max(shapes[1][#shapes[1]], 2)
  local weight = targets.class_weights(given.class_weight, y[1], classes, what)
  weight = sample[1] and ops.mul(sample[1], weight) or weight
  core.eval(weight)
  return { weight }
end

-- ---- sources ------------------------------------------------------------------------------------

-- The tensors in a row, and the shape that tells which is which.
local function pack(x, y, weight, outputs)
  local tensors, shape = { unpack(x) }, { x = #x, y = {}, w = {} }
  for i = 1, outputs do
    if y[i] then tensors[#tensors + 1], shape.y[#shape.y + 1] = y[i], i end
  end
  for i = 1, outputs do
    if weight[i] then tensors[#tensors + 1], shape.w[#shape.w + 1] = weight[i], i end
  end
  return tensors, Compiled.pack(shape)
end

local function source_of(x, y, weight, outputs, order)
  local tensors, shape = pack(x, y, weight, outputs)
  return { tensors = tensors, shape = shape, order = order, rows = order and order:count() }
end

local function is_dataset(value) return type(value) == "table" and type(value.iter) == "function" end
M.is_dataset = is_dataset

-- A batch of a dataset, {x, y, weight}, as tensors of a source.
local function checked_batch(what, model, given, x, y, weight)
  local device = device_of(model)
  x = inputs_of(what, model, x, device)
  if not given.targets then return source_of(x, {}, {}, 0, nil), rows_of(x[1]) end
  local targets_list, shapes = targets_of(what, model, y, x, device)
  local sample = sample_weights(what, model, weight, rows_of(x[1]), device)
  return source_of(x, targets_list, by_class(what, given, targets_list, shapes, sample), #shapes, nil),
    rows_of(x[1])
end

-- The shape of the model's only input, if it is known.
local function shape_of_input(model)
  local shape = model.built_shape
  if shape and type(shape[1]) == "table" then return not shape[2] and shape[1] or nil end
  return shape
end

-- Elements that no :batch has put together may be batches by themselves, but not with an axis too few.
local function check_batched(what, model, dataset, x)
  if dataset.level ~= 0 or type(x) ~= "userdata" then return end
  local wanted = shape_of_input(model)
  if x:rank() < (wanted and #wanted or 2) then
    fail(what, "the dataset is not batched: x of its elements has shape %s%s: add :batch(n)", show(x:shape()),
      wanted and ", the model takes " .. model.shape_text(wanted) or "")
  end
end

local function from_dataset(what, model, dataset, given)
  if given.sample_weight then
    fail(what, "sample_weight: a dataset gives weights as the third part of its batches")
  end
  local source = { dataset = dataset, length = dataset.length and dataset:length(), what = what }
  if source.length == 0 then M.no_batch(source) end
  function source.check(x, y, weight, more)
    if more ~= nil then
      fail(what, "the dataset's batches have more than three parts: x, y and the weights of the rows")
    end
    check_batched(what, model, dataset, x)
    return checked_batch(what, model, given, x, y, weight)
  end
  return source
end

--- Raises: the pass through the source had no batch.
function M.no_batch(source) fail(source.what, "the dataset is empty: it gave no batch") end

--- ARGS
---   what     how messages call the caller, "fit" for example
---   model    compiled; its losses say which y are right
---   x, y     as the user gave them; x may be a dataset
---   given    sample_weight and class_weight, each may be nil
--- RETURNS a source of all rows in their order
function M.new(what, model, x, y, given)
  if is_dataset(x) then
    if y ~= nil then fail(what, "a dataset has its y in its batches: give no y") end
    return from_dataset(what, model, x, { targets = true, class_weight = given.class_weight,
      sample_weight = given.sample_weight })
  end
  local device = device_of(model)
  x = inputs_of(what, model, x, device)
  local list, shapes = targets_of(what, model, y, x, device)
  local rows = rows_of(x[1])
  local sample = sample_weights(what, model, given.sample_weight, rows, device)
  local source = source_of(x, list, by_class(what, given, list, shapes, sample), #shapes,
    range(0, rows))
  source.unweighted = { pack(x, list, sample, #shapes) } -- weights by class are for training
  return source
end

--- A source without y, for predict.
function M.inputs(what, model, x)
  if is_dataset(x) then return from_dataset(what, model, x, {}) end
  x = inputs_of(what, model, x, device_of(model))
  return source_of(x, {}, {}, 0, range(0, rows_of(x[1])))
end

--- The first rows for training and the last `fraction` for validation, as Keras splits.
function M.split(source, fraction, what)
  if source.dataset then
    fail(what, "validation_split needs tensors: use take and skip to part a dataset")
  end
  local first = math.floor(source.rows * (1 - fraction))
  if first < 1 or first >= source.rows then
    fail(what, "validation_split = %g of %d rows leaves nothing to %s", fraction, source.rows,
      first < 1 and "train on" or "validate on")
  end
  local tensors, shape = unpack(source.unweighted)
  return { tensors = source.tensors, shape = source.shape, order = range(0, first), rows = first },
    { tensors = tensors, shape = shape, order = range(first, source.rows - first),
      rows = source.rows - first }
end

--- Brings the sources' tensors to the device; what they share stays shared.
function M.move(sources, device)
  local moved = {}
  local function there(t)
    if t:device() == device then return t end
    moved[t] = moved[t] or t:to(device)
    return moved[t]
  end
  for _, source in ipairs(sources) do
    for i, t in ipairs(source.tensors or {}) do source.tensors[i] = there(t) end
    source.order = source.order and there(source.order)
  end
end

--- Batches in a pass; nil for a dataset that does not say.
function M.steps(source, batch_size)
  if source.dataset then return source.length end
  return math.ceil(source.rows / batch_size)
end

-- ---- cursors ------------------------------------------------------------------------------------

local Rows = {} -- through tensors
Rows.__index = Rows

-- The next step begins at this row of the order. Its position is there already, unless a fit within
-- this one has moved it.
function Rows:begin_at(row)
  local position = self.position
  if position and position.at == row then return end
  local first = core.tensor(row, { dtype = "int32" })
  if position then
    position.row:assign(first)
  else
    if self.first then self.first:free() end -- for the next one: a GPU's steps want the same addresses
    self.first = first
  end
end

--- {count, rows, shape, first, order, tensors} for at most `limit` batches of equal size; `first` is
--- good until the next is taken, and nil if there is a position.
function Rows:take(limit)
  local source, size = self.source, self.batch_size
  local left = source.rows - self.at
  if left <= 0 then return nil end
  local rows = math.min(size, left)
  local count = rows < size and 1 or math.min(limit, math.floor(left / size))
  self:begin_at(self.at)
  self.at = self.at + count * rows
  if self.position then self.position.at = self.at end
  return { count = count, rows = rows, shape = source.shape, first = self.first, order = self.order,
    tensors = source.tensors }
end

--- Begins pass number `pass` (from 0), shuffled by seed and pass alone; `skip` batches are left out.
--- What is shuffled is the first rows of the tensors: all, or the part before a validation split.
function Rows:start(pass, skip)
  self.at = (skip or 0) * self.batch_size
  if self.position then self.position.at = nil end -- a step that failed has not moved it
  self.order = self.shuffle and core.permutation(self.source.rows, SHUFFLE_STREAM, pass)
    or self.source.order
end

--- Goes on where it is, for steps on another device (nil: on several), with a position of their own.
function Rows:settle(device, position)
  self.position, self.first = position, nil
  if device and self.order then self.order = self.order:to(device) end
end

local Stream = {} -- through a dataset
Stream.__index = Stream

function Stream:take()
  local x, y, weight, more = self.next()
  if x == nil then return nil end
  local part, rows = self.source.check(x, y, weight, more)
  return { count = 1, rows = rows, shape = part.shape, tensors = part.tensors }
end

function Stream:settle() end -- luacheck: no self

function Stream:start(_, skip)
  self.next = self.source.dataset:iter()
  for _ = 1, skip or 0 do self.next() end
end

--- A cursor through the source; `position` is that of the steps (Compiled:position), or nil. Call
--- start before take.
function M.cursor(source, batch_size, shuffle, position)
  return setmetatable({ source = source, batch_size = batch_size, shuffle = shuffle,
    position = position }, source.dataset and Stream or Rows)
end

return M
