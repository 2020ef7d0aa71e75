--- The names of a value's fields and methods, without running code of the user's.
--
-- Only raw tables are read, and metatables whose __index is a table. Where __index is a function of lua/mgpu/, what it
-- looks names up in is found among its upvalues (LOOKED_UP), so tables that load their fields on first use show all of
-- them. Only such functions of ours are ever called, by names.get.
local core = require "mgpu.core"

local M = {}

-- The upvalues of __index and __call in lua/mgpu/ that hold the known names.
local LOOKED_UP = { class = true, methods = true, loaders = true, names = true }
local DEEPEST = 20 -- classes above a class

local function method() end
local VARIABLE = { name = "", trainable = true, value = method, assign = method } -- as in bind/variable.c

-- Whether the function is one of lua/mgpu/.
local function is_ours(fn)
  if type(fn) ~= "function" then return false end
  local source = debug.getinfo(fn, "S").source
  return core.root ~= nil and source:sub(1, #core.root + 11) == "@" .. core.root .. "/lua/mgpu/"
end
M.is_ours = is_ours

-- Calls visit(t) for each table that a function of ours looks names up in.
local function each_upvalue(fn, visit)
  if not is_ours(fn) then return end
  for i = 1, 60 do
    local name, value = debug.getupvalue(fn, i)
    if not name then return end
    if LOOKED_UP[name] and type(value) == "table" then visit(value) end
  end
end

local function meta_of(value)
  local meta = debug.getmetatable(value)
  return type(meta) == "table" and meta or nil
end

-- Calls visit(name, value) for the raw fields of a table; the value of an array's entry that is a name is nil.
local function each_raw(t, visit)
  for name, value in next, t do
    if type(name) == "string" then visit(name, value) elseif type(value) == "string" then visit(value, nil) end
  end
end

local function each(value, visit, depth)
  if depth > DEEPEST then return end
  if type(value) == "table" then each_raw(value, visit) end
  if core.is_tensor(value) or core.is_variable(value) then
    each_raw(core.methods, visit)
    if core.is_variable(value) then each_raw(VARIABLE, visit) end
    return
  end
  local meta = meta_of(value)
  if not meta then return end
  local index = rawget(meta, "__index")
  if type(index) == "table" and index ~= value then each(index, visit, depth + 1) end
  local function deeper(t)
    if t == value then return end
    if t[1] ~= nil then each_raw(t, visit) else each(t, visit, depth + 1) end
  end
  each_upvalue(index, deeper)
  each_upvalue(rawget(meta, "__call"), function(t)
    if type(t[1]) == "string" then each_raw(t, visit) end -- the array that t() returns
  end)
end

-- The models of the zoo are files.
local function each_model(terminal, visit)
  for _, file in ipairs(terminal.list((core.root or ".") .. "/models") or {}) do
    local name = file:match "^([%w_]+)%.lua$"
    if name then visit(name, nil) end
  end
end

--- each(terminal, value, visit): calls visit(name, field) for each known name; the field is nil if it is not loaded.
-- A name may come several times.
function M.each(terminal, value, visit)
  each(value, visit, 0)
  local mgpu = package.loaded["mgpu"]
  if mgpu and value ~= nil and value == rawget(mgpu, "models") then each_model(terminal, visit) end
end

--- get(value, name) -> the field of that name, or nil.
function M.get(value, name)
  for _ = 1, DEEPEST do
    if type(value) == "table" and rawget(value, name) ~= nil then return rawget(value, name) end
    if core.is_variable(value) and VARIABLE[name] ~= nil then return value[name] end
    if core.is_tensor(value) or core.is_variable(value) then return core.methods[name] end
    local meta = meta_of(value)
    local index = meta and rawget(meta, "__index")
    if is_ours(index) then
      local ok, field = pcall(index, value, name)
      return ok and field or nil
    end
    if type(index) ~= "table" then return nil end
    value = index
  end
end

return M
