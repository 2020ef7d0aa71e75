--- Reading the files of tokenizers.
local core = require "mgpu.core"

local M = {}

--- fail(path, message, ...): raises the error that the file is damaged.
function M.fail(path, message, ...) core.fail("data", ("text.load: %s: %s"):format(path, message:format(...))) end

--- read(path) -> the bytes of the file.
function M.read(path)
  local file, message = io.open(path, "rb")
  if not file then core.fail("usage", "text.load: " .. message) end
  local bytes = file:read "*a"
  file:close()
  if not bytes then core.fail("usage", ("text.load: %s cannot be read"):format(path)) end
  return bytes
end

--- read_json(path) -> the table in the file.
function M.read_json(path)
  local ok, value = pcall(core.json_decode, M.read(path))
  if not ok or type(value) ~= "table" then M.fail(path, "the file is not a JSON object") end
  return value
end

--- listed(path, value, what) -> the value of a field that is a list or absent.
function M.listed(path, value, what)
  if value == nil or value == core.null then return {} end
  if type(value) ~= "table" then M.fail(path, "%s is not a list", what) end
  return value
end

local OFF = { [false] = true, [""] = true, [0] = true, [core.null] = true }

--- refuse(path, part, value): raises for a part of the file that says something that is not followed here.
function M.refuse(path, part, value)
  if value == nil or OFF[value] then return end
  core.fail("unsupported", ("text.load: %s: its %s is not supported"):format(path, part))
end

--- kind(value) -> the type that an object of the file states; nil for anything else.
function M.kind(value) return type(value) == "table" and value.type or nil end

return M
