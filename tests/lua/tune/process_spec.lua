-- core.process_start, new_folder and lock_folder, on which searches and recorded runs stand.

local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"

local test = check.test

local function start(text, variables)
  return core.process_start { program = "/bin/sh", arguments = { "sh", "-c", text }, variables = variables or {},
    output = check.path "output" }
end

-- The status and the signal of the process, and its output.
local function ended(process)
  local status, signal = process:ended()
  while not status do
    core.sleep(0.005)
    status, signal = process:ended()
  end
  local text = check.read(check.path "output")
  os.remove(check.path "output")
  return { status, text, signal }
end

test("a process gets its arguments and variables, and tells its status", function()
  check.equal(ended(start("echo $A $HOME; cat; echo err >&2; exit 3", { "A=4 5", "HOME" })), { 3, "4 5\nerr\n" })
  local process = start "exit 7"
  check.equal(ended(process)[1], 7)
  check.equal({ process:ended() }, { 7 }) -- it is known afterwards, too
  process:signal "KILL" -- harmless
end)

test("a signal reaches the process and what it has started", function()
  local process = start "sleep 1000 & echo $!; wait"
  fixtures.wait_for(check.path "output")
  while check.read(check.path "output") == "" do core.sleep(0.005) end
  process:signal "TERM"
  local result = ended(process)
  check.equal({ result[1], result[3] }, { 143, 15 })
  check.run(("while kill -0 %s 2>/dev/null && ! grep -q '^State:.Z' /proc/%s/status; do sleep 0.01; done"):format(
    result[2]:match "%d+", result[2]:match "%d+"))
end)

test("what cannot be started is an error, and wrong arguments are", function()
  local function with(more)
    return fixtures.with({ program = "/bin/sh", arguments = { "sh" }, variables = {}, output = check.path "o" }, more)
  end
  for _, case in ipairs { { { program = "/nowhere" }, "cannot run /nowhere: No such file or directory", "io" },
    { { output = "/nowhere/o" }, "cannot write /nowhere/o: No such file", "io" },
    { { arguments = { "a\0b" } }, "arguments: entry 1 is not a text without zero bytes", "usage" },
    { { variables = { "A=1", 5 } }, "variables: entry 2 is not a text", "usage" },
    { { program = "" }, "the path is empty", "usage" } } do
    check.raises(function() core.process_start(with(case[1])) end, case[2], case[3])
  end
  core.file_fault { at = 1, error = "ENOSPC" }
  check.raises(function() core.process_start(with {}) end, "No space left", "io")
  core.file_fault()
end)

test("a process that nobody holds any more is killed", function()
  local path = check.path "pid"
  do
    local process = start("echo $$ >" .. path .. "; sleep 1000")
    fixtures.wait_for(path)
    while check.read(path) == "" do core.sleep(0.005) end
    check.falsy(process:ended())
  end
  collectgarbage()
  collectgarbage()
  check.equal(select(2, check.run("kill -0 " .. check.read(path))), 1)
end)

test("a folder is made once, and locked by one", function()
  local path = check.path "folder"
  check.equal({ core.new_folder(path), core.new_folder(path) }, { true, false })
  check.raises(function() core.new_folder(path .. "/a/b", "who") end, "who: cannot make the folder", "io")
  local lock = core.lock_folder(path)
  check.equal(core.lock_folder(path), nil)
  local other = ("%s -e 'print(require(\"mgpu.core\").lock_folder \"%s\" == nil)'"):format(check.program, path)
  check.equal(check.run(other), "true\n")
  core.unlock_folder(lock)
  core.unlock_folder(core.lock_folder(path))
  check.raises(function() core.lock_folder(path .. "/a", "who") end, "who: cannot lock", "io")
end)

test("the last error can be put back after other work", function()
  pcall(core.fail, "data", "the first")
  local code, message = core.last_error()
  pcall(core.fail, "io", "the second")
  core.last_error(code, message)
  check.equal({ core.last_error() }, { code, message })
  check.equal(core.error_code(), "data")
  core.last_error "ok"
  check.equal(core.error_code(), "ok")
end)
