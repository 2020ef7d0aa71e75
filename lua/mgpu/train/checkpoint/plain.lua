--- Plain data for JSON: tables, strings, booleans, every number, and tensors.
--
-- JSON has no infinity, no NaN, no -0, and no tables with other keys than texts or 1..n. Such values are written as a
-- table with the field "$", which says what it is. Long arrays of numbers become tensors: a long history is text only
-- in its names.
local core = require "mgpu.core"

local M = {}

local DEEPEST, LONG = 50, 32
local SPECIAL = { inf = math.huge, ["-inf"] = -math.huge, nan = 0 / 0, ["-0"] = -0.0 }

-- The name of a number that JSON cannot hold; nil for others.
local function special(value)
  if value ~= value then return "nan" end
  if value == math.huge then return "inf" end
  if value == -math.huge then return "-inf" end
  if value == 0 and 1 / value < 0 then return "-0" end
end

-- "array" for the keys 1..n, "object" for texts, else "pairs".
local function kind_of(value)
  local n, texts, others = #value, 0, 0
  for key in pairs(value) do
    if type(key) == "string" and key ~= "$" then texts = texts + 1 else others = others + 1 end
  end
  if texts == 0 and others == n and n > 0 then return "array" end
  return others == 0 and "object" or "pairs"
end

-- Whether it is an array of at least LONG numbers.
local function is_long_list(value)
  if #value < LONG then return false end
  for _, item in ipairs(value) do
    if type(item) ~= "number" then return false end
  end
  return true
end

local encode

local encode_table = {
  array = function(value, tensors, what, depth)
    local list = {}
    if is_long_list(value) then
      tensors[#tensors + 1] = core.tensor(value, { dtype = "float64" })
      return { ["$"] = "numbers", number = #tensors }
    end
    for i, item in ipairs(value) do list[i] = encode(item, tensors, what, depth) end
    return list
  end,
  object = function(value, tensors, what, depth)
    local object = {}
    for key, item in pairs(value) do object[key] = encode(item, tensors, what, depth) end
    return object
  end,
  pairs = function(value, tensors, what, depth)
    local list = {}
    for key, item in pairs(value) do
      list[#list + 1] = { encode(key, tensors, what, depth), encode(item, tensors, what, depth) }
    end
    return { ["$"] = "pairs", list = list }
  end,
}

function encode(value, tensors, what, depth)
  local t = type(value)
  if t == "number" and special(value) then return { ["$"] = "number", value = special(value) } end
  if t == "number" or t == "string" or t == "boolean" then return value end
  if core.is_variable(value) then value = value:value() end
  if core.is_tensor(value) then
    tensors[#tensors + 1] = value
    return { ["$"] = "tensor", number = #tensors }
  end
  if t ~= "table" then
    core.fail("usage", ("%s: it holds a %s, which cannot be saved: plain data are tables, numbers, texts, booleans and "
      .. "tensors"):format(what, t))
  elseif depth > DEEPEST then
    core.fail("usage", ("%s: tables nest deeper than %d: does one contain itself?"):format(what, DEEPEST))
  end
  return encode_table[kind_of(value)](value, tensors, what, depth + 1)
end

--- encode(value, tensors, what) -> the value as JSON can hold it.
-- ARGS tensors: an array, to which the tensors in the value are appended; what: begins error messages. Errors: a
-- function or the like in the value.
function M.encode(value, tensors, what) return encode(value, tensors, what, 0) end

--- decode(value, tensors) -> the value that was encoded. tensors: the same array.
function M.decode(value, tensors)
  if type(value) ~= "table" then return value end
  local kind, decoded = value["$"], {}
  if kind == "number" then return SPECIAL[value.value] end
  if kind == "tensor" then return tensors[value.number] end
  if kind == "numbers" then return tensors[value.number]:totable() end
  if kind == "pairs" then
    for _, pair in ipairs(value.list) do decoded[M.decode(pair[1], tensors)] = M.decode(pair[2], tensors) end
    return decoded
  end
  for key, item in pairs(value) do decoded[key] = M.decode(item, tensors) end
  return decoded
end

return M
