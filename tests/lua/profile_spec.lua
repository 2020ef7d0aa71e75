-- mgpu.profile and mgpulua --profile: the trace is valid, the parts add up to the wall time, the table names layers.
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local test = check.test
local L = mgpu.layers

local function model_on(devices)
  mgpu.seed(1)
  local model = mgpu.Sequential { L.Input { 12, 12, 1 }, L.Conv2D { 4, 3, name = "conv" }, L.Flatten {},
    L.Dense { 3, name = "out" } }
  model:compile { loss = "mse", optimizer = "adam", devices = devices }
  return model
end

local function data_of(rows)
  local x, y = mgpu.rand { rows, 12, 12, 1 }, mgpu.rand { rows, 3 }
  mgpu.eval(x, y)
  return x, y
end

-- Profiles fn; checks that the parts of the report add up to its wall time, which lies between what a clock measures
-- around fn and around the recording.
local function profile(fn, path)
  local start, stop, inside = core.clock(), nil, nil
  local profile_end = core.profile_end
  function core.profile_end()
    core.profile_end, stop = profile_end, core.clock()
    return profile_end()
  end
  local report = mgpu.profile(function()
    local began = core.clock()
    fn()
    inside = core.clock() - began
  end, path)
  local sum = 0
  for _, seconds in pairs(report.parts) do sum = sum + seconds end
  check.near(sum, report.wall, 1e-9)
  check.truthy(report.wall > inside - 1e-6 and report.wall < stop - start + 1e-6, "the wall time") -- rounded times
  return report
end

local function row_of(report, layer, op, backward)
  for _, row in ipairs(report.rows) do
    if row.layer == layer and row.op == op and row.backward == (backward or false) then return row end
  end
  check.fail(("there is no row for %s of %s"):format(op, layer))
end

-- ---- the trace ----------------------------------------------------------------------------------

-- Reads a trace file and checks it: what Perfetto needs, nesting, and times that do not go back. RETURNS the complete
-- events of each thread, by its name.
local function read_trace(path)
  local trace = core.json_decode(check.read(path))
  local names, threads, open = {}, {}, {}
  for _, e in ipairs(trace.traceEvents) do
    local key = e.pid .. "/" .. e.tid
    if e.ph == "M" then
      if e.name == "thread_name" then
        names[key] = e.args.name
        check.falsy(threads[e.args.name], "two threads of one name")
        threads[e.args.name], open[key] = {}, {}
      end
    else
      check.equal(e.ph, "X")
      check.truthy(e.ts >= 0 and e.dur >= 0, "times")
      local list, stack = threads[names[key]], open[key]
      check.truthy(#list == 0 or e.ts >= list[#list].ts - 1e-3, "events are in order") -- times have three digits
      while #stack > 0 and e.ts >= stack[#stack].ts + stack[#stack].dur - 2e-3 do table.remove(stack) end
      local outer = stack[#stack]
      check.truthy(not outer or e.ts + e.dur <= outer.ts + outer.dur + 2e-3, "an event is inside the one around it")
      list[#list + 1], stack[#stack + 1] = e, e
    end
  end
  return threads
end

local function count(list, category, name)
  local n = 0
  for _, e in ipairs(list or {}) do
    if e.cat == category and (not name or e.name == name) then n = n + 1 end
  end
  return n
end

-- ---- tests --------------------------------------------------------------------------------------

test("a profile of fit has epochs, batches, callbacks and launches with layer and line", function()
  local model, x, y = model_on(), data_of(40)
  local path, calls = check.path "fit.json", 0
  local report = profile(function()
    model:fit(x, y, { epochs = 2, batch_size = 10, verbose = 0,
      callbacks = { { on_epoch_end = function() calls = calls + 1 end } } })
  end, path)
  local main = read_trace(path).main
  check.equal(calls, 2)
  check.equal(count(main, "script", "profile"), 1)
  check.equal(count(main, "script", "epoch"), 2)
  check.equal(count(main, "callback", "callback:on_epoch_end"), 2)
  check.equal(count(main, "launch", "conv2d"), 8)
  check.truthy(count(main, "trace") >= 1 and count(main, "plan") >= 1, "trace and plan")
  for _, phase in ipairs { "compute", "guards", "commit" } do
    check.truthy(count(main, "step", phase) >= 8, phase)
  end
  for _, e in ipairs(main) do
    if e.name == "conv2d" then
      check.equal(e.args.layer, "conv")
      check.matches(e.args.where, "profile_spec.lua:%d+$")
      check.equal(e.args.device, mgpu.devices()[1])
    end
  end
  local row = row_of(report, "conv", "conv2d")
  check.equal(row.calls, 8)
  check.equal(row.flops, 8 * 2 * 10 * 10 * 10 * 4 * 9) -- calls, batch, pixels, filters
  row_of(report, "conv", "conv2d_grad_weight", true)
  row_of(report, "out", "matmul")
  row_of(report, "optimizer", "fused")
  check.equal(mgpu.profile.table(), report)
end)

test("the time of launches and of the other parts is the wall time, eagerly, jitted and in fit", function()
  local model, x, y = model_on(), data_of(64)
  local a = mgpu.rand { 128, 128 }
  mgpu.eval(a)
  local step = mgpu.jit(function(t) return t:matmul(t):sum() end)
  local cases = {
    function() model:fit(x, y, { epochs = 3, batch_size = 16, verbose = 0 }) end,
    function() for _ = 1, 30 do step(a):item() end end,
    function() for _ = 1, 30 do (a:matmul(a) + 1):sum():item() end end,
  }
  for _, case in ipairs(cases) do
    local report = profile(case)
    local rows = 0
    for _, row in ipairs(report.rows) do rows = rows + row.seconds end
    check.near(rows, report.parts.computing, 1e-6) -- one device: its launches run in the script's thread
    check.truthy(report.parts.computing > 0, "it computes")
  end
end)

test("eager ops show the line that made them", function()
  local x = mgpu.ones { 4 }
  local report = profile(function() (x * 2):sum():item() end)
  local found = false
  for _, row in ipairs(report.rows) do found = found or (row.where or ""):find "profile_spec.lua:%d+$" end
  check.truthy(found, "a row with the line")
end)

test("each device of a step is a thread of the trace, with its collectives", function()
  local model, x, y = model_on { "ref:0", "ref:1" }, data_of(12)
  local path = check.path "devices.json"
  local report = profile(function() model:fit(x, y, { batch_size = 6, verbose = 0 }) end, path)
  local threads = read_trace(path)
  for _, name in ipairs { "ref:0", "ref:1" } do
    check.equal(count(threads[name], "launch", "conv2d"), 2)
    check.truthy(count(threads[name], "collective", "all_reduce") >= 2, "collectives")
    check.truthy(count(threads[name], "wait") >= 2, "waits for the other device")
  end
  check.truthy(report.parts["waiting for devices"] > 0, "the script waits for devices")
  check.equal(row_of(report, "conv", "conv2d").calls, 4)
  local exchanged, waited = 0, 0 -- rows of collectives have the waits in them
  for _, row in ipairs(report.rows) do exchanged = exchanged + (row.collective and row.seconds or 0) end
  for _, name in ipairs { "ref:0", "ref:1" } do
    for _, e in ipairs(threads[name]) do waited = waited + (e.cat == "wait" and e.dur * 1e-6 or 0) end
  end
  check.truthy(exchanged >= waited - 1e-6, "waits for other devices belong to collectives")
  table.sort(report.devices)
  check.equal({ unpack(report.devices) }, { "ref:0", "ref:1" })
end)

test("threads that read ahead, and the writer of checkpoints, are in the trace", function()
  local model = model_on()
  local x, y = data_of(60)
  local ds = mgpu.data.from_tensors { x, y }:batch(10):prefetch(2, { threads = 1 })
  local path = check.path "data.json"
  profile(function()
    model:fit(ds, { epochs = 2, verbose = 0,
      callbacks = { mgpu.callbacks.BackupAndRestore { check.path "backup", save_freq = 2 } } })
  end, path)
  local threads = read_trace(path)
  check.equal(count(threads.data, "data", "reads rows"), 12)
  check.truthy(count(threads.main, "data", "waits for a batch") >= 12, "waits for data")
  check.truthy(count(threads.checkpoint, "checkpoint", "writes checkpoint") >= 1, "a checkpoint")
end)

test("what bounds a run is named, and advice is given", function()
  local model = model_on()
  local function slow() -- a generator that takes most of the time
    local i = 0
    return function()
      i = i + 1
      if i > 20 then return nil end
      core.sleep(0.01)
      return mgpu.ones { 12, 12, 1 }, mgpu.ones { 3 }
    end
  end
  local data = mgpu.data.generator(slow):batch(5)
  model:fit(data, { verbose = 0 }) -- plans are made
  local report = profile(function() model:fit(data, { verbose = 0 }) end)
  check.equal(report.bound, "data")
  check.matches(report.advice[1], "^%d+ %% of the time is in your Lua code for the data %(generator: ")
  local x, y = data_of(20)
  report = profile(function()
    model:fit(x, y, { batch_size = 5, verbose = 0,
      callbacks = { { on_train_batch_end = function() core.sleep(0.05) end } } })
  end)
  check.matches(table.concat(report.advice, "\n"), "of the time is spent in callbacks, most of it in callback:on_train")
  report = profile(function() core.sleep(0.05) end)
  check.equal(report.bound, "Lua")
  check.truthy(#report.advice <= 3, "at most three")
  check.matches(tostring(report), "a profile of .*Lua .*advice: ")
end)

test("names of layers with quotes, control characters and bytes that are no text give a valid file", function()
  local names = { 'a"b\\c', "</script>\27[31m\n", "caf\233" }
  local path = check.path "names.json"
  local model = mgpu.Sequential { L.Input { 3 } }
  for _, name in ipairs(names) do model:add(L.Dense { 3, name = name }) end
  local x = mgpu.ones { 2, 3 }
  mgpu.eval(x)
  local report = profile(function() mgpu.eval(model(x)) end, path)
  local found = {}
  for _, e in ipairs(read_trace(path).main) do found[e.args.layer or ""] = true end
  for _, name in ipairs { 'a"b\\c', "</script>\27[31m\n", "caf?" } do check.truthy(found[name], name) end
  check.falsy(tostring(report):find "\27", "control characters in the table")
  for line in tostring(report):gmatch "[^\n]+" do
    if line:find "script" then check.matches(line, "^</script>\\27%[31m\\n +%a+ +%d") end -- a row is one line
  end
end)

test("columns are as wide for names in any script", function()
  local row = { op = "matmul", calls = 1, seconds = 1, share = 1 }
  local function line_of(label)
    local lines = {}
    row.label = label
    require "mgpu.profile.rows".add_lines(lines, { row }, { "", "", "" }, function() return "", "", "" end)
    return lines[2]
  end
  check.matches(line_of(("\195\164"):rep(40)), "^" .. ("\195\164"):rep(28) .. " matmul ")
  check.matches(line_of "\195\164", "^\195\164" .. (" "):rep(27) .. " matmul ")
end)

test("a long run keeps its last events, and report and file are about these", function()
  local path = check.path "long.json"
  local x = mgpu.ones { 4 }
  mgpu.eval(x)
  local step = mgpu.jit(function(t) return t * 2 end)
  local start = core.clock()
  local running = require "mgpu.profile.recording".start { most = 256, path = path }
  local inside = core.clock()
  for _ = 1, 2000 do step(x) end
  inside = core.clock() - inside
  local report = running:finish()
  local around = core.clock() - start
  local sum = 0
  for _, seconds in pairs(report.parts) do sum = sum + seconds end
  check.near(sum, report.wall, 1e-9)
  check.truthy(report.wall < inside and report.steps < 256 and report.steps > 50, "the last steps")
  check.truthy(report.lost + report.wall >= inside and report.lost + report.wall <= around, "the whole")
  check.matches(tostring(report), "^a profile of [^ ]+ [mu]?s, the end of [^ ]+ [mu]?s, %d+ steps on ")
  check.equal(count(read_trace(path).main, "script", "profile"), 1)
end)

test("a batch that is gathered counts for what it takes of the data", function()
  local x, rows = mgpu.rand { 1000, 8 }, mgpu.tensor({ 3, 5 }, { dtype = "int32" })
  mgpu.eval(x, rows)
  local report = profile(function() mgpu.eval(x:gather(rows)) end)
  for _, row in ipairs(report.rows) do
    if row.op == "gather" then check.equal({ row.flops, row.bytes }, { 16, 4 * (16 + 16 + 2) }) end
  end
  check.matches(tostring(report), "gather")
end)

test("nothing is concluded from the first launch of an op, and from a function without steps", function()
  local x = mgpu.ones { 300, 2 }
  mgpu.eval(x)
  local report = profile(function() mgpu.eval(x:transpose():matmul(x)) end)
  local text = tostring(report)
  check.falsy(text:find "what the device reaches" or text:find "slower than", text)
  report = profile(function() core.sleep(0.01) end)
  check.equal(report.advice, { "100 % of the time is the script's own, Lua code and files, and no device computes" })
end)

test("an op is called slow from half of the device's speed on", function()
  local function advice_for(seconds)
    local row = { op = "matmul", label = "dense", estimate = 1, steady = seconds, share = 1, bound = "arithmetic",
      peak = 1 / seconds, calls = 10 }
    local share = setmetatable({}, { __index = function() return 0 end })
    return table.concat(require "mgpu.profile.advice" { rows = { row }, share = share, functions = {}, callbacks = {},
      calls = share, data_threads = 0, steps = 10, wall = seconds, computing = seconds, busy = 1, warming = 0 })
  end
  check.matches(advice_for(1.9), "nothing stands out")
  check.matches(advice_for(2.1), "matmul of dense takes 100 % of the computing, at 48 % of what")
end)

test("a file that cannot be written is named before the function runs, or does not take the report along", function()
  local path, ran = check.path "none" .. "/x.json", false
  check.raises(function() mgpu.profile(function() ran = true end, path) end, "cannot write to the folder", "io")
  check.falsy(ran, "it ran")
  path = check.path "full.json"
  check.raises(function()
    mgpu.profile(function()
      mgpu.ones({ 2 }):sum():item()
      core.file_fault { at = 1, error = "ENOSPC" }
    end, path)
  end, "full.json", "io")
  check.equal({ mgpu.profile.table().rows[1].calls, mgpu.profile.table().path }, { 1 })
end)

test("errors: of the function, of the path, and a profile inside a profile", function()
  check.raises(function() mgpu.profile(3) end, "profile: the first argument must be a function, got number", "usage")
  check.raises(function() mgpu.profile(print, {}) end, "profile: the path must be the name of a file", "usage")
  check.raises(function() mgpu.profile(function() error "mine" end) end, "mine")
  check.raises(function() mgpu.profile(function() mgpu.profile(print) end) end, "is being recorded already", "usage")
  check.raises(function() mgpu.profile(function() end, check.path "none" .. "/x.json") end, "No such file", "io")
  check.equal(mgpu.profile(function() end).steps, nil) -- the next one works
  check.raises(function() core.profile_each(-1, print) end, "there is no track -1", "usage")
end)

test("mgpu.explain shows the same rows before the first step, from estimates", function()
  local model, x, y = model_on(), data_of(20)
  local estimated = mgpu.explain(model, { batch_size = 10 }):table()
  local report = profile(function() model:fit(x, y, { batch_size = 10, verbose = 0 }) end)
  local found, sum = {}, 0
  for _, row in ipairs(estimated.rows) do
    found[row.label .. row.op], sum = row, sum + row.seconds
  end
  for _, row in ipairs(report.rows) do
    local other = found[row.label .. row.op]
    if row.layer == "conv" or row.layer == "out" then
      check.near(other.flops * 2, row.flops) -- two steps
      check.near(other.bytes * 2, row.bytes)
    end
  end
  check.near(sum, estimated.seconds, 1e-12)
  check.matches(tostring(estimated), "^about .* a step on a device with .*\nlayer .*conv %(gradient%) "
    .. ".*conv2d_grad_weight")
  local given = mgpu.explain(model, { devices = "cuda:0", batch_size = 10, speeds = { compute = 1e6, memory = 1e6 } })
  check.equal(given:table().peak, { flops = 1e6, bytes = 1e6 })
end)

-- ---- the program's option -----------------------------------------------------------------------

local SCRIPT = [[
  local mgpu = require "mgpu"
  local x = mgpu.ones { 16, 16 }
  for _ = 1, 5 do x = mgpu.tensor(x:matmul(x):totable()) * 0.01 end
  mgpu.eval(x)
]]

test("mgpulua --profile writes the trace and prints the table, also after os.exit and an error", function()
  check.write(check.path "run.lua", SCRIPT)
  check.write(check.path "exit.lua", SCRIPT .. "os.exit(3)")
  check.write(check.path "error.lua", SCRIPT .. 'error "wrong"')
  for name, status in pairs { run = 0, exit = 3, error = 1 } do
    local path = check.path(name .. ".json")
    local output, code = check.run(("%s --profile %s %s"):format(check.program, path, check.path(name .. ".lua")))
    check.equal(code, status)
    check.matches(output, "a profile of .*matmul.*trace: ")
    check.truthy(count(read_trace(path).main, "launch", "matmul") == 5, "launches")
  end
end)

test("mgpulua --profile says what is wrong with its file", function()
  check.write(check.path "run.lua", SCRIPT)
  local run = ("%s --profile %%s %s"):format(check.program, check.path "run.lua")
  local output, code = check.run(run:format(check.path "none" .. "/x.json"))
  check.equal(code, 74)
  check.matches(output, "cannot write to the folder .*none: No such file")
  check.write(check.path "full.lua", SCRIPT .. 'require "mgpu.core".file_fault { at = 1, error = "ENOSPC" }')
  output, code = check.run(("%s --profile %s %s"):format(check.program, check.path "full.json", check.path "full.lua"))
  check.equal(code, 74)
  check.matches(output, "a profile of .*matmul.*full.json.*No space left")
  output, code = check.run(run:format "''")
  check.equal(code, 1)
  check.matches(output, "%-%-profile: the name of the file is empty")
end)

test("Ctrl-C while the speeds of the device are measured stops the script", function()
  check.write(check.path "stop.lua", [[
    local core, ffi, mgpu = require "mgpu.core", require "ffi", require "mgpu"
    ffi.cdef "int raise(int);"
    local x, place = mgpu.ones { 4 }, core.place
    mgpu.eval(x)
    core.place = function(...) -- tensors are placed for the measurement
      core.place = place
      ffi.C.raise(2)
      return place(...)
    end
    mgpu.profile(function() x:sum():item() end)
    print "went on"]])
  local output, code = check.run(check.program .. " " .. check.path "stop.lua")
  check.equal(code, 130, output)
  check.falsy(output:find "went on", output)
end)

test("a copy of the process that the script makes by fork writes no trace", function()
  local path = check.path "fork.json"
  check.write(check.path "fork.lua", [[
    local ffi = require "ffi"
    ffi.cdef "int fork(void); int waitpid(int, int *, int);"
    local child = ffi.C.fork()
    if child == 0 then os.exit(0) end
    ffi.C.waitpid(child, nil, 0)
    print(io.open(arg[1]) and "written" or "not yet")]])
  local output = check.run(("%s --profile %s %s %s"):format(check.program, path, check.path "fork.lua", path))
  check.matches(output, "not yet")
  check.truthy(count(read_trace(path).main, "script", "profile") == 1, "the trace of the script")
end)

test("each of several processes writes a file of its own", function()
  check.slow()
  check.write(check.path "ranks.lua", [[
    local mgpu = require "mgpu"
    local L = mgpu.layers
    local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 3 } }
    model:compile { loss = "mse", optimizer = "sgd" }
    model:fit(mgpu.ones { 8, 4 }, mgpu.ones { 8, 3 }, { batch_size = 4, verbose = 0 })
  ]])
  local output, code = check.run(("%s --np 2 --profile %s %s"):format(check.program, check.path "ranks.json",
    check.path "ranks.lua"))
  check.equal(code, 0)
  check.matches(output, "a profile of .*trace: .*ranks%.0%.json")
  for rank = 0, 1 do
    local main = read_trace(check.path(("ranks.%d.json"):format(rank))).main
    check.equal(main[1].pid, rank)
    check.truthy(count(main, "collective") >= 2, "collectives")
  end
end)
