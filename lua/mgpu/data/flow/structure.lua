--- What elements consist of: components, which are tensors, text or nested tables of these.
--
-- An element is an array of components. A component is a tensor, a string, a batch of text, or a table of components,
-- an array or by name, such as {image = x, mask = m}. What is not a table is a leaf; so is a batch of text, an array of
-- strings with a metatable of its own, in which a row may also be a list of strings.
local core = require "mgpu.core"
local ordered_keys = require "mgpu.ordered_keys"

local M = {}

local Text = {}
Text.__tostring = function(self) return ("batch of %d strings"):format(#self) end

--- text {s, ...} -> the array of strings as a leaf: a batch of text.
function M.text(list) return setmetatable(list, Text) end

--- rows_of_text(batch) -> the strings of a batch of text; or of a batch of lists of strings the lists, as leaves.
function M.rows_of_text(batch)
  if type(batch[1]) ~= "table" then return batch end
  local rows = {}
  for i, row in ipairs(batch) do rows[i] = M.text(row) end
  return rows
end

--- is_text(value) -> whether it is a string or a batch of text.
function M.is_text(value) return type(value) == "string" or getmetatable(value) == Text end

local function is_inner(value) return type(value) == "table" and getmetatable(value) == nil end

local function collect(value, path, leaves, paths)
  if not is_inner(value) then
    leaves[#leaves + 1], paths[#paths + 1] = value, path
    return
  end
  for _, key in ipairs(ordered_keys(value)) do
    collect(value[key], path == "" and tostring(key) or path .. "." .. key, leaves, paths)
  end
end

local function is_flat(element)
  for _, component in ipairs(element) do
    if is_inner(component) then return false end
  end
  return true
end

--- flatten(element) -> its leaves as an array, and their paths as one text ("1 2.image 2.mask"), equal for elements of
--- equal structure. Do not change the array: it may be the element.
function M.flatten(element)
  if is_flat(element) then return element, ("%d components"):format(#element) end
  local leaves, paths = {}, {}
  collect(element, "", leaves, paths)
  return leaves, table.concat(paths, " ")
end

--- path(element, i) -> how messages name the leaf number i: "component 2", "component 2.image".
function M.path(element, i)
  local paths = {}
  collect(element, "", {}, paths)
  return "component " .. paths[i]
end

local function rebuild(value, leaves, at)
  if not is_inner(value) then
    at.leaf = at.leaf + 1
    return leaves[at.leaf]
  end
  local made = {}
  for _, key in ipairs(ordered_keys(value)) do made[key] = rebuild(value[key], leaves, at) end
  return made
end

--- unflatten(like, leaves) -> an element of the structure of `like` with these leaves.
function M.unflatten(like, leaves) return rebuild(like, leaves, { leaf = 0 }) end

-- Whether the table is a nested array of numbers, to be a tensor.
local function is_numbers(value)
  local first = value[1]
  if type(first) == "table" and is_inner(first) then return is_numbers(first) end
  return type(first) == "number" or type(first) == "boolean"
end

--- component(value, refuse, path, dtype) -> a value of the user as a component: numbers, also in nested arrays, become
--- tensors of that dtype (nil: floatx, or bool). refuse(value, path) raises for a value that cannot be a component.
function M.component(value, refuse, path, dtype)
  if core.is_tensor(value) or M.is_text(value) then return value end
  if core.is_variable(value) then return value:value() end
  local kind = type(value)
  if kind == "number" or kind == "boolean" then return core.tensor(value, { dtype = dtype }) end
  if not is_inner(value) or next(value) == nil then refuse(value, path) end
  if is_numbers(value) then return core.tensor(value, { dtype = dtype }) end
  local made = {}
  for key, v in pairs(value) do
    if type(key) ~= "string" and type(key) ~= "number" then refuse(value, path) end
    made[key] = M.component(v, refuse, ("%s.%s"):format(path, key), dtype)
  end
  return made
end

--- element(refuse, ...) -> the values as an element; refuse as for component.
function M.element(refuse, ...)
  local element = { ... }
  for i = 1, select("#", ...) do element[i] = M.component(element[i], refuse, tostring(i)) end
  return element
end

--- kind_of(value) -> how messages name a value that was refused: "nil", "a function", "an empty table".
function M.kind_of(value)
  if value == nil then return "nil" end
  if is_inner(value) then return next(value) == nil and "an empty table" or "a table with odd keys" end
  return "a " .. type(value)
end

return M
