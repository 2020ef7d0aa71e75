-- Profiles of a GPU, and what SIGQUIT says of one that hangs. On the fake CUDA, whose events have times of the host.
local device = require "tests.cuda.device"
local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local jobs = require "lua.attach.jobs"
local mgpu = require "mgpu"
local terminal = require "lua.prompt.terminal"
local test = check.test
local L = mgpu.layers

local function trained(path, epochs)
  mgpu.seed(3)
  local model = mgpu.Sequential { L.Input { 8, 8, 1 }, L.Conv2D { 4, 3, name = "conv" }, L.Flatten {},
    L.Dense { 2, name = "out" } }
  model:compile { loss = "mse", optimizer = "sgd", devices = "cuda:0" }
  local x, y = mgpu.rand { 16, 8, 8, 1 }, mgpu.rand { 16, 2 }
  mgpu.eval(x, y)
  local function fit() model:fit(x, y, { batch_size = 4, epochs = epochs, verbose = 0 }) end
  local report = path and mgpu.profile(fit, path) or fit()
  return report, model:predict(x):totable()
end

-- The events of the thread of this name.
local function track(path, name)
  local trace, tid, list = core.json_decode(check.read(path)), nil, {}
  for _, e in ipairs(trace.traceEvents) do
    if e.name == "thread_name" and e.args.name == name then tid = e.tid end
    if e.ph == "X" and e.tid == tid then list[#list + 1] = e end
  end
  return list
end

test("launches are timed on the GPU, in a track of its own, and do not overlap", function()
  local path = check.path "gpu.json"
  local report = trained(path, 2)
  local convs, last = 0, 0
  for _, e in ipairs(track(path, "cuda:0")) do
    check.equal(e.cat, "launch")
    check.equal(e.args.device, "cuda:0")
    check.truthy(e.ts >= last - 1e-3, "overlap") -- times have three digits
    last = e.ts + e.dur
    if e.name == "conv2d" then convs = convs + 1 end
  end
  check.equal(convs, 8)
  local row
  for _, r in ipairs(report.rows) do row = r.layer == "conv" and r.op == "conv2d" and r or row end
  check.equal(row.calls, 8)
  check.truthy(row.flops > 0 and row.seconds > 0, "the row")
  check.equal(report.parts.computing, 0) -- the script's thread only starts launches
  local sum = 0
  for _, seconds in pairs(report.parts) do sum = sum + seconds end
  check.near(sum, report.wall, 1e-9)
end)

test("a profile changes no result, and the steps after it are replayed as graphs again", function()
  local _, plain = trained(nil, 3)
  local _, profiled = trained(check.path "same.json", 3)
  check.equal(profiled, plain)
end)

test("more launches than events are kept for at a time are all in the profile", function()
  local path = check.path "many.json"
  local x = mgpu.ones { 4 }
  mgpu.eval(x)
  local f = mgpu.jit(function(t) return t * 2 end)
  mgpu.profile(function()
    for _ = 1, 2500 do f(x) end
    f(x):totable()
  end, path)
  check.equal(#track(path, "cuda:0"), 2501)
end)

test("SIGQUIT tells that the script waits for a GPU that hangs", function()
  if device.real then check.skip "a real GPU does not hang on request" end
  local output = fixtures.signalled(fixtures.READY .. [[
    local ffi = require "ffi"
    ffi.cdef "void fake_cuda_hang(int n);"
    core.default_device "cuda:0"
    local double = mgpu.jit(function(t) return t * 2 end)
    local x = mgpu.ones { 4 }
    double(x):totable()
    ffi.load "build/fake_cuda/libcuda.so.1".fake_cuda_hang(1)
    ready()
    local y = double(x)
    print(pcall(y.totable, y))]], "QUIT", { environment = "MGPU_DEADLINE=3 MGPU_GRACE=0.5" })
  check.matches(output, "main: waits for cuda:0, for %d")
  check.matches(output, "cuda:0: .*did not come back within")
end)

test("an attached prompt tells that the job waits for a GPU that hangs", function()
  if device.real then check.skip "a real GPU does not hang on request" end
  local output = jobs.with(function(job)
    local t = terminal.open { arguments = "--attach " .. job.pid, env = { XDG_RUNTIME_DIR = job.run }, columns = 200 }
    t:expect(job.pid .. "> ")
    t:type ":where"
    t:expect "waits for cuda:0, for "
    t:expect(job.pid .. "> ")
    check.equal(t:close(), 0)
    check.run("kill -INT " .. job.pid)
  end, { job = [[
    local core, ffi, mgpu = require "mgpu.core", require "ffi", require "mgpu"
    ffi.cdef "void fake_cuda_hang(int n);"
    core.default_device "cuda:0"
    local double = mgpu.jit(function(t) return t * 2 end)
    local x = mgpu.ones { 4 }
    double(x):totable()
    ffi.load "build/fake_cuda/libcuda.so.1".fake_cuda_hang(1)
    local y = double(x)
    core.write_file(arg[1], "ready")
    print(pcall(y.totable, y))]] })
  check.matches(output, "^false\t[^\n]*interrupted")
  check.matches(output, "status 0\n$")
end)
