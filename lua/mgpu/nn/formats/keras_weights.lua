--- Keras 3's files of weights, .weights.h5: by path (keras/layouts.lua).
local core = require "mgpu.core"
local h5_file = require "mgpu.nn.keras.h5_file"
local layouts = require "mgpu.nn.keras.layouts"

local M = { writes_halves = true }

--- save_weights(model, path).
function M.save_weights(model, path)
  local entries = {}
  layouts.by_path.add(entries, {}, model)
  core.h5_write(path, entries)
end

--- load_weights(model, path, how). A file in the older layout, by layer, is read too.
function M.load_weights(model, path, how)
  local file = h5_file.open(path)
  if file:texts("", "layer_names") then return layouts.by_layer.load(model, file, "", how) end
  layouts.by_path.load(model, file, how)
end

return M
