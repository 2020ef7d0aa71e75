--- What fit and compile were given, as plain data for JSON.
local core = require "mgpu.core"

local M = {}

local DEEPEST, MOST = 6, 64 -- of tables that are shown in full

-- Text as JSON can hold it: control characters stay, bytes that are not UTF-8 become visible.
local function text(value)
  return pcall(core.json_encode, value) and value or core.printable(value)
end

local function number(value)
  if value ~= value then return "nan" end
  if value == math.huge then return "inf" end
  if value == -math.huge then return "-inf" end
  return value
end

local function described_tensor(t)
  return ("%s {%s}"):format(t:dtype(), table.concat(t:shape(), ", "))
end

local plain

-- An object: its class and options, or its text.
local function described_object(value, depth)
  local class = value.class or value.class_name
  local declared = type(value.declared) == "table" and value.declared
  if type(class) ~= "string" then
    local meta = getmetatable(value)
    return meta and meta.__tostring and text(tostring(value)) or "object"
  end
  local found = { class = class }
  for _, option in ipairs(declared or {}) do found[option[1]] = plain(value[option[1]], depth + 1) end
  if not declared and type(value.options) == "table" then
    for key, item in pairs(value.options) do
      if type(key) == "string" then found[key] = plain(item, depth + 1) end
    end
  end
  return found
end

local function described_table(value, depth)
  local n, named = 0, false
  for key in pairs(value) do
    n, named = n + 1, named or type(key) ~= "number"
  end
  if n > MOST or depth > DEEPEST then return ("table of %d"):format(n) end
  local found = {}
  for key, item in pairs(value) do
    local kept = plain(item, depth + 1)
    if named or #value ~= n then found[text(tostring(key))] = kept else found[key] = kept end
  end
  return n == 0 and core.empty_array or found
end

function plain(value, depth)
  local t = type(value)
  if t == "number" then return number(value) end
  if t == "string" then return text(value) end
  if t == "boolean" or t == "nil" then return value end
  if core.is_variable(value) then value = value:value() end
  if core.is_tensor(value) then return described_tensor(value) end
  if t ~= "table" then return t end
  local ok, found = pcall(getmetatable(value) and described_object or described_table, value, depth)
  return ok and found or "object"
end

--- plain(value) -> the value for JSON: tensors as their dtype and shape, objects as their class and options, long
--- tables and functions as a word, numbers that JSON lacks as text.
function M.plain(value) return plain(value, 0) end

--- of_fit(given) -> fit's options, without `run`.
function M.of_fit(given)
  local found = {}
  for name, value in pairs(given) do
    if name ~= "run" then found[name] = M.plain(value) end
  end
  return found
end

local function loss_of(output)
  if not output.loss then return "none" end
  return output.loss.custom and "function" or output.loss.class or "object"
end

--- of_compile(compiled) -> what compile was given: the optimizer with all its options, losses, metrics, devices ...
function M.of_compile(compiled)
  local losses, optimizer, found = {}, compiled.optimizer, {}
  for name, value in pairs(compiled.options) do
    if name ~= "optimizer" and name ~= "loss" and name ~= "devices" then found[name] = M.plain(value) end
  end
  for i, output in ipairs(compiled.outputs) do losses[i] = loss_of(output) end
  found.loss = #losses == 1 and losses[1] or losses
  local ok, config = pcall(optimizer.get_config, optimizer)
  local rule = ok and M.plain(config) or {}
  found.optimizer = type(rule) == "table" and rule or {}
  found.optimizer.class = optimizer.class or optimizer.name
  found.devices = M.plain(compiled.devices or { core.default_device() })
  return found
end

return M
