--- Shapes that a model of tf.keras computes from tf.shape(x), as in tf.reshape(x, tf.stack([tf.shape(x)[0], 24])): a
--- size that is taken from a tensor counts as unknown, which a reshape finds by the number of elements.
local core = require "mgpu.core"

local M = {}

local DEEPEST = 8 -- nodes behind a shape
local MOST = 1000 -- nodes that are looked at

local sizes_of

-- A size, or the sizes, of a value in our arguments; nil if there is no telling how many they are.
local function sizes_in(value, places, layer_at, depth)
  if type(value) == "number" then return { value } end
  if type(value) ~= "table" then return nil end
  if value.input then return sizes_of(places[value.input], layer_at, depth + 1) end
  return value
end

-- op -> function(arguments, places, layer_at, depth) -> sizes
local RULES = {}

local function all(list, places, layer_at, depth)
  local sizes = {}
  for _, item in ipairs(type(list) == "table" and list or {}) do
    local some = sizes_in(item, places, layer_at, depth)
    if not some then return nil end
    for _, size in ipairs(some) do sizes[#sizes + 1] = size end
  end
  return #sizes > 0 and sizes or nil
end
function RULES.Stack(arguments, ...) return all(arguments.x, ...) end
function RULES.Concatenate(arguments, ...) return all(arguments.xs, ...) end
function RULES.Cast(arguments, ...) return sizes_in(arguments.x, ...) end
function RULES.Unstack() return { core.null } end -- one of its outputs

-- One size, or the first n.
function RULES.GetItem(arguments)
  local key = arguments.key
  if type(key) == "table" and #key == 1 then key = key[1] end
  if type(key) == "number" then return { core.null } end
  local slice = type(key) == "table" and key.slice
  local first, stop = slice and slice[1], slice and slice[2]
  if first == core.null or first == nil then first = 0 end
  if type(stop) ~= "number" or type(first) ~= "number" or first < 0 or stop <= first or stop > 8 then return nil end
  local sizes = {}
  for i = 1, stop - first do sizes[i] = core.null end
  return sizes
end

--- sizes_of(place, layer_at, depth) -> the sizes, null for those that the model computes; nil if their number is not
--- known. layer_at(place) -> our configuration of the operation there and the places of its inputs, or nil.
function sizes_of(place, layer_at, depth)
  if depth > DEEPEST then return nil end
  local layer, places = layer_at(place)
  local rule = layer and RULES[layer.config.op]
  return rule and rule(layer.config.arguments, places, layer_at, depth)
end

-- op -> function(arguments, output) -> the argument whose first size (or, of a size, whose value) the output begins
-- with, or nil.
local BEGINS = {}
function BEGINS.GetItem(arguments)
  local key = arguments.key
  if type(key) == "table" and #key == 1 then key = key[1] end
  local slice = type(key) == "table" and key.slice or {}
  local forward = slice[3] == core.null or slice[3] == 1
  return (key == 0 or forward and (slice[1] == 0 or slice[1] == core.null)) and arguments.x or nil
end
function BEGINS.Unstack(arguments, output) return output == 0 and arguments.x or nil end
function BEGINS.Stack(arguments) return arguments.x[1] end
function BEGINS.Concatenate(arguments) return arguments.xs[1] end
function BEGINS.Cast(arguments) return arguments.x end

--- first_of(value, recognise, layer_at) -> the place of the tensor whose first size a shape begins with, or nil.
-- value: a place, or a list of sizes and places. recognise(value) -> the place that the value is, or nil.
function M.first_of(value, recognise, layer_at)
  local place = recognise(value) or type(value) == "table" and recognise(value[1])
  for _ = 1, DEEPEST do
    local layer, places = nil, nil
    if place then layer, places = layer_at(place) end
    if not layer or not layer.config.op then return nil end
    local arguments, rule = layer.config.arguments, BEGINS[layer.config.op]
    local from = layer.config.op == "Shape" and arguments.x or rule and rule(arguments, place.output)
    place = type(from) == "table" and places[from.input or 0] or nil
    if layer.config.op == "Shape" then return place end
  end
end

--- find(place, layer_at) -> what sizes_of RETURNS.
function M.find(place, layer_at)
  local count = 0
  local function counted(at)
    count = count + 1
    if count <= MOST then return layer_at(at) end
  end
  return sizes_of(place, counted, 1)
end

return M
