-- Tests ops made of other ops against NumPy and TensorFlow, their gradients against central differences, their dtypes
-- and their errors.
local check = require "check"
local mgpu = require "mgpu"
local hash = require "golden.hash"
local golden = require "golden.load" "tensor_ops"
local test = check.test

local NAN = 0 / 0

-- ---- values -------------------------------------------------------------------------------------

local function input(given, salt)
  local n = check.count(given.shape)
  if given.ids then return mgpu.tensor(given.ids, { dtype = "int64" }):reshape(given.shape) end
  return mgpu.tensor(hash.array(n, given.salt or salt), { dtype = "float64" }):reshape(given.shape)
end

local function apply(c, inputs)
  if c.op == "einsum" then return mgpu.einsum(c.args.equation, inputs) end
  if c.op == "top_k_ids" then return (select(2, mgpu.top_k(inputs[1], c.args))) end
  local given = { unpack(inputs) }
  if next(c.args) then given[#given + 1] = c.args end
  return (mgpu[c.op](unpack(given)))
end

local function inputs_of(c)
  local list = {}
  for i, given in ipairs(c.inputs) do list[i] = input(given) end
  return list
end

-- Sums of a few products in float64, in another order.
local TOLERANCE = 1e-14

local by_op = {}
for i, c in ipairs(golden.cases) do
  by_op[c.op] = by_op[c.op] or {}
  table.insert(by_op[c.op], i)
end

for op, numbers in pairs(by_op) do
  test(op .. " computes what NumPy or TensorFlow does", function()
    for _, i in ipairs(numbers) do
      local c = golden.cases[i]
      local y = apply(c, inputs_of(c))
      local what = ("case %d"):format(i)
      check.equal(y:shape(), c.shape, what)
      if check.count(c.shape) > 0 then
        check.near(y:to "float64":reshape { -1 }:totable(), type(c.value) == "table" and c.value or { c.value },
          TOLERANCE, what)
      end
    end
  end)
end

-- ---- gradients ----------------------------------------------------------------------------------

local STEP, SLACK = 1e-6, 2e-8 -- a central difference errs by about STEP^2 and 1e-16 / STEP

-- Compares the gradient of a weighted sum of fn(x) at x, float64, with central differences.
local function check_gradient(fn, x)
  local function loss(t)
    local y = fn(t)
    return (y * mgpu.tensor(hash.array(math.max(1, y:count()), 5), { dtype = "float64" }):reshape(y:shape())):sum()
  end
  local got, values = mgpu.grad(loss)(x):reshape { -1 }:totable(), x:reshape { -1 }:totable()
  local function at(i, v)
    local moved = { unpack(values) }
    moved[i] = v
    return loss(mgpu.tensor(moved, { dtype = "float64" }):reshape(x:shape())):item()
  end
  for i, v in ipairs(values) do
    check.near(got[i], (at(i, v + STEP) - at(i, v - STEP)) / (2 * STEP), SLACK, "element " .. i)
  end
end

test("gradients agree with central differences", function()
  for i, c in ipairs(golden.cases) do
    local list = inputs_of(c)
    local y = apply(c, list)
    if y:dtype() == "float64" and y:count() > 0 then
      for k, t in ipairs(list) do
        if t:dtype() == "float64" and t:count() <= 30 then
          local ok, message = pcall(check_gradient, function(v)
            local changed = { unpack(list) }
            changed[k] = v
            return apply(c, changed)
          end, t)
          if not ok then check.fail(("case %d, %s, input %d: %s"):format(i, c.op, k, message)) end
        end
      end
    end
  end
end)

test("the gradient of cumprod is right where elements are 0, and so is the second one", function()
  local x = mgpu.tensor({ 2, 0, 3, 0, -1.5 }, { dtype = "float64" })
  check_gradient(function(t) return t:cumprod() end, x)
  check_gradient(function(t)
    return mgpu.grad(function(u) return (u:cumprod() * mgpu.arange(5)):sum() end)(t)
  end, x)
  check.equal(mgpu.tensor { 2, math.huge, 3 }:cumprod():totable(), { 2, math.huge, math.huge })
end)

-- ---- NaN, ties and dtypes -----------------------------------------------------------------------

test("NaN comes last in both orders, and equal elements keep theirs", function()
  local x = mgpu.tensor { 2, NAN, -1, 2, NAN, 0 }
  check.equal(x:argsort():totable(), { 2, 5, 0, 3, 1, 4 })
  check.equal(x:argsort { descending = true }:totable(), { 0, 3, 5, 2, 1, 4 })
  check.equal(x:sort():slice { { 1, 4 } }:totable(), { -1, 0, 2, 2 })
  local values, ids = x:top_k(3)
  check.equal({ values:totable(), ids:totable() }, { { 2, 2, 0 }, { 0, 3, 5 } })
  check.equal(mgpu.tensor { 0, -0 }:argsort():totable(), { 0, 1 })
  local middle = x:median():item()
  check.truthy(middle ~= middle)
end)

test("ops keep the dtype of what they move, and NumPy's rules for what they add up", function()
  local bytes = mgpu.tensor({ { 3, 1 }, { 250, 9 } }, { dtype = "uint8" })
  for _, op in ipairs { "flip", "sort", "triu", "tril", "diagonal" } do
    check.equal(bytes[op](bytes):dtype(), "uint8", op)
  end
  check.equal(bytes:tile(2):dtype(), "uint8")
  check.equal(bytes:cumprod():totable(), { { 3, 1 }, { 750, 9 } })
  check.equal(bytes:trace():item(), 12)
  check.equal(bytes:count_nonzero():dtype(), "int64")
  check.equal(bytes:median():item(), 6)
  check.equal(mgpu.tensor({ 1, 2 }, { dtype = "int32" }):argsort():dtype(), "int32")
end)

test("sorting in every dtype", function()
  for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8" } do
    local low = dtype == "uint8" and 0 or -3
    local x = mgpu.tensor({ 5, low, 7, 1, 5 }, { dtype = dtype })
    check.equal(x:sort():totable(), { low, 1, 5, 5, 7 })
    check.equal(x:sort { descending = true }:totable(), { 7, 5, 5, 1, low })
    check.equal(x:sort():dtype(), dtype)
  end
end)

test("logsumexp neither overflows nor loses infinities", function()
  check.near(mgpu.tensor { 1000, 1000 }:logsumexp():item(), 1000 + math.log(2), 1e-4) -- float32 near 1000
  check.equal(mgpu.tensor { -math.huge, -math.huge }:logsumexp():item(), -math.huge)
  check.equal(mgpu.tensor { 0, math.huge }:logsumexp():item(), math.huge)
end)

test("of equal ids scatter_update takes the last, and only that gets a gradient", function()
  local t, ids = mgpu.zeros { 3 }, mgpu.tensor({ { 1 }, { 0 }, { 1 } }, { dtype = "int32" })
  check.equal(t:scatter_update(ids, { 5, 6, 7 }):totable(), { 6, 7, 0 })
  local g = mgpu.grad(function(v) return (t:scatter_update(ids, v) * mgpu.tensor { 2, 3, 4 }):sum() end)
  check.equal(g(mgpu.tensor { 5, 6, 7 }):totable(), { 0, 2, 3 })
end)

test("meshgrid has NumPy's two orders", function()
  local x, y = unpack(mgpu.meshgrid({ mgpu.arange(2), mgpu.arange(3) }))
  check.equal(x:totable(), { { 0, 1 }, { 0, 1 }, { 0, 1 } })
  check.equal(y:totable(), { { 0, 0 }, { 1, 1 }, { 2, 2 } })
  local i, j = unpack(mgpu.meshgrid(mgpu.arange(2), mgpu.arange(3), "ij"))
  check.equal(i:totable(), { { 0, 0, 0 }, { 1, 1, 1 } })
  check.equal(j:totable(), { { 0, 1, 2 }, { 0, 1, 2 } })
  check.equal(#mgpu.meshgrid { mgpu.arange(4) }, 1)
end)

test("empty tensors and tensors of eight axes", function()
  local empty, deep = mgpu.zeros { 0, 3 }, mgpu.arange(8):reshape { 2, 1, 2, 1, 2, 1, 1, 1 }
  check.equal(empty:flip():shape(), { 0, 3 })
  check.equal(empty:roll(1, 1):shape(), { 0, 3 })
  check.equal(empty:sort(1):shape(), { 0, 3 })
  check.equal(mgpu.zeros { 0 }:diag():shape(), { 0, 0 })
  check.equal(mgpu.ones { 2 }:tile(0):shape(), { 0 })
  check.equal(mgpu.ones { 2 }:repeat_elements({ 0, 0 }):shape(), { 0 })
  check.equal(deep:tile { 1, 3, 1, 1, 1, 1, 1, 2 }:shape(), { 2, 3, 2, 1, 2, 1, 1, 2 })
  check.equal(deep:repeat_elements(2, 5):reshape { -1 }:slice { { 1, 4 } }:totable(), { 0, 0, 1, 1 })
end)

-- ---- errors -------------------------------------------------------------------------------------

test("mistakes are named", function()
  local x = mgpu.ones { 2, 3 }
  local ids = mgpu.tensor({ { 3 }, { 0 } }, { dtype = "int32" })
  for _, row in ipairs {
    { function() x:flip(3) end, "flip: axis 3 is out of range" },
    { function() x:flip { 1, 1 } end, "flip: axis 1 is given twice" },
    { function() x:flip { 2, -1 } end, "flip: axis 2 is given twice" },
    { function() x:quantile(0.5, { 1, 1 }) end, "quantile: axis 1 is given twice" },
    { function() x:tile() end, "tile: repeats is missing: how often along each axis, as in t:tile {2, 1}" },
    { function() x:roll(1.5, 1) end, "roll: shift must be a whole number, got 1.5" },
    { function() x:roll({ 1, 2 }, 1) end, "roll: got 2 of shift for 1 axes" },
    { function() x:tile { -1 } end, "each of repeats must be a whole number of at least 0, got -1" },
    { function() x:repeat_elements({ 1, 2 }, 2) end, "2 numbers of repeats for 3 elements of axis 2" },
    { function() x[1]:diagonal() end, "diagonal: expected matrices, got shape {3}" },
    { function() mgpu.ones { 1, 1, 1 }:diag() end, "diag: expected a vector or a matrix" },
    { function() mgpu.meshgrid({ x }) end, "meshgrid: expected vectors, input 1 has 2 axes" },
    { function() mgpu.meshgrid(x[1], "yx") end, 'indexing must be "xy" or "ij", got yx' },
    { function() mgpu.tensordot(x, mgpu.ones { 3, 2 }) end, "tensordot: axis 1 of a has size 2, axis 1 of b 3" },
    { function() mgpu.tensordot(x, x, { { 1 }, { 1, 2 } }) end, "tensordot: 1 axes of a, but 2 of b" },
    { function() mgpu.einsum("ij,jk", x) end, 'einsum: "ij,jk" is about 2 tensors, got 1' },
    { function() mgpu.einsum("ijk", x) end, '"ijk" names 3 axes, the tensor has 2' },
    { function() mgpu.einsum("ij->ik", x) end, 'letter "k" of the result is in no tensor' },
    { function() mgpu.einsum("ij->ii", x) end, 'letter "i" is twice in the result' },
    { function() mgpu.einsum("ij,ij->ij", x, mgpu.ones { 3, 2 }) end, "letter \"i\" stands for sizes" },
    { function() mgpu.einsum("ii", x) end, "stands for sizes 2 and 3" },
    { function() mgpu.einsum("i1", x) end, "are letters" },
    { function() mgpu.einsum(x) end, "the equation must be a string" },
    { function() x:sort { descending = 1 } end, 'option "descending" must be true or false' },
    { function() x:top_k(4) end, "k must be a whole number from 0 to 3, the size of axis 2; got 4" },
    { function() x:quantile(2) end, "q must be a number from 0 to 1, got 2" },
    { function() mgpu.zeros { 0 }:median() end, "no elements in a tensor of shape {0}" },
    { function() x:take_along_axis(x, 2) end, "ids must be integers, got float32" },
    { function() x:take_along_axis(ids:reshape { 2 }, 2) end, "ids of shape {2} for a tensor of shape {2, 3}" },
    { function() x:take_along_axis(ids, 2):item() end, "an id is not among 0 to 2, the places of axis 2" },
    { function() x:slice_rows(ids, 3):totable() end, "not among 0 to 0, the places of a part of axis 2" },
    { function() x:slice_rows(ids, 4) end, "4 entries of an axis of 3" },
    { function() x:slice_rows(ids, { 1, 1 }) end, "do not fit a tensor of shape {2, 3}" },
    { function() mgpu.scatter(ids, { 1, 2 }, { 3 }):totable() end, "scatter: an id is not among 0 to 2" },
    { function() mgpu.scatter(ids, { 1, 2, 3 }, { 4 }) end, "scatter: values of shape {3}, expected {2}" },
    { function() x:scatter_add(mgpu.ones { 2, 1 }, x) end, "scatter: ids must be integers" },
    { function() x:scatter_update(ids:tile { 1, 3 }, x) end, "the last axis of ids has a number for each" },
    { function() x:cumprod(3) end, "cumprod: axis 3 is out of range" },
  } do
    check.raises(row[1], row[2])
  end
end)

test("an axis out of range is told under the name of the op that was called", function()
  for _, name in ipairs { "mean", "var", "std", "norm", "logsumexp", "count_nonzero" } do
    for _, axis in ipairs { 3, 0 } do
      check.raises(function() mgpu[name](mgpu.ones { 2, 2 }, axis) end, "%d: " .. name .. ": axis " .. axis
        .. " is out of range", "usage")
    end
  end
end)
