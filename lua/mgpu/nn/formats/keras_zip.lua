--- Keras 3's .keras files: a zip archive of config.json, metadata.json and model.weights.h5.
local blank_weights = require "mgpu.nn.blank_weights"
local core = require "mgpu.core"
local h5_file = require "mgpu.nn.keras.h5_file"
local layouts = require "mgpu.nn.keras.layouts"
local model_config = require "mgpu.nn.model_config"
local models = require "mgpu.nn.keras.models"
local objects = require "mgpu.nn.keras.objects"
local origin = require "mgpu.nn.keras.origin"
local optimizer_state = require "mgpu.nn.keras.optimizer_state"
local weights = require "mgpu.nn.keras.weights"
local training = require "mgpu.nn.keras.training"

local M = { writes_halves = true }

local VERSION = "3.0.0" -- of the layout
local WEIGHTS = "model.weights.h5"

-- Adds the variables of the optimizer. Those after the first `outer` are added again, as those of the inner optimizer,
-- and so are those of each of several: parts, as of optimizer_state.
local function add_optimizer(entries, made, tensors, outer, parts)
  if #tensors == 0 then return end
  local function add(path, name, first, last)
    layouts.by_path.add_numbered(entries, made, path, name, { unpack(tensors, first, last) })
  end
  add("optimizer", "optimizer", 1, #tensors)
  if outer > 0 then add("optimizer/inner_optimizer", "inner_optimizer", outer + 1, #tensors) end
  local counts = {}
  for _, part in ipairs(parts or {}) do
    local name = weights.snake_case(part.class_name)
    local n = counts[name]
    counts[name] = (n or 0) + 1
    local folder = outer > 0 and "optimizer/inner_optimizer" or "optimizer"
    add(("%s/optimizers/%s%s"):format(folder, name, n and "_" .. n or ""), name, part.first, part.last)
  end
end

-- Raises if a layer is part of several of the models inside this one: Keras writes such files, but cannot load them.
local function refuse_shared(network, path, seen)
  for _, layer in ipairs(network.layers) do
    if seen[layer] and not layer.is_input then
      core.fail("unsupported", ("%s: %s is a layer of several models, which .keras files cannot hold: save the model "
        .. "as .safetensors"):format(path, tostring(layer)))
    end
    seen[layer] = true
    if layer.is_network then refuse_shared(layer, path, seen) end
  end
end

--- save(model, path, parts).
function M.save(model, path, parts)
  refuse_shared(model, path, {})
  local config, entries, made = training.to_config(models.to_keras(model, "keras"), parts.compiled), {}, {}
  layouts.by_path.add(entries, made, model)
  if parts.compiled then
    add_optimizer(entries, made, select(2, optimizer_state.to_keras(model, parts.compiled)))
  end
  local image, file = core.h5_make(entries, path)
  core.zip_write(path, {
    { name = "metadata.json", bytes = core.json_encode { keras_version = VERSION } },
    { name = "config.json", bytes = config },
    { name = WEIGHTS, file = file },
  })
  return image -- the file in memory, which must live until here
end

--- load_weights(model, path, how): from a whole model.
function M.load_weights(model, path, how)
  layouts.by_path.load(model, h5_file.open(core.zip_read(path), WEIGHTS), how)
end

-- Puts the vocabulary of a layer into its configuration, with the weights of the terms: layers behind it may need its
-- size. It is in assets/PATH/vocabulary.txt, a term a line.
local function read_vocabulary(archive, file, path, layer)
  local list, name = {}, ("assets/%s/vocabulary.txt"):format(path)
  for line in (archive:read(name) .. "\n"):gmatch "(.-)\r?\n" do list[#list + 1] = line end
  while list[#list] == "" do list[#list] = nil end
  if #list == 0 then return end
  for i, line in ipairs(layer.class_name == "IntegerLookup" and list or {}) do
    list[i] = tonumber(line) or core.fail("data", ("%s: %s: %q is no number"):format(file.path, name, line))
  end
  local idf = file.tensors[path .. "/vars/idf_weights"] or file.tensors[path .. "/idf_weights"]
  local numbers = idf and idf:totable() -- filled with zeros where pad_to_max_tokens is set
  for i = #list + 1, numbers and #numbers or 0 do numbers[i] = nil end
  layer.config.vocabulary, layer.config.idf_weights = list, numbers
end

local HAS_VOCABULARY = { TextVectorization = true, StringLookup = true, IntegerLookup = true }

--- load_model(path, custom, compile) -> the model and, if `compile`, its compiled state, or nil in its place.
function M.load_model(path, custom, compile)
  local archive = core.zip_read(path)
  local text = archive:read "config.json"
  local config = objects.decode(text)
  local metadata = archive:size "metadata.json" and core.json_decode(archive:read "metadata.json")
  local at = origin.source(path, custom, type(metadata) == "table" and metadata.keras_version or nil, config)
  at.text = text -- has the order of keys
  local entry, file = models.read(config, at), h5_file.open(archive, WEIGHTS)
  file.path = path
  weights.each_entry(entry, "", function(where, layer)
    if not HAS_VOCABULARY[layer.class_name] or layer.config.vocabulary then return end
    if archive:size(("assets/%s/vocabulary.txt"):format(where)) then read_vocabulary(archive, file, where, layer) end
  end)
  local model = blank_weights.with_room(file:count(), path, function()
    local model = model_config.from_config(entry, custom, path)
    layouts.by_path.load(model, file)
    return model
  end)
  archive:close()
  local compiled = config.compile_config
  if not compile or type(compiled) ~= "table" or not next(compiled) or training.is_foreign(compiled, at) then
    return model
  end
  return model, training.read(model, compiled, layouts.by_path.numbered(file, "optimizer"), nil, at)
end

return M
