--- The contents of an HDF5 file by path, from the entries of core.h5_read, and entries for core.h5_write.
local core = require "mgpu.core"

local M = {}

local File = {}
File.__index = File

--- open(path) or open(archive, name) -> a file: tensors[path], attributes[path][name], groups in order; `path` names it
--- in messages.
function M.open(path, name)
  local entries = name and core.h5_read(path, name) or core.h5_read(path)
  local file = setmetatable({ tensors = {}, attributes = {}, groups = {}, path = name or path }, File)
  for _, entry in ipairs(entries) do
    if entry.attribute then
      local value = entry.text
      if value == nil then value = entry.tensor end
      file.attributes[entry.path] = file.attributes[entry.path] or {}
      file.attributes[entry.path][entry.attribute] = value
    elseif entry.tensor then
      file.tensors[entry.path] = entry.tensor
    else
      file.groups[#file.groups + 1] = entry.path
      file.groups[entry.path] = true
    end
  end
  return file
end

--- file:text(path, name) -> the attribute if it is one text, else nil.
function File:text(path, name)
  local value = (self.attributes[path] or {})[name]
  return type(value) == "string" and value or nil
end

--- file:texts(path, name) -> an attribute that is a list of texts, put together again if Keras has cut it into name0,
--- name1, ...; nil if there is none.
function File:texts(path, name)
  local attributes = self.attributes[path] or {}
  local value = attributes[name]
  if type(value) == "table" then return value end
  if value ~= nil then return type(value) == "string" and { value } or {} end -- numbers: an empty list of NumPy
  local list, i = nil, 0
  while type(attributes[name .. i]) == "table" do
    list = list or {}
    for _, text in ipairs(attributes[name .. i]) do list[#list + 1] = text end
    i = i + 1
  end
  return list
end

--- file:count() -> how many numbers its datasets hold.
function File:count()
  local count = 0
  for _, t in pairs(self.tensors) do count = count + t:count() end
  return count
end

-- ---- writing ------------------------------------------------------------------------------------

local LIMIT = 64000 -- bytes of an attribute; HDF5 allows 64 KiB with its header

--- add_texts(entries, path, name, list): adds an attribute, cut into name0, name1, ... if it is too large, as Keras
--- does.
function M.add_texts(entries, path, name, list)
  local longest = 1
  for _, text in ipairs(list) do longest = math.max(longest, #text) end
  local most = math.max(1, math.floor(LIMIT / longest))
  if #list <= most then
    entries[#entries + 1] = { path = path, attribute = name, text = list }
    return
  end
  for i, text in ipairs(list) do
    if (i - 1) % most == 0 then
      entries[#entries + 1] = { path = path, attribute = name .. (i - 1) / most, text = {} }
    end
    table.insert(entries[#entries].text, text)
  end
end

--- add_dataset(entries, made, path, tensor, stored): adds a dataset and the groups above it that are not in `made` yet.
--- stored: "int8", for bytes in uint8. HDF5 has no bfloat16; Keras knows it by an attribute.
function M.add_dataset(entries, made, path, tensor, stored)
  M.add_group(entries, made, path:match "^(.*)/[^/]*$")
  entries[#entries + 1] = { path = path, tensor = tensor, stored = stored or nil }
  if tensor:dtype() == "bfloat16" then
    entries[#entries + 1] = { path = path, attribute = "dtype", text = "bfloat16" }
  end
end

--- add_group(entries, made, path): adds the group and those above it that are not in `made` yet.
function M.add_group(entries, made, path)
  if not path or path == "" or made[path] then return end
  M.add_group(entries, made, path:match "^(.*)/[^/]*$")
  made[path] = true
  entries[#entries + 1] = { path = path }
end

return M
