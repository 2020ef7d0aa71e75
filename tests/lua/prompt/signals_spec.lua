-- The prompt and signals: Ctrl-C, Ctrl-Z, SIGTERM, SIGHUP, and the terminal's modes afterwards.

local check = require "check"
local ffi = require "ffi"
local terminal = require "lua.prompt.terminal"
local each_editor = terminal.each_editor
local test = check.test

test("Ctrl-C discards the line, and the lines before it", function()
  each_editor(function(_, open)
    local t = open()
    t:send "12345"
    t:expect "12345"
    t:send "\3"
    t:expect "> "
    t:ask("6 * 7", "42")
    t:type "for i = 1, 2 do"
    t:expect ">> "
    t:send "\3"
    t:expect "> "
    t:send "\3"
    t:expect "> "
    t:ask("'still here'", "still here")
    check.equal(t:close(), 0)
  end, "readline", "libedit", "none")
end)

-- Interrupts the input once it has printed "going".
local function stop(t, input)
  t:type("io.write('go', 'ing') io.flush() " .. input)
  t:expect "going"
  t:send "\3"
  t:expect "interrupted"
  t:expect "> "
end

test("Ctrl-C stops a compiled loop, a tensor computation and a fit, one after the other", function()
  each_editor(function(editor, open)
    local t = open()
    stop(t, "while true do end")
    stop(t, "local s = 0 for i = 1, 1e15 do s = s + i % 3 end")
    stop(t, "local x = mgpu.ones { 400, 400 } while true do x:matmul(x):sum():item() end")
    stop(t, "local x = mgpu.ones { 600, 600 } / 600 for i = 1, 20000 do x = x:matmul(x) end x:sum():item()")
    t:type "m = mgpu.Sequential { L.Input { 50 }, L.Dense { 50 }, L.Dense { 1 } } m:compile { loss = 'mse' }"
    t:expect "> "
    t:type "x, y = mgpu.rand { 5000, 50 }, mgpu.rand { 5000, 1 }"
    t:expect "> "
    stop(t, "m:fit(x, y, { epochs = 100000, verbose = 0 })")
    t:ask("m:predict(x, { verbose = 0 }):shape()", "{ 5000, 1 }")
    t:ask("#m:fit(x, y, { epochs = 1, verbose = 0 }).epoch", "1")
    t:type "ok, why = pcall(function() io.write('go', 'ing') io.flush() while true do end end)"
    t:expect "going"
    t:send "\3"
    t:expect "> "
    t:ask("ok, why", "false\tinterrupted!")
    check.equal(t:close(), 0, editor)
  end, "readline", "none")
end)

test("a second Ctrl-C within two seconds ends a program that ignores the first", function()
  each_editor(function(_, open)
    local t = open()
    t:type "while true do pcall(function() io.write('go', 'ing') io.flush() while true do end end) end"
    t:expect "going"
    t:send "\3"
    t:expect "going"
    t:send "\3"
    check.equal(t:wait(), 130)
  end, "readline")
end)

-- The shell command that runs the program and says whether it left the terminal's modes as they were.
local WATCHED = "sh -c 'trap : INT; before=$(stty -g); %s; status=$?; test \"$before\" = \"$(stty -g)\" "
  .. "&& echo RESTORED $status'"

test("the terminal has its modes again after any end", function()
  each_editor(function(editor)
    local function watched()
      local command = WATCHED:format((check.program:gsub("'", "")))
      local t = terminal.open { env = { MGPU_LINE_EDITOR = editor }, command = command }
      t:expect "> "
      return t
    end
    local t = watched()
    t:send "\4"
    t:expect "RESTORED 0"
    t:wait()
    t = watched()
    t:type "os.exit(3, true)"
    t:expect "RESTORED 3"
    t:wait()
    t = watched()
    t:type "while true do pcall(function() io.write('go', 'ing') io.flush() while true do end end) end"
    t:expect "going"
    t:send "\3"
    t:expect "going"
    t:send "\3"
    t:expect "RESTORED 130"
    t:wait()
    for name, status in pairs { TERM = 143, HUP = 129 } do
      t = watched()
      t:ask("io.open('/proc/self/stat'):read '*n'", "\n")
      local process = t.output:match "'%*n'%s+(%d+)"
      t:send "half a li"
      t:expect "half a li"
      os.execute(("kill -%s %s"):format(name, process))
      t:expect("RESTORED " .. status)
      t:wait()
    end
  end, "readline", "libedit")
end)

test("Ctrl-Z suspends the program at the prompt, and the line is there when it goes on", function()
  each_editor(function(editor)
    local t = terminal.open { env = { MGPU_LINE_EDITOR = editor, PS1 = "shell% " }, command = "sh -i" }
    t:expect "shell% "
    t:type(check.program)
    t:expect "> "
    t:send "21 * "
    t:expect "21 * "
    t:send "\26"
    t:expect "shell% "
    t:type "echo in the sh''ell"
    t:expect "in the shell"
    t:type "fg"
    t:expect "21 * "
    t:ask("2", "42")
    t:type "while true do io.write('go', 'ing') io.flush() end"
    t:expect "going"
    t:send "\26"
    t:expect "shell% "
    t:type "fg"
    t:expect "going"
    t:send "\3"
    t:expect "interrupted"
    t:expect "> "
    t:send "\4"
    t:expect "shell% "
    check.equal(t:close(), 0)
  end, "readline", "libedit")
end)

test("a terminal that goes away ends the program, also while it computes", function()
  each_editor(function(_, open)
    local t = open()
    t:signal "HUP"
    check.equal(t:wait(), 129)
    t = open()
    t:type "io.write('go', 'ing') io.flush() while true do end"
    t:expect "going"
    t:signal "HUP"
    check.equal(t:wait(), 129)
  end, "readline", "libedit", "none")
end)

test("a terminal that is closed ends the program, even if SIGHUP is ignored", function()
  each_editor(function(editor, open)
    local t = open()
    t:hang_up()
    check.equal(t:wait(), 129)
    t = terminal.open { env = { MGPU_LINE_EDITOR = editor },
      command = ("sh -c 'trap \"\" HUP; exec %s'"):format((check.program:gsub("'", ""))) }
    t:expect "> "
    t:ask("1 + 1", "2")
    t:hang_up()
    check.falsy(t:wait() >= 128, "a signal")
  end, "readline", "libedit", "none")
end)

test("an unknown line editor is said, and lines are read without one", function()
  local t = terminal.open { env = { MGPU_LINE_EDITOR = "emacs" } }
  t:expect "MGPU_LINE_EDITOR=emacs: there is no such line editor"
  t:expect "> "
  t:ask("1 + 1", "2")
  check.equal(t:close(), 0)
end)

test("SIGTERM ends the prompt, also while it computes", function()
  each_editor(function(_, open)
    local t = open()
    t:signal "TERM"
    check.equal(t:wait(), 143)
    t = open()
    t:type "io.write('go', 'ing') io.flush() while true do end"
    t:expect "going"
    t:signal "TERM"
    check.equal(t:wait(), 143)
  end, "readline", "libedit", "none")
end)

-- With each line the prompt waits for the lock of the history, for a second at most.
ffi.cdef "int flock(int fd, int operation); int fileno(void *file);"

test("a signal that comes between two lines ends the prompt", function()
  each_editor(function(_, open)
    for name, status in pairs { TERM = 143, HUP = 129 } do
      local t = open()
      local lock = assert(io.open(check.path "home" .. "/.local/state/mgpulua/history.lock", "r+"))
      check.equal(ffi.C.flock(ffi.C.fileno(lock), 2), 0)
      t:type("io.write 'a line' -- " .. name)
      t:expect "\n"
      t:signal(name)
      lock:close()
      check.equal(t:wait(), status)
    end
  end, "readline", "libedit", "none")
end)
