-- :where from an attached prompt: what a job is in while it answers no command. Each kind of wait is made to last until
-- the test has seen it.
local check = require "check"
local jobs = require "lua.attach.jobs"
local terminal = require "lua.prompt.terminal"
local wait_until = require "fixtures".wait_until
local test = check.test

local START = [[
  local core, mgpu = require "mgpu.core", require "mgpu"
  local L = mgpu.layers
  local function ready() core.write_file(arg[1], "ready") end
  local function wait() while not core.file_exists(arg[1] .. ".stop") do core.sleep(0.02) end end
  local function model_on(devices)
    local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 3, name = "first" }, L.Dense { 2, name = "second" } }
    model:compile { loss = "mse", optimizer = "adam", devices = devices }
    return model
  end
  local x, y = mgpu.rand { 8, 4 }, mgpu.rand { 8, 2 }
  mgpu.eval(x, y)
]]

-- Runs the job and asks :where until the answer matches `expected`; pid(job): of another process than the job's first.
-- RETURNS the output of the job.
local function where(text, expected, given)
  given = given or {}
  given.job = (given.bare and "" or START) .. text
  return jobs.with(function(job)
    local pid = given.pid and given.pid(job) or job.pid
    local t = terminal.open { arguments = "--attach " .. pid, env = { XDG_RUNTIME_DIR = job.run }, columns = 200 }
    t:expect(pid .. "> ")
    local answer
    wait_until(function()
      t:type ":where"
      t:expect "\n"
      answer = t:expect(pid .. "> ")
      return answer:find(expected)
    end, function() return ("%s in %s"):format(expected, answer) end)
    if given.also then given.also(t, pid) end
    check.equal(t:close(), 0)
  end, given)
end

test("a generator of data, with its line and the element", function()
  local output = where([[
    local data = mgpu.data.generator(function()
      local i = 0
      return function()
        i = i + 1
        if i == 3 then ready() wait() end
        if i <= 4 then return mgpu.ones { 4 }, mgpu.ones { 2 } end
      end
    end)
    model_on():fit(data:batch(2), { verbose = 0 })
    print "trained"]],
    "main: fit > epoch 1 > batch 2 > next batch 2 > generator: the function at [^\n]*job.lua:%d+ 3, for ")
  check.matches(output, "trained\nstatus 0\n$")
end)

test("a collective between devices, with its number and who has not come; commands wait, and Ctrl-C gives them up",
  function()
    local output = where([[
      local model = model_on { "ref:0", "ref:1" }
      model:fit(x, y, { batch_size = 8, verbose = 0 })
      core.fault { device = "ref:1", op = "matmul", phase = "compute", lost = true }
      ready()
      model:fit(x, y, { batch_size = 8, verbose = 0 })]],
      "ref:0: compute > all_reduce 1 [^\n]*> waits for ref:1, for ", { also = function(t, pid)
        t:type "print(1)"
        t:expect "the job is in"
        t:expect "it will answer between two steps; Ctrl-C gives up"
        t:send "\3"
        t:expect "given up"
        t:expect(pid .. "> ")
        check.run("kill -INT " .. pid)
      end })
    check.matches(output, ": interrupted; the model can be used.*status 130\n$")
  end)

test("a step of several ranks, with the rank that has not come", function()
  local output = where([[
    local model = model_on()
    model:fit(x, y, { batch_size = 2, verbose = 0 })
    if core.world().rank == 0 then ready() else wait() end
    model:fit(x, y, { batch_size = 2, verbose = 0 })
    print "trained"]], "waits for rank 1", { options = " --np 2", pid = function(job) return jobs.pid_of(job, 0) end })
  check.matches(output, "trained\nstatus 0\n$")
end)

test("a file of a slow disk, with its row, and a checkpoint on it", function()
  local output = where([[
    local path = arg[1] .. ".tfrecord"
    local schema = { { "x", "float32", shape = {} } }
    mgpu.data.write_tfrecord(path, mgpu.data.from_tensors { mgpu.arange(20):to "float32" }, schema)
    local it = mgpu.data.tfrecord(path, schema):batch(2):prefetch(1, { threads = 1 }):iter()
    core.file_fault { at = 1, error = "slow", always = true }
    local file = io.open(arg[1], "w")
    file:write "ready"
    file:close()
    while it() do
      if core.file_exists(arg[1] .. ".stop") then core.file_fault() end
    end
    print "read"]], "data: reads rows [^\n]*ready.tfrecord: record %d+ at byte %d+, for ")
  check.matches(output, "read\nstatus 0\n$")
  output = where([[
    local slow = { on_train_batch_end = function(_, batch)
      if batch == 1 then core.file_fault { at = 1, error = "slow" } end
      if batch == 2 then
        local file = io.open(arg[1], "w")
        file:write "ready"
        file:close()
        core.sleep(1.5)
      end
    end }
    model_on():fit(x, y, { batch_size = 2, verbose = 0,
      callbacks = { mgpu.callbacks.BackupAndRestore { arg[1] .. ".backup", save_freq = 1 }, slow } })
    print "trained"]], "callback:on_train_batch_end, for [^\n]*")
  check.matches(output, "trained\nstatus 0\n$")
end)

test("a full disk: a checkpoint that is asked for fails with its reason, and the job goes on", function()
  local output = jobs.with(function(job)
    local function ask(code)
      return check.run(("%s %s --attach %d -e '%s'"):format(job.environment, check.program, job.pid, code))
    end
    local text, status = ask [[require "mgpu.core".file_fault { at = 2, error = "ENOSPC", always = true }
      local ok, message = pcall(job.checkpoint, arg[1] .. ".saves")
      require "mgpu.core".file_fault()
      error(message, 0)]]
    check.matches(text, "No space left on device")
    check.equal(status, 1)
    check.matches((ask [[print(job.checkpoint(arg[1] .. ".saves"))]]), "checkpoint%-%d+\n$")
  end)
  check.matches(output, "status 0\n$")
end)

test("a coroutine of the user that never yields, compiled or not, also before the first step", function()
  for _, body in ipairs { "while not stopped() do end", "local n = 0 while n >= 0 do n = n + 1 end" } do
    for _, first in ipairs { "mgpu.eval(mgpu.ones { 2 } + 1)", "" } do
      local pid
      where(([[
        local core, mgpu = require "mgpu.core", require "mgpu"
        local function stopped() return core.file_exists(arg[1] .. ".stop") end
        %s
        local co = coroutine.wrap(function()
          %s
        end)
        core.write_file(arg[1], "ready")
        co()]]):format(first, body), "job.lua:%d+", { bare = true, pid = function(job)
          pid = job.pid
          return job.pid
        end, also = function() check.run("kill -INT " .. pid) end })
    end
  end
end)
