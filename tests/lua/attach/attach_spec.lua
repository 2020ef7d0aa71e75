-- mgpulua --attach and --ps: commands in a job that goes on, and what must not happen to it.
local check = require "check"
local beside = require "lua.attach.jobs".beside
local test = check.test

test("a command sees the script's globals and the training, and its output comes back", function()
  local told, job = beside [[
    $m --attach $p -e 'print(answer, job.state, job.model == model, job.epoch > 0, job.step <= job.steps, job.epochs)'
    $m --attach $p -e 'print(type(job.logs.loss), job.optimizer.learning_rate) io.write "written\n" mgpu.output "put\n"'
    echo 'local a = 3
    local b = a + 1
    print(b)' | $m --attach $p]]
  check.equal(told, "42\tfit\ttrue\ttrue\ttrue\t1000000\nnumber\t0.001\nwritten\nput\n4\n")
  check.matches(job, "attached\t3\tprint%(answer")
  check.matches(job, "changed\tnil\tnil")
  check.matches(job, "status 0\n$")
end)

test("errors come back with a traceback and status 1, and the training goes on", function()
  local told, job = beside [[
    $m --attach $p -e 'error "wrong"'; echo $?
    $m --attach $p -e 'x x'; echo $?
    $m --attach $p -e 'os.exit(3)'; echo $?
    $m --attach $p -e 'print(job.epocs)'; echo $?
    $m --attach $p -e 'job.epoch = 3'; echo $?
    $m --attach $p -e 'job.learning_rate = -1'; echo $?
    $m --attach $p -e 'coroutine.yield()'; echo $?
    $m --attach $p -e 'print(answer)'; echo $?]]
  check.matches(told, "^%(attached%):1: wrong\nstack traceback:")
  for _, text in ipairs { "os.exit would end the job", 'no field "epocs" (did you mean "epoch"?)', "cannot be set",
    'option "learning_rate" must be' } do
    check.truthy(told:find(text, 1, true), text .. " is in " .. told)
  end
  local _, failures = told:gsub("\n1\n", "")
  check.equal(failures, 7)
  check.matches(told, "\n42\n0\n$")
  check.matches(job, "status 0\n$")
end)

test("what is read changes nothing: the same weights and random numbers to the last bit", function()
  local _, alone = beside("", { epochs = 60 })
  local _, visited = beside([[
    while kill -0 $p 2>/dev/null; do
      $m --attach $p -e 'for _, w in ipairs(model:get_weights()) do w:sum():item() end
        mgpu.rand({ 3 }):sum():item() math.random() mgpu.tidy(function() return job.logs.loss end)
        debug.sethook(function() end, "l") jit.flush()' >/dev/null 2>&1
    done]], { epochs = 60 })
  check.equal(visited:match "weights [^\n]*\nrandom[^\n]*", alone:match "weights [^\n]*\nrandom[^\n]*")
  check.equal(alone:match "attached\t(%d+)", "0")
  check.truthy(tonumber(visited:match "attached\t(%d+)") > 3, visited:match "attached[^\n]*")
end)

test("the rate, a callback, a checkpoint, a model and the stop", function()
  local told, job = beside [[
    $m --attach $p -e 'job.learning_rate = 0.25 print(job.learning_rate)
      job.add_callback { on_epoch_end = function(_, epoch) called = epoch end }
      print(job.checkpoint(arg[1] .. ".saves")) print(job.checkpoint(arg[1] .. ".safetensors"))'
    $m --verify $f.saves
    while [ "$($m --attach $p -e 'print(called)')" = nil ]; do :; done
    $m --attach $p -e 'job:stop()'
    wait $p; echo ended $?]]
  check.matches(told, "^0.25\n[^\n]*%.saves/checkpoint%-000001\n[^\n]*%.safetensors\n")
  check.matches(told, "whole: epoch %d+, step %d+")
  check.matches(told, "ended 0\n$")
  check.matches(job, "rate\t0.25")
end)

test("--ps lists the job, also for programs, and dead ones are removed", function()
  local told = beside [[
    touch $XDG_RUNTIME_DIR/mgpulua/4194303.sock
    $m --ps | grep -e PID -e "^$p "; $m --ps=json; stat -c %a $XDG_RUNTIME_DIR/mgpulua $XDG_RUNTIME_DIR/mgpulua/$p.sock
    kill -9 $p; wait $p 2>/dev/null; $m --ps | grep -c "^$p "; ls $XDG_RUNTIME_DIR/mgpulua | wc -l]]
  check.matches(told, "^PID +RANK +SINCE +DEVICE +LOSS +STATE +SCRIPT\n%d+ +%- +%d+s +%S+ +%S+ +%S+, epoch %d+/1000000")
  check.matches(told, '"state": *"%a+"')
  check.matches(told, "\n700\n600\n0\n0\n$")
end)

test("a command that never ends is stopped when its client is killed; bytes that are no records do no harm", function()
  -- ThreadSanitizer delivers signals only where a program calls the system
  local body = os.getenv "MGPU_MALLOC" and 'local f = io.open "/dev/null" f:close()' or ""
  local told, job = beside((([[
    $m --attach $p -e 'while true do @body end' & c=$!
    while ! $m --ps | grep -q running; do :; done
    sleep 0.3; kill -9 $c; wait $c 2>/dev/null
    for bytes in 'no record' 'ma\001\002\377\377\377\377' 'ma\011\002\000\000\000\000' 'ma\001\002\001\000\000\000x'; do
      printf "$bytes" | S=$XDG_RUNTIME_DIR/mgpulua/$p.sock $m -e '
        local ffi = require "ffi"
        ffi.cdef [=[struct at { unsigned short family; char path[108]; }; int socket(int, int, int);
          int connect(int, const struct at *, unsigned); long write(int, const void *, size_t);
          long read(int, void *, size_t);]=]
        local at = ffi.new("struct at", 1, os.getenv "S")
        local fd, text = ffi.C.socket(1, 1, 0), io.read "*a"
        assert(ffi.C.connect(fd, at, ffi.sizeof(at)) == 0)
        ffi.C.write(fd, text, #text)
        local room = ffi.new "char[4096]"
        while ffi.C.read(fd, room, 4096) > 0 do end
        print "refused"'
    done
    $m --attach $p -e 'print(answer)']]):gsub("@body", body)))
  check.matches(told, "refused\nrefused\nrefused\nrefused\n42\n$")
  check.matches(job, "status 0\n$")
end)

test("a job that cannot be attached to says why", function()
  local told = beside([[
    $m --attach $p -e 'print(1)'; echo $?
    $m --attach 4194303 -e 'print(1)'; echo $?
    $m --attach=x -e 'print(1)'; echo $?
    $m --atach 2>&1 | head -1]], { environment = "MGPU_ATTACH=0" })
  for _, text in ipairs { "it does not listen", "there is no such process", "give the PID of a job",
    'did you mean "--attach"' } do
    check.truthy(told:find(text, 1, true), text .. " is in " .. told)
  end
  local _, failures = told:gsub("\n1\n", "")
  check.equal(failures, 3)
end)

test("another user is not let in, and a folder that others can write to is not used", function()
  if check.run "id -u" ~= "0\n" then check.skip "needs root" end
  if check.run "command -v setpriv" == "" then check.skip "needs setpriv" end
  local told = beside [[
    chmod 711 $XDG_RUNTIME_DIR $XDG_RUNTIME_DIR/..
    setpriv --reuid 65534 --clear-groups $m --attach $p -e 'print "let in"' 2>&1
    chmod 700 $XDG_RUNTIME_DIR
    chmod 777 $XDG_RUNTIME_DIR/mgpulua; $m --attach $p -e 'print "let in"']]
  check.matches(told, "belongs to another user, root")
  check.falsy(told:find "let in\n", told)
end)
