--- The options that a class, a function or an op takes, for completion and ?name.
--
-- known_options(value, name) -> array of {name, type, default =, values =, required =} as mgpu.options declares them
-- (an op's have `doc` instead of a type), or nil. A class has its declaration in `declared`; a function that checks its
-- options has it among its upvalues.
local core = require "mgpu.core"
local methods = require "mgpu.methods"

local function is_declaration(t)
  if type(t) ~= "table" or rawget(t, "positional") == nil then return false end
  local first = rawget(t, 1)
  return type(first) == "table" and type(first[1]) == "string" and type(first[2]) == "string"
end

local function of_function(fn)
  local found
  for i = 1, 60 do
    local name, value = debug.getupvalue(fn, i)
    if not name then return found end
    if is_declaration(value) then found = found or value end
  end
end

local function of_op(name)
  for _, row in ipairs(core.op_rows()) do
    if row.name == name then
      local list = {}
      for i, attr in ipairs(row.attrs) do list[i] = { attr.name, doc = attr.doc } end
      return list
    end
  end
end

return function(value, name)
  if type(value) == "table" then
    local declared = rawget(value, "declared")
    return type(declared) == "table" and declared or nil
  end
  if type(value) ~= "function" then return nil end
  value = methods.inner(value)
  if debug.getinfo(value, "S").what ~= "C" then return of_function(value) end
  if core.ops[name] ~= nil then return of_op(name) end
end
