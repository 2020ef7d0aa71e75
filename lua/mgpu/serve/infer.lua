--- POST /v2/models/NAME/infer: requests and answers of KServe's protocol, version 2, with its extension for binary
--- tensors (https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol,
--- https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md).
local core = require "mgpu.core"
local refuse = require "mgpu.serve.refuse".refuse
local signature = require "mgpu.serve.signature"
local values = require "mgpu.serve.values"

local M = {}

local LENGTH = "inference-header-content-length"

local function bad(message, ...) refuse(400, message, ...) end

-- ---- reading ------------------------------------------------------------------------------------

--- parse_json(text) -> the object in it. Raises an answer for anything else.
function M.parse_json(text)
  local ok, value = pcall(core.json_decode, text)
  if not ok then
    local _, message = require "mgpu.serve.refuse".answer_of(value)
    bad("the body is no JSON: %s", (message:gsub("^json_decode: ", "")))
  end
  if type(value) ~= "table" or #value > 0 then bad "the body must be an object of JSON" end
  return value
end

-- The JSON in front of the binary data, and where these begin.
local function header_of(request)
  local given = request.headers[LENGTH]
  if not given then return M.parse_json(request.body), #request.body + 1 end
  local n = given:match "^%d+$" and tonumber(given)
  if not n or n > #request.body then
    bad("the header Inference-Header-Content-Length is \"%s\", the body has %d bytes", given:sub(1, 40), #request.body)
  end
  return M.parse_json(request.body:sub(1, n)), n + 1
end

-- An array of at least one object in the request; nil if it is not there.
local function objects(value, what)
  if value == nil or value == core.null then return nil end
  if type(value) ~= "table" or (#value == 0 and next(value) ~= nil) then bad("%s must be an array", what) end
  for _, item in ipairs(value) do
    if type(item) ~= "table" or #item > 0 then bad("the entries of %s must be objects", what) end
    if type(item.name) ~= "string" then bad("an entry of %s has no name", what) end
  end
  return value
end

-- The field `parameters` of an object, {} if there is none.
local function parameters_of(object, what)
  local given = object.parameters
  if given == nil or given == core.null then return {} end
  if type(given) ~= "table" or #given > 0 then bad("the parameters of %s must be an object", what) end
  return given
end

local function shape_of(given, fail)
  if type(given.shape) ~= "table" then fail "its shape is missing" end
  if #given.shape > 8 or (#given.shape == 0 and next(given.shape)) then fail "its shape must be at most 8 sizes" end
  for _, size in ipairs(given.shape) do
    if type(size) ~= "number" or size % 1 ~= 0 or size < 0 or size > 2 ^ 40 then fail "its shape must hold sizes" end
  end
  return { unpack(given.shape) }
end

-- The column of one input. at: where its binary data would begin. RETURNS it and where they end.
local function read_input(given, input, body, at)
  local function fail(message, ...) bad("input \"%s\": " .. message, input.name, ...) end
  local shape, wanted = shape_of(given, fail), values.kserve_name(input.dtype)
  if given.datatype ~= wanted then
    fail("its datatype is %s, expected %s", type(given.datatype) == "string" and given.datatype:sub(1, 40) or "missing",
      wanted)
  end
  local size, column = parameters_of(given, "an input").binary_data_size
  if size == nil then
    if given.data == nil then fail "it has neither data nor binary_data_size" end
    column = values.from_json(given.data, input.dtype, shape, fail)
  else
    if type(size) ~= "number" or size % 1 ~= 0 or size < 0 or at + size - 1 > #body then
      fail("its binary_data_size is %s, but the body has %d bytes left", tostring(size):sub(1, 20), #body - at + 1)
    end
    column = values.from_binary(body:sub(at, at + size - 1), input.dtype, shape, fail)
    at = at + size
  end
  signature.check(input, column, fail)
  return column, at
end

local function read_inputs(s, header, body, at)
  local columns = {}
  for _, given in ipairs(objects(header.inputs, "inputs") or bad "inputs are missing") do
    local i = signature.find(s.inputs, given.name)
    if not i then
      bad("there is no input \"%s\"; the model has %s", given.name:sub(1, 80), (signature.names(s.inputs)))
    end
    if columns[i] then bad("input \"%s\" is given twice", given.name) end
    columns[i], at = read_input(given, s.inputs[i], body, at)
  end
  for i, input in ipairs(s.inputs) do
    if not columns[i] then bad("input \"%s\" is missing", input.name) end
  end
  if at <= #body then bad("the body has %d bytes behind the data of its inputs", #body - at + 1) end
  return columns
end

-- The outputs that are asked for: an array of {position in the signature, whether binary}.
local function read_outputs(s, header)
  local all_binary, list = parameters_of(header, "the request").binary_data_output == true, {}
  for _, given in ipairs(objects(header.outputs, "outputs") or {}) do
    local i = signature.find(s.outputs, given.name)
    if not i then
      bad("there is no output \"%s\"; the model has %s", given.name:sub(1, 80), (signature.names(s.outputs)))
    end
    local chosen = parameters_of(given, "an output")
    if chosen.classification then bad("output \"%s\": classification is not supported", given.name) end
    local binary = chosen.binary_data
    if binary == nil then binary = all_binary end
    list[#list + 1] = { i, binary == true }
  end
  if #list == 0 then
    for i in ipairs(s.outputs) do list[i] = { i, all_binary } end
  end
  return list
end

--- read(s, request) -> {columns =, rows =, id =, wanted =}. Raises an answer.
function M.read(s, request)
  local header, at = header_of(request)
  local id = header.id
  if id ~= nil and type(id) ~= "string" then bad "id must be a string" end
  local columns = read_inputs(s, header, request.body, at)
  return { columns = columns, rows = signature.rows_of(s, columns, bad), id = id, wanted = read_outputs(s, header) }
end

-- ---- writing ------------------------------------------------------------------------------------

local function quoted(text) return core.json_encode { text }:sub(2, -2) end

--- write(s, job) -> content type, bytes, headers of the answer.
function M.write(s, job)
  local parts, binary = {}, {}
  for k, wanted in ipairs(job.wanted) do
    local column = job.outputs[wanted[1]]
    local data
    if wanted[2] then
      binary[#binary + 1] = column.bytes
      data = ('"parameters":{"binary_data_size":%d}'):format(#column.bytes)
    else
      data = '"data":' .. values.to_json(column, true)
    end
    parts[k] = ('{"name":%s,"datatype":"%s","shape":[%s],%s}'):format(quoted(s.outputs[wanted[1]].name),
      values.kserve_name(column.dtype), table.concat(column.shape, ","), data)
  end
  local text = ('{"model_name":%s,"model_version":"1",%s"outputs":[%s]}'):format(quoted(s.name),
    job.id and '"id":' .. quoted(job.id) .. "," or "", table.concat(parts, ","))
  if #binary == 0 then return "application/json", text end
  return "application/octet-stream", text .. table.concat(binary),
    { ["Inference-Header-Content-Length"] = tostring(#text) }
end

return M
