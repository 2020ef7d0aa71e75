-- Waits for a GPU that never finishes: they end at MGPU_DEADLINE with the error of a lost device, and at Ctrl-C and
-- SIGTERM at once. Runs on the fake CUDA, which can let a piece of work hang, and continue it later.
local device = require "tests.cuda.device"
local check = require "check"

if device.real then return end

local test = check.test

-- The memory of a lost device is not freed, because its work may still access it.
local ffi = require "ffi"
ffi.cdef "int setenv(const char *name, const char *value, int overwrite);"
ffi.C.setenv("ASAN_OPTIONS", (os.getenv "ASAN_OPTIONS" or "") .. ":detect_leaks=0", 1)

local START = [[
local ffi, mgpu, core = require "ffi", require "mgpu", require "mgpu.core"
ffi.cdef "void fake_cuda_hang(int n); void fake_cuda_go_on(void);"
local fake = ffi.load "build/fake_cuda/libcuda.so.1"
local function ready()
  local file = assert(io.open(arg[1], "w"))
  file:write "ready"
  file:close()
end
-- From here on the n-th piece of work hangs, by default the next.
local function hang(n)
  fake.fake_cuda_hang(n or 1)
  ready()
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
-- Allocates until less than a megabyte is left.
local function fill_memory()
  local kept = {}
  while pcall(function()
    kept[#kept + 1] = mgpu.zeros { 512, 512 }
    mgpu.eval(kept[#kept])
  end) do end
  return kept
end
]]

-- Computes a convolution for the first time, so that its kernels are timed; the n-th piece of work from here on hangs.
local CHOOSE = [[
ffi.cdef "int setenv(const char *, const char *, int);"
ffi.C.setenv("MGPU_CUDA_AUTOTUNE", "", 1)
ffi.C.setenv("MGPU_CACHE", arg[1] .. ".cache", 1)
local image, weight = mgpu.ones { 2, 9, 9, 2 }, mgpu.ones { 3, 3, 2, 8 }
mgpu.eval(image, weight)
hang(%d)
print(pcall(function() return core.ops.conv2d(image, weight):totable() end))]]

-- What waits, as Lua; the work of the GPU before it hangs. The third is the environment.
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
  { "a trial of kernels", CHOOSE:format(1) },
  { "timing kernels", CHOOSE:format(18) }, -- behind the 11 pieces of the checks; the samples are at least 12
  { "a step on the host", [[
local turn = mgpu.tensor { 1, 0, 0, 0, 1, 0, 0, 0 }
local spread = mgpu.jit(function(dy) return core.ops.affine_transform_grad(dy, turn, { size = { 4, 4 } }) end)
local dy = mgpu.ones { 1, 4, 4, 1 }
spread(dy):totable()
hang()
print(pcall(function() return spread(double(dy)):totable() end))]] },
  { "memory, when it is full", [[
local kept = fill_memory()
double(x)
hang()
print(pcall(function()
  local w = double(x)
  kept[#kept + 1] = mgpu.zeros { 1024, 1024 }
  mgpu.eval(w, kept[#kept])
end))]], "MGPU_FAKE_CUDA_MEMORY=67108864" },
  { "memory for copies ahead of need", [[
local kept = fill_memory()
hang()
double(x)
local it = mgpu.data.from_tensors { host }:batch(16):prefetch(2):iter(nil, "cuda:0")
print(pcall(function() for _ in it do end end))]], "MGPU_FAKE_CUDA_MEMORY=67108864" },
  { "the trial of copies between GPUs", [[hang() local w = double(x) print(pcall(w.to, w, "cuda:1"))]] },
}

local function script_of(case)
  local path = check.path "hang.lua"
  check.write(path, START .. case[2] .. "\n")
  return path
end

-- The command that starts the script and sends it the signal when it hangs; it prints the status.
local function stopped(path, signal, environment)
  local ready = check.path "ready"
  os.remove(ready)
  return ("%s timeout 60 %s %s %s & p=$!; while [ ! -s %s ]; do sleep 0.05; done; sleep 0.5; "
    .. "kill -%s $(cat /proc/$p/task/$p/children); wait $p; echo status $?"):format(environment or "",
    check.program, path, ready, ready, signal)
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
    local output, status = check.run(("MGPU_DEADLINE=0.3 MGPU_GRACE=0.3 %s timeout 60 %s %s %s"):format(case[3] or "",
      check.program, path, check.path "ready"))
    check.matches(output, "^false\t[^\n]*cuda:0: [^\n]*did not come back within [%d.]+ seconds: the device is lost; "
      .. "go on without it")
    check.matches(output, "\ndevice\ttrue\nfalse\t[^\n]*cuda:0 is lost")
    check.matches(output, "\n0\t0\n$")
    check.equal(status, 0)
  end)

  for _, signal in ipairs { "INT", "TERM" } do
    test(("SIG%s ends %s, and the program can end"):format(signal, case[1]), function()
      -- The deadline is ten minutes away: only the signal can end the wait.
      local output = check.run(stopped(script_of(case), signal, case[3]))
      check.matches(output, "^false\t[^\n]*interrupted")
      check.matches(output, "status 0\n$")
    end)
  end
end

test("a choice between kernels that was interrupted is not cached, and made again", function()
  local path = script_of { "", CHOOSE:format(18) .. [[

fake.fake_cuda_go_on()
print(core.ops.conv2d(image, weight):sum():item())]] }
  local output = check.run(stopped(path, "INT", "MGPU_LOG=dispatch"))
  check.matches(output, "\nfalse\t[^\n]*interrupted\n14112\nstatus 0\n$")
  check.matches(output, "conv2d: candidate 1 takes [^\n]*\n[^\n]*conv2d: candidate 2 takes ")
  check.matches(output, "conv2d: few channels takes [^\n]*\n[^\n]*conv2d: cuDNN takes ")
  check.equal(output:find(" is out\n", 1, true), nil)
end)

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

-- Guards on new weights are read after the commit phase. If an interrupt comes while the host waits for them, the step
-- must still count as done, and the user must still get the guard's message.
local CUT = START .. [[
ffi.cdef [=[
typedef struct { void *value; int signal, how; void *call, *attributes; char rest[32]; } sigevent_t;
typedef struct { long seconds[2], nanoseconds[2]; } unused_t;
typedef struct { long interval, interval_ns, first, first_ns; } itimerspec_t;
int timer_create(int clock, sigevent_t *event, void **timer);
int timer_settime(void *timer, int flags, const itimerspec_t *when, itimerspec_t *before);
void mg_interrupt(void);
]=]
local function timer(call)
  local event, made = ffi.new "sigevent_t", ffi.new "void *[1]"
  event.how, event.call = 2, ffi.cast("void *", call) -- SIGEV_THREAD
  assert(ffi.C.timer_create(1, event, made) == 0)
  return function(first, interval)
    ffi.C.timer_settime(made[0], 0, ffi.new("itimerspec_t", 0, (interval or 0) * 1e6, 0, first * 1e6), nil)
  end
end
local interrupt_in, go_on_in = timer(ffi.C.mg_interrupt), timer(fake.fake_cuda_go_on)
-- Like pcall, but calls again after an interrupt that comes late.
local function settled(call, ...)
  local ok, result
  repeat ok, result = pcall(call, ...) until ok or not tostring(result):find "interrupted"
  return ok, result
end
-- A step on two devices that reads none of its results.
local function make(rate)
  local w, sgd = mgpu.variable(mgpu.ones { 4, 1 }, { name = "w" }), mgpu.optimizers.SGD { learning_rate = rate }
  local step = core.jit(function(rows)
    local loss, grads = mgpu.value_and_grad(function()
      return mgpu.sum(mgpu.matmul(core.ops.shard(rows), w:value()))
    end, { w })()
    sgd:apply(grads, { w })
    return loss
  end, { devices = { "cuda:0", "cuda:0/1" } })
  sgd:build { w }
  return step, w
end
-- Takes the step, whose n-th piece of work hangs for a while -> like pcall.
local function cut_step(step, n)
  fake.fake_cuda_hang(n)
  interrupt_in(30)
  go_on_in(80, 40)
  local ok, message = pcall(step, x)
  fake.fake_cuda_hang(0)
  fake.fake_cuda_go_on()
  interrupt_in(0)
  settled(function() return double(x):totable() end)
  return ok, message
end
]]

test("an interrupt after a step on two devices neither undoes it nor hides its guards", function()
  local path = check.path "cut.lua"
  check.write(path, CUT .. [[
local function value(of)
  local _, rows = settled(function() return of:value():totable() end)
  return rows[1][1]
end
local good, w = make(0.01)
local bad, v = make(3e38)
good(x)
local first = mgpu.ones { 4, 1 }
mgpu.eval(first)
pcall(bad, x)
local cut, told = 0, 0
for n = 1, 30 do
  local before = value(w)
  local ok, message = cut_step(good, n)
  assert(ok == (value(w) ~= before), ("%d: %s %s"):format(n, ok, message))
  if not ok then assert(message:find "interrupted", message) cut = cut + 1 end
  v:assign(first)
  ok, message = cut_step(bad, n)
  assert(not ok, n)
  if message:find "overflowed" then
    told = told + 1
    local again, refused = settled(bad, x)
    assert(not again and refused:find "overflowed", refused)
  else
    assert(message:find "interrupted" and value(v) == 1, message)
  end
end
print(cut > 0, told > 0)
]])
  check.equal(check.run(("timeout 120 %s %s"):format(check.program, path)), "true\ttrue\n")
end)
