--- Values in requests and answers: JSON and bytes in both directions.
--
-- A column is what a request gives for an input, or gets from an output: {dtype =, shape =, bytes =}, the elements
-- row-major and little-endian as a string, or for texts {dtype = "string", shape =, texts = the flat array}.
local core = require "mgpu.core"
local ffi = require "ffi"

local M = {}

-- dtype -> its name in the protocol of KServe, bytes, type in C (nil: there is none), limits of integers; for floats
-- `most` is the least number that is rounded to infinity.
local DTYPES = {
  float32 = { "FP32", 4, "float", form = "%.9g", most = 2 ^ 128 - 2 ^ 103 },
  float64 = { "FP64", 8, "double", form = "%.17g", most = math.huge },
  float16 = { "FP16", 2, form = "%.5g", most = 65520 },
  bfloat16 = { "BF16", 2, form = "%.4g", most = 2 ^ 128 - 2 ^ 119 },
  int64 = { "INT64", 8, "int64_t", least = -2 ^ 53, most = 2 ^ 53 }, -- as far as numbers of JSON are exact here
  int32 = { "INT32", 4, "int32_t", least = -2 ^ 31, most = 2 ^ 31 - 1 },
  uint8 = { "UINT8", 1, "uint8_t", least = 0, most = 255 },
  bool = { "BOOL", 1, "uint8_t", least = 0, most = 1 },
  string = { "BYTES" },
}
local NOT_FINITE = { NaN = 0 / 0, Infinity = math.huge, ["-Infinity"] = -math.huge }

--- kserve_name(dtype) -> "FP32"; size_of(dtype) -> the bytes of an element.
function M.kserve_name(dtype) return DTYPES[dtype][1] end
function M.size_of(dtype) return DTYPES[dtype][2] end
function M.is_float(dtype) return DTYPES[dtype].form ~= nil end

--- shape_text(shape) -> "[-1, 28, 28]".
function M.shape_text(shape) return "[" .. table.concat(shape, ", ") .. "]" end

--- count(shape, first = 1) -> the product of its sizes from the first one on.
function M.count(shape, first)
  local n = 1
  for i = first or 1, #shape do n = n * shape[i] end
  return n
end

-- ---- from JSON ----------------------------------------------------------------------------------

-- Whether the table is an array of JSON, without names; empty ones are.
local function is_array(value) return type(value) == "table" and (#value > 0 or next(value) == nil) end

-- The shape of nested arrays, by their first entries.
local function nesting_of(data)
  local shape = {}
  while is_array(data) do
    shape[#shape + 1] = #data
    data = data[1]
  end
  return shape
end

-- Appends the leaves of nested arrays to `flat`. fail: as below.
local function flatten(data, shape, axis, flat, fail)
  if axis > #shape then
    if type(data) == "table" then fail("the arrays of its data have no common depth") end
    flat[#flat + 1] = data
    return
  end
  if not is_array(data) or #data ~= shape[axis] then
    fail("the arrays of its data have different lengths: one at depth %d has %s, the first one %d", axis,
      is_array(data) and #data or "none", shape[axis])
  end
  for i = 1, #data do flatten(data[i], shape, axis + 1, flat, fail) end
end

local function shown(value)
  if value == core.null then return "null" end
  if type(value) == "string" then return ("%q"):format(value:sub(1, 40)) end
  return tostring(value)
end

-- The number that a leaf stands for. `d`: a row of DTYPES.
local function number_of(value, d, dtype, i, fail)
  if type(value) == "boolean" and dtype == "bool" then return value and 1 or 0 end
  if d.form and NOT_FINITE[value] then return NOT_FINITE[value] end
  if type(value) ~= "number" then
    fail("element %d of its data is %s, expected a %s", i, shown(value), dtype == "bool" and "boolean" or "number")
  end
  if not d.form and (value % 1 ~= 0 or value < d.least or value > d.most) then
    fail("element %d of its data is %.17g, which is no %s", i, value, d[1])
  end
  if d.form and math.abs(value) >= d.most then
    fail("element %d of its data is %.17g, which is too large for %s", i, value, d[1])
  end
  return value
end

local function bytes_of(flat, dtype, fail)
  local d = DTYPES[dtype]
  local numbers = ffi.new(d[3] and d[3] .. "[?]" or "float[?]", #flat)
  for i, value in ipairs(flat) do numbers[i - 1] = number_of(value, d, dtype, i, fail) end
  local bytes = ffi.string(numbers, ffi.sizeof(numbers))
  if d[3] then return bytes end
  return core.tensor_bytes(core.tensor_from_bytes(bytes, "float32", { #flat }):to(dtype))
end

--- from_json(data, dtype, shape, fail) -> a column.
-- data: nested arrays, a flat one if the shape is given, or a single value. shape: nil for that of the arrays.
-- fail(message, ...): raises.
function M.from_json(data, dtype, shape, fail)
  local nesting, flat = nesting_of(data), {}
  flatten(data, nesting, 1, flat, fail)
  if shape and #flat ~= M.count(shape) then
    fail("its shape %s has %.0f elements, but its data have %d", M.shape_text(shape), M.count(shape), #flat)
  end
  if shape and #nesting > 1 and M.shape_text(nesting) ~= M.shape_text(shape) then
    fail("its shape is %s, but its data have the shape %s", M.shape_text(shape), M.shape_text(nesting))
  end
  local column = { dtype = dtype, shape = shape or nesting }
  if dtype == "string" then
    for i, value in ipairs(flat) do
      if type(value) ~= "string" then fail("element %d of its data is %s, expected a string", i, shown(value)) end
    end
    column.texts = flat
  else
    column.bytes = bytes_of(flat, dtype, fail)
  end
  return column
end

-- ---- to JSON ------------------------------------------------------------------------------------

local function float_text(value, form)
  if value ~= value then return '"NaN"' end
  if value == math.huge then return '"Infinity"' end
  if value == -math.huge then return '"-Infinity"' end
  return form:format(value)
end

-- The elements as texts, one after another.
local function element_texts(column)
  local d, list = DTYPES[column.dtype], {}
  local bytes, n = column.bytes, M.count(column.shape)
  if d.form and not d[3] then
    local t = core.tensor_from_bytes(bytes, column.dtype, { n })
    bytes = core.tensor_bytes(t:to "float32")
  end
  local numbers = ffi.cast("const " .. (d[3] or "float") .. " *", bytes)
  for i = 1, n do
    local value = numbers[i - 1]
    if d.form then
      list[i] = float_text(value, d.form)
    elseif column.dtype == "bool" then
      list[i] = value ~= 0 and "true" or "false"
    else
      list[i] = tostring(value):match "^%-?%d+" -- int64 ends with LL
    end
  end
  return list
end

-- The texts from position `at` on as nested arrays. RETURNS the JSON and the next position.
local function nested(list, shape, axis, at)
  if axis > #shape then return list[at], at + 1 end
  if axis == #shape then
    return "[" .. table.concat(list, ",", at, at + shape[axis] - 1) .. "]", at + shape[axis]
  end
  local parts = {}
  for i = 1, shape[axis] do parts[i], at = nested(list, shape, axis + 1, at) end
  return "[" .. table.concat(parts, ",") .. "]", at
end

--- to_json(column, is_flat) -> its elements as JSON, nested like its shape or as one array. NaN and infinities become
--- the strings "NaN", "Infinity" and "-Infinity", as in the JSON form of protocol buffers.
function M.to_json(column, is_flat)
  local list = element_texts(column)
  if is_flat then return "[" .. table.concat(list, ",") .. "]" end
  return (nested(list, column.shape, 1, 1))
end

-- ---- binary -------------------------------------------------------------------------------------

-- Texts, each after its length in 4 bytes.
local function read_texts(bytes, n, fail)
  local list, at = {}, 1
  for i = 1, n do
    local a, b, c, d = bytes:byte(at, at + 3)
    local length = d and a + 256 * (b + 256 * (c + 256 * d))
    if not length or at + 4 + length - 1 > #bytes then fail("its binary data end within element %d", i) end
    list[i] = bytes:sub(at + 4, at + 3 + length)
    at = at + 4 + length
  end
  if at <= #bytes then fail("its binary data have %d bytes too many", #bytes - at + 1) end
  return list
end

--- from_binary(bytes, dtype, shape, fail) -> a column.
function M.from_binary(bytes, dtype, shape, fail)
  local n = M.count(shape)
  if dtype == "string" then
    if n > #bytes / 4 then fail("its binary data end within element %d", math.floor(#bytes / 4) + 1) end
    return { dtype = dtype, shape = shape, texts = read_texts(bytes, n, fail) }
  end
  if n * M.size_of(dtype) ~= #bytes then
    fail("its shape %s needs %.0f bytes of %s, but its binary data have %d", M.shape_text(shape), n * M.size_of(dtype),
      M.kserve_name(dtype), #bytes)
  end
  return { dtype = dtype, shape = shape, bytes = bytes }
end

--- from_tensor(t) -> a column.
function M.from_tensor(t) return { dtype = t:dtype(), shape = t:shape(), bytes = core.tensor_bytes(t) } end

--- cast(t, dtype, fail) -> t in the dtype. Raises if a number is not the same there, but for the rounding of floats.
function M.cast(t, dtype, fail)
  local ops, from = core.ops, t:dtype()
  if from == dtype then return t end
  local to = t:to(dtype)
  local same
  if not M.is_float(dtype) then
    if M.is_float(from) then fail("the array is %s, expected %s", from, dtype) end
    same = ops.eq(to:to(from), t)
  elseif M.is_float(from) then
    same = ops.logical_or(ops.isfinite(to), ops.logical_not(ops.isfinite(t)))
  end
  if same and not ops.all(same):item() then
    fail("the array is %s, and has numbers that %s does not hold", from, dtype)
  end
  return to
end

--- to_tensor(column) -> the tensor.
function M.to_tensor(column) return core.tensor_from_bytes(column.bytes, column.dtype, column.shape) end

return M
