--- What the prompt says of objects of mgpu that are more than their name: models show their summary, layers
--- their options, datasets what their elements are; functions show their place.
local M = {}

--- place(fn) -> "function: file.lua:12", or what tostring gives for a function of C.
function M.place(fn)
  local info = debug.getinfo(fn, "S")
  if info.what == "C" then return tostring(fn) end
  return ("function: %s:%d"):format(info.short_src, info.linedefined)
end

-- The options that have a value: {name = value}; functions as their place.
local function option_values(object, declared)
  local values = {}
  for _, option in ipairs(declared) do
    local value = object[option[1]]
    if value ~= nil and value ~= false then values[option[1]] = value end
  end
  return values
end

local function shape_text(shape, level)
  local sizes = {}
  for i = 1, level do sizes[i] = "n" end
  for _, size in ipairs(shape) do sizes[#sizes + 1] = size < 0 and "n" or tostring(size) end
  return "{" .. table.concat(sizes, ", ") .. "}"
end

-- The elements of a dataset of rows, as far as they are known before a pass.
local function dataset_text(ds)
  local ok, fields = pcall(require "mgpu.data.dataset".fields, ds)
  if not ok or not fields then return tostring(ds) end
  local parts = {}
  for i, field in ipairs(fields) do parts[i] = field.dtype .. " " .. shape_text(field.shape, ds.level) end
  return ("%s: %s"):format(tostring(ds), table.concat(parts, ", "))
end

local function is_dataset(value)
  return type(value) == "table" and rawget(value, "source") ~= nil and rawget(value, "stages") ~= nil
end

-- Reads raw fields only: reading others could call a function of the user.
local function is_layer(value) return rawget(value, "dtype_policy") ~= nil and rawget(value, "name") ~= nil end

--- describe(value, table_text) -> text, or nil for a value that tostring describes.
-- table_text(t): how tables are shown.
function M.describe(value, table_text)
  if type(value) == "function" then return M.place(value) end
  if type(value) ~= "table" then return nil end
  if is_dataset(value) then return dataset_text(value) end
  if not is_layer(value) then return nil end
  if value.is_network and #value.layers > 0 then return require "mgpu.nn.summary".text(value) end
  if value.is_network or type(value.own_declared) ~= "table" then return nil end
  return tostring(value) .. " " .. table_text(option_values(value, value.own_declared))
end

return M
