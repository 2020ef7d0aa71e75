--- What print shows of a tensor: shape, dtype, device and at most a screenful of numbers.
--
-- Large tensors show the first and last entries of each axis; only these are copied to the host.
local core = require "mgpu.core"
local slice = require "mgpu.tensor.slicing"

local ops = core.ops
local LIMIT = 200 -- elements; a larger tensor is shown in part:
local DEEP = 2 -- of this many last axes
local EDGE = 3 -- this many entries at each end; of the others one

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

local function number_text(v, whole)
  if type(v) == "boolean" then return tostring(v) end
  return (whole and "%.0f" or "%.4g"):format(v)
end

local function entries(part, axis, rank, cut, whole)
  if type(part) ~= "table" then return number_text(part, whole) end
  local lines = {}
  for i, entry in ipairs(part) do
    lines[#lines + 1] = entries(entry, axis + 1, rank, cut, whole)
    if i == cut[axis] then lines[#lines + 1] = "..." end
  end
  local separator = axis < rank and ",\n" .. (" "):rep(axis) or ", "
  return "{" .. table.concat(lines, separator) .. "}"
end

--- t:text() -> what print shows.
return function(t)
  if not core.is_tensor(t) and not core.is_variable(t) then
    core.fail("usage", "text: expected a tensor, got " .. type(t))
  end
  local shape, dtype = core.methods.shape(t), t:dtype()
  local head = ("tensor {%s} %s %s"):format(table.concat(shape, ", "), dtype, t:device())
  if core.tracing() then return head .. " (being traced)" end
  if t:count() == 0 then return head end
  local part, cut = shown_part(t, shape)
  return head .. (#shape > 0 and "\n" or " ")
    .. entries(part:totable(), 1, #shape, cut, dtype:find "int" ~= nil)
end
