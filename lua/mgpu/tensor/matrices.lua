--- Diagonals, triangles and products of matrices. Matrices are the last two axes; those before them are a batch.
local core = require "mgpu.core"
local arguments = require "mgpu.tensor.arguments"

local M, ops = {}, core.ops
local as_tensor, axis_at, fail, read_options, whole = arguments.as_tensor, arguments.axis_at, arguments.fail,
  arguments.read_options, arguments.whole

-- ---- diagonals and triangles --------------------------------------------------------------------

-- t and its shape; raises unless it has at least two axes.
local function matrices(who, t)
  t = as_tensor(who, t)
  local shape = t:shape()
  if #shape < 2 then fail("%s: expected matrices, got shape {%s}", who, table.concat(shape, ", ")) end
  return t, shape
end

--- diagonal(t, offset = 0) -> the diagonals {..., k} of matrices {..., n, m}; offset: how far above the main one.
-- Example:
--     local t = mgpu.arange(9):reshape { 3, 3 }
--     print(t:diagonal())
--     --> tensor {3} float32 cpu:0
--     --> {0, 4, 8}
--     print(t:diagonal(1))
--     --> tensor {2} float32 cpu:0
--     --> {1, 5}
function M.diagonal(t, ...)
  local offset = read_options("diagonal", { "offset" }, ...)
  local shape
  t, shape = matrices("diagonal", t)
  offset = whole("diagonal", "the offset", offset or 0, -math.huge)
  local n, m = shape[#shape - 1], shape[#shape]
  local first = offset >= 0 and offset or -offset * m
  local count = math.max(0, offset >= 0 and math.min(n, m - offset) or math.min(n + offset, m))
  local flat, start, stop, step = {}, {}, {}, {}
  for i = 1, #shape - 2 do flat[i], start[i], stop[i], step[i] = shape[i], 0, shape[i], 1 end
  local last = #shape - 1
  flat[last], start[last], stop[last], step[last] = n * m, first, first + (count - 1) * (m + 1) + 1, m + 1
  if count == 0 then start[last], stop[last] = 0, 0 end
  return ops.slice(ops.reshape(t, { shape = flat }), { start = start, stop = stop, step = step })
end

--- diag(t, offset = 0) -> a matrix with the vector t on a diagonal; of a matrix, its diagonal.
-- Example:
--     local t = mgpu.tensor { 1, 2 }:diag()
--     print(t)
--     --> tensor {2, 2} float32 cpu:0
--     --> {{1, 0},
--     -->  {0, 2}}
--     print(t:diag()) -- and back
--     --> tensor {2} float32 cpu:0
--     --> {1, 2}
function M.diag(t, ...)
  local offset = read_options("diag", { "offset" }, ...)
  t = as_tensor("diag", t)
  local shape = t:shape()
  if #shape == 2 then return M.diagonal(t, { offset = offset }) end
  if #shape ~= 1 then fail("diag: expected a vector or a matrix, got shape {%s}", table.concat(shape, ", ")) end
  offset = whole("diag", "the offset", offset or 0, -math.huge)
  local side = shape[1] + math.abs(offset)
  if shape[1] == 0 then return ops.full({ side, side }, 0, t:dtype()) end
  local before = offset >= 0 and offset or -offset * side
  local spread = shape[1] + (shape[1] - 1) * side
  return ops.reshape(ops.pad(t, { before = { before }, after = { side * side - before - spread },
    interior = { side } }), { shape = { side, side } })
end

--- trace(t, offset = 0) -> the sum of each matrix's diagonal.
-- Example:
--     print(mgpu.tensor { { 1, 2 }, { 3, 4 } }:trace():item())  --> 5
function M.trace(t, ...)
  local offset = read_options("trace", { "offset" }, ...)
  return ops.sum(M.diagonal((matrices("trace", t)), { offset = offset }), { axis = -1 })
end

-- t where keep(column - row) holds, 0 elsewhere.
local function triangle(who, keep, t, ...)
  local k = read_options(who, { "k" }, ...)
  local shape
  t, shape = matrices(who, t)
  whole(who, "k", k or 0, -math.huge)
  local size = { shape[#shape - 1], shape[#shape] }
  local row, column = ops.iota(size, 1, "int32"), ops.iota(size, 2, "int32")
  return ops.where(keep(column - row, k or 0), t, ops.cast(core.tensor(0), t:dtype()))
end

--- triu(t, k = 0) -> the upper triangles: 0 below diagonal number k.
-- Example:
--     print(mgpu.ones { 3, 3 }:triu())
--     --> tensor {3, 3} float32 cpu:0
--     --> {{1, 1, 1},
--     -->  {0, 1, 1},
--     -->  {0, 0, 1}}
function M.triu(t, ...) return triangle("triu", ops.ge, t, ...) end

--- tril(t, k = 0) -> the lower triangles: 0 above diagonal number k.
-- Example:
--     print(mgpu.ones { 3, 3 }:tril()) -- a causal mask: row i sees columns up to i
--     --> tensor {3, 3} float32 cpu:0
--     --> {{1, 0, 0},
--     -->  {1, 1, 0},
--     -->  {1, 1, 1}}
--     print(mgpu.ones { 3, 3 }:tril(-1))
--     --> tensor {3, 3} float32 cpu:0
--     --> {{0, 0, 0},
--     -->  {1, 0, 0},
--     -->  {1, 1, 0}}
function M.tril(t, ...) return triangle("tril", ops.le, t, ...) end

-- ---- grids and products -------------------------------------------------------------------------

--- meshgrid({x, y, ...}, indexing = "xy"), also meshgrid(x, y, ...) -> an array of tensors: the coordinates of the grid
--- that the vectors span, one tensor for each. "xy": the second vector runs along the first axis; "ij": the first.
-- Example:
--     local x, y = unpack(mgpu.meshgrid { mgpu.tensor { 1, 2, 3 }, mgpu.tensor { 10, 20 } })
--     print(x)
--     --> tensor {2, 3} float32 cpu:0
--     --> {{1, 2, 3},
--     -->  {1, 2, 3}}
--     print(y)
--     --> tensor {2, 3} float32 cpu:0
--     --> {{10, 10, 10},
--     -->  {20, 20, 20}}
function M.meshgrid(list, ...)
  local indexing
  if type(list) == "table" and not core.is_tensor(list) then
    indexing = read_options("meshgrid", { "indexing" }, ...)
  else
    list = { list, ... }
    local last = list[#list]
    if type(last) == "string" or (type(last) == "table" and not core.is_tensor(last) and last.indexing) then
      indexing = type(last) == "string" and last or read_options("meshgrid", { "indexing" }, last)
      list[#list] = nil
    end
  end
  indexing = indexing or "xy"
  if indexing ~= "xy" and indexing ~= "ij" then
    fail('meshgrid: indexing must be "xy" or "ij", got %s', tostring(indexing))
  end
  arguments.check_array("meshgrid", list)
  local function axis_of(i) return indexing == "xy" and (i == 1 and 2 or i == 2 and 1) or i end
  if #list < 2 then axis_of = function(i) return i end end
  local sizes, made = {}, {}
  for i, t in ipairs(list) do
    list[i] = as_tensor("meshgrid", t)
    if list[i]:rank() > 1 then fail("meshgrid: expected vectors, input %d has %d axes", i, list[i]:rank()) end
    sizes[axis_of(i)] = list[i]:count()
  end
  for i, t in ipairs(list) do
    local line = {}
    for k = 1, #list do line[k] = k == axis_of(i) and sizes[k] or 1 end
    made[i] = ops.broadcast_to(ops.reshape(t, { shape = line }), { shape = sizes })
  end
  return made
end

--- outer(a, b) -> the products {n, m} of all elements of a and b, which are flattened.
-- Example:
--     print(mgpu.outer(mgpu.tensor { 1, 2 }, mgpu.tensor { 3, 4, 5 }))
--     --> tensor {2, 3} float32 cpu:0
--     --> {{ 3,  4,  5},
--     -->  { 6,  8, 10}}
function M.outer(a, b, ...)
  read_options("outer", {}, ...)
  a, b = as_tensor("outer", a), as_tensor("outer", b)
  return ops.reshape(a, { shape = { a:count(), 1 } }) * ops.reshape(b, { shape = { 1, b:count() } })
end

-- The axes to sum over, as two lists of positions.
local function axes_of_tensordot(axes, a, b)
  local list, other = {}, {}
  if type(axes) == "number" then
    whole("tensordot", "axes", axes, 0)
    if axes > a:rank() or axes > b:rank() then
      fail("tensordot: axes = %d, but the tensors have %d and %d axes", axes, a:rank(), b:rank())
    end
    for i = 1, axes do list[i], other[i] = a:rank() - axes + i, i end
    return list, other
  end
  if type(axes) ~= "table" or #axes ~= 2 then
    fail("tensordot: axes must be a number or {axes of a, axes of b}, got %s", tostring(axes))
  end
  local first = type(axes[1]) == "table" and axes[1] or { axes[1] }
  local second = type(axes[2]) == "table" and axes[2] or { axes[2] }
  if #first ~= #second then fail("tensordot: %d axes of a, but %d of b", #first, #second) end
  for i = 1, #first do
    list[i], other[i] = axis_at("tensordot", first[i], a:rank()), axis_at("tensordot", second[i], b:rank())
  end
  return list, other
end

-- The positions that are not in the list.
local function rest_of(list, rank)
  local taken, rest = {}, {}
  for _, at in ipairs(list) do
    if taken[at] then fail("tensordot: axis %d is given twice", at) end
    taken[at] = true
  end
  for i = 1, rank do if not taken[i] then rest[#rest + 1] = i end end
  return rest
end

local function joined(...)
  local list = {}
  for _, part in ipairs { ... } do
    for _, v in ipairs(part) do list[#list + 1] = v end
  end
  return list
end

-- The product of the sizes at these positions, and the sizes.
local function sizes_at(shape, list)
  local product, sizes = 1, {}
  for i, at in ipairs(list) do product, sizes[i] = product * shape[at], shape[at] end
  return product, sizes
end

--- tensordot(a, b, axes = 2) -> the sum of products over axes of a and b.
-- axes: a number n (the last n of a with the first n of b), or {axes of a, axes of b}. The result has the other axes of
-- a, then those of b. Errors: sizes that differ.
-- Example:
--     local a, b = mgpu.ones { 2, 3, 4 }, mgpu.ones { 3, 4, 5 }
--     print(table.concat(mgpu.tensordot(a, b):shape(), " ")) -- the last two axes of a with the first two of b
--     --> 2 5
--     print(table.concat(mgpu.tensordot(a, b, { { 3 }, { 2 } }):shape(), " ")) -- the axes of size 4
--     --> 2 3 3 5
function M.tensordot(a, b, ...)
  local axes = read_options("tensordot", { "axes" }, ...)
  a, b = as_tensor("tensordot", a), as_tensor("tensordot", b)
  local over_a, over_b = axes_of_tensordot(axes or 2, a, b)
  local rest_a, rest_b = rest_of(over_a, a:rank()), rest_of(over_b, b:rank())
  local s, u = a:shape(), b:shape()
  for i, at in ipairs(over_a) do
    if s[at] ~= u[over_b[i]] then
      fail("tensordot: axis %d of a has size %d, axis %d of b %d", at, s[at], over_b[i], u[over_b[i]])
    end
  end
  local summed = sizes_at(s, over_a)
  local n, sizes_a = sizes_at(s, rest_a)
  local m, sizes_b = sizes_at(u, rest_b)
  local left = a:rank() > 0 and ops.permute(a, { order = joined(rest_a, over_a) }) or a
  local right = b:rank() > 0 and ops.permute(b, { order = joined(over_b, rest_b) }) or b
  local y = ops.matmul(ops.reshape(left, { shape = { n, summed } }), ops.reshape(right, { shape = { summed, m } }))
  return ops.reshape(y, { shape = joined(sizes_a, sizes_b) })
end

--- einsum(equation, {a, b, ...}), also einsum(equation, a, b, ...) -> the sum of products that the equation names.
-- "bij,bjk->bik": a letter for each axis of each tensor; letters that are not behind the arrow are summed over; a
-- letter twice in one tensor takes the diagonal; "..." stands for the axes without letters. Without an arrow the result
-- has the letters that occur once, in alphabetical order. Errors: letters that do not fit the tensors.
-- Example:
--     local a, b = mgpu.tensor { { 1, 2 }, { 3, 4 } }, mgpu.tensor { 10, 100 }
--     print(mgpu.einsum("ij,j->i", a, b)) -- a matrix times a vector
--     --> tensor {2} float32 cpu:0
--     --> {210, 430}
--     print(mgpu.einsum("ii->", a):item()) -- the trace  --> 5
function M.einsum(...) return require "mgpu.tensor.einsum"(...) end

return M
