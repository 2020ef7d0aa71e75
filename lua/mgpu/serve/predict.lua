--- POST /predict: JSON in the forms of TensorFlow Serving, or a .npy file.
--
--     {"inputs": [[1, 2], [3, 4]]}                    -> {"outputs": [[0.1], [0.2]]}
--     {"inputs": {"a": [[1]], "b": [[2]]}}            several inputs; several outputs likewise
--     {"instances": [[1, 2], [3, 4]]}                 -> {"predictions": [[0.1], [0.2]]}
--     {"instances": [{"a": [1], "b": [2]}]}           row by row
local core = require "mgpu.core"
local infer = require "mgpu.serve.infer"
local refuse = require "mgpu.serve.refuse".refuse
local signature = require "mgpu.serve.signature"
local values = require "mgpu.serve.values"

local M = {}

local MAGIC = "\147NUMPY"
local NPY = "application/x-npy"

local function bad(message, ...) refuse(400, message, ...) end

local function failing(input)
  return function(message, ...) bad("input \"%s\": " .. message, input.name, ...) end
end

-- ---- JSON ---------------------------------------------------------------------------------------

local function column_of(input, data)
  local fail = failing(input)
  local column = values.from_json(data, input.dtype, nil, fail)
  signature.check(input, column, fail)
  return column
end

local function is_object(value) return type(value) == "table" and #value == 0 and next(value) ~= nil end

-- The data of each input: `given` is those of a single input, or an object by name.
local function by_input(s, given, what)
  if not is_object(given) then
    if #s.inputs > 1 then
      bad("%s must be an object with the inputs %s", what, (signature.names(s.inputs)))
    end
    return { given }
  end
  local list, _, names = {}, signature.names(s.inputs)
  for name in pairs(given) do
    if not signature.find(s.inputs, name) then
      bad("there is no input \"%s\"%s", name:sub(1, 80), core.did_you_mean(name, names, "input"))
    end
  end
  for i, input in ipairs(s.inputs) do
    list[i] = given[input.name]
    if list[i] == nil then bad("input \"%s\" is missing in %s", input.name, what) end
  end
  return list
end

-- "instances" row by row -> the data of each input.
local function by_row(s, instances)
  if type(instances) ~= "table" or #instances == 0 then bad "instances must be an array of at least one row" end
  local lists = {}
  for i in ipairs(s.inputs) do lists[i] = {} end
  for row, instance in ipairs(instances) do
    for i, value in ipairs(by_input(s, instance, "a row of instances")) do lists[i][row] = value end
  end
  return lists
end

local function read_json(s, text)
  local given = infer.parse_json(text)
  for name in pairs(given) do
    if name ~= "inputs" and name ~= "instances" and name ~= "signature_name" then
      bad("unknown field \"%s\"%s", name:sub(1, 80), core.did_you_mean(name, { "inputs", "instances" }, "field"))
    end
  end
  if (given.inputs == nil) == (given.instances == nil) then bad "give either \"inputs\" or \"instances\"" end
  local data = given.inputs ~= nil and by_input(s, given.inputs, "inputs") or by_row(s, given.instances)
  local columns = {}
  for i, input in ipairs(s.inputs) do columns[i] = column_of(input, data[i]) end
  return columns, given.instances ~= nil and "predictions" or "outputs"
end

-- ---- .npy ---------------------------------------------------------------------------------------

local function read_npy(s, bytes)
  local input = s.inputs[1]
  local fail = failing(input)
  if #s.inputs > 1 then
    bad("a .npy body is one array, and the model has the inputs %s: send JSON", (signature.names(s.inputs)))
  end
  if input.dtype == "string" then fail "it takes texts, which a .npy body cannot hold: send JSON" end
  local ok, t = pcall(core.npy_decode, bytes)
  if not ok then
    local _, message = require "mgpu.serve.refuse".answer_of(t)
    fail("%s", message)
  end
  local column = values.from_tensor(values.cast(t, input.dtype, fail))
  signature.check(input, column, fail)
  return { column }
end

-- ---- both ---------------------------------------------------------------------------------------

-- The form of the answer: what the header Accept wants, else the form of the request.
local function answers_npy(s, request, is_npy)
  local accept = request.headers.accept or ""
  local wants = accept:find(NPY, 1, true) ~= nil
  if not wants and (accept:find("json", 1, true) or not is_npy) then return false end
  if #s.outputs > 1 then
    bad("the model has the outputs %s, and a .npy answer is one array: send Accept: application/json",
      (signature.names(s.outputs)))
  end
  return true
end

--- read(s, request) -> {columns =, rows =, field =, npy =}. Raises an answer.
function M.read(s, request)
  local is_npy = request.body:sub(1, #MAGIC) == MAGIC or request.headers["content-type"] == NPY
  local job = { field = "outputs" }
  if is_npy then job.columns = read_npy(s, request.body) else job.columns, job.field = read_json(s, request.body) end
  job.npy = answers_npy(s, request, is_npy)
  job.rows = signature.rows_of(s, job.columns, bad)
  return job
end

local function quoted(text) return core.json_encode { text }:sub(2, -2) end

-- Row by row: each an object with a field for each output.
local function rows_of_objects(s, job)
  local rows = {}
  for row = 1, job.rows do
    local fields = {}
    for i, column in ipairs(job.outputs) do
      local bytes = values.count(column.shape, 2) * values.size_of(column.dtype)
      fields[i] = quoted(s.outputs[i].name) .. ":" .. values.to_json { dtype = column.dtype,
        shape = { unpack(column.shape, 2) }, bytes = column.bytes:sub((row - 1) * bytes + 1, row * bytes) }
    end
    rows[row] = "{" .. table.concat(fields, ",") .. "}"
  end
  return "[" .. table.concat(rows, ",") .. "]"
end

local function by_output(s, job)
  local fields = {}
  for i, column in ipairs(job.outputs) do fields[i] = quoted(s.outputs[i].name) .. ":" .. values.to_json(column) end
  return "{" .. table.concat(fields, ",") .. "}"
end

--- write(s, job) -> content type and bytes of the answer.
function M.write(s, job)
  if job.npy then
    local t = values.to_tensor(job.outputs[1])
    return NPY, core.npy_encode(t:dtype() == "bfloat16" and t:to "float32" or t)
  end
  local text
  if #s.outputs == 1 then
    text = values.to_json(job.outputs[1])
  elseif job.field == "predictions" then
    text = rows_of_objects(s, job)
  else
    text = by_output(s, job)
  end
  return "application/json", ('{"%s":%s}\n'):format(job.field, text)
end

return M
