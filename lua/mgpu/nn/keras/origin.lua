--- Which version of Keras wrote a configuration: the meaning of some options and places has changed with Keras 3.
local given = require "mgpu.nn.keras.objects".given

local M = {}

-- Whether an entry has the form of Keras 1 and 2 (true) or 3 (false): they name the shapes of inputs differently, and
-- Keras 3 writes calls as objects. nil if nothing tells.
local function is_old(entry)
  if type(entry) ~= "table" then return nil end
  local config, nodes = given(entry.config), given(entry.inbound_nodes)
  if type(nodes) == "table" and type(nodes[1]) == "table" then return nodes[1].args == nil end
  if type(config) ~= "table" then return nil end
  if config.batch_input_shape ~= nil then return true end
  if config.batch_shape ~= nil then return false end
  local layers = given(config.layers) or config -- Keras 1 has a list in the place of the config of a Sequential
  for _, layer in ipairs(type(layers) == "table" and layers or {}) do
    local old = is_old(layer)
    if old ~= nil then return old end
  end
end

--- is_keras2(version, entry): whether Keras 1 or 2 wrote it. version: what the file states as its keras_version; a file
--- that states none is judged by the form of its model, `entry`.
function M.is_keras2(version, entry)
  if type(version) == "string" then return version:find "^[12]%." ~= nil end
  return is_old(entry) == true
end

--- source(path, custom, version, entry) -> what the translations get as `at`: {path = the file's name, custom = classes
--- by name, keras2 = is_keras2(version, entry), before_tensorflow = whether it was a Keras outside of TensorFlow, 1.0
--- to 2.3}.
function M.source(path, custom, version, entry)
  local text = type(version) == "string" and version or ""
  local old = text:find "^1%." or text:find "^2%.[0-3]%."
  return { path = path, custom = custom, keras2 = M.is_keras2(version, entry),
    before_tensorflow = old and not text:find("tf", 1, true) or false }
end

return M
