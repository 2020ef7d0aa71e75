--- What print shows of a tensor: shape, dtype, device and at most a screenful of numbers.
--
-- Large tensors show the first and last entries of each axis; only these are brought to Lua.
local core = require "mgpu.core"
local slice = require "mgpu.tensor.slicing"

local ops = core.ops
local EDGE = 3 -- entries shown at each end ...
local LIMIT = 200 -- ... of a tensor of more than this many
local DEEP = 2 -- axes beyond these show their first and last entry only

-- The entries of axis that are shown: some from its start, then as many from its end.
local function trim(t, axis, rank, edge)
  local ranges = {}
  for k = 1, rank do ranges[k] = {} end
  ranges[axis] = { 1, edge }
  local first = slice(t, ranges)
  ranges[axis] = { -edge, -1 }
  return ops.concat({ first, slice(t, ranges) }, { axis = axis })
end

-- The part to show, and where "..." stands in each axis: after that many entries.
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

return function(t)
  local shape, dtype = core.methods.shape(t), t:dtype()
  local head = ("tensor {%s} %s %s"):format(table.concat(shape, ", "), dtype, t:device())
  if core.tracing() then return head .. " (being traced)" end
  if t:count() == 0 then return head end
  local part, cut = shown_part(t, shape)
  return head .. (#shape > 0 and "\n" or " ")
    .. entries(part:totable(), 1, #shape, cut, dtype:find "int" ~= nil)
end
