--- Elements into batches, and batches into elements.
local core = require "mgpu.core"
local checks = require "mgpu.data.checks"
local host_device = require "mgpu.data.host"
local structure = require "mgpu.data.flow.structure"

local M = {}

local function shape_text(shape) return "{" .. table.concat(shape, ", ") .. "}" end

local function is_visible(t) return core.device_info(t:device()).host_visible end

-- fn on tensors that are copied to the host where necessary; its result goes to where they came from.
local function in_host_memory(list, fn)
  if is_visible(list[1]) then return fn(list) end
  local host, copies = host_device(), {}
  for i, t in ipairs(list) do copies[i] = core.copy_to(t, host) end
  local home, result = list[1]:device(), fn(copies)
  if type(result) ~= "table" then return core.copy_to(result, home) end
  for i, t in ipairs(result) do result[i] = core.copy_to(t, home) end
  return result
end

--- tensors(list, cell, fill, window) -> a tensor of shape {#list, cell...}. `fill` (0) is the value of the part of a
--- cell that its tensor does not cover. cell nil: the shape of the first tensor. window: {first (from 0), rows}: the
--- list becomes these rows of so many, and the others are undefined.
function M.tensors(list, cell, fill, window)
  return in_host_memory(list, function(tensors)
    return core.stack(tensors, cell, fill, window and window.rows, window and window.first)
  end)
end

--- rows_of(t) -> copies of the tensor's rows, as an array.
function M.rows_of(t)
  return in_host_memory({ t }, function(list) return core.unstack(list[1]) end)
end

-- ---- stacking -----------------------------------------------------------------------------------

-- The leaves number i of all elements.
local function column(flat, i)
  local list = {}
  for k, leaves in ipairs(flat) do list[k] = leaves[i] end
  return list
end

-- Raises because the elements' leaves cannot be stacked; place(k): the number of element k in the pass.
local function fail_mixed(who, place, k, what, one, other)
  checks.fail(who, "%s of element %d is %s, but %s in element %d, which begins the batch", what, place(k), other,
    one, place(1))
end

local function kind_of(leaf)
  if core.is_tensor(leaf) then return leaf:dtype() end
  return type(leaf) == "string" and "text" or ("a list of %d strings"):format(#leaf)
end

-- Raises unless all leaves are tensors of one dtype and rank, or all are strings, or lists of equally many.
local function check_kinds(who, list, what, place)
  local first = list[1]
  local kind = kind_of(first)
  for k, leaf in ipairs(list) do
    if kind_of(leaf) ~= kind then fail_mixed(who, place, k, what, kind, kind_of(leaf)) end
    if core.is_tensor(leaf) and leaf:rank() ~= first:rank() then
      fail_mixed(who, place, k, what, "a tensor of shape " .. shape_text(first:shape()),
        "a tensor of shape " .. shape_text(leaf:shape()))
    end
  end
end

local function stacked(who, list, what, place, window)
  local odd = core.first_unlike(list)
  if not odd then return M.tensors(list, nil, nil, window) end
  check_kinds(who, list, what, place)
  checks.fail(who, "the elements of a batch must have equal shapes, but %s has %s in element %d and %s in element %d: "
    .. "use padded_batch, or give them one shape with map", what, shape_text(list[1]:shape()), place(1),
    shape_text(list[odd]:shape()), place(odd))
end

local function texts(who, list, what, place)
  check_kinds(who, list, what, place)
  return structure.text(list)
end

-- The elements as one element. combine(list, what, i, n) makes a tensor of the leaves number i of n; messages call them
-- `what`.
local function joined(who, elements, place, combine)
  local flat, first, paths = {}, elements[1], nil
  for k, element in ipairs(elements) do
    local leaves, found = structure.flatten(element)
    if found ~= (paths or found) then
      checks.fail(who, "the elements of a batch must be alike: element %d has %s, element %d has %s", place(1), paths,
        place(k), found)
    end
    flat[k], paths = leaves, found
  end
  local made = {}
  for i = 1, #flat[1] do
    local list, what = column(flat, i), structure.path(first, i)
    made[i] = core.is_tensor(list[1]) and combine(list, what, i, #flat[1]) or texts(who, list, what, place)
  end
  return structure.unflatten(first, made)
end

--- batch(who, elements, place, window) -> the elements as one, with a new first axis. place(k): the number of element k
--- in the pass, for messages. window: of M.tensors, or nil. Strings become a batch of text. Errors: elements of
--- different structures, dtypes or shapes.
function M.batch(who, elements, place, window)
  return joined(who, elements, place, function(list, what)
    return stacked(who, list, what, place, window)
  end)
end

-- ---- padding ------------------------------------------------------------------------------------

-- The shape to which the tensors are padded. wanted: sizes, -1 for the largest size; nil: all -1.
local function padded_shape(who, list, what, wanted, place)
  local cell = list[1]:shape()
  if wanted and #wanted ~= #cell then
    checks.fail(who, "padded_shapes has %d sizes for %s, whose shape is %s", #wanted, what, shape_text(cell))
  end
  for axis in ipairs(cell) do
    local limit = wanted and wanted[axis] ~= -1 and wanted[axis] or nil
    for k, t in ipairs(list) do
      local size = t:shape()[axis]
      if limit and size > limit then
        checks.fail(who, "%s of element %d has shape %s, which is larger than the padded shape %s", what, place(k),
          shape_text(t:shape()), shape_text(wanted))
      end
      cell[axis] = limit or math.max(cell[axis], size)
    end
  end
  return cell
end

-- Raises if an integer dtype cannot hold the number to pad with: uint8 would store 0 for -1.
local function check_fill(who, t, what, fill)
  local dtype = t:dtype()
  if fill == nil or not dtype:find "int" or core.tensor(fill, { dtype = dtype }):item() == fill then return end
  checks.fail(who, "padding_values: %s is %s, which cannot hold %s", what, dtype, tostring(fill))
end

--- padded(who, elements, place, options) -> the elements as one, with a new first axis; tensors are padded at the end
--- of each axis. options: shapes and values, functions of a leaf's number and of how many there are that return its
--- padded shape (nil: the largest sizes) and the number to pad with. Errors: as for batch, apart from shapes; a
--- tensor larger than its padded shape; a number that a tensor of integers cannot hold.
function M.padded(who, elements, place, options)
  return joined(who, elements, place, function(list, what, i, n)
    check_kinds(who, list, what, place)
    local cell = padded_shape(who, list, what, options.shapes(i, n), place)
    local fill = options.values(i, n)
    check_fill(who, list[1], what, fill)
    return M.tensors(list, cell, fill)
  end)
end

-- ---- unstacking ---------------------------------------------------------------------------------

--- rows(element, number) -> the number of rows of its components. Errors: a component without rows; different numbers.
function M.rows(element, number)
  local n
  for i, leaf in ipairs((structure.flatten(element))) do
    local rows
    if core.is_tensor(leaf) then rows = leaf:shape()[1] elseif type(leaf) == "table" then rows = #leaf end
    if not rows then
      checks.fail("unbatch", "%s of element %d is %s: it has no rows", structure.path(element, i), number,
        core.is_tensor(leaf) and "a single number" or "one string")
    end
    if n and n ~= rows then
      checks.fail("unbatch", "%s of element %d has %d rows, but %s has %d", structure.path(element, 1), number, n,
        structure.path(element, i), rows)
    end
    n = rows
  end
  return n
end

--- unbatch(element, n) -> its n rows as an array of elements.
function M.unbatch(element, n)
  local leaves, columns = structure.flatten(element), {}
  for i, leaf in ipairs(leaves) do
    columns[i] = core.is_tensor(leaf) and M.rows_of(leaf) or structure.rows_of_text(leaf)
  end
  local elements = {}
  for row = 1, n do elements[row] = structure.unflatten(element, column(columns, row)) end
  return elements
end

return M
