-- Resource limits of the process (the shell's ulimit): each is an error that names it, or a request to save and stop.

local check = require "check"

local test = check.test
local BLOCKS = 8 -- of 512 bytes, the unit of ulimit -f in POSIX shells

-- Runs a script under these limits; `after` ends the command line.
local function limited(limits, script, after)
  local path = check.path "script.lua"
  check.write(path, script)
  return check.run(("sh -c 'ulimit %s; exec %s %s %s'"):format(limits, check.program, path, after or ""))
end

-- Tries each way to write a file beyond the limit, over the file "old" where one file is written: prints a problem, or
-- the message. Then the model still trains.
local WRITES = [[
  local core, mgpu = require "mgpu.core", require "mgpu"
  local L, folder = mgpu.layers, arg[1]
  local model = mgpu.Sequential { L.Input { 64 }, L.Dense { 64 }, L.Dense { 64 } }
  model:compile { loss = "mse", optimizer = "adam" }
  local x, y = mgpu.rand { 64, 64 }, mgpu.rand { 64, 64 }
  local history = model:fit(x, y, { verbose = 0, epochs = 30 })
  local rows = mgpu.data.from_tensors { x, y }
  local writers = {
    { "m.safetensors", function(path) model:save(path) end },
    { "m.h5", function(path) model:save(path) end },
    { "m.keras", function(path) model:save(path) end },
    { "m.onnx", function(path) model:save(path) end },
    { "w.safetensors", function(path) model:save_weights(path) end },
    { "w.npz", function(path) model:save_weights(path) end },
    { "w.h5", function(path) model:save_weights(path) end },
    { "r.tfrecord", function(path)
      mgpu.data.write_tfrecord(path, rows, { { "x", "float32", shape = { 64 } }, { "y", "float32", shape = { 64 } } })
    end },
    { "i.png", function(path) mgpu.image.save(path, mgpu.rand { 64, 64, 3 }) end },
    { "h.html", function(path) history:report(path) end },
    { "c.svg", function(path) history:plot(path) end },
    { "new.rows", function(path) for _ in rows:cache(path):iter() do break end end },
    { "new.elements", function(path)
      for _ in rows:filter(function() return true end):cache(path):iter() do end
    end },
  }
  for _, writer in ipairs(writers) do
    local name, write = unpack(writer)
    local path, is_new = folder .. "/" .. name, name:find "^new"
    if not is_new then core.write_file(path, "old") end
    local ok, message = pcall(write, path)
    local file = io.open(path)
    local contents = file and file:read "*a"
    if file then file:close() end
    local problem = ok and "no error" or core.error_code() ~= "io" and core.error_code()
      or contents ~= (not is_new and "old" or nil) and "the file is changed" or ""
    print(name, problem, (tostring(message):gsub("\n.*", "")))
    os.remove(path)
  end
  model:fit(x, y, { verbose = 0 })
  print "trains"
]]

test("a file beyond the limit on file sizes is an error, the old file stays, and training goes on", function()
  check.needs "build/mgpu-h5"
  local folder = check.path "files"
  check.run("mkdir " .. folder)
  local text, status = limited("-f " .. BLOCKS, WRITES, folder)
  local n = 0
  for line in text:gmatch "[^\n]+" do
    local name, problem, message = line:match "^(%S+)\t([^\t]*)\t(.*)$"
    if name then
      n = n + 1
      check.equal(name .. " " .. problem, name .. " ")
      check.matches(message, "File too large (limited to 4096 bytes in a file: raise it with ulimit -f)")
      check.matches(message, folder .. "/" .. name)
    end
  end
  check.equal({ n, status }, { 13, 0 })
  check.matches(text, "\ntrains\n$")
  check.equal(check.run("ls -A " .. folder), "")
end)

-- The sizes of the records of a TFRecord file, whose parts are whole.
local function records(bytes)
  local sizes, at = {}, 1
  while at <= #bytes do
    local size = bytes:byte(at) + 256 * bytes:byte(at + 1)
    sizes[#sizes + 1], at = size, at + 16 + size -- length and two checksums are 16 bytes
  end
  check.equal(at, #bytes + 1)
  return sizes
end

test("callbacks that meet the limit on file sizes say so, keep whole records, and training goes on", function()
  local folder = check.path "logs"
  check.run("mkdir " .. folder)
  local text, status = limited("-f 1", [[
    local mgpu = require "mgpu"
    local L, folder = mgpu.layers, arg[1]
    local model = mgpu.Sequential { L.Input { 64 }, L.Dense { 64 } }
    model:compile { loss = "mse", optimizer = "adam", metrics = { "mae" } }
    model:fit(mgpu.rand { 64, 64 }, mgpu.rand { 64, 64 }, { verbose = 0, epochs = 20, callbacks = {
      mgpu.callbacks.CSVLogger { folder .. "/log.csv" },
      mgpu.callbacks.TensorBoard { folder .. "/board", write_graph = false },
      mgpu.callbacks.BackupAndRestore { folder .. "/run" } } })
    print "done"]], folder)
  check.equal(status, 0)
  for _, part in ipairs { "CSVLogger: epoch 1%d was not written", "TensorBoard: [^\n]*tfevents",
    "fit: epoch 1, complete: the checkpoint could not be saved: cannot write [^\n]*state.safetensors" } do
    if not text:find(part .. "[^\n]*File too large %(limited to 512 bytes in a file: raise it with ulimit %-f%)") then
      check.fail(part .. " is missing in " .. text:sub(1, 500))
    end
  end
  check.truthy(text:find "\ndone\n$", "the script's end")
  check.matches(check.read(folder .. "/log.csv"), "^epoch,loss,mae\n1,.*\n1%d,[^\n]*\n$")
  local events = check.run(("find %s/board -name '*tfevents*'"):format(folder)):match "[^\n]+"
  check.truthy(#records(check.read(events)) > 2)
end)

test("standard output beyond the limit on file sizes is the status of a file that cannot be written", function()
  local text, status = check.run(("sh -c 'ulimit -f 1; exec %s -e %q >%s'"):format(check.program,
    [[for i = 1, 1000 do print(i) end]], check.path "out"))
  check.equal(status, 74)
  check.matches(text, "mgpulua: cannot write to standard output: File too large (limited to 512 bytes in a file")
end)

test("programs that a script starts are ended by the limit on file sizes as usual", function()
  local text = limited("-f 1", ("os.execute 'head -c 9999 /dev/zero >%s; echo status $?'"):format(check.path "zero"))
  check.matches(text, "status 153\n") -- 128 + SIGXFSZ
end)

-- ---- CPU time -----------------------------------------------------------------------------------

test("the soft limit on CPU time makes a fit with checkpoints save and stop, with status 75", function()
  check.slow()
  local folder = check.path "run"
  local script = [[
    local mgpu = require "mgpu"
    local L, folder = mgpu.layers, arg[1]
    mgpu.seed(1)
    local model = mgpu.Sequential { L.Input { 64 }, L.Dense { 64 } }
    model:compile { loss = "mse", optimizer = "adam" }
    model:fit(mgpu.rand { 64, 64 }, mgpu.rand { 64, 64 }, { verbose = 0, epochs = 1e6, resume = folder })]]
  local text, status = limited("-S -t 1", script, folder)
  check.matches(text, "fit: epoch %d+, [^\n]*: stopped by SIGXCPU, saved in [^\n]*; run it again to continue\n$")
  check.equal(status, 75)
  check.falsy(text:find "traceback", "a traceback")
  require "mgpu.core".checkpoint_verify(folder, require "mgpu.core".checkpoint_list(folder)[1])
end)

test("another script gets an error at the soft limit on CPU time, once, and may go on to the hard limit", function()
  check.slow()
  local text, status = limited("-S -t 1", [[
    local core = require "mgpu.core"
    print(pcall(function() while true do end end))
    print(core.error_code(), core.interrupted())
    while os.clock() < 2.6 do end
    print "went on"]])
  check.equal({ text, status }, { "false\tinterrupted!\ninterrupted\tSIGXCPU\nwent on\n", 0 })
  text, status = limited("-S -t 1", "while true do end")
  check.matches(text, "^mgpulua: interrupted!")
  check.equal(status, 152) -- 128 + SIGXCPU
end)

-- ---- threads ------------------------------------------------------------------------------------

-- Lua code after which no thread can be made: their stacks would be larger than the address space.
local NO_THREADS = [[
  local ffi = require "ffi"
  ffi.cdef "int pthread_attr_init(void *); int pthread_attr_setstacksize(void *, size_t);"
  ffi.cdef "int pthread_setattr_default_np(const void *);"
  local attributes = ffi.new "uint64_t[16]"
  ffi.C.pthread_attr_init(attributes)
  ffi.C.pthread_attr_setstacksize(attributes, 2 ^ 50)
  ffi.C.pthread_setattr_default_np(attributes)]]

test("threads that cannot be made are errors that name the remedy, and what needs none still works", function()
  check.needs "cpu"
  local SCRIPT = [[
    local core, mgpu = require "mgpu.core", require "mgpu"
    local L, folder = mgpu.layers, arg[1]
    local x, y = mgpu.rand { 8, 4 }, mgpu.rand { 8, 4 }
    local function try(name, fn)
      local ok, message = pcall(fn)
      print(name, ok and "works" or core.error_code() .. " " .. message)
    end
    local function fit(devices, options)
      local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 4 } }
      model:compile { loss = "mse", optimizer = "sgd", devices = devices }
      options.verbose = 0
      model:fit(x, y, options)
    end
    try("sum", function() print(mgpu.ones({ 300, 300 }):sum():item()) end)
    try("devices", function() fit({ "cpu:0", "cpu:1" }, {}) end)
    try("prefetch", function() for _ in mgpu.data.from_tensors { x }:batch(2):prefetch(2):iter() do end end)
    try("checkpoint", function() fit({ "cpu:0" }, { resume = folder }) end)]]
  local function run(threads)
    check.write(check.path "threads.lua", NO_THREADS .. SCRIPT)
    return (check.run(("MGPU_THREADS=%d %s %s %s"):format(threads, check.program, check.path "threads.lua",
      check.path "threads")))
  end
  local REASON = "cannot make a thread: Resource temporarily unavailable[^\n]*"
  check.matches(run(2), "^sum\toom [^\n]*" .. REASON
    .. "; computing needs 2 of them: allow more, or set MGPU_THREADS=1\n")
  local text = run(1)
  check.matches(text, "^90000\nsum\tworks\n")
  check.matches(text, "\ndevices\toom [^\n]*cpu:0: " .. REASON)
  check.matches(text, "\nprefetch\toom [^\n]*prefetch: cannot start a thread: Resource [^\n]*; leave :prefetch out")
  check.matches(text, "the checkpoint could not be saved: [^\n]*cannot start the thread that writes checkpoints: Res")
  check.matches(text, "\ncheckpoint\tworks\n$")
end)

test("a limit on processes is named by the error, and MGPU_THREADS=1 is below it", function()
  check.needs "cpu"
  local prefix = ""
  if check.run "id -u" == "0\n" then -- root is exempt
    prefix = "setpriv --reuid 54321 --clear-groups "
    if check.run(("%s %s -e 'print(1)'"):format(prefix, check.program)) ~= "1\n" then
      check.skip "root is exempt from the limit on processes, and another user cannot run the program"
    end
  end
  local function run(threads)
    return (check.run(("sh -c 'exec prlimit --nproc=1 -- %s env MGPU_THREADS=%d %s -e %q'"):format(prefix, threads,
      check.program, [[print((require [=[mgpu]=]).ones({ 300, 300 }):sum():item())]])))
  end
  check.matches(run(2), "cannot make a thread: [^\n]*limited to 1 processes and threads of this user: raise it with "
    .. "ulimit %-u")
  check.equal(run(1), "90000\n")
end)

test("a stack that is too small is told at the start", function()
  local text, status = limited("-s 200", "print 'runs'")
  check.equal({ text, status }, { "mgpulua: the stack is limited to 204800 bytes, and at least 524288 are needed: "
    .. "raise it with ulimit -s\n", 1 })
  check.equal(limited("-s 512", "print 'runs'"), "runs\n")
end)

test("memory that is too short for Lua is told with the limit", function()
  local text, status = limited("-v 60000", "local t = {} for i = 1, 1e8 do t[i] = { i } end")
  check.matches(text, "^mgpulua: not enough memory[^\n]*%(limited to 61440000 bytes of address space: raise it with "
    .. "ulimit %-v%)")
  check.equal(status, 1)
end)
