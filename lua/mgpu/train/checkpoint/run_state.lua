--- The state of a running fit, as tensors and plain data, and back: with it, a fit in another process goes on as if it
--- had never stopped.
--
-- Tensors: "weights/3" for the third of model.variables, the optimizer's (compiled_state.lua), "sums/3" and
-- "sums/rows" of compile's option accumulate, "metrics/2/1" for the first sum of the second metric, "kept/1", ... for
-- what stateful layers keep between batches, and "state/1", ... for tensors in the states of callbacks. The rest is
-- the data of capture.
local compiled_state = require "mgpu.train.compiled_state"
local core = require "mgpu.core"
local matching = require "mgpu.nn.formats.matching"
local Optimizer = require "mgpu.nn.optimizers.optimizer"
local train_step = require "mgpu.train.train_step"

-- ---- plain data ---------------------------------------------------------------------------------

-- Plain data for JSON: tables, strings, booleans, every number, and tensors.
--
-- JSON has no infinity, no NaN, no -0, and no tables with other keys than texts or 1..n. Such values are written as a
-- table with the field "$", which says what it is. Long arrays of numbers become tensors: a long history is text only
-- in its names.

local DEEPEST, LONG = 50, 32
local SPECIAL = { inf = math.huge, ["-inf"] = -math.huge, nan = 0 / 0, ["-0"] = -0.0 }

-- The name of a number that JSON cannot hold; nil for others.
local function special(value)
  if value ~= value then return "nan" end
  if value == math.huge then return "inf" end
  if value == -math.huge then return "-inf" end
  if value == 0 and 1 / value < 0 then return "-0" end
end

-- "array" for the keys 1..n, "object" for texts, else "pairs".
local function kind_of(value)
  local n, texts, others = #value, 0, 0
  for key in pairs(value) do
    if type(key) == "string" and key ~= "$" then texts = texts + 1 else others = others + 1 end
  end
  if texts == 0 and others == n and n > 0 then return "array" end
  return others == 0 and "object" or "pairs"
end

-- Whether it is an array of at least LONG numbers.
local function is_long_list(value)
  if #value < LONG then return false end
  for _, item in ipairs(value) do
    if type(item) ~= "number" then return false end
  end
  return true
end

local encode_at

local encode_table = {
  array = function(value, tensors, what, depth)
    local list = {}
    if is_long_list(value) then
      tensors[#tensors + 1] = core.tensor(value, { dtype = "float64" })
      return { ["$"] = "numbers", number = #tensors }
    end
    for i, item in ipairs(value) do list[i] = encode_at(item, tensors, what, depth) end
    return list
  end,
  object = function(value, tensors, what, depth)
    local object = {}
    for key, item in pairs(value) do object[key] = encode_at(item, tensors, what, depth) end
    return object
  end,
  pairs = function(value, tensors, what, depth)
    local list = {}
    for key, item in pairs(value) do
      list[#list + 1] = { encode_at(key, tensors, what, depth), encode_at(item, tensors, what, depth) }
    end
    return { ["$"] = "pairs", list = list }
  end,
}

function encode_at(value, tensors, what, depth)
  local t = type(value)
  if t == "number" and special(value) then return { ["$"] = "number", value = special(value) } end
  if t == "number" or t == "string" or t == "boolean" then return value end
  if core.is_variable(value) then value = value:value() end
  if core.is_tensor(value) then
    tensors[#tensors + 1] = value
    return { ["$"] = "tensor", number = #tensors }
  end
  if t ~= "table" then
    core.fail("usage", ("%s: it holds a %s, which cannot be saved: plain data are tables, numbers, texts, booleans and "
      .. "tensors"):format(what, t))
  elseif depth > DEEPEST then
    core.fail("usage", ("%s: tables nest deeper than %d: does one contain itself?"):format(what, DEEPEST))
  end
  return encode_table[kind_of(value)](value, tensors, what, depth + 1)
end

-- encode(value, tensors, what) -> the value as JSON can hold it.
-- ARGS tensors: an array, to which the tensors in the value are appended; what: begins error messages. Errors: a
-- function or the like in the value.
local function encode(value, tensors, what) return encode_at(value, tensors, what, 0) end

-- decode(value, tensors) -> the value that was encoded. tensors: the same array.
local function decode(value, tensors)
  if type(value) ~= "table" then return value end
  local kind, decoded = value["$"], {}
  if kind == "number" then return SPECIAL[value.value] end
  if kind == "tensor" then return tensors[value.number] end
  if kind == "numbers" then return tensors[value.number]:totable() end
  if kind == "pairs" then
    for _, pair in ipairs(value.list) do decoded[decode(pair[1], tensors)] = decode(pair[2], tensors) end
    return decoded
  end
  for key, item in pairs(value) do decoded[key] = decode(item, tensors) end
  return decoded
end

-- ---- the state ----------------------------------------------------------------------------------

local M = {}

-- ---- the parts ----------------------------------------------------------------------------------

-- What must be the same when a fit continues in mid-data: name, value.
local function settings(run)
  local given, compiled = run.given, run.compiled
  return { batch_size = run.train.rows and given.batch_size, rows = run.train.rows, shuffle = given.shuffle,
    steps_per_epoch = given.steps_per_epoch, accumulate = compiled.accumulate, optimizer = compiled.optimizer.class }
end

local function each_sum(run, fn)
  local sums = run.compiled.sums
  if not sums then return end
  for i, v in ipairs(run.model.variables) do
    if sums[v] then fn("sums/" .. i, sums[v]) end
  end
  fn("sums/rows", run.compiled.sum_rows)
end

local function each_metric_sum(run, fn)
  local k = 0
  run.compiled.metrics:each(function(metric)
    k = k + 1
    for j, v in ipairs(metric:variables()) do fn(("metrics/%d/%d"):format(k, j), v) end
  end)
end

-- The callbacks that have a state, each with a name for it: its class and its number among the callbacks of this class.
local function each_callback(run, fn)
  local seen = {}
  for _, callback in ipairs(run.callbacks.list) do
    local class = callback.class or "table"
    seen[class] = (seen[class] or 0) + 1
    if callback.get_state and callback.set_state then fn(callback, ("%s %d"):format(class, seen[class])) end
  end
end

-- The names of the random streams of the layers.
local function streams_of(model)
  local names = {}
  model:each_layer(function(layer) names[#names + 1] = layer.stream_name end)
  return names
end

local function callback_states(run, tensors)
  local states, extra = {}, {}
  each_callback(run, function(callback, name)
    states[name] = encode(callback:get_state(), extra, ("the state of the callback %s"):format(name))
  end)
  for i, t in ipairs(extra) do tensors["state/" .. i] = t end
  return states
end

-- How far a source of batches is, apart from the pass in progress: passes begun over a dataset of mgpu.data, or batches
-- taken from a generator. nil for tensors and for own datasets.
local function progress_of(source)
  local dataset = source and source.dataset
  return dataset and (source.generator and dataset.taken() or dataset.passes) or nil
end

-- A generator is called anew from its beginning.
local function restore_progress(source, progress)
  if not progress then return end
  local dataset = source.dataset
  if not source.generator then
    dataset.passes = progress
    return
  end
  local take = dataset.iter()
  while dataset.taken() < progress do take() end
end

-- ---- capturing ----------------------------------------------------------------------------------

--- capture(run) -> tensors, data. `run`: fit's state (fit.lua).
-- Reading the loss waits for the step, and raises if the step has failed. Errors: a step has made a weight infinite.
function M.capture(run)
  local model, tensors, names = run.model, {}, {}
  run.compiled.metrics.loss:result()
  core.check_usable(model.variables, Optimizer.BAD_UPDATE)
  local function take(name, v) tensors[name] = v:value() end
  for i, v in ipairs(model.variables) do
    names[i] = v.name
    take("weights/" .. i, v)
  end
  for name, v in pairs(compiled_state.optimizer_variables(run.compiled.optimizer, model.variables)) do take(name, v) end
  each_sum(run, take)
  each_metric_sum(run, take)
  for i, v in ipairs(model:kept_states()) do take("kept/" .. i, v) end
  local callbacks = callback_states(run, tensors)
  local cursor = run.started and run.cursor:get_state() or nil
  return tensors, { settings = settings(run), weights = names, streams = streams_of(model), callbacks = callbacks,
    shape = model.built_shape, epoch = run.epoch, within = run.within, step = run.step, trained = run.trained,
    ended = run.ended, steps = run.steps, pass = run.pass, started = run.started or false, cursor = cursor,
    progress = progress_of(run.train), validation_progress = progress_of(run.validation),
    stopped = run.model.stop_training or false, random = core.rng_state() }
end

-- ---- restoring ----------------------------------------------------------------------------------

local function fail(path, message, ...) core.fail("usage", ("fit: %s " .. message):format(path, ...)) end

local function shown(value) return value == nil and "none" or tostring(value) end

--- check(run, data, path): raises unless the fit can continue from the data. path: of the checkpoint, for messages.
function M.check(run, data, path)
  local now = settings(run)
  for _, name in ipairs { "optimizer", "batch_size", "rows", "shuffle", "steps_per_epoch", "accumulate" } do
    if now[name] ~= data.settings[name] then
      fail(path, "was made by a fit with %s = %s, this one has %s: use the same, or begin anew in another folder",
        name, shown(data.settings[name]), shown(now[name]))
    end
  end
end

-- The tensors whose names begin with "prefix/", by the rest of their names.
local function with_prefix(tensors, prefix)
  local found = {}
  for name, t in pairs(tensors) do
    local rest = name:match("^" .. prefix .. "/(.*)$")
    if rest then found[rest] = t end
  end
  return found
end

-- Weights are matched by name, or by order where layers have automatic names.
local function restore_weights(run, tensors, data, path)
  local model, by_name = run.model, {}
  if not model.built then model:ensure_built(data.shape) end
  for i, t in pairs(with_prefix(tensors, "weights")) do by_name[data.weights[tonumber(i)]] = t end
  matching.assign(model, path, by_name, data.weights)
end

-- A layer's random stream has the name that the layer had when it was made, which counts the layers made before.
local function restore_streams(model, names)
  local i = 0
  model:each_layer(function(layer)
    i = i + 1
    if names[i] and layer.stream_name ~= names[i] then
      layer.stream_name = names[i]
      if rawget(layer, "stream") then layer.stream = layer:own_stream(layer.seed) end
    end
  end)
end

local function restore_sums(run, tensors, path)
  if next(with_prefix(tensors, "sums")) then train_step.make_sums(run.compiled, run.model.trainable_variables) end
  local function put(name, v)
    local t = tensors[name]
    if not t or run.model.shape_text(t:shape()) ~= run.model.shape_text(v:shape()) then
      fail(path, "does not have the sum %q that this fit has: its metrics or its trained weights differ", name)
    end
    v:assign(t:to(v:device()))
  end
  each_sum(run, put)
  each_metric_sum(run, put)
end

-- Checkpoints of older versions have none; then the states stay as they are.
local function restore_kept_states(run, tensors, path)
  for i, v in ipairs(run.model:kept_states()) do
    local t = tensors["kept/" .. i]
    if t and run.model.shape_text(t:shape()) ~= run.model.shape_text(v:shape()) then
      fail(path, "keeps states %s of a stateful layer, this model keeps %s: use the same layers and batch_size",
        run.model.shape_text(t:shape()), run.model.shape_text(v:shape()))
    end
    if t then v:assign(t:to(v:device())) end
  end
end

-- A callback that the checkpoint does not know begins anew.
local function restore_callbacks(run, tensors, data)
  local extra = {}
  for i, t in pairs(with_prefix(tensors, "state")) do extra[tonumber(i)] = t end
  each_callback(run, function(callback, name)
    local state = data.callbacks[name]
    if state then callback:set_state(decode(state, extra)) end
  end)
end

local function restore_position(run, data)
  run.epoch, run.within, run.step, run.submitted = data.epoch, data.within, data.step, data.step
  run.trained, run.ended = data.trained, data.ended
  run.steps, run.pass, run.started = data.steps or run.steps, data.pass, data.started
  if run.started then run.cursor:set_state(data.cursor, data.pass - 1) end
  restore_progress(run.train, data.progress)
  restore_progress(run.validation, data.validation_progress)
  run.model.stop_training = data.stopped
end

--- restore(run, tensors, data, path): the inverse of capture. Call check before. Errors: another model, other metrics.
function M.restore(run, tensors, data, path)
  restore_weights(run, tensors, data, path)
  compiled_state.assign_optimizer(run.model, run.compiled.optimizer, tensors, path)
  restore_streams(run.model, data.streams)
  restore_kept_states(run, tensors, path)
  restore_sums(run, tensors, path)
  restore_callbacks(run, tensors, data)
  restore_position(run, data)
  core.rng_state(data.random)
end

return M
