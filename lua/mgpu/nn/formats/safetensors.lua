--- The native format: a safetensors file whose metadata hold the configuration as JSON.
--
-- Metadata: format = "mgpulua 1"; weights = the names in the model's order; for whole models config = {class_name,
-- config, compiled}. The tensors are the weights by name and, under "optimizer/", those of the compiled state.
local core = require "mgpu.core"
local matching = require "mgpu.nn.formats.matching"
local model_config = require "mgpu.nn.model_config"

local M = {}

local FORMAT = "mgpulua 1"

-- The weights by name, and the file's metadata, which hold their order.
local function tensors_of(model)
  local tensors, order = {}, {}
  for i, v in ipairs(model.variables) do
    if tensors[v.name] then
      model:fail("two weights are called %q: give the layers different names", v.name)
    end
    tensors[v.name], order[i] = v:value(), v.name
  end
  return tensors, { format = FORMAT, weights = core.json_encode(order) }
end

-- Separates the compiled state's tensors from the weights: `tensors` loses them.
local function take_compiled(tensors)
  local taken = {}
  for name, t in pairs(tensors) do
    if name:find "^optimizer/" then taken[name] = t end
  end
  for name in pairs(taken) do tensors[name] = nil end
  return taken
end

-- RETURNS the tensors and the metadata of the file, and the weights' order or nil.
local function read(path)
  local tensors, metadata = core.store_load(path)
  local order = metadata.weights and core.json_decode(metadata.weights)
  return tensors, metadata, type(order) == "table" and order or nil
end

--- save(model, path, parts): writes weights, configuration and parts.compiled = {config =, tensors =}, if it is given.
function M.save(model, path, parts)
  local tensors, metadata = tensors_of(model)
  local compiled = parts.compiled
  for name, t in pairs(compiled and compiled.tensors or {}) do tensors[name] = t end
  metadata.config = core.json_encode { class_name = model.class_name, config = model:get_config(),
    compiled = compiled and compiled.config }
  core.store_save(path, tensors, metadata)
end

--- save_weights(model, path): writes the weights alone.
function M.save_weights(model, path) core.store_save(path, tensors_of(model)) end

--- load_weights(model, path, how): reads the weights; how: see matching.lua.
function M.load_weights(model, path, how)
  local tensors, _, order = read(path)
  take_compiled(tensors)
  matching.assign(model, path, tensors, order, how)
end

--- load_model(path, custom) -> the model and its compiled state {config =, tensors =}, or nil in its place.
function M.load_model(path, custom)
  local tensors, metadata, order = read(path)
  if not metadata.config then
    core.fail("data", path .. ": the file holds weights only: make the model and use load_weights")
  end
  local saved = core.json_decode(metadata.config)
  if type(saved) ~= "table" or type(saved.config) ~= "table" then
    core.fail("data", path .. ": the configuration is damaged")
  end
  local compiled = { config = saved.compiled, tensors = take_compiled(tensors) }
  local model = model_config.from_config(saved, custom, path)
  matching.assign(model, path, tensors, order)
  return model, type(compiled.config) == "table" and compiled or nil
end

return M
