-- ds:prefetch copies batches to the GPU on a separate stream, ahead of the steps that read them. Each script runs on
-- the fake CUDA in its three orders of streams: a missing wait gives wrong numbers in one of them.
local device = require "tests.cuda.device"
local check = require "check"
local test = check.test

local ORDERS = device.real and { "now" } or { "now", "late", "early" }

local START = [[
local mgpu, core = require "mgpu", require "mgpu.core"
core.default_device "cuda:0"
core.precision "highest"
local L = mgpu.layers
local function rows(n, columns)
  local x = mgpu.arange(n * columns, { dtype = "int32", device = "ref:0" }):reshape { n, columns }
  mgpu.eval(x)
  return mgpu.data.from_tensors { x }
end
local step = mgpu.jit(function(x) return x:to "float64":sum(2) end)
]]

-- Runs the script in each order of streams -> its outputs, one for each order, which must end with status 0.
local function outputs(script, settings)
  local path, list = check.path "script.lua", {}
  check.write(path, START .. script)
  for _, order in ipairs(ORDERS) do
    local libraries = device.real and "" or "MGPU_CUDA_LIBRARIES=build/fake_cuda MGPU_FAKE_CUDA_STREAMS=" .. order
    local output, status = check.run(("MGPU_CUDA_AUTOTUNE=1 MGPU_CUDA_KEPT=%d %s %s timeout 250 %s %s"):format(2 ^ 28,
      libraries, settings or "", check.program, path))
    check.equal(status, 0, order .. ": " .. output)
    list[#list + 1] = output
  end
  return list
end

local function each_output(script, wanted, settings)
  for i, output in ipairs(outputs(script, settings)) do check.equal(output, wanted, ORDERS[i]) end
end

-- Batches of 320 bytes, and of 4.4 MB, which are more than a pinned half.
for _, case in ipairs { { "small", 4, 20 }, { "large", 110, 10000 } } do
  local name, batch, columns = unpack(case)
  test(("steps read %s batches that were copied ahead of them, again at the same places"):format(name), function()
    each_output(([[
local batch, columns = %d, %d
for pass = 1, 2 do
  local sums, row = {}, 0
  for x in rows(batch * 5, columns):batch(batch):prefetch(2, { threads = 2 }):iter(nil, "cuda:0") do
    sums[#sums + 1] = step(x)
    x:free() -- its memory is that of a later batch, while the step may not have run yet
  end
  for _, s in ipairs(sums) do
    for _, v in ipairs(s:totable()) do
      local wanted = row * columns * columns + columns * (columns - 1) / 2
      assert(v == wanted, ("row %%d: %%d, not %%d"):format(row, v, wanted))
      row = row + 1
    end
  end
  print(row)
end
]]):format(batch, columns), ("%d\n"):format(batch * 5):rep(2))
  end)
end

-- Without ds:batch the threads deliver several rows at once, each of which is copied separately.
test("single rows that come in blocks are copied ahead, from any element on, and before maps", function()
  each_output([[
local sum = mgpu.jit(function(x) return x:to "float64":sum() end)
local ds = rows(150, 64):prefetch(100, { threads = 2 })
local twice = rows(150, 64):map(function(x) return x * 2 end):prefetch(100, { threads = 2 })
for _, case in ipairs { { ds, 0, 1, "cuda:0" }, { ds, 70, 1, "cuda:0" }, { twice, 70, 2 } } do
  local from, row, factor, where = unpack(case)
  local sums, place = {}, row
  for x in from:iter({ pass = 0, element = row }, where) do
    assert(x:device() == "cuda:0" or not where)
    sums[#sums + 1] = sum(x)
    x:free()
  end
  for _, s in ipairs(sums) do
    local wanted = factor * (place * 64 * 64 + 64 * 63 / 2)
    assert(s:item() == wanted, ("row %d: %d, not %d"):format(place, s:item(), wanted))
    place = place + 1
  end
  print(place)
end
]], "150\n150\n150\n")
end)

test("the memory of dropped elements, and of passes that end early, is reused by later copies", function()
  each_output([[
local ds = rows(64, 512):batch(4):cycle():prefetch(3, { threads = 2 })
local total = 0
for round = 1, 6 do
  local it = ds:iter({ pass = 0, element = 0 }, "cuda:0")
  for k = 1, round do
    local x = it()
    if k % 2 == 1 then total = total + step(x)[1]:item() end
  end
  it:close()
end
-- batches 0, 2 and 4; the first row of batch k is 4 * 512 * k
local wanted = 0
for round = 1, 6 do
  for k = 1, round, 2 do wanted = wanted + 512 * (4 * 512 * (k - 1)) + 512 * 511 / 2 end
end
print(total == wanted)
]], "true\n")
end)

local FIT = [[
mgpu.seed(3)
local x = (mgpu.arange(96 * 24, { device = "ref:0" }) % 17 / 17):reshape { 96, 24 }
local y = (mgpu.arange(96, { device = "ref:0" }) % 5 / 5):reshape { 96, 1 }
mgpu.eval(x, y)
local function train(devices, depth)
  mgpu.seed(3)
  local model = mgpu.Sequential { L.Input { 24 }, L.Dense { 8, activation = "tanh" }, L.Dense { 1 } }
  model:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { 0.05 }, devices = devices }
  local ds = mgpu.data.from_tensors { x, y }:shuffle(96, 1):batch(20)
  if depth then ds = ds:prefetch(depth) end
  model:fit(ds, { epochs = 3, verbose = 0 })
  local list = {}
  for _, w in ipairs(model:get_weights()) do
    for _, v in ipairs(w:reshape { -1 }:totable()) do list[#list + 1] = v end
  end
  return list
end
local function difference(a, b)
  local most = 0
  for i, v in ipairs(a) do
    local d = math.abs(v - b[i])
    if not (d <= most) then most = d end
  end
  return most
end
]]

test("fit on a GPU learns the same with prefetch, in each order", function()
  each_output(FIT .. [[
local ahead = train("cuda:0", 2)
print(difference(train "cuda:0", ahead), difference(train "ref:0", ahead) < 1e-5)]], "0\ttrue\n")
end)

for name, devices in pairs { ["two devices of a GPU"] = '{ "cuda:0", "cuda:0/1" }',
  ["two GPUs"] = '{ "cuda:0", "cuda:1" }', ["devices with weights"] = '{ ["cuda:0"] = 3, ["cuda:0/1"] = 1 }' } do
  test(("fit on %s learns the same with prefetch"):format(name), function()
    if device.real and name == "two GPUs" and #require "mgpu.core".devices "cuda" < 2 then check.skip "one GPU" end
    each_output(FIT .. ([[
local devices = %s
local ahead = train(devices, 2)
print(difference(train(devices), ahead), difference(train "ref:0", ahead) < 1e-5)]]):format(devices), "0\ttrue\n")
  end)
end

if device.real then return end

-- The number of calls of a function of the driver in a script.
local function calls(script, what)
  local path, log = check.path "counted.lua", check.path "calls"
  check.write(path, START .. script)
  local output, status = check.run(("MGPU_CUDA_LIBRARIES=build/fake_cuda MGPU_FAKE_CUDA_LOG=%s MGPU_CUDA_AUTOTUNE=1 "
    .. "%s %s"):format(log, check.program, path))
  check.equal(status, 0, output)
  return tonumber(check.read(log):match(what .. ": (%d+)")) or 0
end

test("the rows of each device go there ahead of the step, not in it", function()
  local with, without = FIT .. 'train({ "cuda:0", "cuda:0/1" }, 2)', FIT .. 'train { "cuda:0", "cuda:0/1" }'
  check.truthy(calls(with, "cuStreamCreate") == calls(without, "cuStreamCreate") + 2, "a stream for the copies of each")
  -- x and y of 5 batches in 3 epochs, for two devices: each is copied once, and nothing else is copied
  check.equal(calls(with, "cuMemcpyHtoDAsync"), calls(without, "cuMemcpyHtoDAsync"))
end)

test("without prefetch, and on cpu, no stream for copies is made", function()
  local plain = [[for x in rows(8, 4):batch(2):iter(nil, "cuda:0") do step(x) end]]
  check.equal(calls(plain, "cuStreamCreate"), 1)
  check.equal(calls(plain:gsub(":iter", ":prefetch(2):iter"), "cuStreamCreate"), 2)
  check.equal(calls(plain:gsub("cuda:0", "ref:0"):gsub(":iter", ":prefetch(2):iter") .. " mgpu.ones({ 2 }):totable()",
    "cuStreamCreate"), 1)
end)

for _, what in ipairs { "cuMemcpyHtoDAsync", "cuEventRecord", "cuStreamWaitEvent", "cuMemAllocFromPoolAsync" } do
  test(("a failing %s is an error at the batch, and the next call tries it again"):format(what), function()
    for n = 1, 4 do
      local path = check.path "failing.lua"
      check.write(path, START .. ([[
local ffi = require "ffi"
ffi.cdef "void fake_cuda_fail(const char *function, int n, int error);"
local fake = ffi.load "build/fake_cuda/libcuda.so.1"
local it = rows(12, 64):batch(2):prefetch(2):iter(nil, "cuda:0")
local list = { (it()) }
fake.fake_cuda_fail("%s", %d, 1)
local problems = 0
while #list < 6 do
  local ok, x = pcall(it)
  if ok then list[#list + 1] = x else problems = problems + 1 end
  assert(ok or tostring(x):find "CUDA_ERROR_INVALID_VALUE", x)
  assert(problems < 5)
end
fake.fake_cuda_fail("%s", 0, 0)
for k, x in ipairs(list) do
  assert(x[1][1]:item() == (k - 1) * 128 and x[2][64]:item() == k * 128 - 1)
end
print(problems <= 1, it())
]]):format(what, n, what))
      local output, status = check.run(("MGPU_CUDA_LIBRARIES=build/fake_cuda %s %s"):format(check.program, path))
      check.equal(status, 0, output)
      check.equal(output, "true\tnil\n")
    end
  end)
end
