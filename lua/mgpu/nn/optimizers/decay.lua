--- Which variables weight decay shrinks: all but the excluded ones.
local core = require "mgpu.core"

local M = {}

local function fail(optimizer, message, ...)
  core.fail("usage", optimizer.name .. ": exclude_from_weight_decay " .. message:format(...))
end

-- The entries as one array: those of var_list and var_names (Keras's two lists), then the others.
local function to_list(optimizer, given)
  if type(given) ~= "table" then
    fail(optimizer, "takes a list of variables and parts of names, got %s", type(given))
  end
  local list = {}
  for key, value in pairs(given) do
    if key == "var_list" or key == "var_names" then
      if type(value) ~= "table" then fail(optimizer, "%s must be a list, got %s", key, type(value)) end
      for _, v in ipairs(value) do list[#list + 1] = v end
    elseif type(key) ~= "number" then
      fail(optimizer, "does not know %q; it takes a list, var_list and var_names", tostring(key))
    end
  end
  for _, value in ipairs(given) do list[#list + 1] = value end
  return list
end

--- opt:exclude_from_weight_decay {"bias", variable, {name = "dense/kernel"}}: which variables do not decay.
-- A string excludes the variables whose names contain it. A later call replaces an earlier one. Errors: other entries;
-- an optimizer that is built already.
function M.exclude(optimizer, given)
  local excluded = { parts = {}, whole = {}, variables = {} }
  for _, value in ipairs(to_list(optimizer, given)) do
    if type(value) == "string" and value ~= "" then
      excluded.parts[#excluded.parts + 1] = value
    elseif core.is_variable(value) then
      excluded.variables[value] = true
    elseif type(value) == "table" and type(value.name) == "string" then
      excluded.whole[value.name] = true
    else
      fail(optimizer, "takes variables and parts of names, got %s",
        value == "" and "an empty name" or type(value))
    end
  end
  if #optimizer.built > 0 then fail(optimizer, "must be called before the optimizer is built") end
  rawset(optimizer, "excluded", excluded)
end

local function is_excluded(excluded, v)
  if excluded.variables[v] or excluded.whole[v.name] then return true end
  for _, part in ipairs(excluded.parts) do
    if v.name:find(part, 1, true) then return true end
  end
  return false
end

--- applies(optimizer, v): whether weight decay acts on the variable.
function M.applies(optimizer, v)
  local excluded = optimizer.excluded
  return optimizer.options.weight_decay and not (excluded and is_excluded(excluded, v))
end

--- saved(optimizer) -> what was excluded, as data that JSON can hold (variables by their names); nil for nothing.
function M.saved(optimizer)
  local excluded = optimizer.excluded
  if not excluded then return nil end
  local list, names = {}, {}
  for _, part in ipairs(excluded.parts) do list[#list + 1] = part end
  for name in pairs(excluded.whole) do names[#names + 1] = name end
  for v in pairs(excluded.variables) do names[#names + 1] = v.name end
  table.sort(names)
  for _, name in ipairs(names) do list[#list + 1] = { name = name } end
  return #list > 0 and list or nil
end

return M
