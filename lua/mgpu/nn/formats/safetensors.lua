--- The native format: a safetensors file whose metadata hold the configuration as JSON.
--
-- Metadata: format = "mgpulua 1"; weights = the names in the model's order; for whole models config = {class_name,
-- config, compiled}. The tensors are the weights by name and, under "optimizer/", those of the compiled state.
local blank_weights = require "mgpu.nn.blank_weights"
local core = require "mgpu.core"
local matching = require "mgpu.nn.formats.matching"
local model_config = require "mgpu.nn.model_config"
local stored_dtype = require "mgpu.nn.stored_dtype"

local M = { writes_halves = true }

local FORMAT = "mgpulua 1"

-- The weights by name, and the file's metadata, which hold their order.
local function tensors_of(model)
  local tensors, order, layer_of = {}, {}, matching.layers_of_weights(model)
  for i, v in ipairs(model.variables) do
    if tensors[v.name] then
      model:fail("two weights are called %q: give the layers different names", v.name)
    end
    tensors[v.name], order[i] = stored_dtype.value(layer_of[v], v, v:value()), v.name
  end
  return tensors, { format = FORMAT, weights = core.json_encode(order) }
end

-- An open file: f.store; f.order, the names of the weights in the order of the model that was saved, or nil; f.config,
-- the decoded configuration, or nil; f.weights and f.compiled, the tensors' shapes and dtypes by name.
local function open(path)
  local f = { store = core.store_open(path), weights = {}, compiled = {} }
  local notes, listed = f.store:notes(), {}
  local version = notes.format
  if version and version:find "^mgpulua" and version ~= FORMAT then
    core.fail("data", ("%s: the format is %q: this program reads %q"):format(path, version, FORMAT))
  end
  local function decode(key)
    local ok, value = pcall(core.json_decode, notes[key])
    if ok and type(value) == "table" then return value end
    core.fail("data", ("%s: the metadata %q is damaged"):format(path, key))
  end
  f.order = notes.weights and decode "weights"
  f.config = notes.config and decode "config"
  for _, name in ipairs(f.order or {}) do listed[name] = true end
  for name, tensor in pairs(f.store:tensors()) do
    local part = (f.order and not listed[name] and name:find "^optimizer/") and f.compiled or f.weights
    part[name] = tensor
  end
  return f
end

-- Reads the tensors of an open file and closes it.
local function read(f, path)
  local tensors, nonfinite = f.store:read()
  f.store:close()
  matching.warn_nonfinite(path, nonfinite)
  return tensors
end

-- How many numbers the weights in the file have.
local function count_numbers(weights)
  local total = 0
  for _, tensor in pairs(weights) do
    local n = 1
    for _, size in ipairs(tensor.shape) do n = n * size end
    total = total + n
  end
  return total
end

--- save(model, path, parts): writes weights, configuration and parts.compiled = {config =, tensors =}, if it is given.
function M.save(model, path, parts)
  local tensors, metadata = tensors_of(model)
  local compiled = parts.compiled
  for name, t in pairs(compiled and compiled.tensors or {}) do
    if tensors[name] then model:fail("a weight is called %q, like one of the optimizer: rename the layer", name) end
    tensors[name] = t
  end
  metadata.config = core.json_encode { class_name = model.class_name, config = model:get_config(),
    compiled = compiled and compiled.config }
  core.store_save(path, tensors, metadata)
end

--- save_weights(model, path): writes the weights alone.
function M.save_weights(model, path) core.store_save(path, tensors_of(model)) end

--- load_weights(model, path, how): reads the weights; how: see matching.lua.
function M.load_weights(model, path, how)
  local f = open(path)
  local names = matching.plan(model, path, f.weights, f.order, how)
  matching.assign_planned(model, names, read(f, path), path)
end

--- load_model(path, custom, compile) -> the model and, if `compile`, its compiled state {config =, tensors =}, or nil
--- in its place.
--
-- The model is made with blank weights and compared with the file before the tensors are read.
function M.load_model(path, custom, compile)
  local f = open(path)
  local saved = f.config
  if not saved then
    core.fail("data", path .. ": the file holds weights only: make the model and use load_weights")
  end
  local config = type(saved.compiled) == "table" and saved.compiled
  local stray = not config and next(f.compiled)
  if stray then core.fail("data", ("%s: the model has no place for the tensor %q"):format(path, stray)) end
  local compiled = {}
  local model = blank_weights.with_room(count_numbers(f.weights), path, function()
    local model = model_config.from_config(saved, custom, path)
    local names = matching.plan(model, path, f.weights, f.order)
    local tensors = read(f, path)
    matching.assign_planned(model, names, tensors, path)
    for name in pairs(f.compiled) do compiled[name] = tensors[name] end
    return model
  end)
  return model, compile and config and { config = config, tensors = compiled } or nil
end

return M
