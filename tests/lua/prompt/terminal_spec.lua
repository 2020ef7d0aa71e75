-- The prompt in a terminal: editing, history, pasting, kinds of terminals.

local check = require "check"
local terminal = require "lua.prompt.terminal"
local test = check.test

local each_editor = terminal.each_editor

local UP, LEFT, HOME = "\27[A", "\27[D", "\1"

-- ---- editing ------------------------------------------------------------------------------------

test("lines are edited, recalled and completed", function()
  each_editor(function(_, open)
    local t = open()
    t:ask("1 + 1", "2")
    t:send("2 + 20" .. LEFT .. LEFT .. "\8" .. HOME .. "4") -- 42 +20
    t:ask("", "62")
    t:send(UP .. UP .. "0")
    t:ask("", "11")
    t:send "mgpu.onehot"
    t:send "\21" -- Ctrl-U
    t:send "mgpu.ara"
    t:expect "mgpu.ara"
    t:send "\t"
    t:expect "nge"
    t:ask(" { 3 }", "must be a number, got a table")
    check.equal(t:close(), 0)
  end, "readline", "libedit")
end)

test("Tab lists what fits if there is a choice, and the line goes on", function()
  each_editor(function(_, open)
    local t = open()
    t:send "L.Conv"
    t:expect "L.Conv"
    t:send "\t"
    t:expect "Conv1D"
    t:expect "Conv2D"
    t:expect "L.Conv"
    t:send "1"
    t:expect "1"
    t:send "\t"
    t:expect "D"
    t:ask(" ~= nil", "true")
    t:send "L.Dense { 3, use_b\t"
    t:expect "use_bias = "
    t:ask("5 }", 'Dense: option "use_bias" must be true or false')
    check.equal(t:close(), 0)
  end, "readline", "libedit")
end)

test("Tab in a line that wraps draws nothing twice", function()
  each_editor(function(editor, open)
    local t = open { columns = 30 }
    t:send "x = { 1111111111, 2222222222, 3333333333, L.Dense { 3, use_b"
    t:expect "_b"
    local before = #t.raw
    t:send "\t"
    t:expect "= "
    if editor == "readline" then
      check.falsy(t.raw:sub(before + 1):find("x = {", 1, true), t.raw:sub(before + 1))
    else -- it draws the line anew, from its start two rows above
      check.matches(t.raw:sub(before + 1), "\27%[2A\r\27%[J")
    end
    t:send "\3"
    t:expect "> "
    check.equal(t:close(), 0)
  end, "readline", "libedit")
end)

test("unfinished input continues and is one entry of the history", function()
  each_editor(function(_, open)
    local t = open()
    t:type "for i = 1, 2 do"
    t:expect ">> "
    t:type "print('i', i)"
    t:expect ">> "
    t:ask("end", "i\t2")
    t:send(UP)
    t:expect "for i = 1, 2 do"
    t:expect "end"
    t:ask("", "i\t2")
    check.equal(t:close(), 0)
  end, "readline", "libedit")
end)

-- ---- history ------------------------------------------------------------------------------------

test("the history is kept in a file of the user's alone, without duplicates", function()
  each_editor(function(editor, open)
    local env = { XDG_STATE_HOME = check.path("state-" .. editor) }
    local path = env.XDG_STATE_HOME .. "/mgpulua/history"
    local t = open { env = env }
    t:ask("11", "11")
    t:ask("'a\\\\b'", "a\\b")
    t:ask("11", "11")
    t:close()
    check.equal(check.read(path), "'a\\\\\\\\b'\n11\n")
    check.equal(check.run("stat -c %a " .. path), "600\n")
    t = open { env = env }
    t:send(UP .. UP)
    t:expect "'a\\\\b'"
    t:ask("", "a\\b")
    t:close()
    check.equal(check.read(path), "11\n'a\\\\\\\\b'\n")
  end, "readline", "libedit")
end)

test("two prompts at once lose nothing, and one that is killed has lost nothing either", function()
  each_editor(function(editor, open)
    local env = { XDG_STATE_HOME = check.path("both-" .. editor) }
    local a, b = open { env = env }, open { env = env }
    a:ask("'from a'", "from a")
    b:ask("'from b'", "from b")
    a:ask("'more a'", "more a")
    a:close()
    b:ask("'more b'", "more b")
    b:signal "KILL"
    check.equal(b:wait(), 137)
    check.equal(check.read(env.XDG_STATE_HOME .. "/mgpulua/history"), "'from a'\n'from b'\n'more a'\n'more b'\n")
  end, "readline", "libedit")
end)

test("the history holds 10,000 inputs, and inputs of several lines come back", function()
  local lines = {}
  for i = 1, 10500 do lines[i] = "x = " .. i end
  lines[#lines + 1] = "for i = 1, 1 do\\nprint('several')\\nend"
  each_editor(function(editor, open)
    local state = check.path("long-" .. editor)
    check.run(("mkdir -p %s/mgpulua"):format(state))
    check.write(state .. "/mgpulua/history", table.concat(lines, "\n") .. "\n")
    local t = open { env = { XDG_STATE_HOME = state } }
    t:send(UP)
    t:expect "for i"
    t:ask("", "several")
    t:close()
    local text = check.read(state .. "/mgpulua/history")
    check.equal(select(2, text:gsub("\n", "\n")), 10000)
    check.matches(text, "^x = 502\n")
  end, "readline", "libedit")
end)

test("a history that cannot be written is said once, and the prompt goes on", function()
  check.write(check.path "no-folder", "")
  each_editor(function(_, open)
    local t = open { env = { XDG_STATE_HOME = check.path "no-folder" } }
    check.matches(t.output, "the history is not kept: ")
    t:ask("5 * 5", "25")
    t:ask("6 * 5", "30")
    check.equal(select(2, t.output:gsub("not kept", "")), 1)
    t:close()
  end, "readline")
end)

-- ---- terminals ----------------------------------------------------------------------------------

test("a terminal that changes its size leaves the line as it is", function()
  each_editor(function(_, open)
    local t = open { columns = 80 }
    t:send "1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10 + 11 + 12 + "
    t:expect "12 + "
    t:resize(20, 30)
    t:ask("13", "91")
    t:ask("require 'mgpu.core'.columns()", "30")
    check.equal(t:close(), 0)
  end, "readline", "libedit")
end)

test("a dumb terminal gets plain lines without escape sequences", function()
  for _, term in ipairs { "dumb", "" } do
    local t = terminal.open { env = { TERM = term } }
    t:expect "> "
    t:ask("1 + 1", "2")
    t:type "for i = 1, 2 do"
    t:expect ">> "
    t:ask("print(i) end", "2")
    check.equal(t:close(), 0)
    check.falsy(t.raw:find "\27", "an escape sequence")
  end
end)

test("results go to a file without prompts, which the terminal shows", function()
  local t = terminal.open { command = ("sh -c '%s >%s'"):format(check.program:gsub("'", ""), check.path "results") }
  t:expect "> "
  t:type "6 * 7"
  t:expect "> "
  t:close()
  check.matches(check.read(check.path "results"), "^mgpulua [^\n]*\n42\n$")
end)

-- ---- pasting ------------------------------------------------------------------------------------

-- A script of 200 lines with tabs, blank lines, a long string, and locals; it prints its sum.
local function long_script()
  local lines = { "local total = 0", "local function add(n)", "\ttotal = total + n", "end", "", "local text = [[", "a",
    "\tb]]" }
  for i = 1, 60 do
    lines[#lines + 1] = ("if %d %% 2 == 0 then"):format(i)
    lines[#lines + 1] = ("\tadd(%d)"):format(i)
    lines[#lines + 1] = "end"
  end
  while #lines < 199 do lines[#lines + 1] = "add(1) -- line " .. #lines + 1 end
  lines[200] = "print('sum', total, #text)"
  return lines
end

test("a script of 200 lines can be pasted", function()
  local script = long_script()
  each_editor(function(editor, open)
    local t = open()
    if editor == "readline" then -- bracketed: one input
      t:send("\27[200~" .. table.concat(script, "\r") .. "\27[201~")
      t:type ""
      t:expect "sum\t941\t4"
      t:expect "> "
      t:send(UP)
      t:expect "local total = 0"
      t:ask("", "sum\t941\t4")
    end
    t:type "total = nil"
    t:expect "> "
    t:type(table.concat(script, "\r")) -- as if typed fast
    t:expect "sum\t941\t"
    t:expect "> "
    t:ask("'alive'", "alive")
    check.equal(t:close(), 0)
  end, "readline", "libedit", "none")
end)
