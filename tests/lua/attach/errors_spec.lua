-- What --attach and --ps say when something is wrong. Where a real job would not do it, a socket of the test stands for
-- one.
local check = require "check"
local ffi = require "ffi"
local jobs = require "lua.attach.jobs"
local terminal = require "lua.prompt.terminal"
local test = check.test

ffi.cdef [[
  struct attach_at { unsigned short family; char path[108]; };
  int socket(int, int, int);
  int bind(int, const struct attach_at *, unsigned);
  int listen(int, int);
  int connect(int, const struct attach_at *, unsigned);
  int accept4(int, void *, void *, int);
  int shutdown(int, int);
  int close(int);
  long write(int, const void *, size_t);
]]
local C = ffi.C
local UNIX, STREAM, DATAGRAM, CLOEXEC, NONBLOCK, SEND = 1, 1, 2, 0x80000, 0x800, 1

local function folder()
  local run = check.path "run"
  check.run(("mkdir -p -m 700 %s; mkdir -p -m 700 %s/mgpulua"):format(run, run))
  return run .. "/mgpulua"
end

-- A process that only sleeps: its number is that of a job.
local function sleeper() return tonumber((check.run "sleep 300 >/dev/null 2>&1 & echo $!")) end

-- Runs fn(pid, socket) with a socket where a job of this process would have one.
local function with_socket(kind, backlog, fn)
  local pid = sleeper()
  local at = ffi.new("struct attach_at", UNIX, ("%s/%d.sock"):format(folder(), pid))
  local fd = C.socket(UNIX, bit.bor(kind, CLOEXEC), 0)
  assert(C.bind(fd, at, ffi.sizeof(at)) == 0)
  if kind == STREAM then C.listen(fd, backlog) end
  local ok, message = pcall(fn, pid, fd, at)
  C.close(fd)
  check.run(("kill %d; rm -f %s"):format(pid, ffi.string(at.path)))
  if not ok then error(message, 0) end
end

local function command(options)
  return ("XDG_RUNTIME_DIR=%s %s %s 2>&1"):format(check.path "run", check.program, options)
end

-- What the program says with these options, and its status.
local function say(options) return check.run(command(options)) end

-- What a client says to a job that sends these bytes and then nothing more.
local function answered(bytes)
  local text
  with_socket(STREAM, 4, function(pid, fd)
    local pipe = io.popen(command(("--attach %d -e 'print(1)'"):format(pid)))
    local connection = C.accept4(fd, nil, nil, CLOEXEC)
    C.write(connection, bytes, #bytes)
    C.shutdown(connection, SEND)
    text = pipe:read "*a"
    pipe:close()
    C.close(connection)
  end)
  return text
end

test("a job that sends what is no answer, has another version, or goes away", function()
  check.matches(answered "no record", "it sends what is no answer")
  check.matches(answered "ma\1\2\0\0\0\0", "it sends what is no answer")
  check.matches(answered "ma\9\7\0\0\0\0", "it runs another version of mgpulua %(version 9 of the protocol%)")
  check.matches(answered "", "it has closed the connection: it has ended, or has too many")
  check.matches(answered "ma\1\7\1\0\0\0", "it has closed the connection")
  check.matches(answered "ma\1\7\0\0\0\0", "the job %d+ has ended")
  check.matches(answered "ma\1\7\0\0\0\0ma\1\9\3\0\0\0abc", "abcmgpulua: the job %d+ has ended")
end)

test("a job that does not answer, that too many wait for, or whose socket is none", function()
  with_socket(STREAM, 4, function(pid, fd)
    local pipe = io.popen(command(("--attach %d -e 'print(1)'"):format(pid)))
    check.matches(pipe:read "*l", "does not answer yet: it is stopped, or has not begun to compute")
    C.close(C.accept4(fd, nil, nil, CLOEXEC))
    check.matches(pipe:read "*a", "it has closed the connection")
    pipe:close()
  end)
  with_socket(STREAM, 0, function(pid, _, at)
    local waiting = {}
    repeat
      local fd = C.socket(UNIX, bit.bor(STREAM, CLOEXEC, NONBLOCK), 0)
      waiting[#waiting + 1] = fd
    until C.connect(fd, at, ffi.sizeof(at)) ~= 0 or #waiting > 100
    check.matches((say(("--attach %d -e 'print(1)'"):format(pid))), "too many wait for it already")
    for _, fd in ipairs(waiting) do C.close(fd) end
  end)
  with_socket(DATAGRAM, 0, function(pid)
    check.matches((say(("--attach %d -e 'print(1)'"):format(pid))), "Protocol wrong type for socket")
  end)
end)

test("a connection that was closed takes and gives nothing", function()
  with_socket(STREAM, 4, function(_, _, at)
    local c = require "mgpu.attach.link".connect(ffi.string(at.path))
    check.equal({ c:receive(0) }, { nil, "time" })
    c:close()
    check.equal({ c:receive(0) }, { nil, "closed" })
    check.equal(c:send "state", false)
  end)
end)

test("without a PID there must be one job", function()
  with_socket(STREAM, 4, function()
    with_socket(STREAM, 4, function(pid)
      local text, status = say "--attach -e 'print(1)'"
      check.matches(text, "there are %d+ jobs: give the PID of one of them\nPID ")
      check.matches(text, "\n" .. pid .. " [^\n]*no answer")
      check.equal(status, 1)
    end)
  end)
  if check.run "id -u" == "0\n" and check.run "command -v setpriv" ~= "" then -- a user without jobs
    local text = check.run(("env -u XDG_RUNTIME_DIR setpriv --reuid 64999 --clear-groups %s --attach -e 'print(1)' 2>&1"
      ):format(check.program))
    check.matches(text, "there are no jobs of yours; --ps lists them")
  end
end)

test("wrong options, scripts and commands of the prompt", function()
  check.matches((say "--ps=xml"), "--ps=xml: there is --ps, and --ps=json")
  local large = check.path "large.lua"
  check.write(large, "--" .. ("x"):rep(2 ^ 20))
  jobs.with(function(job)
    local function ask(options) return (say(("--attach %d %s"):format(job.pid, options))) end
    check.matches(ask "/nowhere/x.lua", "--attach: /nowhere/x.lua: No such file")
    check.matches(ask(large .. " argument"), "a script that runs in a job gets no arguments")
    check.matches(ask(large), "an attached prompt runs at most 1024 KiB at a time")
    check.matches(ask "-e 'job.checkpoint(3)'", "expected the path of a folder, or of a file .*got number")
    check.matches(ask [[-e 'job.checkpoint ""']], 'expected the path of a folder, .*got ""')
    local t = terminal.open { arguments = "--attach " .. job.pid, env = { XDG_RUNTIME_DIR = job.run } }
    t:expect(job.pid .. "> ")
    t:ask(":where now", ":where takes no argument")
    t:ask(":wher", 'there is no command :wher (did you mean "where"?); :help lists them')
    t:ask(":help", "Ctrl-C gives up the command that waits or runs, not the job.")
    t:ask(":status", "epoch")
    check.equal(t:close(), 0)
  end)
end)

test("outside of a fit, and in its validation", function()
  local text, later
  jobs.with(function(job)
    local function ask(code) return (say(("--attach %d -e '%s'"):format(job.pid, code))) end
    text = ask "job.stop()" .. ask 'job.checkpoint "x.safetensors"' .. ask "job.learning_rate = 1"
  end, { job = [[
    local core, mgpu = require "mgpu.core", require "mgpu"
    local step = mgpu.jit(function(t) return t + 1 end)
    local t = mgpu.ones { 2 }
    while not core.file_exists(arg[1] .. ".stop") do
      t = step(t)
      core.write_file(arg[1], "ready")
    end]] })
  check.matches(text, "job.stop: no fit is running: the job is between two steps of the script's own")
  check.matches(text, "job.checkpoint: no model has been seen yet")
  check.matches(text, "job.learning_rate: no fit is running")
  jobs.with(function(job)
    local function ask(code) return (say(("--attach %d -e '%s'"):format(job.pid, code))) end
    later = ask 'job.checkpoint "x"' .. ask "print(job.state)"
  end, { job = [[
    local core, mgpu = require "mgpu.core", require "mgpu"
    local L = mgpu.layers
    local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 1 } }
    model:compile { loss = "mse", optimizer = "sgd" }
    local x, y = mgpu.rand { 16, 4 }, mgpu.rand { 16, 1 }
    local data = mgpu.data.generator(function()
      return function() -- validation goes on until the end of the test
        core.write_file(arg[1], "ready")
        if not core.file_exists(arg[1] .. ".stop") then return mgpu.ones { 4 }, mgpu.ones { 1 } end
      end
    end)
    model:fit(x, y, { batch_size = 8, verbose = 0, validation_data = data:batch(2) })]] })
  check.matches(later, "job.checkpoint: the validation is running")
  jobs.with(function(job) text = say(("--attach %d -e 'job.stop()'"):format(job.pid)) end, { job = [[
    local core, mgpu = require "mgpu.core", require "mgpu"
    local model = mgpu.Sequential { mgpu.layers.Input { 4 }, mgpu.layers.Dense { 1 } }
    model:compile { loss = "mse", optimizer = "sgd" }
    local data = mgpu.data.generator(function()
      return function()
        core.write_file(arg[1], "ready")
        if not core.file_exists(arg[1] .. ".stop") then return mgpu.ones { 4 }, mgpu.ones { 1 } end
      end
    end)
    model:evaluate(data:batch(2), { verbose = 0 })]] })
  check.matches(text, "job.stop: no fit is running: the job is in evaluate")
end)

test("with several ranks decisions and files are those of rank 0", function()
  jobs.with(function(job)
    local pids = { [0] = jobs.pid_of(job, 0), jobs.pid_of(job, 1) }
    local function ask(rank, code) return (say(("--attach %d -e '%s'"):format(pids[rank], code))) end
    check.matches(ask(1, 'job.checkpoint "x.safetensors"'), "job.checkpoint: only rank 0 writes files: attach to it")
    check.matches(ask(1, "job.learning_rate = 0.1"), "rank 1 takes no decisions")
    check.matches(ask(0, 'job.learning_rate = "fast"'), "job.learning_rate: expected a number")
  end, { options = " --np 2" })
end)
