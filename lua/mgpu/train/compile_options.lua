--- What compile's options loss, metrics and optimizer mean: objects in place of names, for each output of the model.
--
-- With one output a loss or a list of metrics belongs to it. With several outputs, an array (in their order; false or
-- nil for none) or a table by their names says which is whose; a single loss is for all.
local core = require "mgpu.core"

local M = {}

local function fail(message, ...) core.fail("usage", "compile: " .. message:format(...)) end

-- mgpu[kind][name]; an unknown name raises and suggests the nearest one.
local function by_name(kind, name) return require("mgpu.nn." .. kind)[name] end

-- ---- one object ---------------------------------------------------------------------------------

--- optimizer(value, what) -> an optimizer, from its name, its class, or itself. `what` begins the error message.
function M.optimizer(value, what)
  if type(value) == "string" then value = by_name("optimizers", value) end
  if type(value) == "table" and value.new and not value.slots then value = value.new {} end
  if type(value) ~= "table" or not value.apply then
    core.fail("usage", ("%s must be a name or made by mgpu.optimizers, got %s"):format(
      what or "compile: optimizer", tostring(value)))
  end
  return value
end

local function loss_of(value)
  local Loss = require "mgpu.nn.losses.loss"
  if type(value) == "string" then value = by_name("losses", value) end
  if type(value) == "function" then return Loss.from_function(value) end
  if type(value) ~= "table" or not value.per_sample then
    fail("loss must be a name, a function(y_true, y_pred), or one of mgpu.losses, got %s",
      tostring(value))
  end
  if value.options.reduction == "none" then
    fail('the loss %s has reduction = "none": training needs one number', value.name)
  end
  return value
end

-- The loss called `name`, or nil.
local function loss_named(name)
  for _, known in ipairs(require "mgpu.nn.losses"()) do
    if known == name then return by_name("losses", name) end
  end
end

local function metric_named(name)
  for _, known in ipairs(require "mgpu.nn.metrics"()) do
    if known == name then return by_name("metrics", name) end
  end
  return loss_named(name) or by_name("metrics", name) -- the latter raises, with the nearest name
end

-- A metric from its name or class, the name of a loss, a loss, or a function(y_true, y_pred).
local function metric_of(value, position)
  local Metric = require "mgpu.nn.metrics.metric"
  local name, given = "metric_" .. position, type(value) == "string"
  if given then
    name, value = value, metric_named(value)
  end
  if type(value) == "table" and value.per_sample then
    value = Metric.from_loss(value, given and name or value.name)
  elseif type(value) == "function" then
    value = Metric.from_function(value, name)
  elseif type(value) == "table" and value.new and not rawget(value, "options") then
    value = value.new { name = given and name ~= "acc" and name or nil }
  end
  if type(value) ~= "table" or not value.update then
    fail("a metric must be a name, a function(y_true, y_pred), or made by mgpu.metrics, got %s",
      tostring(value))
  end
  return value
end

-- As Keras does, renames a weighted metric that has the name of an unweighted one: weighted_accuracy.
local function rename_weighted(weighted, metrics)
  local named = {}
  for _, metric in ipairs(metrics) do named[metric.name] = metric end
  for _, metric in ipairs(weighted) do
    local twin = named[metric.name]
    if twin == metric then
      fail('the metric "%s" is in both metrics and weighted_metrics: make one for each', metric.name)
    end
    if twin then metric.name = "weighted_" .. metric.name end
  end
  return weighted
end

-- The option metrics of one output as an array of metrics; a single metric needs no table.
local function metric_list(given)
  if given == nil or given == false then return {} end
  if type(given) ~= "table" or given.update or given.per_sample then given = { given } end
  local list = {}
  for i, value in ipairs(given) do list[i] = metric_of(value, i) end
  return list
end

-- ---- for each output ----------------------------------------------------------------------------

-- Whether the option is a table by the outputs' names. Another key raises.
local function is_by_name(given, names, what)
  if type(given) ~= "table" or getmetatable(given) or #given > 0 or next(given) == nil then
    return false
  end
  local known = {}
  for _, name in ipairs(names) do known[name] = true end
  for key in pairs(given) do
    if not known[key] then
      fail("%s: the model has no output %q%s; it has %s", what, tostring(key),
        core.did_you_mean(key, names), table.concat(names, ", "))
    end
  end
  return true
end

local function is_list(given)
  return type(given) == "table" and not getmetatable(given) and not given.update
    and not given.per_sample and not given.new
end

-- RETURNS function(i) -> the part of the option for output i, with several outputs.
-- ARGS what: the option's name; given: its value; names: of the outputs; shared: whether a value that is not a list is
--   for all outputs.
local function split_option(what, given, names, shared)
  if given == nil then return function() end end
  if is_by_name(given, names, what) then return function(i) return given[names[i]] end end
  if is_list(given) then
    for i in pairs(given) do
      if type(i) ~= "number" or i > #names then
        fail("%s: there are more entries than the model's %d outputs", what, #names)
      end
    end
    return function(i) return given[i] end
  end
  if shared then return function() return given end end
  fail("%s: the model has %d outputs (%s): give a table by their names", what, #names,
    table.concat(names, ", "))
end

-- RETURNS function(i) -> the part of the option for output i. With a single output that is the whole option, unless it
-- is a table by name.
local function for_outputs(what, given, names, shared)
  if #names > 1 or is_by_name(given, names, what) then return split_option(what, given, names, shared) end
  return function() return given end
end

local function check_weight(value, name)
  if value == nil then return 1 end
  if type(value) ~= "number" or value ~= value or math.abs(value) == math.huge then
    fail("loss_weights: the weight of %q must be a number, got %s", name, tostring(value))
  end
  return value
end

-- Raises if two metrics of an output have one name.
local function check_names(outputs)
  for _, output in ipairs(outputs) do
    local seen = { loss = true }
    for _, list in ipairs { output.metrics, output.weighted_metrics } do
      for _, metric in ipairs(list) do
        if seen[metric.name] then
          fail('two metrics are called "%s"; give one of them another name', metric.name)
        end
        seen[metric.name] = true
      end
    end
  end
end

--- outputs(chosen, names) -> for each output {name, loss (or nil), weight, metrics, weighted_metrics}.
-- ARGS chosen: compile's options; names: of the model's outputs. Errors: no loss at all; unknown names; two metrics of
--   one name.
function M.outputs(chosen, names)
  local given = chosen.loss
  if #names == 1 and is_list(given) and #given == 1 then given = given[1] end
  local loss = for_outputs("loss", given, names, true)
  local weight = for_outputs("loss_weights", chosen.loss_weights, names)
  local metrics = for_outputs("metrics", chosen.metrics, names)
  local weighted = for_outputs("weighted_metrics", chosen.weighted_metrics, names)
  local outputs, some = {}, false
  for i, name in ipairs(names) do
    local own = loss(i) or nil
    own = own and loss_of(own)
    some = some or own
    local factor = weight(i)
    if type(factor) == "table" then factor = factor[1] end
    local plain = metric_list(metrics(i))
    outputs[i] = { name = name, loss = own, weight = check_weight(factor, name), metrics = plain,
      weighted_metrics = rename_weighted(metric_list(weighted(i)), plain) }
  end
  if not some then fail("no output has a loss") end
  check_names(outputs)
  return outputs
end

return M
