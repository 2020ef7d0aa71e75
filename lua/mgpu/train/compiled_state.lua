--- What compile made of a model, as data for files: its options, and the optimizer's variables.
--
--     local config, tensors = compiled_state.capture(model)             -- the model is compiled
--     compiled_state.restore(model, config, tensors, { path = path })   -- compiles it
-- config = {optimizer = entry, outputs = {{name =, loss = entry, weight =, metrics = {entry, ...}, weighted_metrics =
-- {...}}, ...}, random = the random state, accumulate =, ...} is ready for JSON; entry = {class_name =, config =}, or
-- {loss = entry, name =} for a metric made of a loss. tensors: "optimizer/iterations" and the like, and
-- "optimizer/3/momentum", a slot of the third of model.variables: positions, since automatic names of layers differ
-- from process to process. Where a model trains (devices, strategy) is left out: a file can be loaded on any machine.
local core = require "mgpu.core"
local layer_names = require "mgpu.nn.layer_names"

local M = {}

-- The options of compile that are numbers, names or booleans.
local PLAIN = { "accumulate", "steps_per_execution", "run_eagerly", "bn", "auto_scale_loss", "lr_scale" }

-- ---- the optimizer's variables ------------------------------------------------------------------

--- optimizer_variables(optimizer, variables) -> name -> variable, as in the files.
-- ARGS variables: model.variables. Slots of other variables are left out.
function M.optimizer_variables(optimizer, variables)
  local named, is_slot, rule = {}, {}, optimizer.inner_optimizer or optimizer
  for _, slots in pairs(optimizer.slots) do
    for _, slot in pairs(slots) do is_slot[slot] = true end
  end
  for _, v in ipairs(optimizer:variables()) do
    if not is_slot[v] then named["optimizer/" .. (rule.state_name and rule:state_name(v) or v.name)] = v end
  end
  for i, v in ipairs(variables) do
    for name, slot in pairs(optimizer.slots[v] or {}) do named[("optimizer/%d/%s"):format(i, name)] = slot end
  end
  return named
end

local function damaged(path, message, ...)
  core.fail("data", ("%s: the training state is damaged: %s"):format(path, message:format(...)))
end

local function same_shape(model, a, b) return model.shape_text(a:shape()) == model.shape_text(b:shape()) end

-- The variables that the tensors have slots of.
local function variables_with_slots(variables, tensors)
  local positions, list = {}, {}
  for name in pairs(tensors) do
    local position = name:match "^optimizer/(%d+)/"
    if position then positions[tonumber(position)] = true end
  end
  for i, v in ipairs(variables) do
    if positions[i] then list[#list + 1] = v end
  end
  return list
end

--- assign_optimizer(model, optimizer, tensors, path): makes the slots for which there are tensors, and gives the
--- optimizer its tensors. Errors: a tensor that is missing, of another shape, or that the optimizer has no place for;
--- then nothing has changed.
function M.assign_optimizer(model, optimizer, tensors, path)
  optimizer:build(variables_with_slots(model.variables, tensors))
  local named = M.optimizer_variables(optimizer, model.variables)
  for name in pairs(tensors) do
    if name:find "^optimizer/" and not named[name] then
      damaged(path, "the optimizer %s has no place for %q", optimizer.class, name)
    end
  end
  for name, v in pairs(named) do
    local t = tensors[name]
    if not t then damaged(path, "it lacks %q", name) end
    if not same_shape(model, t, v) or t:dtype() ~= v:dtype() then
      damaged(path, "%q is %s of shape %s, the optimizer %s needs %s of shape %s", name, t:dtype(),
        model.shape_text(t:shape()), optimizer.class, v:dtype(), model.shape_text(v:shape()))
    end
  end
  for name, v in pairs(named) do v:assign(tensors[name]:to(v:device())) end
  local rule = optimizer.inner_optimizer or optimizer
  rule.begun = rule:steps_taken() > 0
end

-- ---- capturing ----------------------------------------------------------------------------------

local function cannot_save(message, ...)
  core.fail("usage", ("save: " .. message .. ": it cannot be stored; save with {include_optimizer = false}, and "
    .. "compile the model after loading it"):format(...))
end

local function captured_loss(output)
  if not output.loss then return nil end
  if output.loss.custom then cannot_save("the loss of output %q is a function", output.name) end
  return { class_name = output.loss.class, config = output.loss.options }
end

-- A metric, or the loss whose values it averages.
local function captured_metric(metric)
  if metric.made_of == "function" then cannot_save("the metric %q is a function", metric.name) end
  local loss = metric.made_of
  if loss then return { loss = { class_name = loss.class, config = loss.options }, name = metric.options.name } end
  return { class_name = metric.class, config = metric.options }
end

local function captured_metrics(list)
  local captured = {}
  for i, metric in ipairs(list) do captured[i] = captured_metric(metric) end
  return #captured > 0 and captured or nil
end

--- capture(model) -> config, tensors. Errors: a loss or metric that is a function.
function M.capture(model)
  local compiled = model.compiled
  local optimizer, outputs, tensors = compiled.optimizer, {}, {}
  for i, output in ipairs(compiled.outputs) do
    outputs[i] = { name = output.name, loss = captured_loss(output), weight = output.weight,
      metrics = captured_metrics(output.metrics), weighted_metrics = captured_metrics(output.weighted_metrics) }
  end
  local config = { outputs = outputs, random = core.rng_state(),
    optimizer = { class_name = optimizer.class, config = optimizer:get_config() } }
  for _, name in ipairs(PLAIN) do config[name] = compiled.options[name] end
  for name, v in pairs(M.optimizer_variables(optimizer, model.variables)) do tensors[name] = v:value() end
  return config, tensors
end

-- ---- restoring ----------------------------------------------------------------------------------

-- The class of an entry {class_name =, config =}: one of ours, or of custom.
local function class_of(kind, entry, how)
  local name = type(entry) == "table" and entry.class_name
  if type(name) ~= "string" or type(entry.config) ~= "table" then
    damaged(how.path, "one of the %s has no class_name or config", kind)
  end
  if how.custom[name] then return how.custom[name] end
  local classes = require("mgpu.nn." .. kind)
  for _, known in ipairs(classes()) do
    if known == name then return classes[name] end
  end
  core.fail("data", ("%s: unknown class %q among the %s: give it with load_model(path, {custom = {%s = ...}}), or "
    .. "load with {compile = false}"):format(how.path, name, kind, name))
end

local function restored_metric(entry, how)
  if type(entry) == "table" and entry.loss then
    local loss = class_of("losses", entry.loss, how).new(entry.loss.config)
    return require "mgpu.nn.metrics.metric".from_loss(loss, entry.name)
  end
  return class_of("metrics", entry, how).new(entry.config)
end

local function restored_metrics(list, how)
  local metrics = {}
  for i, entry in ipairs(type(list) == "table" and list or {}) do metrics[i] = restored_metric(entry, how) end
  return metrics
end

-- The options for compile.
local function restored_options(config, how)
  local options = { loss = {}, loss_weights = {}, metrics = {}, weighted_metrics = {},
    optimizer = class_of("optimizers", config.optimizer, how).new(config.optimizer.config) }
  for i, output in ipairs(config.outputs) do
    local loss = output.loss
    options.loss[i] = loss and class_of("losses", loss, how).new(loss.config) or false
    options.loss_weights[i] = output.weight
    options.metrics[i] = restored_metrics(output.metrics, how)
    options.weighted_metrics[i] = restored_metrics(output.weighted_metrics, how)
  end
  if #config.outputs == 1 then
    options.metrics, options.weighted_metrics = options.metrics[1], options.weighted_metrics[1]
  end
  for _, name in ipairs(PLAIN) do options[name] = config[name] end
  return options
end

--- restore(model, config, tensors, {path =, custom = {}}): compiles the model as it was and gives the optimizer its
--- state, if there are tensors. The next fit puts the random state of the file back, unless mgpu.seed is called before.
-- Errors: an unknown class; a damaged state.
function M.restore(model, config, tensors, how)
  how = { path = how.path, custom = how.custom or {} }
  local names = model.output_names or { "output" }
  if type(config) ~= "table" or type(config.outputs) ~= "table" or #config.outputs ~= #names then
    damaged(how.path, "it does not fit a model with %d outputs", #names)
  end
  model:compile(restored_options(config, how))
  if next(tensors) then M.assign_optimizer(model, model.compiled.optimizer, tensors, how.path) end
  model.compiled.restored = { path = how.path, random = config.random, seeds = layer_names.seeds() }
end

-- ---- afterwards ---------------------------------------------------------------------------------

--- continue_random(compiled): before the first step of a model from a file: puts back the random state that the file
--- has, unless mgpu.seed was called since it was loaded.
function M.continue_random(compiled)
  local restored = compiled.restored
  if not restored or not restored.random then return end
  if restored.seeds == layer_names.seeds() then core.rng_state(restored.random) end
  restored.random = nil
end

--- compiled_again(before, after): a model from a file keeps its random state if it is compiled with the optimizer of
--- the file; else this says what is dropped.
-- ARGS: model.compiled before (nil: not compiled) and after.
function M.compiled_again(before, after)
  local restored, optimizer = before and before.restored, before and before.optimizer
  if not restored then return end
  if optimizer == after.optimizer or optimizer == after.optimizer.inner_optimizer then
    after.restored = restored
    return
  end
  require "mgpu.say"("compile: drops the training state of %s: %s after %d steps; to continue with it, do not "
    .. "compile again, or give optimizer = model.optimizer\n", restored.path, optimizer.class, optimizer:steps_taken())
end

return M
