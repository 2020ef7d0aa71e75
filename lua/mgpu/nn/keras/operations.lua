--- Nodes of Keras 3's functional models that are operations of keras.ops <-> our layer Operation.
--
-- Keras: {class_name = "Mean", module = "keras.src.ops.numpy", config = {name =, axis = 1}, inbound_nodes = {{args =
-- {tensor, ...}, kwargs = {...}}}}: options of the operation are in its config, what it is called with in the node.
-- Ours has all arguments by name in its config, with {input = n} for tensors; see operations/arguments.lua.
local arguments = require "mgpu.nn.operations.arguments"
local core = require "mgpu.core"
local layers = require "mgpu.nn.keras.layers"
local objects = require "mgpu.nn.keras.objects"
local operations = require "mgpu.nn.operations"

local M = {}

local given = objects.given

local DEEPEST = 16 -- levels of lists in an argument

-- Names of options in versions before.
local OLD_NAMES = { Threshold = { threshold_value = "threshold", value = "default_value" } }

local MODELS = { Sequential = true, Functional = true, Model = true } -- these are entries with nodes, too

--- is_operation(entry, at) -> whether a layer's entry is an operation. Without a module (.h5) the form of its nodes and
--- the option trainable, which layers with the name of an operation have, tell.
function M.is_operation(entry, at)
  if type(entry) ~= "table" or type(entry.class_name) ~= "string" or MODELS[entry.class_name] then return false end
  local module = given(entry.module)
  if type(module) == "string" then
    return module:find "^keras%.src%.ops%f[%W]" ~= nil or module:find "^keras%.ops%f[%W]" ~= nil
  end
  local config, nodes = given(entry.config), given(entry.inbound_nodes)
  local node = type(nodes) == "table" and nodes[1]
  return type(node) == "table" and node.args ~= nil and type(config) == "table" and config.trainable == nil
    and not at.custom[entry.class_name] and (operations.find(entry.class_name) or not layers.knows(entry.class_name))
end

-- ---- from Keras ---------------------------------------------------------------------------------

local from_value

-- Keras's objects in arguments: class_name -> function(config, what) -> our value.
local OBJECTS = {
  __slice__ = function(config)
    return { slice = { config.start or core.null, config.stop or core.null, config.step or core.null } }
  end,
  __ellipsis__ = function() return { ellipsis = true } end,
}

local function constant(config, what)
  local dtype = type(config.dtype) == "string" and arguments.constant_dtype(config.dtype)
  if not dtype or type(config.value) == "string" and not arguments.NOT_IN_JSON[config.value] then
    objects.fail(what.at, "%s: a constant of dtype %s is not supported", what.who, tostring(config.dtype))
  end
  return { tensor = config.value, dtype = dtype }
end
OBJECTS.__numpy__, OBJECTS.__tensor__ = constant, constant

-- A value of Keras in our form. what: {at =, who =, place = function, places = {}}: `place` recognises the tensors of
-- the model, which are added to `places`.
function from_value(value, what, depth)
  if type(value) ~= "table" or value == core.null then return value end
  if depth > DEEPEST then objects.damaged(what.at, "%s: an argument is too deep", what.who) end
  local place = what.place(value)
  if place then
    table.insert(what.places, place)
    return { input = #what.places }
  end
  if value.class_name ~= nil then
    local make = OBJECTS[value.class_name]
    if not make then
      objects.fail(what.at, "%s: an argument of class %s is not supported", what.who, tostring(value.class_name))
    end
    return make(type(value.config) == "table" and value.config or {}, what)
  end
  local list = {}
  for i, item in ipairs(value) do list[i] = from_value(item, what, depth + 1) end
  return #list > 0 and list or core.empty_array
end
M.from_value = from_value

-- Adds a value by the name of its argument.
local function add_named(row, ours, name, value, what)
  name = (OLD_NAMES[row.name] or {})[name] or name
  local known = false
  for _, argument in ipairs(row.arguments) do known = known or argument.name == name end
  if not known then
    if value == nil or value == false or name == "name" or name == "dtype" then return end
    objects.fail(what.at, "%s: the option %s = %s is not supported", what.who, tostring(name),
      type(value) == "table" and "{...}" or tostring(value))
  end
  if value == nil then return end
  if ours[name] ~= nil then objects.damaged(what.at, "%s: the argument %s is given twice", what.who, name) end
  ours[name] = from_value(value, what, 1)
end

--- find(name, at) -> the operation's row. Errors: one that we do not have.
function M.find(name, at, who)
  local row = operations.find(name)
  if not row then
    objects.fail(at, "the op keras.ops.%s is not supported%s", name, who and " (" .. who .. ")" or "")
  end
  return row
end

--- from_node(entry, node, at, place) -> our layer's {class_name =, config =} for one use of an operation, and the
--- places of its inputs.
function M.from_node(entry, node, at, place)
  local who = ("%s %q"):format(entry.class_name, tostring(entry.name))
  local row = M.find(entry.class_name, at, "layer " .. tostring(entry.name))
  local ours, what = {}, { at = at, who = who, place = place, places = {} }
  local args, kwargs = given(node.args) or {}, given(node.kwargs) or {}
  if type(args) ~= "table" or type(kwargs) ~= "table" then
    objects.damaged(at, "%s: args and kwargs are no lists", who)
  end
  local first = row.arguments[1]
  if first.spread then
    ours[first.name] = from_value(args, what, 1)
    args = {}
  end
  for i, value in ipairs(args) do
    local argument = row.arguments[i] or objects.fail(at, "%s: it is called with %d arguments", who, #args)
    add_named(row, ours, argument.name, given(value), what)
  end
  local config = given(entry.config)
  for _, list in ipairs { kwargs, type(config) == "table" and config or {} } do
    local names = {}
    for name in pairs(list) do names[#names + 1] = tostring(name) end
    table.sort(names) -- so that inputs are numbered alike in each process
    for _, name in ipairs(names) do
      if list ~= config or name ~= "name" then add_named(row, ours, name, given(list[name]), what) end
    end
  end
  return M.layer(entry.name, row, ours), what.places
end

--- layer(name, row, arguments) -> the configuration of our layer.
function M.layer(name, row, ours)
  return { class_name = "Operation", config = { name = given(name), op = row.name, arguments = ours } }
end

-- ---- to Keras -----------------------------------------------------------------------------------

-- Our value in Keras's form; tensors: Keras's form of each input.
local function to_value(value, tensors)
  if arguments.NOT_IN_JSON[value] then return objects.number(value) end
  if type(value) ~= "table" or value == core.empty_array then return value end
  if value.input then return tensors[value.input] end
  if value.tensor ~= nil then
    return { class_name = "__numpy__", config = { value = to_value(value.tensor, tensors),
      dtype = value.dtype or core.floatx() } }
  end
  if value.slice then
    return { class_name = "__slice__", config = { start = value.slice[1] or core.null,
      stop = value.slice[2] or core.null, step = value.slice[3] or core.null } }
  end
  if value.ellipsis then return { class_name = "__ellipsis__", config = {} } end
  local list = {}
  for i, item in ipairs(value) do list[i] = to_value(item, tensors) end
  return list
end

--- to_entry(layer) -> Keras's entry without its nodes. Up to 3.11 Keras takes a name beside options for none of its
--- operations; the entry has it.
function M.to_entry(layer)
  local row, config, options = layer.row, {}, false
  for _, argument in ipairs(row.arguments) do
    if argument.option then
      local value = layer.arguments[argument.name]
      if value == nil then value = (row.written or {})[argument.name] end
      config[argument.name], options = to_value(value, {}), true
    end
  end
  if not options then config.name = layer.name end
  return { class_name = row.name, config = config, module = "keras.src.ops." .. row.module,
    registered_name = row.name }
end

--- to_node(layer, tensors) -> the node for a use; tensors: Keras's form of each input.
function M.to_node(layer, tensors)
  local args, kwargs, missed = {}, {}, false
  for _, argument in ipairs(layer.row.arguments) do
    local value = layer.arguments[argument.name]
    if argument.option then break end
    if value == nil or value == core.null then
      missed = true
    elseif argument.spread then
      args = to_value(value, tensors)
    elseif missed then
      kwargs[argument.name] = to_value(value, tensors)
    else
      args[#args + 1] = to_value(value, tensors)
    end
  end
  return { args = args, kwargs = kwargs }
end

return M
