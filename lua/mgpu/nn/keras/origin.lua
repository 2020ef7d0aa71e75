--- Which Keras wrote a configuration, and whether it fixes the mode of a layer's call.
local objects = require "mgpu.nn.keras.objects"
local warnings = require "mgpu.warnings"

local given = objects.given
local M = {}

-- ---- which Keras --------------------------------------------------------------------------------

-- Which version of Keras wrote a configuration: the meaning of some options and places has changed with Keras 3.

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

-- ---- the mode of a call -------------------------------------------------------------------------

-- Where a file of Keras fixes the mode of a layer's call: training or inference.
--
-- Keras 2 records `training` where the user gave it, and obeys it. Keras 3 records it for every call and ignores it:
-- predict, evaluate or fit decides. So files of Keras 3 fix no mode. Our files in the form of Keras 3 mark calls whose
-- mode is fixed with a field that Keras does not read.

local MARK = "mgpu_training"
local MOVES = { BatchNormalization = true } -- classes with statistics that training moves
local MOST_NAMES = 3 -- in the warning

--- mark(node, training) -> the node, marked if the mode of the call is fixed.
function M.mark(node, training)
  node[MARK] = training
  return node
end

-- Adds the names of the layers of an entry in our form whose statistics training moves.
local function add_moving(list, entry)
  local config = entry.config
  if config.trainable == false then return end
  if MOVES[entry.class_name] then list[#list + 1] = ("%q"):format(tostring(config.name)) end
  local is_model = entry.class_name == "Sequential" or entry.class_name == "Model"
  for _, inner in ipairs(is_model and config.layers or {}) do add_moving(list, inner) end
end

--- fixed(node, recorded, layer, at) -> the mode that the file fixes for a call, or nil.
-- ARGS node: Keras's form of the call; recorded: its argument `training`; layer: the layer in our form.
-- Notes in at.moving the layers that Keras 3 trains although `recorded` is false.
function M.fixed(node, recorded, layer, at)
  if not node.args then return recorded end -- of Keras 1 and 2
  local training = objects.given(node[MARK])
  if training ~= nil and type(training) ~= "boolean" then
    objects.damaged(at, "%s is %s, not true or false", MARK, tostring(training))
  end
  if recorded == false and training == nil then
    at.moving = at.moving or {}
    add_moving(at.moving, layer)
  end
  return training
end

--- warn(at): says which layers Keras 3 trains although they were called with training=False.
function M.warn(at)
  local names, seen = {}, {}
  for _, name in ipairs(at.moving or {}) do
    if not seen[name] then names[#names + 1], seen[name] = name, true end
  end
  if #names == 0 then return end
  warnings.warn("%s: fit will move the statistics of BatchNormalization %s%s, though the model calls %s with "
    .. "training=False: Keras 3 ignores that. To freeze the statistics set trainable = false on the layers, or on the "
    .. "model that holds them", at.path, table.concat(names, ", ", 1, math.min(#names, MOST_NAMES)),
    #names > MOST_NAMES and (" and %d more"):format(#names - MOST_NAMES) or "", #names == 1 and "it" or "them")
end

return M
