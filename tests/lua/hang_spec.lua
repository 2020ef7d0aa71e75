-- A job that hangs explains itself: SIGQUIT prints what each thread is in, and the job goes on. Each kind of wait is
-- made to last.
local check = require "check"
local fixtures = require "fixtures"
local test = check.test

local START = fixtures.READY .. [[
  local function model_on(devices)
    local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 3, name = "first" }, L.Dense { 2, name = "second" } }
    model:compile { loss = "mse", optimizer = "adam", devices = devices }
    return model
  end
  local function data_of(rows)
    local x, y = mgpu.rand { rows, 4 }, mgpu.rand { rows, 2 }
    mgpu.eval(x, y)
    return x, y
  end
]]

-- Sends the script SIGQUIT half a second after it has called ready() -> its output, and its exit status in the last
-- line. Each line of the report begins with "mgpulua:". options: of the program.
local function asked(text, environment, options)
  return fixtures.signalled(START .. text, "QUIT", { environment = environment, program = options })
end

-- Long enough for the signal to come before it on a busy machine.
local DEADLINE = "MGPU_DEADLINE=3 MGPU_GRACE=0.3"

local function line_of(output, thread)
  return output:match("mgpulua:   " .. thread .. ": ([^\n]*)") or check.fail(thread .. " is not in " .. output)
end

test("a device that does not come back, with the op, the layer and the line", function()
  local output = asked([[
    local model, x, y = model_on { "ref:0" }, data_of(6)
    model:fit(x, y, { batch_size = 6, verbose = 0 })
    core.fault { device = "ref:0", op = "matmul", phase = "compute", lost = true }
    ready()
    print(pcall(model.fit, model, x, y, { batch_size = 6, verbose = 0 }))]], DEADLINE)
  check.matches(output, "process %d+, at SIGQUIT:")
  check.matches(line_of(output, "main"),
    "^fit > epoch 1 > batch 1 > step, [^ ]*signalled.lua:%d+ > waits for ref:0, for %d+%.%d s$")
  check.matches(line_of(output, "ref:0"), "^compute > matmul of first, [^ ]*signalled.lua:%d+, for %d+%.%d s$")
  -- the deadline says the same, and the script goes on
  check.matches(output, "did not come back within .* %(it is in compute > matmul of first, [^ ]*signalled.lua:%d+, for")
  check.matches(output, "status 0\n$")
end)

test("a collective, with its number and who has not come", function()
  local output = asked([[
    local model, x, y = model_on { "ref:0", "ref:1", "ref:2" }, data_of(6)
    model:fit(x, y, { batch_size = 6, verbose = 0 })
    core.fault { device = "ref:1", op = "matmul", phase = "compute", lost = true }
    ready()
    print(pcall(model.fit, model, x, y, { batch_size = 6, verbose = 0 }))]], DEADLINE)
  check.matches(line_of(output, "ref:1"), "^compute > matmul of first")
  for _, waiting in ipairs { "ref:0", "ref:2" } do
    check.matches(line_of(output, waiting), "^compute > all_reduce 1 .*> waits for ref:1, for ")
  end
end)

test("a generator of data that takes long, with its line and the element", function()
  local output = asked [[
    local model = model_on()
    local data = mgpu.data.generator(function()
      local i = 0
      return function()
        i = i + 1
        if i == 3 then ready() core.sleep(1.5) end
        if i <= 4 then return mgpu.ones { 4 }, mgpu.ones { 2 } end
      end
    end)
    model:fit(data:batch(2), { verbose = 0 })
    print "trained"]]
  check.matches(line_of(output, "main"),
    "^fit > epoch 1 > batch 2 > next batch 2 > generator: the function at [^ ]*signalled.lua:%d+ 3, for ")
  check.matches(output, "trained\nstatus 0\n$")
end)

test("a file that is read slowly, with the file and the row", function()
  local output = asked [[
    local path = arg[1] .. ".tfrecord"
    local schema = { { "x", "float32", shape = {} } }
    mgpu.data.write_tfrecord(path, mgpu.data.from_tensors { mgpu.arange(20):to "float32" }, schema)
    local rows = mgpu.data.tfrecord(path, schema)
    for _ in rows:batch(2):iter() do end
    local it = rows:batch(2):prefetch(1, { threads = 1 }):iter()
    core.file_fault { at = 1, error = "slow" }
    ready()
    while it() do end
    print "read"]]
  check.matches(line_of(output, "main"), "^waits for a batch, for ")
  check.matches(line_of(output, "data"), "^reads rows .*ready.tfrecord: record %d+ at byte %d+, for ")
  check.matches(output, "read\nstatus 0\n$")
end)

test("a coroutine of the user that loops for ever, compiled or not", function()
  for _, body in ipairs { "local n = 0 while true do n = n + 1 end", "while true do os.getenv 'HOME' end" } do
    local output = asked(([[
      mgpu.eval(mgpu.ones { 2 } + 1)
      local co = coroutine.wrap(function()
        %s
      end)
      os.execute("(sleep 1.5; kill -INT " .. io.open("/proc/self/stat"):read "*n" .. ") &")
      ready()
      co()]]):format(body))
    check.matches(line_of(output, "main"), "^idle$")
    check.matches(line_of(output, "main, in Lua"), "signalled.lua:%d+: in function")
    check.matches(output, "interrupted!.*status 130\n$")
  end
end)

test("a callback that waits, and the thread that writes a checkpoint to a slow disk", function()
  local output = asked [[
    local model, x, y = model_on(), data_of(8)
    local slow = { on_train_batch_end = function(_, batch)
      if batch ~= 1 then return end
      core.file_fault { at = 1, error = "slow" }
    end }
    local waits = { on_train_batch_end = function(_, batch)
      if batch == 2 then ready() core.sleep(1) end
    end }
    model:fit(x, y, { batch_size = 2, verbose = 0,
      callbacks = { slow, mgpu.callbacks.BackupAndRestore { arg[1] .. ".backup", save_freq = 1 }, waits } })
    print "trained"]]
  check.matches(line_of(output, "main"), "^fit > epoch 1 > batch 2 > callback:on_train_batch_end, for ")
  check.matches(line_of(output, "checkpoint"), "^writes checkpoint 1 in .*ready.backup, for ")
  check.matches(output, "trained\nstatus 0\n$")
end)

test("SIGQUIT before the first step says where the Lua code is, and ends nothing", function()
  local output = asked [[
    ready()
    local until_then = core.clock() + 1
    while core.clock() < until_then do end
    print "went on"]]
  check.matches(line_of(output, "main, in Lua"), "signalled.lua:%d+: in main chunk")
  check.matches(output, "went on\nstatus 0\n$")
end)

test("a hook of the script is in place again after the report", function()
  local output = asked [[
    local lines = 0
    jit.off()
    debug.sethook(function() lines = lines + 1 end, "l")
    ready()
    local until_then = core.clock() + 1
    while core.clock() < until_then do end
    local _, mask = debug.gethook()
    print("mask " .. mask)]]
  check.matches(output, "main, in Lua: .*mask l\nstatus 0\n$")
end)

test("a report has no control characters of names in it", function()
  local output = asked [[
    ready()
    load("local until_then = require 'mgpu.core'.clock() + 1\nwhile require 'mgpu.core'.clock() < until_then do end",
      "@a\27[31mb")()]]
  check.matches(line_of(output, "main, in Lua"), "^a\\27%[31mb:2: ")
end)

test("a script that has stopped LuaJIT's profiler goes on after the report", function()
  local output = asked [[
    local profiler = require "jit.profile"
    profiler.start("f", function() end)
    profiler.stop()
    ready()
    local until_then = core.clock() + 1
    while core.clock() < until_then do end
    print "went on"]]
  check.matches(output, "at SIGQUIT:.*went on\nstatus 0\n$")
end)

test("ranks say who they are and which rank they wait for, when the launcher gets the signal", function()
  check.slow()
  local output = asked([[
    local model, x, y = model_on(), data_of(8)
    model:fit(x, y, { batch_size = 4, verbose = 0 })
    if mgpu.world().rank == 1 then
      ready()
      core.sleep(1.5)
    end
    model:fit(x, y, { batch_size = 4, verbose = 0 })]], "", "--np 2")
  check.matches(output, "rank 0 of 2, at SIGQUIT:\n")
  check.matches(output, "rank 1 of 2, at SIGQUIT:\n")
  check.matches(output, "waits for rank 1, for ")
  check.matches(output, "status 0\n$")
end)

test("a report costs the job nothing: 200 signals, and the weights are the same", function()
  local text = [[
    mgpu.seed(1)
    local model, x, y = model_on(), data_of(64)
    ready()
    model:fit(x, y, { batch_size = 2, epochs = 40, verbose = 0 })
    print(("%.17g"):format(model.trainable_variables[1]:value():sum():item()))]]
  local path, ready = check.path "weights.lua", check.path "ready"
  check.write(path, START .. text)
  local plain = check.run(("%s %s %s"):format(check.program, path, ready))
  os.remove(ready)
  local output = check.run(("%s %s %s 2>%s & p=$!; while [ ! -s %s ] && kill -0 $p; do sleep 0.02; done; "
    .. "for i in $(seq 200); do kill -QUIT $p 2>/dev/null; done; wait $p"):format(check.program, path, ready,
    check.path "reports", ready))
  check.equal(output, plain)
  check.matches(check.read(check.path "reports"), "at SIGQUIT:\nmgpulua:   main: ")
end)
