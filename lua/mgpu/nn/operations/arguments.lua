--- The arguments of operations: declarations, checks, and the values that an operation's function gets.
--
-- The arguments of a node are a table by name that JSON can hold. A value is a number, a boolean, a text, a list of
-- values (with null for Python's None), or one of
--     {input = 2}                           the node's second input
--     {tensor = {{1, 2}}, dtype = "int32"}  a constant
--     {slice = {start, stop, step}}         of an index, null where there is none
--     {ellipsis = true}                     of an index
-- and "inf", "-inf" and "nan" are numbers that JSON has no words for.
-- The kind of an argument says which values it takes and how the function gets them.
local core = require "mgpu.core"
local error_line = require "mgpu.error_line"

local M = {}

local DEEPEST = 12 -- levels of lists in a value

-- name -> kind; other names are tensors. An operand may stay a number, which has no dtype of its own.
local KINDS = {}
for kind, names in pairs {
  operand = "x1 x2 constant_values fill_value default q",
  axis = "axis axes axis1 axis2 source destination", dtype = "dtype",
  boolean = "keepdims sorted approximate antialias is_causal rms_scaling sparse synchronized",
  number = "epsilon alpha negative_slope threshold max_value b decimals k num num_classes offset n rtol atol nan "
    .. "posinf neginf x_min x_max block_size initial default_value M ord",
  string = "padding data_format subscripts mode interpolation indexing method reduction",
  shape = "newshape shape",
  value = "pad_width repeats shift indices_or_sections strides pool_size dilation_rate output_padding size order",
  tensors = "xs operands", key = "key",
} do
  for name in names:gmatch "%S+" do KINDS[name] = kind end
end

--- declare(text) -> the list of {name =, kind =, required =, option =, spread =} that "x | axis? keepdims?" says.
--- "*xs": the call takes the tensors of the list one by one.
function M.declare(text)
  local list, option = {}, false
  for word in text:gmatch "%S+" do
    if word == "|" then
      option = true
    else
      local spread, name, kind, optional = word:match "^(%*?)([%w_]+):?(%a*)(%??)$"
      list[#list + 1] = { name = name, kind = kind ~= "" and kind or KINDS[name] or "tensor", required = optional == "",
        option = option, spread = spread == "*" }
    end
  end
  return list
end

--- kind_of(row, name) -> the kind of the argument, or nil.
function M.kind_of(row, name)
  for _, argument in ipairs(row.arguments) do if argument.name == name then return argument.kind end end
end

-- ---- kinds --------------------------------------------------------------------------------------

-- kinds[kind](value, call) -> the value for the function, or nil and what is expected. call: see values; nil where a
-- value is only checked; then what it returns means nothing but "valid".
local kinds = {}

local function whole(value) return type(value) == "number" and value % 1 == 0 and math.abs(value) < 2 ^ 53 end

local function is_list(value) return type(value) == "table" and (value == core.empty_array or value[1] ~= nil) end

local function is_plain(value, depth)
  if type(value) ~= "table" then return value == core.null or type(value) ~= "userdata" end
  if depth > DEEPEST then return false end
  for key, item in pairs(value) do
    if type(key) ~= "number" or not is_plain(item, depth + 1) then return false end
  end
  return true
end

--- NOT_IN_JSON[text] -> the number.
M.NOT_IN_JSON = { inf = math.huge, ["-inf"] = -math.huge, nan = 0 / 0 }

--- for_json(value) -> a copy, in which texts stand for the numbers that JSON has no words for.
function M.for_json(value)
  if value ~= value then return "nan" end
  if value == math.huge or value == -math.huge then return value > 0 and "inf" or "-inf" end
  if type(value) ~= "table" or value == core.empty_array then return value end
  local copy = {}
  for key, item in pairs(value) do copy[key] = M.for_json(item) end
  return copy
end

-- Nested numbers, with those that are texts.
local function as_numbers(value)
  if type(value) ~= "table" then return M.NOT_IN_JSON[value] or value end
  local list = {}
  for i, item in ipairs(value) do list[i] = as_numbers(item) end
  return list
end

-- A tensor of nested numbers on the device of the call's inputs; made once for each.
local function constant(value, dtype, call)
  local device, kept = nil, {}
  if call then
    device = call.inputs[1] and call.inputs[1]:device()
    kept = call.constants[value] or kept
    call.constants[value] = kept
  end
  local which = ("%s %s"):format(dtype, device)
  kept[which] = kept[which] or core.tensor(as_numbers(value), { dtype = dtype, device = device })
  return kept[which]
end

local TENSOR = "a number, a tensor or an input of the node"

function kinds.tensor(value, call)
  if M.NOT_IN_JSON[value] or type(value) == "number" then return constant(value, nil, call) end
  if type(value) == "boolean" then return constant(value, "bool", call) end
  if type(value) ~= "table" then return nil, TENSOR end
  if value.input then
    if not whole(value.input) or value.input < 1 then return nil, TENSOR end
    if not call then return true end
    return call.inputs[value.input]
  end
  local numbers = value.tensor
  if numbers == nil and is_list(value) then numbers = value end
  if numbers == nil then return nil, TENSOR end
  if value.dtype ~= nil and type(value.dtype) ~= "string" then return nil, TENSOR end
  if type(numbers) == "table" and not is_plain(numbers, 1) then return nil, TENSOR end
  return constant(numbers, value.dtype, call)
end

function kinds.operand(value, call)
  if type(value) == "number" then return value end
  if M.NOT_IN_JSON[value] then return M.NOT_IN_JSON[value] end
  return kinds.tensor(value, call)
end

function kinds.tensors(value, call)
  if not is_list(value) then return nil, "a list of tensors" end
  local list = {}
  for i, item in ipairs(value) do
    local t, expected = kinds.tensor(item, call)
    if t == nil then return nil, expected end
    list[i] = t
  end
  return list
end

-- Keras counts axes from 0, our ops from 1.
local function our_axis(value)
  if not whole(value) then return nil end
  return value < 0 and value or value + 1
end

function kinds.axis(value)
  if type(value) ~= "table" then return our_axis(value), "an axis or a list of axes" end
  local list = {}
  for i, axis in ipairs(value) do list[i] = our_axis(axis) end
  if #list == 0 or #list < #value then return nil, "an axis or a list of axes" end
  return list
end

local function plain(name, expected)
  return function(value)
    if type(value) == name then return value end
    return nil, expected
  end
end
kinds.string = plain("string", "a text")

function kinds.number(value)
  if M.NOT_IN_JSON[value] then return M.NOT_IN_JSON[value] end
  if type(value) == "number" then return value end
  return nil, "a number"
end

function kinds.boolean(value)
  if type(value) ~= "boolean" then return nil, "true or false" end
  return value
end

-- Keras's dtypes that we do not have, and those that hold all of their values here.
local WIDER = { int8 = "int32", int16 = "int32", uint16 = "int32", uint32 = "int64" }

function kinds.dtype(value)
  local known = type(value) == "string" and core.dtype_name(value)
  if not known then return nil, "a dtype that mgpu has" end
  return known
end

--- constant_dtype(name) -> our dtype for a constant of a dtype of NumPy, or nil.
function M.constant_dtype(name) return core.dtype_name(name) or WIDER[name] end

-- Sizes; null is -1.
function kinds.shape(value)
  if whole(value) then return { value } end
  if type(value) ~= "table" or (value ~= core.empty_array and not value[1] and next(value)) then
    return nil, "a list of sizes"
  end
  local list = {}
  for i, size in ipairs(value) do
    list[i] = size == core.null and -1 or size
    if not whole(list[i]) or list[i] < -1 then return nil, "a list of sizes" end
  end
  return list
end

-- Anything without tensors; null in lists stays.
function kinds.value(value)
  if not is_plain(value, 1) then return nil, "numbers, texts or lists of them" end
  return value
end

local KEY = "whole numbers, slices, None, Ellipsis or tensors"

local function key_item(item, call)
  if whole(item) or item == core.null then return item end
  if type(item) ~= "table" then return nil, KEY end
  if item.ellipsis then return "..." end
  if not item.slice then return kinds.tensor(item, call) end
  local slice = {}
  for i = 1, 3 do
    local n = type(item.slice) == "table" and item.slice[i]
    if n ~= core.null and n ~= nil then
      if not whole(n) or (i == 3 and n == 0) then return nil, KEY end
      slice[i] = n
    end
  end
  return slice
end

-- A list of whole numbers, null (a new axis), {start, stop, step}, "..." and tensors.
function kinds.key(value, call)
  local list = {}
  for i, item in ipairs(is_list(value) and value or { value }) do
    local made, expected = key_item(item, call)
    if made == nil then return nil, expected end
    list[i] = made
  end
  return list
end

-- ---- checks and values --------------------------------------------------------------------------

-- The largest input that the value names.
local function last_input(value, depth)
  if type(value) ~= "table" or depth > DEEPEST + 2 then return 0 end
  if whole(value.input) then return value.input end
  local last = 0
  for _, item in pairs(value) do last = math.max(last, last_input(item, depth + 1)) end
  return last
end

local MOST_INPUTS = 4096

--- check(row, given, fail) -> how many inputs the node has. fail(message, ...) is called for unknown and missing
--- arguments and for values of the wrong kind.
function M.check(row, given, fail)
  local known, inputs = {}, 0
  for _, argument in ipairs(row.arguments) do
    local name, value = argument.name, given[argument.name]
    known[name] = true
    if value == core.null then value = nil end
    if value == nil then
      if argument.required then fail("%s lacks the argument %s", row.name, name) end
    else
      local ok, valid, expected = pcall(kinds[argument.kind], value)
      if not ok then fail("the argument %s of %s: %s", name, row.name, error_line(valid)) end
      if valid == nil then fail("the argument %s of %s must be %s", name, row.name, expected) end
      inputs = math.max(inputs, last_input(value, 1))
    end
  end
  for name in pairs(given) do
    if not known[name] then fail("%s has no argument %s", row.name, tostring(name)) end
  end
  if inputs == 0 or inputs > MOST_INPUTS then fail("%s has %d inputs", row.name, inputs) end
  return inputs
end

--- values(row, given, call) -> the values for the row's function. call: {inputs = the tensors, constants = a table that
--- keeps the constants of this node for its next calls}.
function M.values(row, given, call)
  local list = {}
  for i, argument in ipairs(row.arguments) do
    local value = given[argument.name]
    if value ~= nil and value ~= core.null then list[i] = kinds[argument.kind](value, call) end
  end
  return unpack(list, 1, #row.arguments)
end

return M
