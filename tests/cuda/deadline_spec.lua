-- Waits for a GPU that never finishes: they end at MGPU_DEADLINE with the error of a lost device, and at Ctrl-C and
-- SIGTERM at once. On the fake CUDA, which can let a piece of work hang, and go on with it.
local device = require "tests.cuda.device"
local check = require "check"

if device.real then return end

local test = check.test

local START = [[
local ffi, mgpu, core = require "ffi", require "mgpu", require "mgpu.core"
ffi.cdef "void fake_cuda_hang(int n); void fake_cuda_go_on(void);"
local fake = ffi.load "build/fake_cuda/libcuda.so.1"
local function hang() fake.fake_cuda_hang(1) end
local function ready()
  local file = assert(io.open(arg[1], "w"))
  file:write "ready"
  file:close()
end
core.default_device "cuda:0"
local L = mgpu.layers
local x, y = mgpu.ones { 8, 4 }, mgpu.ones { 8, 1 }
mgpu.eval(x, y)
local big = mgpu.zeros { 300, 300 } -- more than the driver buffers itself
mgpu.eval(big)
local host = mgpu.zeros({ 64, 70000 }, { device = "ref:0" })
mgpu.eval(host)
local double = mgpu.jit(function(t) return t * 2 end)
double(x):totable()
local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 1 } }
model:compile { loss = "mse", optimizer = "sgd", devices = "cuda:0" }
model:train_on_batch(x, y)
]]

-- What waits, as Lua; the work of the GPU before it hangs.
local WAITS = {
  { "reading a value", "local z = double(x) hang() local w = double(z) print(pcall(w.totable, w))" },
  { "reading a large tensor", "hang() local w = double(big) print(pcall(w.totable, w))" },
  { "a copy to another device", [[hang() local w = double(x) print(pcall(w.to, w, "ref:0"))]] },
  { "the steps of a fit",
    [[hang() print(pcall(model.fit, model, x, y, { batch_size = 2, epochs = 3, verbose = 0 }))]] },
  { "copies ahead of need", [[
hang()
local it = mgpu.data.from_tensors { host }:batch(16):prefetch(2):iter(nil, "cuda:0")
print(pcall(function() for _ in it do end end)) -- only the thread waits: a batch is handed over at once]] },
}

local function script_of(case)
  local path = check.path "hang.lua"
  check.write(path, START .. "ready()\n" .. case[2] .. "\n")
  return path
end

-- The command that starts the script and sends it the signal when it hangs; it prints the status.
local function stopped(path, signal)
  local ready = check.path "ready"
  os.remove(ready)
  return ("timeout 60 %s %s %s & p=$!; while [ ! -s %s ]; do sleep 0.05; done; sleep 0.5; "
    .. "kill -%s $(cat /proc/$p/task/$p/children); wait $p; echo status $?"):format(check.program, path, ready, ready,
    signal)
end

for _, case in ipairs(WAITS) do
  test(case[1] .. " ends at MGPU_DEADLINE: the device is lost, and the program can end", function()
    local path = script_of(case)
    check.write(path, check.read(path) .. [[
print(mgpu.error_code(), core.is_lost "cuda:0")
print(pcall(function() return mgpu.zeros({ 2 }, { device = "cuda:0" }):totable() end))
core.default_device "ref:0"
print(unpack(mgpu.zeros({ 2 }):totable()))
]])
    local output, status = check.run(("MGPU_DEADLINE=0.3 MGPU_GRACE=0.3 timeout 60 %s %s %s"):format(check.program,
      path, check.path "ready"))
    check.matches(output, "^false\t[^\n]*cuda:0: [^\n]*did not come back within [%d.]+ seconds: the device is lost; "
      .. "go on without it")
    check.matches(output, "\ndevice\ttrue\nfalse\t[^\n]*cuda:0 is lost")
    check.matches(output, "\n0\t0\n$")
    check.equal(status, 0)
  end)

  for _, signal in ipairs { "INT", "TERM" } do
    test(("SIG%s ends %s, and the program can end"):format(signal, case[1]), function()
      -- The deadline is ten minutes away: only the signal can end the wait.
      local output = check.run(stopped(script_of(case), signal))
      check.matches(output, "^false\t[^\n]*interrupted")
      check.matches(output, "status 0\n$")
    end)
  end
end

test("steps that an interrupt has cut off from their guards are not lost", function()
  local path = check.path "hang.lua"
  check.write(path, START .. [[
local function weights()
  local list = {}
  for _, w in ipairs(model:get_weights()) do
    for _, v in ipairs(w:reshape { -1 }:totable()) do list[#list + 1] = v end
  end
  return table.concat(list, " ")
end
local steps, after = 0, {}
local before = model:get_weights()
for i = 1, 12 do
  model:train_on_batch(x, y)
  after[i] = weights()
end
model:set_weights(before)
local bad = x / 0
mgpu.eval(bad)
hang()
ready()
print(pcall(function()
  for _ = 1, 12 do
    steps = steps + 1
    model:train_on_batch(x, y)
  end
end))
fake.fake_cuda_go_on()
print(steps <= 4, weights() == after[steps] or weights() == after[steps - 1])
-- The guards of later steps are answered as before.
print(pcall(function()
  model:train_on_batch(bad, y)
  model:get_weights()[1]:totable()
end))
]])
  local output = check.run(stopped(path, "INT"))
  check.matches(output, "^false\t[^\n]*interrupted!?\ntrue\ttrue\nfalse\t[^\n]*not finite[^\n]*\nstatus 0\n$")
end)
