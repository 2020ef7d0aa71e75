--- What print shows of a tensor: shape, dtype, device and at most a screenful of numbers, as NumPy shows them.
--
--     tensor {2, 3} float32 cpu:0
--     {{ 1,     2.5,   0},
--      {-0.25,  4,     1}}
-- Each number has as many digits as tell it from its neighbours in the dtype, at most 8 behind the point, and points
-- are aligned. As in NumPy, all have exponents if one is at least 1e8, or, unless all are whole, if one is below 1e-4
-- or their ratio is above 1000. Large tensors show the first and last entries of each axis; only these are copied to
-- the host.
local core = require "mgpu.core"
local slice = require "mgpu.tensor.slicing"

local ops = core.ops
local LIMIT = 200 -- elements; larger tensors are shown in part
local DEEP = 2 -- how many of the last axes show EDGE entries at each end; other axes show one
local EDGE = 3
local WIDTH = 96 -- columns; longer rows are wrapped
local PRECISION = 8 -- most digits behind the point

-- The bits of the mantissas, the hidden one included.
local BITS = { float64 = 53, float32 = 24, float16 = 11, bfloat16 = 8 }

-- ---- which part ---------------------------------------------------------------------------------

-- t with only the first and the last `edge` entries of the axis.
local function trim(t, axis, rank, edge)
  local ranges = {}
  for k = 1, rank do ranges[k] = {} end
  ranges[axis] = { 1, edge }
  local first = slice(t, ranges)
  ranges[axis] = { -edge, -1 }
  return ops.concat({ first, slice(t, ranges) }, { axis = axis })
end

-- The part of t to show, and for each axis the number of entries before its "..." (nil: there is none).
local function shown_part(t, shape)
  local cut = {}
  if t:count() <= LIMIT then return t, cut end
  for axis, size in ipairs(shape) do
    local edge = axis > #shape - DEEP and EDGE or 1
    if size > 2 * edge then
      t = trim(t, axis, #shape, edge)
      cut[axis] = edge
    end
  end
  return t, cut
end

-- ---- numbers ------------------------------------------------------------------------------------

-- The fewest digits that tell v from its neighbours, and its decimal exponent.
local function shortest(v, bits)
  local _, exponent = math.frexp(v)
  local half_step = bits == 53 and 0 or 2 ^ (exponent - bits - 1)
  for digits = 0, 16 do
    local text = ("%." .. digits .. "e"):format(v)
    if math.abs(tonumber(text) - v) <= half_step then return digits + 1, tonumber(text:match "e(.*)$") end
  end
  return 17, 0
end

local function each_number(part, fn)
  if type(part) ~= "table" then return fn(part) end
  for _, entry in ipairs(part) do each_number(entry, fn) end
end

local function is_finite(v) return v - v == 0 end

-- If the floating numbers are shown with exponents, as NumPy decides: the format for all of them. Else nil.
local function exponent_format(part, bits)
  local least, most, whole, digits = math.huge, 0, true, 1
  each_number(part, function(v)
    local size = math.abs(v)
    if v == 0 or not is_finite(v) then return end
    least, most = math.min(least, size), math.max(most, size)
    whole = whole and v % 1 == 0
    digits = math.max(digits, (shortest(v, bits)))
  end)
  local needed = most > 0 and (most >= 1e8 or not whole and (least < 1e-4 or most / least > 1000))
  return needed and "%." .. math.min(digits - 1, PRECISION) .. "e" or nil
end

-- RETURNS the function that turns a number into text.
local function number_format(part, dtype)
  local bits = BITS[dtype]
  if not bits then return function(v) return type(v) == "boolean" and tostring(v) or ("%.0f"):format(v) end end
  local exponents = exponent_format(part, bits)
  return function(v)
    if v ~= v then return "nan" end
    if not is_finite(v) then return v > 0 and "inf" or "-inf" end
    if exponents then return exponents:format(v) end
    if v == 0 then return "0" end
    local digits, exponent = shortest(v, bits)
    local text = ("%." .. math.max(0, math.min(digits - 1 - exponent, PRECISION)) .. "f"):format(v)
    return text:find "%." and text:gsub("%.?0+$", "") or text
  end
end

-- The numbers as text, and how many columns the widest needs before and from its point on. Words and numbers with
-- exponents have no point: they are aligned on the right.
local function columns(part, dtype)
  local text_of, before, behind = number_format(part, dtype), 0, 0
  local function split(v)
    local text = text_of(v)
    local point = not text:find "e" and text:find("%.") or #text + 1
    return text, point - 1, #text - point + 1
  end
  each_number(part, function(v)
    local _, left, right = split(v)
    before, behind = math.max(before, left), math.max(behind, right)
  end)
  return function(v)
    local text, left, right = split(v)
    return (" "):rep(before - left) .. text, (" "):rep(behind - right)
  end
end

-- ---- layout -------------------------------------------------------------------------------------

-- A row of numbers, wrapped behind `indent` columns. closing: how many braces follow it.
local function row_text(row, place, indent, cut, closing)
  local lines, line = {}, ""
  local function add(text, pad, last)
    local room = WIDTH - indent - (last and closing or 1)
    if line ~= "" and #line + #text > room then
      lines[#lines + 1] = line:gsub("%s+$", "")
      line = ""
    end
    line = line .. text .. (last and "" or "," .. pad .. " ")
  end
  for i, v in ipairs(row) do
    local text, pad = place(v)
    add(text, pad, i == #row)
    if i == cut then add("...", "") end
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n" .. (" "):rep(indent))
end

local function block_text(part, axis, rank, cut, place)
  if axis == rank then return "{" .. row_text(part, place, rank, cut[axis], rank) .. "}" end
  local lines = {}
  for i, entry in ipairs(part) do
    lines[#lines + 1] = block_text(entry, axis + 1, rank, cut, place)
    if i == cut[axis] then lines[#lines + 1] = "..." end
  end
  return "{" .. table.concat(lines, "," .. ("\n"):rep(rank - axis) .. (" "):rep(axis)) .. "}"
end

--- t:text() -> what print shows.
-- Example:
--     local text = mgpu.tensor({ 1, 2.5 }):text()
--     print(text)
--     --> tensor {2} float32 cpu:0
--     --> {1,   2.5}
return function(t)
  if not core.is_tensor(t) and not core.is_variable(t) then
    core.fail("usage", "text: expected a tensor, got " .. type(t))
  end
  local shape, dtype = core.methods.shape(t), t:dtype()
  local head = ("tensor {%s} %s %s"):format(table.concat(shape, ", "), dtype, t:device())
  if core.tracing() then return head .. " (being traced)" end
  if t:count() == 0 then return head end
  local part, cut = shown_part(t, shape)
  local values = part:totable()
  if #shape == 0 then return head .. " " .. number_format(values, dtype)(values) end
  return head .. "\n" .. block_text(values, 1, #shape, cut, columns(values, dtype))
end
