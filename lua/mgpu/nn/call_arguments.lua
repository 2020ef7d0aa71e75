--- The arguments of a layer's call besides its input: options such as use_causal_mask, and further tensors by name.
--
--     attention({ query, value }, { use_causal_mask = true, attention_mask = mask })
-- A class declares them: call_options is a list of options (options.lua), call_tensors the names of all tensors, of
-- which an array of inputs gives the first ones. `call` gets the tensors as one array and, as its third argument, the
-- options, where `tensors` is the array of names if they are not the first of call_tensors. The same table is kept in
-- the nodes of functional models and in their configurations, so it holds nothing but JSON.
local core = require "mgpu.core"
local options = require "mgpu.options"

local M = {}

local declared_of = setmetatable({}, { __mode = "k" }) -- by call_tensors, then call_options; NONE for classes without
local NONE = {}

local function declared(layer)
  local tensors, own = layer.call_tensors or NONE, layer.call_options or NONE
  local known = declared_of[tensors] or setmetatable({}, { __mode = "k" })
  declared_of[tensors] = known
  if known[own] then return known[own] end
  local list = { { "training", "boolean" } }
  for _, option in ipairs(own) do list[#list + 1] = option end
  for _, name in ipairs(tensors) do list[#list + 1] = { name, "any" } end
  if layer.call_tensors then list[#list + 1] = { "tensors", "table" } end
  known[own] = options.declare(list)
  return known[own]
end

-- x with the tensors among the options behind it, and the names of all of them. Removes them from `given`.
local function with_named(layer, x, given)
  local known, list, names, extra = layer.call_tensors, nil, {}, false
  for i, name in ipairs(known) do
    local t = given[name]
    given[name] = nil
    if t ~= nil then
      list = list or (type(x) == "table" and not getmetatable(x) and { unpack(x) } or { x })
      if i <= #list and not extra then layer:fail("%s is given twice: in the array of inputs and by name", name) end
      if not extra then for k = 1, #list do names[k] = known[k] end end
      list[#list + 1], names[#names + 1], extra = t, name, true
    end
  end
  if extra then given.tensors = names end
  return list or x
end

--- read(layer, x, how) -> the input with the tensors of `how`, the `training` that it states or nil, and the other
--- options or nil. Errors: options that the class does not have.
function M.read(layer, x, how)
  if how == nil or type(how) == "boolean" then return x, how end
  if type(how) ~= "table" or getmetatable(how) then
    layer:fail("after the input come options such as {training = true}, got %s; several inputs are given as "
      .. "one array", type(how) == "table" and tostring(how) or "a " .. type(how))
  end
  local given = options.check(("%s %q"):format(layer.class_name, layer.name), declared(layer), how)
  local training = given.training
  given.training = nil
  if layer.call_tensors then x = with_named(layer, x, given) end
  return x, training, next(given) ~= nil and given or nil
end

--- how(training, options) -> the second argument that calls a layer with both.
function M.how(training, chosen)
  if not chosen then return training end
  local given = { training = training }
  for key, value in pairs(chosen) do given[key] = value end
  return given
end

--- names(layer, count, options) -> the names of the tensors that a call has. Errors: more than the layer knows.
function M.names(layer, count, chosen)
  local names = chosen and chosen.tensors or layer.call_tensors
  if count > #names then
    layer:fail("takes at most %d tensors (%s), got %d", #names, table.concat(names, ", "), count)
  end
  return names
end

--- named(layer, list, options) -> the entries of a list (tensors, shapes or masks), one for each tensor, by name.
function M.named(layer, list, chosen)
  local by_name = {}
  for i, name in ipairs(M.names(layer, #list, chosen)) do
    if list[i] then by_name[name] = list[i] end
  end
  return by_name
end

--- parameters(class) -> the names of the parameters of Keras's call in their order.
function M.parameters(class)
  local list = { unpack(class.call_tensors or { "inputs" }) }
  for _, name in ipairs(class.call_parameters or { "training" }) do list[#list + 1] = name end
  return list
end

--- is_option(class, name), is_tensor(class, name): whether the class's call takes it.
function M.is_option(class, name)
  for _, option in ipairs(class.call_options or NONE) do if option[1] == name then return true end end
  return false
end

function M.is_tensor(class, name)
  for _, known in ipairs(class.call_tensors or NONE) do if known == name then return true end end
  return false
end

--- check_names(layer, options): raises unless `tensors` is an array of names of the layer; for data from files.
function M.check_names(layer, chosen)
  for _, name in ipairs(chosen and chosen.tensors or NONE) do
    if type(name) ~= "string" or not M.is_tensor(layer, name) then
      core.fail("usage", ("%s: there is no tensor %s"):format(tostring(layer), tostring(name)))
    end
  end
end

return M
