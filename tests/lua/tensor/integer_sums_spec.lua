-- Sums and products of integers and bool are int64, exact, and wrap around, as in NumPy.
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local test, ops = check.test, core.ops
local INTEGERS = { "bool", "uint8", "int32", "int64" }
local DEVICES = { "cpu:0", "ref:0" }

-- A tensor of int64 whose bits are the numbers (cdata) of the list.
local function int64(list, device)
  local t = mgpu.zeros({ #list }, { dtype = "int64" }):clone()
  local p = t:pointer()
  for i, v in ipairs(list) do p[i - 1] = v end
  return t:to(device or "cpu:0")
end

-- The numbers of a tensor of int64, exactly: "%d" of each in a list.
local function exact(t)
  check.equal(t:dtype(), "int64")
  local held = t:to "cpu:0"
  local p, list = held:pointer(), {}
  for i = 1, held:count() do list[i] = tostring(p[i - 1]):gsub("LL", "") end
  return list
end

local function texts(...)
  local list = {}
  for i, v in ipairs { ... } do list[i] = tostring(v):gsub("LL", "") end
  return list
end

local function each_device(fn)
  for _, device in ipairs(DEVICES) do fn(device) end
end

test("sums, products, running sums and products, and counts are int64", function()
  each_device(function(device)
    for _, dtype in ipairs(INTEGERS) do
      local t = mgpu.tensor({ { 1, 1 }, { 1, 0 } }, { dtype = dtype, device = device })
      check.equal(exact(t:sum()), { "3" })
      check.equal(exact(t:sum(1)), { "2", "1" })
      check.equal(exact(t:prod(2)), { "1", "0" })
      check.equal(exact(t:cumsum()), { "1", "2", "1", "1" })
      check.equal(exact(t:cumprod(2)), { "1", "1", "1", "0" })
      check.equal(exact(t:trace()), { "1" })
      check.equal(exact(t:count_nonzero()), { "3" })
      check.equal(exact(t:matmul(t)), { "2", "1", "1", "1" })
      check.equal(exact(mgpu.tensordot(t, t)), { "3" })
      check.equal(exact(mgpu.einsum("ij,ij->j", t, t)), { "2", "1" })
      check.equal(exact(mgpu.einsum("ij->i", t)), { "2", "1" })
      check.equal(exact(t:linear_scan(t)), { "1", "1", "2", "0" })
      local ids = mgpu.tensor({ { 1 }, { 1 } }, { dtype = "int32", device = device })
      check.equal(exact(mgpu.scatter(ids, t, { 2, 2 })), { "0", "0", "2", "1" })
      check.equal(t:max():dtype(), dtype)
      check.equal(t:argmax():dtype(), "int32")
      for _, name in ipairs { "mean", "var", "std", "norm", "logsumexp" } do
        check.equal(t[name](t):dtype(), "float32")
      end
    end
  end)
end)

test("sums and products of int32 and uint8 go on where the dtype of the elements ends", function()
  each_device(function(device)
    local t = mgpu.full({ 3 }, 2 ^ 31 - 1, { dtype = "int32", device = device })
    check.equal(exact(t:sum()), { "6442450941" })
    check.equal(exact(t:cumsum()), { "2147483647", "4294967294", "6442450941" })
    check.equal(exact(t:slice { { 1, 2 } }:prod()), { "4611686014132420609" })
    check.equal(exact(t:slice { { 1, 2 } }:cumprod()), { "2147483647", "4611686014132420609" })
    check.equal(exact(t:matmul(mgpu.tensor({ 1, 1, 1 }, { dtype = "int32", device = device }))), { "6442450941" })
    check.equal(t:mean():item(), 2 ^ 31)
    local bytes = mgpu.full({ 4 }, 200, { dtype = "uint8", device = device })
    check.equal(exact(bytes:matmul(bytes)), { "160000" })
    check.equal(exact(mgpu.einsum("i,i->", bytes, bytes)), { "160000" })
    check.equal(exact(bytes:prod()), { "1600000000" })
    local ids = mgpu.tensor({ { 0 }, { 0 }, { 1 }, { 0 } }, { dtype = "int32", device = device })
    check.equal(exact(mgpu.scatter(ids, bytes, { 2 })), { "600", "200" })
  end)
end)

test("sums of int64 are exact beyond 2^53 and wrap around", function()
  each_device(function(device)
    local t = int64({ 2LL ^ 53, 1LL, 1LL, -3LL }, device)
    check.equal(exact(t:sum()), texts(2LL ^ 53 - 1))
    check.equal(exact(t:cumsum()), texts(2LL ^ 53, 2LL ^ 53 + 1, 2LL ^ 53 + 2, 2LL ^ 53 - 1))
    check.equal(exact(t:matmul(int64({ 1LL, 1LL, 1LL, 1LL }, device))), texts(2LL ^ 53 - 1))
    check.equal(exact(int64({ 3LL, 3002399751580331LL }, device):prod()), texts(2LL ^ 53 + 1))
    local most = 0x7fffffffffffffffLL
    check.equal(exact(int64({ most, 1LL }, device):sum()), texts(-most - 1))
    check.equal(exact(int64({ most, 1LL }, device):cumsum()), texts(most, -most - 1))
    check.equal(exact(int64({ most, 2LL }, device):prod()), { "-2" })
    check.equal(exact(int64({ most, most }, device):mean():to "int64"), texts(most)) -- a mean does not wrap around
  end)
end)

test("the largest of int64 are told apart beyond 2^53", function()
  each_device(function(device)
    local least = -0x7fffffffffffffffLL - 1
    local t = int64({ 2LL ^ 62, 2LL ^ 62 + 1, least, least + 1 }, device)
    check.equal(exact(t:max()), texts(2LL ^ 62 + 1))
    check.equal(exact(t:min()), texts(least))
    check.equal(t:argmax():item(), 1)
    check.equal(t:argmin():item(), 2)
    check.equal(t:to(device):slice { { 3, 3 } }:any():item(), true)
  end)
end)

-- Whole numbers in the range of the dtype, by a formula.
local function numbers(shape, dtype)
  local n, list = check.count(shape), {}
  local size = ({ bool = 2, uint8 = 256, int32 = 2 ^ 32, int64 = 2 ^ 53 })[dtype]
  for i = 1, n do
    list[i] = math.floor((i * 0.6180339887498949) % 1 * size) - (dtype:find "^int" and size / 2 or 0)
  end
  return mgpu.tensor(list, { dtype = dtype }):reshape(shape)
end

test("reductions of integers are the same on cpu and ref, whatever the shape and axes", function()
  for _, dtype in ipairs(INTEGERS) do
    for _, of in ipairs { { { 5000 } }, { { 70, 33 }, 1 }, { { 70, 133 }, 2 }, { { 9, 40, 70 }, 2 }, { { 4, 3, 2 } },
      { { 40, 3, 70 }, { 1, 3 } }, { { 1, 1 }, 1 }, { { 300, 64 }, 1 }, { { 0, 3 }, 1 } } do
      local t = numbers(of[1], dtype)
      local u = t:to "ref:0"
      for _, name in ipairs { "sum", "prod", "max", "min", "any", "all" } do
        if t:count() > 0 or not name:find "^m" then
          local a, b = ops[name](t, { axis = of[2] }), ops[name](u, { axis = of[2] })
          check.equal(a:dtype(), b:dtype())
          if a:dtype() == "int64" then check.equal(exact(a), exact(b)) else check.equal(a:totable(), b:totable()) end
        end
      end
      local axis = type(of[2]) == "number" and of[2] or 1
      check.equal(exact(t:cumsum(axis)), exact(u:cumsum(axis)))
      if t:count() > 0 then
        check.equal(t:argmax(axis):totable(), u:argmax(axis):totable())
        check.equal(t:argmin(axis):totable(), u:argmin(axis):totable())
      end
    end
  end
end)

test("sums of integers over several devices are the same numbers", function()
  local x = numbers({ 7, 3 }, "int32")
  local function results(t)
    return { t:sum(), t:sum(1), t:sum(2), t:max(1), t:min(1), t:transpose():matmul(t):sum(1), t:cumsum(1) }
  end
  local single = results(x)
  for n = 2, 3 do
    local devices = {}
    for i = 1, n do devices[i] = "cpu:" .. i - 1 end
    local step = core.jit(function(t) return unpack(results(ops.shard(t))) end, { devices = devices })
    for i, y in ipairs { step(x) } do check.equal(y:to "cpu:0":totable(), single[i]:totable()) end
  end
end)

test("a device without rows does not change the largest and smallest integers", function()
  local step = core.jit(function(t)
    t = ops.shard(t)
    return t:max(), t:min()
  end, { devices = { "cpu:0", "cpu:1", "cpu:2" } })
  for _, number in ipairs { -2 ^ 31, 2 ^ 31 - 1 } do
    local most, least = step(mgpu.full({ 2 }, number, { dtype = "int32" }))
    check.equal({ most:item(), least:item() }, { number, number })
  end
end)

test("a number that an integer dtype cannot hold takes a wider one", function()
  local bytes, ints = mgpu.tensor({ 7 }, { dtype = "uint8" }), mgpu.tensor({ 7 }, { dtype = "int32" })
  check.equal((bytes + 3e9):dtype(), "int64")
  check.equal((ints - 3e9):totable(), { 7 - 3e9 })
  check.equal((ints + 1):dtype(), "int32")
  check.equal((ints * 1e20):dtype(), "float32")
  -- not compared with a saturated number
  check.equal(mgpu.full({ 1 }, 2 ^ 31 - 1, { dtype = "int32" }):lt(2 ^ 31):item(), true)
end)

-- Bytes of memory that are free.
local function free_memory()
  local file = io.open "/proc/meminfo"
  if not file then return 0 end
  local kib = file:read "*a":match "MemAvailable:%s*(%d+) kB"
  file:close()
  return tonumber(kib or 0) * 1024
end

test("a tensor of 2.3e9 elements is counted and searched beyond 2^31", function()
  check.slow()
  if free_memory() < 8e9 then check.skip "needs 8 GB of free memory" end
  local t = mgpu.ones({ 2300000000 }, { dtype = "uint8" })
  check.equal(exact(t:sum()), { "2300000000" })
  check.equal(t:mean():item(), 1)
  t:free()
  t = mgpu.zeros({ 2200000000 }, { dtype = "uint8" }):clone()
  t:pointer()[2199999999] = 1
  check.equal(exact(t:argmax()), { "2199999999" })
  t:free()
end)
