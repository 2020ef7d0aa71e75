--- Keras's .h5 files: whole models and weights alone, as Keras 2 and 3 write and read them.
--
-- Attributes of the root: model_config and training_config, JSON; the groups model_weights and optimizer_weights, by
-- layer (keras/layouts.lua). In a file of weights alone, the root takes the place of the group model_weights.
local blank_weights = require "mgpu.nn.blank_weights"
local core = require "mgpu.core"
local h5_file = require "mgpu.nn.keras.h5_file"
local layouts = require "mgpu.nn.keras.layouts"
local model_config = require "mgpu.nn.model_config"
local models = require "mgpu.nn.keras.models"
local objects = require "mgpu.nn.keras.objects"
local origin = require "mgpu.nn.keras.origin"
local optimizer_state = require "mgpu.nn.keras.optimizer_state"
local training = require "mgpu.nn.keras.training"

local M = { writes_halves = true }

local VERSION = "3.0.0" -- the meaning of options; both Keras 2 and 3 read the layout

--- save(model, path, parts).
function M.save(model, path, parts)
  local config = objects.encode(models.to_keras(model, "h5"))
  local entries = { { path = "" }, { path = "", attribute = "model_config", text = config },
    { path = "", attribute = "keras_version", text = VERSION },
    { path = "", attribute = "backend", text = "tensorflow" } }
  if parts.compiled then
    entries[#entries + 1] = { path = "", attribute = "training_config",
      text = training.to_training_config(parts.compiled) }
  end
  layouts.by_layer.add(entries, model, "model_weights", VERSION)
  if parts.compiled then
    local names, tensors = optimizer_state.to_keras(model, parts.compiled)
    if #tensors > 0 then layouts.by_layer.add_tensors(entries, "optimizer_weights", names, tensors) end
  end
  core.h5_write(path, entries)
end

--- save_weights(model, path).
function M.save_weights(model, path)
  local entries = {}
  layouts.by_layer.add(entries, model, "", VERSION)
  core.h5_write(path, entries)
end

--- load_weights(model, path, how): from a file of weights or a whole model.
function M.load_weights(model, path, how)
  local file = h5_file.open(path)
  if not file.groups.model_weights and not file:texts("", "layer_names") then
    return layouts.by_path.load(model, file, how)
  end
  layouts.by_layer.load(model, file, file.groups.model_weights and "model_weights" or "", how)
end

--- load_model(path, custom, compile) -> the model and, if `compile`, its compiled state, or nil in its place.
function M.load_model(path, custom, compile)
  local file = h5_file.open(path)
  local text = file:text("", "model_config")
  if not text then
    core.fail("data", path .. ": the file holds weights only: make the model and use load_weights")
  end
  local version = file:text("", "keras_version") or file:text("model_weights", "keras_version")
  local described = objects.decode(text)
  local at = origin.source(path, custom, version, described)
  local entry = models.read(described, at)
  local model = blank_weights.with_room(file:count(), path, function()
    local model = model_config.from_config(entry, custom, path)
    layouts.by_layer.load(model, file, "model_weights")
    return model
  end)
  local trained = compile and file:text("", "training_config")
  local config = trained and core.json_decode(trained)
  if not trained or training.is_foreign(config, at, true) then return model end
  local tensors, names = {}, {}
  if file.groups.optimizer_weights then
    tensors, names = layouts.by_layer.tensors(file, "optimizer_weights")
  end
  return model, training.read(model, config, tensors, names, at)
end

return M
