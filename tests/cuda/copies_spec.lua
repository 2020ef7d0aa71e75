-- Copies between cuda devices must not go through the host. Checked on the fake CUDA, which counts the
-- driver's calls.
local device = require "tests.cuda.device"
local check = require "check"

if device.real then return end

local test = check.test
local COPIES = { "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync", "cuMemcpyPeerAsync",
  "cuStreamWaitEvent" }

-- Runs a script in a process of its own -> its output, and the number of calls of each of COPIES.
local function run(script, settings)
  local path, log = check.path "script.lua", check.path "calls"
  check.write(path, 'local mgpu, core = require "mgpu", require "mgpu.core"\n' .. script)
  local output, status = check.run(("MGPU_CUDA_LIBRARIES=build/fake_cuda MGPU_FAKE_CUDA_LOG=%s %s %s %s"):format(
    log, settings or "", check.program, path))
  check.equal(status, 0, output)
  local calls, text = {}, check.read(log)
  for _, name in ipairs(COPIES) do calls[name] = tonumber(text:match(name .. ": (%d+)")) or 0 end
  return output, calls
end

-- The calls that `script` adds when it runs after `before`, and the output of both.
local function added(before, script, settings)
  local _, base = run(before, settings)
  local output, calls = run(before .. script, settings)
  for name, n in pairs(calls) do calls[name] = n - base[name] end
  return calls, output
end

local MAKE = [[
local function show(t) print(t:device(), unpack(t:totable())) end
local x = mgpu.tensor({ 1, 2, 3 }, { device = "cuda:0" })
]]
-- The first copy between two GPUs also tests whether peer copies arrive; this runs that test in advance.
local TRIED = MAKE .. 'x:to "cuda:1"\n'

-- name, target device, the driver's function that must copy
for _, case in ipairs {
  { "to another GPU", "cuda:1", "cuMemcpyPeerAsync" },
  { "to another device on the same GPU", "cuda:0/1", "cuMemcpyDtoDAsync" },
} do
  local name, to, call = unpack(case)
  test("a tensor goes " .. name .. " without the host", function()
    local calls = added(TRIED, ('local y = x:to "%s"'):format(to))
    check.equal(calls.cuMemcpyDtoHAsync, 0)
    check.equal(calls.cuMemcpyHtoDAsync, 0)
    check.equal(calls[call], 1)
    check.equal(calls.cuStreamWaitEvent, 2) -- the copy waits for its source; the source's stream for the copy
    local output = run(MAKE .. ('show((x * 2):to "%s")'):format(to))
    check.equal(output, to .. "\t2\t4\t6\n")
  end)
end

test("a clone and a tensor placed on another GPU stay off the host", function()
  local calls = added(MAKE, "local y = x:clone()")
  check.equal(calls.cuMemcpyDtoHAsync + calls.cuMemcpyHtoDAsync, 0)
  check.equal(calls.cuMemcpyDtoDAsync, 1)
  local output
  calls, output = added(TRIED, 'show(core.place(x, "cuda:1") * 2) show(x:clone())')
  check.equal(output, "cuda:1\t2\t4\t6\ncuda:0\t1\t2\t3\n")
  check.equal(calls.cuMemcpyDtoHAsync, 2) -- by the two show()
  check.equal(calls.cuMemcpyPeerAsync, 1)
end)

test("GPUs without peer access copy through the host", function()
  local calls, output = added(MAKE, 'show(x:to "cuda:1")', "MGPU_FAKE_CUDA_FAIL=cuMemPoolSetAccess:-1:801")
  check.equal(output, "cuda:1\t1\t2\t3\n")
  check.equal(calls.cuMemcpyPeerAsync, 0)
  check.equal(calls.cuMemcpyDtoHAsync, 2)
end)

test("GPUs whose peer copies report success but do not arrive copy through the host", function()
  local output, calls = run(MAKE .. 'show(x:to "cuda:1") show((x * 2):to "cuda:1")',
    "MGPU_FAKE_CUDA_DEAF=1 MGPU_LOG=fallback")
  check.matches(output, "fallback: cuda:0 and cuda:1 copy through host memory: bytes do not arrive\n")
  check.matches(output, "cuda:1\t1\t2\t3\ncuda:1\t2\t4\t6\n")
  check.equal(calls.cuMemcpyPeerAsync, 2) -- one test copy in each direction
end)

test("a failed peer copy is an error, and the next copy succeeds", function()
  local output = run(MAKE .. [[
print(pcall(x.to, x, "cuda:1"))
show(x:to "cuda:1")
]], "MGPU_FAKE_CUDA_FAIL=cuMemcpyPeerAsync:3:1")
  check.matches(output, "false\t[^\n]*cuda:1: copy between GPUs: [^\n]*CUDA_ERROR_INVALID_VALUE")
  check.matches(output, "\ncuda:1\t1\t2\t3\n")
end)

test("copies in both directions between two devices, and of empty tensors", function()
  local output = run(MAKE .. [[
local y = mgpu.tensor({ 4, 5, 6 }, { device = "cuda:1" })
for i = 1, 3 do x, y = (y + i):to "cuda:0", (x * i):to "cuda:1" end
show(x)
show(y)
print(mgpu.zeros({ 0, 2 }, { device = "cuda:0" }):to("cuda:1"):count())
]])
  check.equal(output, "cuda:0\t13\t15\t17\ncuda:1\t9\t12\t15\n0\n")
end)

-- Data-parallel training: weights go to the other devices once; rows of the batch, gradients and results in
-- each step.
local TRAIN = [[
mgpu.seed(1)
local model = mgpu.Sequential { mgpu.layers.Input { 8 }, mgpu.layers.Dense { 4, activation = "relu" },
  mgpu.layers.Dense { 1 } }
model:compile { loss = "mse", optimizer = "sgd", devices = { DEVICES } }
local x, y = mgpu.rand({ 30, 8 }, { device = "cuda:0" }), mgpu.rand({ 30, 1 }, { device = "cuda:0" })
mgpu.eval(x, y)
for _ = 1, STEPS do model:train_on_batch(x, y) end
for _, w in ipairs(model:get_weights()) do print(unpack(w:reshape { -1 }:totable())) end
print(unpack(model:predict(x, { verbose = 0 }):reshape { -1 }:totable()))
]]

for _, case in ipairs {
  { "two GPUs", '"cuda:0", "cuda:1"', "cuMemcpyPeerAsync" },
  { "two devices of a GPU", '"cuda:0", "cuda:0/1"', "cuMemcpyDtoDAsync" },
} do
  local name, devices, call = unpack(case)
  test("weights and rows go between " .. name .. " without the host", function()
    local script = TRAIN:gsub("DEVICES", devices)
    local _, one = run((script:gsub("STEPS", "1")))
    local output, three = run((script:gsub("STEPS", "3")))
    check.truthy(three[call] > one[call], "rows of the batch")
    check.truthy(one[call] >= 4, "weights")
    local read = (three.cuMemcpyDtoHAsync - one.cuMemcpyDtoHAsync) / 2
    -- The loss of the step and the mean loss; the guards on the loss, the gradients and the new weights.
    check.truthy(read <= 5, read .. " copies to the host in a step, besides its loss and guards")
    local alone = run((TRAIN:gsub("DEVICES", '"cuda:0"'):gsub("STEPS", "3")))
    local numbers = {}
    for v in alone:gmatch "%S+" do numbers[#numbers + 1] = tonumber(v) end
    local i = 0
    for v in output:gmatch "%S+" do
      i = i + 1
      check.near(tonumber(v), numbers[i], 1e-5) -- float32 sums of 30 terms in another order
    end
    check.equal(i, #numbers)
  end)
end

test("lazy tensors of the GPU can be training data for host devices", function()
  local output = run([[
local model = mgpu.Sequential { mgpu.layers.Input { 8 }, mgpu.layers.Dense { 3 } }
model:compile { loss = mgpu.losses.SparseCategoricalCrossentropy { from_logits = true },
  optimizer = "sgd", devices = { "ref:0", "ref:1" } }
local x, y = mgpu.rand { 64, 8 }, mgpu.randint(0, 3, { 64 })
print(x:device())
model:fit(x, y, { batch_size = 16, verbose = 0 })
print(y:device() == "ref:0", #y:totable())
]])
  check.equal(output, "cuda:0\ntrue\t64\n")
end)
