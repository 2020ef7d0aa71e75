-- Slices of one tensor, and the parts of a concatenation, which the cpu device copies side by side, compared
-- with ref.
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"
local test = check.test
check.needs "cpu"

-- The lists of numbers that f(ops, x) makes of iota {rows, columns} on a device, as one compiled step.
local function results_on(device, shape, dtype, f)
  local previous = core.default_device()
  core.default_device(device)
  local count = 1
  for _, n in ipairs(shape) do count = count * n end
  local x = mgpu.eval(core.ops.iota({ shape = { count }, axis = 1, dtype = dtype }):reshape(shape))
  local lists = {}
  for i, t in ipairs { mgpu.eval(mgpu.jit(f)(x)) } do lists[i] = t:reshape({ -1 }):totable() end
  core.default_device(previous)
  return lists
end

local function compare(shape, dtype, f)
  check.equal(results_on("cpu:0", shape, dtype, f), results_on("ref:0", shape, dtype, f))
end

-- Slices along the last axis: alike, of other widths, backwards, along another axis.
local function slices(x)
  return x:slice { {}, { 1, 64 } }, x:slice { {}, { 65, 128 } }, x:slice { {}, { 3, 9 } },
    x:slice { {}, { 1, 128, 2 } }, x:slice { { 5, 6 } }, x:slice { {}, { 128, 1, -1 } }, x:slice { { 3, 2 } }
end

for _, dtype in ipairs { "float32", "float64", "uint8", "bfloat16" } do
  test("slices of one tensor are right in one launch, " .. dtype, function()
    compare({ 40, 128 }, dtype, slices)
    compare({ 700, 128 }, dtype, slices)
  end)
end

test("slices of elements of several sizes are right in one launch", function()
  local list = {}
  for i, dtype in ipairs { "float32", "float64", "uint8", "int64", "bfloat16", "int32" } do
    list[i] = mgpu.arange(207, { device = "cpu:0" }):to(dtype)
  end
  local slices_of = mgpu.jit(function(...)
    local cut = { ... }
    for i, t in ipairs(cut) do cut[i] = t:slice { { 1, 200 } } end
    return unpack(cut)
  end)
  for i, t in ipairs { slices_of(unpack(list)) } do
    local expected = list[i]:totable()
    for k = 201, 207 do expected[k] = nil end
    check.equal(t:totable(), expected, list[i]:dtype())
  end
end)

test("slices past the caches are right", function()
  local function halves(x) return x:slice { {}, { 1, 64 } }:sum(2), x:slice { {}, { 65, 128 } }:sum(2) end
  compare({ 40000, 128 }, "float32", halves)
end)

test("a concatenation of more parts than run side by side is right", function()
  compare({ 9, 150 }, "float32", function(x)
    local parts = {}
    for i = 1, 150 do parts[i] = x:slice { {}, { 151 - i, 151 - i } } end
    return core.ops.concat(parts, { axis = 2 })
  end)
end)
