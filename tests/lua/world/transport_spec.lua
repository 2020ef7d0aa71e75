-- The transports carry messages between processes: the programs of tests/world, started by real launchers.

local check = require "check"
local test = check.test

if os.getenv "MGPU_MALLOC" then check.skip "a sanitizer's build needs programs built with it" end

local compiler = check.run("command -v cc gcc clang | head -n 1"):match "%S+"
if not compiler then check.skip "there is no C compiler" end

local built = check.program:match "^(.*)/"

-- Compiles tests/world/NAME.c and returns the path of the program.
local function program(name)
  local path = check.path(name)
  local out, status = check.run(("%s -std=gnu11 -O1 -Wall -Werror -Iruntime -o %s tests/world/%s.c -L%s -lmgpu "
    .. "-Wl,-rpath,$(realpath %s) 2>&1"):format(compiler, path, name, built, built))
  if status ~= 0 then check.fail(out) end
  return path
end

local exchange, cancel = program "exchange", program "cancel"

-- Kind -> the command that starts N processes.
local LAUNCHERS = {
  openmpi = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe -np %d",
  mpich = "mpirun.mpich -np %d",
}

local function needs(kind)
  if not check.run(("ls %s/mgpu-%s.so 2>&1"):format(built, kind)):find "^[^:\n]+\n$" then
    check.skip("mgpu-" .. kind .. ".so was not built")
  end
  local launcher = LAUNCHERS[kind]:match "mpirun%S+"
  if check.run("command -v " .. launcher) == "" then check.skip("there is no " .. launcher) end
end

-- Output and exit status of a program in n processes.
local function run(kind, n, command)
  return check.run(("timeout 240 %s %s 2>&1"):format("env " .. LAUNCHERS[kind]:format(n), command))
end

local NAMES = { openmpi = "Open MPI ", mpich = "MPICH " }

for kind, name in pairs(NAMES) do
  for n = 2, 4 do
    test(("%s: all pairs of %d processes exchange messages of 0 B to 40 MiB"):format(kind, n), function()
      needs(kind)
      local out, status = run(kind, n, exchange .. " " .. kind)
      if status ~= 0 then check.fail(out) end
      for rank = 0, n - 1 do check.matches(out, ("rank %d of %d: %s[%%d.]+ exchanged\n"):format(rank, n, name)) end
      local _, lines = out:gsub("\n", "")
      check.equal(lines, n, "the library prints nothing")
    end)
  end
end

for kind in pairs(NAMES) do
  test(kind .. ": messages with a stopped process are given up in time, and their memory is left alone", function()
    needs(kind)
    local out, status = run(kind, 2, cancel .. " " .. kind .. " stopped")
    check.matches(out, "^%d given up in time, 0 changed later\n")
    check.equal(status, 76, "the status of rank 0 reaches the launcher")
  end)

  test(kind .. ": processes that never stop the transport end", function()
    needs(kind)
    local _, status = run(kind, 3, cancel .. " " .. kind .. " leaves")
    check.truthy(status ~= 124, "timeout did not end them")
  end)
end

test("a process that the launcher of another MPI started says so", function()
  needs "openmpi"
  needs "mpich"
  local out, status = run("mpich", 2, exchange .. " openmpi")
  check.truthy(status ~= 0)
  check.matches(out, "Open MPI [%d.]+: this process is rank 0 of 1 there, but the launcher made it rank 1 of 2: "
    .. "start it by the mpirun of the same MPI")
end)
