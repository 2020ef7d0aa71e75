-- CUDA graphs of recorded steps: whatever changes between the runs of a plan (addresses, the arena, random
-- numbers, failed guards, errors) must not change its results. The fake CUDA runs in strict mode here:
-- freed memory is never reused, and a graph that touches it ends with an error.
local ffi = require "ffi"
ffi.cdef "int setenv(const char *name, const char *value, int overwrite);"
ffi.C.setenv("MGPU_FAKE_CUDA_STRICT", "1", 1)

local device = require "tests.cuda.device"
local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

-- fn(device name) must return the same numbers on cuda:0 and on ref.
local function as_on_ref(fn, tolerance)
  local function on(name)
    mgpu.seed(3)
    mgpu.reset_names()
    return mgpu.with_device(name, function() return fn(name) end)
  end
  check.near(on "cuda:0", on "ref:0", tolerance or 1e-5) -- float32 sums in another order
end

-- 0, 1, ... n - 1 as float32.
local function range(n) return mgpu.arange(n):to "float32" end

local function numbers(list)
  local all = {}
  for i, t in ipairs(list) do all[i] = t:reshape { -1 }:totable() end
  return all
end

-- ---- addresses ----------------------------------------------------------------------------------

for _, count in ipairs { 2, 5, 40 } do
  test(("arguments alternate among %d buffers while all results are kept"):format(count), function()
    as_on_ref(function()
      local f = mgpu.jit(function(x, y) return (x * 2 + y):reshape { 3, 2 }, (x - y):sum() end)
      local buffers, kept = {}, {}
      for i = 1, count do buffers[i] = mgpu.full({ 6 }, i) + range(6) end
      mgpu.eval(unpack(buffers))
      for i = 1, 3 * count do
        local a, b = f(buffers[i % count + 1], buffers[i * 7 % count + 1])
        kept[#kept + 1] = a
        kept[#kept + 1] = b
      end
      return numbers(kept)
    end)
  end)
end

test("a variable whose value the caller holds gets new memory, and held values stay", function()
  as_on_ref(function()
    local v, w = mgpu.variable(range(5)), mgpu.variable(mgpu.ones { 5 })
    local step = mgpu.jit(function(x)
      local before = v:value()
      v:assign(before * 0.5 + x)
      w:assign(w:value() + before)
    end)
    local held = {}
    for i = 1, 24 do
      step(mgpu.full({ 5 }, i))
      if i % 3 > 0 then held[#held + 1] = v:value() end
    end
    held[#held + 1] = v:value()
    held[#held + 1] = w:value()
    return numbers(held)
  end)
end)

test("a result that is a reshaped temporary is also used within the plan", function()
  as_on_ref(function()
    local f, last = mgpu.jit(function(x)
      local r = (x * 2 + 1):reshape { 10, 100 }
      return r, r * 3 - 2
    end), {}
    for i = 1, 5 do last = { f(mgpu.full({ 1000 }, i)) } end
    return numbers(last)
  end)
end)

test("plans that take turns share an arena while it grows", function()
  as_on_ref(function()
    local plans, kept = {}, {}
    for i = 1, 6 do
      plans[i] = mgpu.jit(function(x)
        local wide = x:reshape { -1, 1 } * x:reshape { 1, -1 }
        return wide:sum { axis = 1 } + wide:max { axis = 2 }
      end)
    end
    for size = 1, 6 do
      for turn = 1, 4 do
        for i = 1, size do kept[#kept + 1] = plans[i](range(4 ^ i < 200 and 4 ^ i or 200 * i) / 100 + turn) end
      end
    end
    return numbers(kept)
  end)
end)

test("a new plan does not use the graphs of a collected one", function()
  as_on_ref(function()
    local kept, x = {}, range(7)
    for i = 1, 20 do
      local f = mgpu.jit(function(y) return (y * i):sum() + y end)
      for _ = 1, 3 do kept[#kept + 1] = f(x) end
      f = nil -- luacheck: ignore
      collectgarbage()
    end
    return numbers(kept)
  end)
end)

test("empty tensors in a step with many calls", function()
  as_on_ref(function()
    local f = mgpu.jit(function(x, ...)
      local y, sums = x, {}
      for i = 1, 7 do
        sums[i] = select(i, ...):sum()
        y = y + sums[i]
      end
      return y, sums[7] + y:sum()
    end)
    local kept = {}
    for i = 1, 4 do
      local terms = {}
      for k = 1, 7 do terms[k] = mgpu.full({ k }, i) end
      local y, sum = f(mgpu.zeros { 0, 3 }, unpack(terms))
      check.equal(y:shape(), { 0, 3 })
      kept[i] = sum
    end
    return numbers(kept)
  end)
end)

-- ---- training -----------------------------------------------------------------------------------

local function classifier(name, options)
  local model = mgpu.Sequential { L.Input { 6 }, L.Dense { 8, activation = "relu", name = "h" },
    L.Dropout { 0.3, name = "d" }, L.Dense { 3, activation = "softmax", name = "o" } }
  model:compile { loss = "sparse_categorical_crossentropy", optimizer = mgpu.optimizers.Adam { 0.01 },
    devices = name, steps_per_execution = options and options.steps_per_execution }
  return model
end

local function rows(n) return (range(n * 6) % 11):reshape { n, 6 } / 11 end

for _, failing in ipairs { { 1 }, { 2 }, { 3 }, { 20 }, { 2, 3, 20 }, { 25 } } do
  local wrong = {}
  for _, step in ipairs(failing) do wrong[step] = true end
  test(("a guard that fails in step %s leaves weights and random state as they were"):format(
    table.concat(failing, ", ")), function()
    as_on_ref(function(name)
      local model, x = classifier(name), rows(9)
      local good = (range(9) % 3):to "int32"
      local bad = mgpu.full({ 9 }, 7, { dtype = "int32" })
      local step, raised = 1, 0
      while step <= 25 do
        if wrong[step] then -- raised now or, since the device is asynchronous, by the next read
          wrong[step] = nil
          local ok = pcall(function()
            model:train_on_batch(x, bad)
            model:get_weights()[1]:totable()
          end)
          check.falsy(ok, "step " .. step)
          raised = raised + 1
        else
          model:train_on_batch(x, good)
          step = step + 1
        end
      end
      check.equal(raised, #failing)
      for _, s in ipairs(failing) do wrong[s] = true end
      return numbers(model:get_weights())
    end, 1e-4) -- 25 steps
  end)
end

test("several steps per execution", function()
  as_on_ref(function(name)
    local model = classifier(name, { steps_per_execution = 3 })
    local x, y = rows(40), (range(40) % 3):to "int32"
    model:fit(x, y, { epochs = 4, batch_size = 7, verbose = 0 })
    return numbers(model:get_weights())
  end, 1e-4)
end)

test("each replay draws new random numbers, also if other plans draw in between", function()
  as_on_ref(function()
    local f = mgpu.jit(function() return mgpu.rand { 5 } end)
    local g = mgpu.jit(function(x) return mgpu.randn { 3 } + x, mgpu.rand { 2 } end)
    local kept = {}
    for i = 1, 8 do
      kept[#kept + 1] = f()
      if i % 2 == 0 then
        local a, b = g(mgpu.full({ 3 }, i))
        kept[#kept + 1] = a
        kept[#kept + 1] = b
      end
    end
    return numbers(kept)
  end)
end)

if device.real then return end

-- ---- errors -------------------------------------------------------------------------------------

ffi.cdef [[
void fake_cuda_fail(const char *function, int n, int error);
long long fake_cuda_count(const char *what);
]]
local fake_cuda = ffi.load "build/fake_cuda/libcuda.so.1"

-- Training steps in which the n-th call of `what` fails with `code`, n = first .. last; a failed step is
-- repeated. The weights must be those of ref. Returns the number of failed steps. The second step is the one
-- that is recorded.
local function after_failures(what, code, first, last)
  local failures = 0
  as_on_ref(function(name)
    local model, x, y = classifier(name), rows(9), (range(9) % 3):to "int32"
    model:train_on_batch(x, y)
    for n = first, last do
      if name == "cuda:0" then fake_cuda.fake_cuda_fail(what, n, code) end
      local ok, message = pcall(model.train_on_batch, model, x, y)
      fake_cuda.fake_cuda_fail(what, 0, 0)
      if not ok then
        failures = failures + 1
        check.matches(message, "CUDA_ERROR")
        model:train_on_batch(x, y)
      end
    end
    return numbers(model:get_weights())
  end, 1e-4)
  return failures
end

for _, what in ipairs { "cuLaunchKernel", "cuStreamUpdateCaptureDependencies", "cuStreamGetCaptureInfo",
  "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate" } do
  test(what .. " fails while a step is recorded: the step runs unrecorded", function()
    local call = what == "cuLaunchKernel" and 5 or 1 -- the first four check the labels, before the recording
    check.equal(after_failures(what, 1, call, call), 0)
  end)
end

test("cuGraphLaunch fails: nothing was done, and the step can be repeated", function()
  check.truthy(after_failures("cuGraphLaunch", 1, 1, 6) > 0)
end)

test("a failure while a step is recorded is logged once", function()
  local path = check.path "told.lua"
  check.write(path, [[
    local mgpu = require "mgpu"
    local x = mgpu.ones({ 4 }, { device = "cuda:0" })
    local f = mgpu.jit(function(t) return (t * 2):sum() end)
    for _ = 1, 4 do f(x) end
    print(f(x):item())]])
  local output = check.run(("MGPU_FAKE_CUDA_FAIL=cuGraphInstantiate:-1:1 MGPU_CUDA_LIBRARIES=build/fake_cuda %s %s")
    :format(check.program, path))
  check.matches(output, "^[^\n]*cuda:0: a step is not captured into a CUDA graph: cuda:0: make a graph[^\n]*\n8\n$")
end)

for _, what in ipairs { "cuGraphInstantiate", "cuStreamEndCapture", "cuStreamBeginCapture" } do
  test(what .. " fails for lack of memory: steps run without graphs", function()
    check.equal(after_failures(what, 2, -4, -1), 0) -- all calls
  end)
end

test("a step that the driver refuses to record runs without a graph from then on", function()
  check.equal(after_failures("cuStreamEndCapture", 901, 1, 2), 0)
  local model, x, y = classifier "cuda:0", rows(9), (range(9) % 3):to "int32"
  fake_cuda.fake_cuda_fail("cuStreamEndCapture", 1, 901)
  for _ = 1, 3 do model:train_on_batch(x, y) end
  fake_cuda.fake_cuda_fail("cuStreamEndCapture", 0, 0)
  local before = fake_cuda.fake_cuda_count "cuStreamBeginCapture"
  for _ = 1, 3 do model:train_on_batch(x, y) end
  check.equal(fake_cuda.fake_cuda_count "cuStreamBeginCapture", before)
end)

test("a graph that cannot be updated with new addresses is instantiated again", function()
  local before = fake_cuda.fake_cuda_count "cuGraphInstantiate"
  as_on_ref(function(name)
    local n = 2200000 -- too large to be copied to the recorded address
    local f, kept, ends = mgpu.jit(function(x) return x * 2 + 1 end), {}, {}
    for i = 1, 40 do
      if i > 20 and name == "cuda:0" then fake_cuda.fake_cuda_fail("cuGraphExecUpdate", 1, 910) end
      kept[i] = f(mgpu.full({ n }, i))
      ends[i] = kept[i]:slice { { n - 1, n } }
      mgpu.eval(ends[i])
      if i > 4 then kept[i - 4] = kept[i - 4]:free() end
    end
    fake_cuda.fake_cuda_fail("cuGraphExecUpdate", 0, 0)
    return numbers(ends)
  end)
  check.truthy(fake_cuda.fake_cuda_count "cuGraphInstantiate" > before + 20)
end)
