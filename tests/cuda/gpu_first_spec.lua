-- tests/cuda/gpu_first.sh: a part that hangs, crashes, runs late or fills the disk costs no other part anything.
local check = require "check"

if os.getenv "MGPU_TEST_GPU" then return end -- there gpu_first.sh itself is what runs

local test = check.test

-- What stands for on_gpu.sh: a script with these cases of the part's name.
local function rehearse(name, cases)
  local folder = check.path(name)
  check.run(("mkdir -p %s/out"):format(folder))
  check.write(folder .. "/on_gpu.sh", ([[
    [ "$1" = background ] && { echo $$ >>%s/background; exec sleep 600; }
    echo "$2" >>%s/ran
    good() { echo "ok   $1"; echo "1 passed, 0 failed"; }
    case $2 in %s
    *) good "$2" ;;
    esac]]):format(folder, folder, cases))
  return function(what, parts, settings)
    local output, status = check.run(("env RESULTS=%s/out WORK=%s/kept ON_GPU=%s/on_gpu.sh GPU_PARTS='%s' %s "
      .. "sh tests/cuda/gpu_first.sh %s"):format(folder, folder, folder, parts, settings or "", what))
    return output, status, function(file) return check.read(folder .. "/" .. file) end
  end
end

-- A line of the table; numbers and text may be patterns.
local function row(output, part, passed, failed, how)
  check.matches(output, ("\n%s +%%d+ s +%s passed +%s failed  %s\n"):format(part, passed, failed, how))
end

-- Not a process that has ended, which stays in the list until its parent, here process 1, asks for its status.
local function is_running(pid)
  local file = io.open(("/proc/%d/stat"):format(pid))
  local state = file and file:read "*a":match "%) (%a)"
  if file then file:close() end
  return state and state ~= "Z" and state ~= "X"
end

test("all parts pass, and again runs the benchmark only", function()
  local run = rehearse("good", "")
  local output, status, read = run("first", "machine:60 rows:60 bench:60")
  check.equal(status, 0, output)
  for _, part in ipairs { "machine", "rows", "bench" } do row(output, part, 1, 0, "ok") end
  check.matches(read "out/gpu-first.txt", "ok   rows\n1 passed, 0 failed\n")
  check.matches(read "out/gpu-passed.txt", "ok   machine\npart machine\nok   rows\npart rows\n")
  check.falsy(is_running(read "background"), "the background's process runs on")
  output, status, read = run("again", "machine:60 rows:60 bench:60")
  check.equal(status, 0, output)
  check.equal(read "ran", "machine\nrows\nbench\nbench\n")
end)

-- The limit of a second may end a part before it has printed anything, on a slow machine.
test("a part that hangs or runs late is ended with its processes, and the others run", function()
  local run = rehearse("hang", [[
    machine) trap "" TERM; (trap "" TERM; sleep 600) & echo $! >$WORK/../child; good begun; wait ;;
    rows) good rows; echo "0 passed, 1 failed"; sleep 600 ;;]])
  local output, status, read = run("first", "machine:1 rows:1 bench:60")
  check.equal(status, 1)
  row(output, "machine", "%d", 0, "ended after %d+ s")
  row(output, "rows", "%d", "%d", "ended after %d+ s")
  row(output, "bench", 1, 0, "ok")
  local child = io.open(check.path "hang/child")
  if child then child:close() end
  check.falsy(child and is_running(read "child"), "a process of the part runs on")
  output = run("again", "machine:1 rows:1 bench:60")
  row(output, "rows", "%d", "%d", "ended after %d+ s")
  check.equal(read("ran"):match "bench\n$", "bench\n")
end)

test("a part that crashes, fails or does nothing is told in the table", function()
  local run = rehearse("crash", [[
    machine) good begun; kill -SEGV $$ ;;
    steps) echo "FAIL softmax {2,3} float16 #9: off by 1"; echo "0 passed, 2 failed" ;;
    rows) exit 0 ;;
    specs) echo "3 passed, 0 failed"; exit 7 ;;]])
  local output, status = run("first", "machine:60 steps:60 rows:60 specs:60 bench:60")
  check.equal(status, 1)
  row(output, "machine", 1, 0, "ended with status 139")
  row(output, "steps", 0, 2, "failed")
  check.matches(output, "\nFAIL softmax {2,3} float16 #9: off by 1\n")
  row(output, "rows", 0, 0, "nothing passed")
  row(output, "specs", 3, 0, "ended with status 7")
  row(output, "bench", 1, 0, "ok")
end)

test("parts begin only while time is left", function()
  local output, status = rehearse("late", "machine) sleep 600 ;;")("first", "machine:60 rows:60", "GPU_SECONDS=1")
  check.equal(status, 1)
  row(output, "rows", 0, 0, "not run: out of time")
end)

test("temporary files of a part are removed, and what floods the log is cut off", function()
  local run = rehearse("flood", [[
    machine) touch $TMPDIR/file; good machine; head -c 5000000 /dev/zero | tr '\0' '\n' ;;
    rows) [ -e $TMPDIR/file ] || good rows ;;]])
  local output, status, read = run("first", "machine:60 rows:60")
  check.equal(status, 0, output)
  row(output, "rows", 1, 0, "ok")
  check.truthy(#read "out/gpu-first.txt" < 2.2e6, "the log is short")
  check.matches(output, "more than 2 MiB")
end)

test("where nothing can be written the log goes to memory and into the output", function()
  check.needs "/dev/full"
  local run = rehearse("unwritable", "")
  check.run("ln -s /dev/full " .. check.path "unwritable/out/gpu-first.txt")
  local output, status = run("first", "machine:60 rows:60")
  check.equal(status, 0)
  check.matches(output, "/out is full: the log goes on in /dev/shm/")
  row(output, "rows", 1, 0, "ok")
  check.matches(output, "\nok   rows\n")
end)

test("a part that fills the disk leaves room for the others", function()
  if select(2, check.run "unshare -rm mount -t tmpfs tmpfs /mnt") ~= 0 then check.skip "cannot mount a small disk" end
  local run = rehearse("full", [[rows) good rows; ! cat /dev/zero >$TMPDIR/file ;;]])
  local disk = check.path "full/out"
  local output, status = run("first", "machine:60 rows:60 bench:60", ("WORK=%s/kept unshare -rm sh -c "
    .. "'mount -t tmpfs -o size=300k tmpfs %s && exec \"$@\"' -"):format(disk, disk))
  check.equal(status, 0, output)
  row(output, "bench", 1, 0, "ok")
end)

test("a run that is stopped prints what it has reached", function()
  -- The part stops gpu_first.sh, its parent.
  local run = rehearse("stopped", [[rows) kill -TERM $(cut -d ' ' -f 4 /proc/$$/stat); sleep 600 ;;]])
  local output, status = run("first", "machine:60 rows:60")
  check.equal(status, 130)
  row(output, "machine", 1, 0, "ok")
end)

test("again needs the list of an earlier run", function()
  local output, status = rehearse("none", "")("again", "machine:60")
  check.matches(output, "^there is no .*/kept/passed: run gpu_first.sh first")
  check.equal(status, 1)
end)
