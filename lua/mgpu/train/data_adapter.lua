--- What fit, evaluate and predict go through: a source, made of tensors or of a dataset.
--
-- A source of tensors is {tensors, layout, order, rows}: the whole tensors (batch_layout.lua says which is which) and
-- an int32 tensor of the row numbers to use, in order. A validation split is the same tensors with another order.
-- A source of a dataset is {dataset, length (nil if unknown), check, what, device (where batches are wanted; nil: on
-- several), spread (devices and weights of those that share the rows of a batch, and this rank's share of the rows:
-- row_share.lua)}; its batches are checked one by one.
-- batch_cursor.lua goes through either.
local batch_layout = require "mgpu.train.batch_layout"
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local data_checks = require "mgpu.train.data_checks"
local host = require "mgpu.data.host"
local host_batches = require "mgpu.train.host_batches"
local row_share = require "mgpu.train.row_share"
local same_data = require "mgpu.train.same_data"
local value_checks = require "mgpu.train.value_checks"

local ops = core.ops
local rows_of = data_checks.rows_of
local M = {}

local function fail(what, text, ...)
  core.fail("usage", ("%s: " .. text):format(what, ...))
end

-- ---- sources of tensors ---------------------------------------------------------------------------

-- Row numbers first .. first + rows - 1 (from 0).
local function row_range(first, rows)
  local order = ops.add(ops.iota { shape = { rows }, axis = 1, dtype = "int32" }, first)
  core.eval(order)
  return order
end

-- The device where data must lie; nil on several devices, which shard the rows themselves.
local function data_device(model)
  local compiled = model.compiled
  if compiled and compiled.devices then return compiled.device end
  return core.default_device()
end

-- The devices that share the rows of each batch, with their weights, or with this rank's share of the rows; nil where
-- no batch is shared out.
local function data_devices(model, share)
  local compiled = model.compiled
  local spread = compiled and compiled.spread
  if share then return { devices = not spread.stages and spread.devices or nil, share = share } end
  return spread and not spread.stages and not spread.joint and compiled.strategy ~= "async" and spread or nil
end

local function from_tensors(x, y, weight, outputs, order)
  local tensors, layout = batch_layout.pack(x, y, weight, outputs)
  return { tensors = tensors, layout = layout, order = order, rows = order and order:count() }
end

-- ---- sources of datasets --------------------------------------------------------------------------

--- is_generator(value): whether it is a function or a coroutine, each call of which gives a batch: x, y and weights.
function M.is_generator(value) return type(value) == "function" or type(value) == "thread" end

--- is_dataset(value): whether it is of mgpu.data, a table with a function `iter`, or a generator.
function M.is_dataset(value)
  return type(value) == "table" and type(value.iter) == "function" or M.is_generator(value)
end

-- The next values of a coroutine; its errors are raised as they are.
local function resumed(co)
  return function()
    if coroutine.status(co) == "dead" then return nil end
    local results = { coroutine.resume(co) }
    if not results[1] then error(results[2], 0) end
    return unpack(results, 2, 5)
  end
end

-- A generator as a dataset. It has no beginning to go back to: every pass goes on where the last one ended, so the
-- number of steps must be known, and an end before that is an error. taken() -> the batches it has given.
local function from_generator(what, generator)
  local next_batch, taken = type(generator) == "thread" and resumed(generator) or generator, 0
  local function iterate()
    local x, y, weight, more = next_batch()
    if x == nil then fail(what, "the generator ended after %d batches", taken) end
    taken = taken + 1
    return x, y, weight, more
  end
  return { iter = function() return iterate end, taken = function() return taken end }
end

-- The rows of the window, of each tensor (by output number).
local function cut(tensors, window)
  local list = {}
  for i, t in pairs(tensors) do list[i] = row_share.cut(t, window) end
  return list
end

-- The targets, the shapes of the predictions, and the sample weights, checked; with `due` their values are looked at:
-- of the rows of a window, if it begins the batch.
local function checked_targets(what, model, x, y, weight, device, due, window)
  due = due and not (window and window.first > 0)
  local looked_at = due and math.min(value_checks.ROWS, window and window.count or math.huge) or 1
  local targets, shapes, predictions = data_checks.targets(what, model, y, x, device, looked_at, window)
  local sample = data_checks.sample_weights(what, model, weight, rows_of(x[1]), device)
  if due then value_checks.data(what, model, cut(targets, window), predictions, cut(sample, window)) end
  return targets, shapes, sample
end

-- A batch of a dataset, as a source of all its rows; and the number of its rows. given.share: see row_share.of.
local function checked_batch(what, model, given, x, y, weight, due)
  local device = not given.share and data_device(model) or nil
  x = data_checks.inputs(what, model, x, device)
  local rows = rows_of(x[1])
  if not given.targets then return from_tensors(x, {}, {}, 0, nil), rows end
  local window = row_share.window(given.share, rows)
  local targets, shapes, sample = checked_targets(what, model, x, y, weight, device, due, window)
  local weights = data_checks.training_weights(what, given.class_weight, targets, shapes, sample, window)
  return from_tensors(x, targets, weights, #shapes, nil), rows
end

-- The shape of the model's only input, if it is known.
local function shape_of_input(model)
  local shape = model.built_shape
  if shape and type(shape[1]) == "table" then return not shape[2] and shape[1] or nil end
  return shape
end

-- Elements of a dataset without :batch(n) may be whole batches, but not if they have too few axes for that.
local function check_batched(what, model, dataset, x)
  if dataset.level ~= 0 or type(x) ~= "userdata" then return end
  local wanted = shape_of_input(model)
  if x:rank() < (wanted and #wanted or 2) then
    fail(what, "the dataset is not batched: x of its elements has shape {%s}%s: add :batch(n)",
      table.concat(x:shape(), ", "), wanted and ", the model takes " .. model.shape_text(wanted) or "")
  end
end

-- Text of a dataset comes as strings and arrays of them.
local function check_no_text(what, ...)
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if type(value) == "string" or type(value) == "table" and type(value[1]) == "string" then
      fail(what, "component %d of the dataset's batches is text: make numbers of it with map", i)
    end
  end
end

local function from_dataset(what, model, dataset, given)
  local generator = M.is_generator(dataset)
  if generator then dataset = from_generator(what, dataset) end
  if given.sample_weight then
    fail(what, "sample_weight: a dataset gives weights as the third part of its batches")
  end
  given.share = row_share.of(model.compiled)
  if given.share and checks.is_dataset(dataset) then same_data.check_dataset(what, dataset) end
  local source = { dataset = dataset, length = dataset.length and dataset:length(), what = what, generator = generator,
    device = given.share and host() or data_device(model), spread = data_devices(model, given.share) }
  if source.length == 0 then M.no_batch(source) end
  local due = given.targets and value_checks.is_due(model, what)
  function source.check(x, y, weight, more)
    if more ~= nil then
      fail(what, "the dataset's batches have more than three parts: x, y and the weights of the rows")
    end
    check_no_text(what, x, y, weight)
    check_batched(what, model, dataset, x)
    local first = due
    due = false
    return checked_batch(what, model, given, x, y, weight, first)
  end
  return source
end

--- check_steps(source, steps, option): raises for a generator, or a dataset without end, whose number of batches is not
--- given by that option.
function M.check_steps(source, steps, option)
  if steps then return end
  if source.generator then
    fail(source.what, "a generator does not tell how many batches it gives: give %s", option)
  elseif checks.is_dataset(source.dataset) and source.dataset.count == math.huge then
    fail(source.what, "the dataset has no end: give %s, or use :take(n)", option)
  end
end

--- check_end(source): raises for a dataset of the user's making that does not tell its length. One of mgpu.data of
--- unknown length ends: it comes after a filter, say, and not after an endless cycle.
function M.check_end(source)
  if source.dataset and not source.length and not checks.is_dataset(source.dataset) then
    fail(source.what, "the dataset does not tell its length, so it may be endless: give steps_per_epoch")
  end
end

--- no_batch(source): raises because a pass through the source had no batch.
function M.no_batch(source) fail(source.what, "the dataset is empty: it gave no batch") end

-- ---- public -------------------------------------------------------------------------------------

local ONE = { "" } -- the name of an only input or output

-- Raises on all ranks of several if some of them have other tensors.
local function check_same(what, model, x, y, sample, outputs, class_weight)
  local inputs, names = model.input_names or ONE, model.output_names or ONE
  same_data.check_tensors(what, model, {
    { function(i) return data_checks.label_of("x", inputs, i) end, x, #x },
    { function(i) return data_checks.label_of("y", names, i) end, y, outputs },
    { function() return "sample_weight" end, sample, outputs } }, class_weight)
end

-- A source for a model with a part on the host, which runs batch by batch, from what its body takes; with no batch size
-- the data are one batch.
local function behind_host_part(what, model, x, y, given, source_of)
  local body = model.body
  if M.is_generator(x) then
    local next_batch = type(x) == "thread" and resumed(x) or x
    return source_of(body, function() return host_batches.changed(what, model, next_batch()) end, y, given)
  elseif M.is_dataset(x) then
    return source_of(body, host_batches.dataset(what, model, x), y, given)
  elseif not given.batch_size then
    return source_of(body, host_batches.inputs(what, model, x), y, given)
  end
  local make, rows = host_batches.arrays(what, model, x, y, given.sample_weight, given.batch_size)
  local function part(first, count, plain)
    local source = source_of(body, make(first, count, given.shuffle and not plain), nil,
      { class_weight = not plain and given.class_weight or nil })
    source.rows = count
    return source
  end
  local source = part(0, rows)
  source.part = part
  return source
end

--- new(what, model, x, y, given) -> a source of all rows in their order
-- ARGS
--   what     how errors name the caller, "fit" for example
--   model    compiled; its losses say which y are right
--   x, y     as the user gave them; x may be a dataset
--   given    sample_weight, class_weight, and for a model with a part on the host batch_size, shuffle; each may be nil
function M.new(what, model, x, y, given)
  if model.reads_values then
    return behind_host_part(what, model, x, y, given, function(...) return M.new(what, ...) end)
  elseif M.is_dataset(x) then
    if y ~= nil then fail(what, "a dataset has its y in its batches: give no y") end
    return from_dataset(what, model, x, { targets = true, class_weight = given.class_weight,
      sample_weight = given.sample_weight })
  end
  local device = data_device(model)
  x = data_checks.inputs(what, model, x, device)
  local y_list, shapes, sample = checked_targets(what, model, x, y, given.sample_weight, device,
    value_checks.is_due(model, what))
  check_same(what, model, x, y_list, sample, #shapes, given.class_weight)
  local weights = data_checks.training_weights(what, given.class_weight, y_list, shapes, sample)
  local source = from_tensors(x, y_list, weights, #shapes, row_range(0, rows_of(x[1])))
  source.unweighted = { batch_layout.pack(x, y_list, sample, #shapes) } -- class weights are for training only
  return source
end

--- inputs(what, model, x, given) -> a source without targets, for predict. given: as of new.
function M.inputs(what, model, x, given)
  if model.reads_values then
    return behind_host_part(what, model, x, nil, given or {}, function(body, data)
      return M.inputs(what, body, data)
    end)
  end
  if M.is_dataset(x) then return from_dataset(what, model, x, {}) end
  x = data_checks.inputs(what, model, x, data_device(model))
  check_same(what, model, x, {}, {}, 0)
  return from_tensors(x, {}, {}, 0, row_range(0, rows_of(x[1])))
end

--- split(source, fraction, what) -> the first rows for training, the last `fraction` of them for validation, as Keras
--- splits.
function M.split(source, fraction, what)
  if source.dataset and not source.part then
    fail(what, "validation_split needs tensors: use take and skip to split a dataset")
  end
  local first = math.floor(source.rows * (1 - fraction))
  if first < 1 or first >= source.rows then
    fail(what, "validation_split = %g of %d rows leaves nothing to %s", fraction, source.rows,
      first < 1 and "train on" or "validate on")
  end
  if source.part then return source.part(0, first), source.part(first, source.rows - first, true) end
  local tensors, layout = unpack(source.unweighted)
  return { tensors = source.tensors, layout = source.layout, order = row_range(0, first), rows = first },
    { tensors = tensors, layout = layout, order = row_range(first, source.rows - first),
      rows = source.rows - first }
end

--- move(sources, device): moves the sources' tensors there; tensors that two sources share stay shared.
function M.move(sources, device)
  local moved = {}
  local function on_device(t)
    if t:device() == device then return t end
    moved[t] = moved[t] or t:to(device)
    return moved[t]
  end
  for _, source in ipairs(sources) do
    for i, t in ipairs(source.tensors or {}) do source.tensors[i] = on_device(t) end
    source.order = source.order and on_device(source.order)
  end
end

--- steps(source, batch_size) -> batches in a pass; nil for a dataset of unknown length.
function M.steps(source, batch_size)
  if source.dataset then return source.length end
  return math.ceil(source.rows / batch_size)
end

return M
