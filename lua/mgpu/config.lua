--- Saving and loading models: weights in a file of named tensors, the configuration as JSON beside
-- them. Loading never runs code.
--
--     model:save "mnist.safetensors"
--     local again = mgpu.load_model("mnist.safetensors", { custom = { Scale = Scale } })
-- These functions are methods of models; load_model is mgpu's.
local core = require "mgpu.core"

local M = {}

local FORMAT = "mgpulua 1"

local function tensors_of(model)
  local tensors = {}
  for _, v in ipairs(model.variables) do
    if tensors[v.name] then
      model:fail("two weights are called %q: give the layers names of their own", v.name)
    end
    tensors[v.name] = v:value()
  end
  return tensors
end

local function need_built(model, what)
  if not model.built then
    model:fail("%s: the model has no weights yet: give it an Input or call it once", what)
  end
end

-- The optimizer's state, by position: its variables have an order.
local function optimizer_part(model, tensors)
  local compiled = model.compiled
  if not compiled or not compiled.optimizer then return nil end
  local optimizer = compiled.optimizer
  for i, v in ipairs(optimizer:variables()) do tensors[("optimizer/%d"):format(i)] = v:value() end
  return { class_name = optimizer.class, config = optimizer:get_config() }
end

--- save(path): weights, configuration and, if compiled, the optimizer. The file appears whole or not
--- at all.
function M.save(model, path)
  need_built(model, "save")
  local tensors = tensors_of(model)
  local optimizer = optimizer_part(model, tensors)
  core.store_save(path, tensors, { format = FORMAT, config = core.json_encode {
    class_name = model.class_name, config = model:get_config(), optimizer = optimizer } })
end

--- save_weights(path): the weights alone.
function M.save_weights(model, path)
  need_built(model, "save_weights")
  core.store_save(path, tensors_of(model), { format = FORMAT })
end

-- ---- loading ------------------------------------------------------------------------------------

local function sorted(set)
  local list = {}
  for name in pairs(set) do list[#list + 1] = name end
  table.sort(list)
  return table.concat(list, ", ")
end

-- Everything is compared before anything is assigned.
local function check_weights(model, path, tensors)
  local missing, extra = {}, {}
  for name in pairs(tensors) do
    if not name:find "^optimizer/" then extra[name] = true end
  end
  for _, v in ipairs(model.variables) do
    local t = tensors[v.name]
    extra[v.name] = nil
    if not t then
      missing[v.name] = true
    elseif model.shape_text(t:shape()) ~= model.shape_text(v:shape()) then
      core.fail("data", ("%s: the weight %q has shape %s in the file, the model needs %s"):format(path,
        v.name, model.shape_text(t:shape()), model.shape_text(v:shape())))
    end
  end
  if next(missing) then
    core.fail("data", ("%s: the file lacks the weights %s"):format(path, sorted(missing))
      .. (next(extra) and ("; it has %s, which the model does not"):format(sorted(extra)) or ""))
  end
  if next(extra) then
    core.fail("data", ("%s: the file has the weights %s, which the model does not"):format(path,
      sorted(extra)))
  end
end

--- load_weights(path): by name; nothing changes if anything does not fit.
function M.load_weights(model, path)
  need_built(model, "load_weights")
  local tensors = core.store_load(path)
  check_weights(model, path, tensors)
  for _, v in ipairs(model.variables) do v:assign(tensors[v.name]) end
end

-- A configuration is data from outside: names are looked up, options checked like a user's.
local function layer_of(entry, custom, path)
  if type(entry) ~= "table" or type(entry.class_name) ~= "string" or type(entry.config) ~= "table" then
    core.fail("data", path .. ": the configuration is damaged: a layer has no class_name or config")
  end
  if entry.class_name == "Sequential" then return M.from_config(entry.config, custom, path) end
  local class = custom[entry.class_name]
  if not class then
    local layers = require "mgpu.layers"
    local known = false
    for _, name in ipairs(layers()) do known = known or name == entry.class_name end
    if not known then
      core.fail("data", ("%s: unknown layer class %q: give it with load_model(path, {custom = {%s = "
        .. "...}})"):format(path, entry.class_name, entry.class_name))
    end
    class = layers[entry.class_name]
  end
  return class(entry.config)
end

--- A Sequential from what get_config gave.
function M.from_config(config, custom, path)
  path, custom = path or "configuration", custom or {}
  if type(config.layers) ~= "table" then
    core.fail("data", path .. ": the configuration is damaged: it has no layers")
  end
  local parts = { name = config.name, trainable = config.trainable }
  if type(config.input_shape) == "table" then
    parts[1] = require "mgpu.layers".Input(config.input_shape)
  end
  for _, entry in ipairs(config.layers) do parts[#parts + 1] = layer_of(entry, custom, path) end
  return require "mgpu.sequential" (parts)
end

local function restore_optimizer(model, saved, tensors)
  local class = require "mgpu.optimizers"[saved.class_name]
  local optimizer = class(saved.config)
  optimizer:build(model.trainable_variables)
  for i, v in ipairs(optimizer:variables()) do
    local t = tensors[("optimizer/%d"):format(i)]
    if t and model.shape_text(t:shape()) == model.shape_text(v:shape()) then v:assign(t) end
  end
  model.saved_optimizer = optimizer
end

--- mgpu.load_model(path, {custom = {Name = class}}) -> model; `model.saved_optimizer` continues where
--- training stopped: model:compile {optimizer = model.saved_optimizer, ...}.
local function load_model(path, given)
  local custom = given and given.custom or {}
  local tensors, metadata = core.store_load(path)
  if not metadata.config then
    core.fail("data", path .. ": the file holds weights only: make the model and use load_weights")
  end
  local saved = core.json_decode(metadata.config)
  if type(saved) ~= "table" or type(saved.config) ~= "table" then
    core.fail("data", path .. ": the configuration is damaged")
  end
  local model = M.from_config(saved.config, custom, path)
  check_weights(model, path, tensors)
  for _, v in ipairs(model.variables) do v:assign(tensors[v.name]) end
  if type(saved.optimizer) == "table" then restore_optimizer(model, saved.optimizer, tensors) end
  return model
end

return setmetatable(M, { __index = { load_model = load_model } })
