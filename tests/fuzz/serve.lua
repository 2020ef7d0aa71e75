-- The Lua side of fuzz_serve.c: a function of bytes that RETURNS a complaint about reading them as a request, if any.
-- The first byte chooses the form, the next two the length of the JSON in front of binary data.

jit.off() -- as in model_json.lua

package.path = "lua/?.lua;lua/?/init.lua;" .. package.path
local core = require "mgpu.core"
require "mgpu"
local infer = require "mgpu.serve.infer"
local predict = require "mgpu.serve.predict"
local values = require "mgpu.serve.values"

core.default_device "ref:0"

local ONE = { name = "m", joins = true, inputs = { { name = "x", dtype = "float32", shape = { -1, 3 } } },
  outputs = { { name = "y", dtype = "float32", shape = { -1, 2 } } } }
local SEVERAL = { name = "m", joins = true, outputs = ONE.outputs, inputs = {
  { name = "ids", dtype = "int64", shape = { -1, -1 } }, { name = "text", dtype = "string", shape = { -1, 1 } },
  { name = "h", dtype = "float16", shape = { -1, 2 } }, { name = "b", dtype = "bool", shape = { -1 } } } }

-- Whether a column has as many elements as its shape says.
local function is_whole(column)
  local n = values.count(column.shape)
  if column.texts then return #column.texts == n end
  return #column.bytes == n * values.size_of(column.dtype)
end

local function complaint(s, job)
  if job.rows < 1 then return "a request without rows" end
  for i, input in ipairs(s.inputs) do
    local column = job.columns[i]
    if column.dtype ~= input.dtype or #column.shape ~= #input.shape or not is_whole(column) then
      return "a wrong column for " .. input.name
    end
  end
end

return function(bytes)
  local form, low, high = bytes:byte(1, 3)
  if not high then return nil end
  local request = { body = bytes:sub(4), headers = {} }
  local s = form % 2 == 0 and ONE or SEVERAL
  local read = math.floor(form / 2) % 2 == 0 and infer.read or predict.read
  if math.floor(form / 4) % 2 == 1 then
    request.headers["inference-header-content-length"] = tostring(low + 256 * high)
  end
  local ok, job = pcall(read, s, request)
  if ok then return complaint(s, job) end
  if type(job) ~= "table" then return tostring(job) end
end
