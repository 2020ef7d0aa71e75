--- Models as JSON, in Keras's form: their layers without the weights.
--
--     local text = model:to_json()
--     local again = mgpu.model_from_json(text, { custom = { Scale = Scale } })
local model_config = require "mgpu.nn.model_config"
local models = require "mgpu.nn.keras.models"
local objects = require "mgpu.nn.keras.objects"
local origin = require "mgpu.nn.keras.origin"

local M = {}

--- to_json(model) -> text that Keras 3 reads too, if all layers are Keras's.
function M.to_json(model) return objects.encode(models.to_keras(model, "keras")) end

--- model_from_json(text, custom) -> the model of Keras 2's or 3's text, with new weights.
function M.model_from_json(text, custom)
  local entry = objects.decode(text)
  local at = origin.source("model_from_json", custom, type(entry) == "table" and entry.keras_version or nil, entry)
  return model_config.from_config(models.read(entry, at), custom, at.path)
end

return M
