-- The prompt through a pipe: inputs, values, locals, errors, commands.

local check = require "check"
local test = check.test

-- What the prompt says to these inputs, without the version.
local function prompt(text, environment)
  check.write(check.path "input", text)
  local output = check.run(("HOME=%s %s %s -i <%s"):format(check.path "home", environment or "", check.program,
    check.path "input"))
  return (output:gsub("^mgpulua[^\n]*\n", ""))
end

test("expressions print their values, several of them in one line", function()
  check.equal(prompt "1 + 1\n'a', nil, true\nnil\n", "2\na\tnil\ttrue\nnil\n")
  check.equal(prompt "= 2 * 3\nreturn 4\nreturn 5;\nreturn\n", "6\n4\n")
  check.equal(prompt "(function() end)()\nx = 3\nx -- a comment\n", "3\n")
end)

test("a semicolon at the end suppresses printing, but not one in a string or a comment", function()
  check.equal(prompt "6 * 7;\n_\n'a;'\n1 -- b;\n2; -- hushed\n", "42\na;\n1\n")
end)

test("unfinished input continues, whichever way it may be finished", function()
  check.equal(prompt "for i = 1, 2 do\nprint(i)\nend\n", "1\n2\n")
  check.equal(prompt "{ 1,\n2 }\n1 +\n2\n[[a\nb]]\n#'x' ==\n1\n", "{ 1, 2 }\n3\na\nb\ntrue\n")
  check.equal(prompt "--[[ a\ncomment ]] 5\n= 1 +\n1\n", "5\n2\n")
  check.matches(prompt "f(\n", "'<eof>'")
end)

test("_ is the last value, which statements and values of nil leave alone", function()
  check.equal(prompt "5\n_ + 1\n_ + 1;\nx = 1\n_\nnil\n_\n", "5\n6\n7\nnil\n7\n")
end)

test("locals of the outermost level stay, hide globals, and stay out of files", function()
  check.equal(prompt "local x, y = 1\nx, y\nfunction f() x = x + 1 return x end\nf(), x, _G.x\n", "1\tnil\n2\t2\tnil\n")
  check.equal(prompt "z = 5\nlocal z = z + 1\nz, _G.z\nz = 7\nz, _G.z\nlocal z\nz, _G.z\n", "6\t5\n7\t5\nnil\t5\n")
  check.equal(prompt "local function g(n) return n < 2 and 1 or n * g(n - 1) end\ng(5), _G.g\n", "120\tnil\n")
  check.equal(prompt "do local a = 1 end\na\nfor i = 1, 1 do local b = 2 end\nb\n", "nil\nnil\n")
  check.write(check.path "other.lua", "print(x)")
  check.equal(prompt(("local x = 1\ndofile '%s'\n"):format(check.path "other.lua")), "nil\n")
  check.equal(prompt "local s = 'local t = 1'\ns, t\n", "local t = 1\tnil\n")
end)

test("tables show their entries in order, to a depth, with cycles marked", function()
  check.equal(prompt "{ 3, 'a\\n', x = 1, ['b c'] = {} , [2.5] = true }\n",
    '{ 3, "a\\n", [2.5] = true, ["b c"] = {}, x = 1 }\n')
  check.equal(prompt "t = {} t.t = t t.n = { t }\nt\n", "{ n = { <cycle> }, t = <cycle> }\n")
  check.equal(prompt "{{{{{1}}}}}\n", "{ { { { {...} } } } }\n")
  check.equal(prompt "t = {} for i = 1, 1000 do t[i] = i end\n#require 'mgpu.prompt.show_value'(t) < 200\n", "true\n")
  check.equal(prompt "setmetatable({}, { __tostring = function() return 'mine' end })\n", "mine\n")
  check.equal(prompt "setmetatable({ 1 }, { __index = function() error 'called' end })\n", "{ 1 }\n")
end)

test("models show their summary, layers their options, datasets their elements, functions their place", function()
  check.matches(prompt "mgpu.Sequential { L.Input { 2 }, L.Dense { 3 } }\n", "Total params: 9")
  check.equal(prompt "L.Dropout { 0.5, name = 'd' }\n", 'Dropout "d" { rate = 0.5 }\n')
  check.equal(prompt "mgpu.data.from_tensors { mgpu.ones { 10, 3, 2 }, mgpu.zeros { 10 } }:batch(3)\n",
    "dataset of 4 elements: float32 {n, 3, 2}, float32 {n}\n")
  check.equal(prompt "mgpu.data.from_tensors { mgpu.ones { 4 } }:filter(function() return true end)\n",
    "dataset of an unknown number of elements\n")
  check.equal(prompt "function f() end\n{ f }\n", "{ function: stdin[1]:1 }\n")
  check.matches(prompt "print\n", "^function: builtin")
end)

test("mgpu and L are there, unless the user has globals of these names", function()
  check.matches(prompt "mgpu.ones { 2 }\nL.Dense { 3 }\n",
    'tensor {2} float32 [^\n]*\n{1, 1}\nDense "dense" {.*units = 3')
  check.equal(check.run(("echo L | %s -E -e 'L = 5' -i"):format(check.program)):gsub("^[^\n]*\n", ""), "5\n")
end)

-- ---- errors -------------------------------------------------------------------------------------

test("an error shows its message first, and the user's functions only", function()
  check.equal(prompt "error 'boo'\n1\n", "stdin[1]:1: boo\n1\n")
  check.equal(prompt "x = = 1\n", "stdin[1]:1: unexpected symbol near '='\n")
  check.matches(prompt "L.Dense { unitz = 3 }\n", "^stdin%[1%]:1: Dense: unknown option \"unitz\"[^\n]*\n$")
  check.equal(prompt "function f() error 'deep' end\nfunction g() f() return 1 end\ng()\n",
    "stdin[1]:1: deep\nstack traceback:\n\tstdin[1]:1: in function 'f'\n\tstdin[2]:1: in function 'g'\n"
      .. "\tstdin[3]:1: in main chunk\n")
  check.equal(prompt "error { code = 3 }\n", "{ code = 3 }\n")
  check.equal(prompt "error(nil)\n2\n", "nil\n2\n")
end)

test("MGPU_TRACE=full shows the runtime's functions, too", function()
  local text = prompt("L.Dense { unitz = 3 }\n", "MGPU_TRACE=full")
  check.matches(text, "lua/mgpu/options.lua:%d+: in function 'fail'")
  check.matches(text, "lua/mgpu/prompt/init.lua")
end)

test("a traceback of a script hides the runtime, keeps a C function between the user's, and is short", function()
  check.write(check.path "sort.lua", "local function bad(a, b) error 'no order' end\ntable.sort({ 2, 1 }, bad)\n")
  local text = check.run(check.program .. " " .. check.path "sort.lua")
  check.matches(text, "sort.lua:1: no order\nstack traceback:\n\t[^\n]*sort.lua:1: in function <[^\n]*\n"
    .. "\t%[C%]: in function 'sort'\n\t[^\n]*sort.lua:2: in main chunk\n$")
  text = check.run(check.program .. " -e 'local function f() return 1 + f() end f()'")
  local _, lines = text:gsub("\n", "\n")
  check.matches(text, "stack overflow.*in function 'f'.*\n\t%.%.%.\n.*in main chunk")
  check.truthy(lines < 30, lines)
end)

-- ---- commands -----------------------------------------------------------------------------------

test("an unknown command suggests one, and :help lists them all", function()
  check.equal(prompt ":tim 1\n", 'there is no command :tim (did you mean "time"?); :help lists them\n')
  local help = prompt ":help\n"
  for _, name in ipairs(require "mgpu.prompt.commands".names) do check.matches(help, "\n  :" .. name .. " ") end
  check.equal(prompt ":quit\n1\n", "")
end)

test(":time computes and tells how long, :who lists, :mem and :devices report", function()
  check.matches(prompt ":time 1 + 1\n", "^2\n[%d.]+ [mu]?s\n$")
  check.matches(prompt ":time local q = mgpu.ones { 3 }:sum()\nq:item()\n", "^[%d.]+ [mu]?s\n3\n$")
  check.equal(prompt ":who\nx = mgpu.ones { 2, 3 };\nlocal y = 'text'\n:who\n",
    ("no variables yet\n%-16s tensor {2, 3} float32 %s\n%-16s local \"text\"\n"):format("x",
      require "mgpu.core".default_device(), "y"))
  check.matches(prompt ":mem\n", "tensors .*Lua  .*process ")
  check.matches(prompt ":devices\n", "ref:0")
  check.matches(prompt ":time error 'slow'\n2\n", "slow\n2\n$")
end)

test(":save writes the inputs that ran as a script, and :load runs a file", function()
  local path = check.path "saved.lua"
  os.remove(path)
  local inputs = "local x = 2\nreturn x * 3\n_ + 1\nprint 'hello'\nerror 'not this'\n'hushed';\nfunction f()\n"
    .. "  return x\nend\nf()\n"
  check.matches(prompt(inputs .. ":save " .. path .. "\n:save " .. path .. "\n:save! " .. path .. "\n"),
    "7 inputs written to [^\n]*\n[^\n]*is there already; :save! [^\n]*\n7 inputs written")
  check.equal(check.run(check.program .. " " .. path), "6\n7\nhello\n2\n")
  check.equal(prompt(":load " .. path .. "\n"), "6\n7\nhello\n2\n")
  check.matches(prompt(":load /nonexistent.lua\n1\n"), "cannot open[^\n]*\n1\n")
  check.matches(prompt(":save /nonexistent/x.lua\n1\n"), "/nonexistent[^\n]*\n1\n")
end)

-- ---- documentation ------------------------------------------------------------------------------

test("?name explains layers, ops, functions, methods and one's own functions", function()
  check.matches(prompt "?L.Dense\n", "Dense {units.*Weights: .*Options.*\n  use_bias +=? *true")
  check.matches(prompt "?Conv2D\n", "Conv2D {filters.*\n  kernel_size +required")
  check.matches(prompt "?softmax\n", "^softmax: .*\n  axis .*Differentiable")
  check.matches(prompt "?mgpu.arange\n", "^arange%(n, options%).*tensor/init.lua:%d+\n$")
  check.matches(prompt "?mgpu.grad\n", "^grad%(fn%) %-> ")
  check.matches(prompt "?mgpu.data.csv\n", "^csv%(path, {label.*Errors, with file, line.*data/csv.lua:%d+\n$")
  check.matches(prompt "?mgpu.datasets.shapes.load_data\n",
    "^shapes%.load_data%(n = 1000.*\n.*datasets/drawn.lua:%d+\n$")
  check.matches(prompt "?fit\n", "^model:fit%(x, y")
  check.matches(prompt "?Callback\n", "^Callback: the base of all callbacks")
  check.matches(prompt "?mgpu.losses.bce\n", "^BinaryCrossentropy {from_logits.*losses/crossentropy.lua\n$")
  check.matches(prompt "m = mgpu.Sequential {};\n?m.fit\n?m:fit\n", "^model:fit%(x, y.*\nmodel:fit%(x, y")
  check.matches(prompt "?Adam\n", "Adam {learning_rate.*amsgrad")
  check.matches(prompt "do\n-- Twice.\nfunction twice(a) return 2 * a end\nend\n?twice\n", "Twice.\nstdin%[1%]:3\n$")
  check.matches(prompt "?twicee\n", "nothing is known about twicee")
  check.matches(prompt "?mgpu.nosuch\n1\n", "nothing is known about mgpu.nosuch\n1\n$")
  check.matches(prompt "?1 +\n2\n", "unexpected symbol[^\n]*\n2\n$")
end)

test("every function of mgpu and every method of tensors is explained", function()
  local core, mgpu = require "mgpu.core", require "mgpu"
  local lines = {}
  for name, value in pairs(mgpu) do
    if type(value) == "function" then lines[#lines + 1] = "?mgpu." .. name .. "\n" end
  end
  for name in pairs(core.methods) do lines[#lines + 1] = "x = mgpu.ones {1};\n?x." .. name .. "\n" end
  check.falsy(prompt(table.concat(lines)):match "[^\n]*nothing is known[^\n]*")
end)

test("every function of Lua's library is explained", function()
  local about = require "mgpu.prompt.lua_functions"
  for _, library in ipairs { "_G", "string", "table", "math", "io", "os", "coroutine", "bit" } do
    for name, fn in pairs(_G[library]) do
      local internal = name == "gcinfo" or name == "newproxy" or name == "module" or name == "gfind"
      if type(fn) == "function" and not internal then
        check.matches(about(fn) or "", name:gsub("%p", "%%%0"), library .. "." .. name)
      end
    end
  end
  check.matches(prompt "?string.gsub\n?('x').rep\n?bit.band\n?print\n",
    "^string.gsub%(s, .*captures\nstring.rep%(.*\nbit.band%(.*\nprint%(%.%.%.%)")
end)

test("?name explains models of the zoo, functions and tables", function()
  check.matches(prompt "?mgpu.models.lenet5\n", "^lenet5 {input_shape.*Example:.*models/lenet5.lua\n$")
  check.matches(prompt "?resnet50\n", "^resnet50 {classes.*Example:.*models/resnet50.lua\n$")
  check.matches(prompt "??resnet50\n", "models/resnet50.lua\n.*return require")
end)

test("?name explains the methods of a variable", function()
  check.matches(prompt "v = mgpu.variable(mgpu.zeros { 2 })\n?v.assign\n", "^v:assign%(t%) %-> v, .*Example:")
end)

test("?name shows the example of a name, after its options", function()
  check.matches(prompt "?l1_l2\n", "^L1L2 {.*\nExample:\n    local w = .*%-%-> 257\n.*regularizers.lua:%d+\n$")
  check.matches(prompt "?mgpu.initializers.he_normal\n", "^he_normal {.*\nExample:\n    local w")
end)

test("??name shows the source of a class, a function, and a function from the prompt", function()
  local dense = prompt "??L.Dense\n"
  check.matches(dense, "layers/basic.lua:%d+\n%-%- %-%-%-%- Dense .*function Dense:build")
  check.falsy(dense:find "Embedding:build") -- which follows in the file
  check.matches(prompt "??L.LayerScale\n", "layers/scaling.lua.*function LayerScale:build")
  check.matches(prompt "??mgpu.arange\n", "tensor/init.lua:%d+\nfunction M.arange.*\nend\n$")
  check.equal(prompt "function f()\n  return 1\nend\n??f\n", "stdin[1]:1\nfunction f()\n  return 1\nend\n")
  check.matches(prompt "??softmax\n", "softmax is written in C; %?softmax")
end)

-- ---- init files ---------------------------------------------------------------------------------

test("MGPULUA_INIT and the init file run first, in the prompt only, and -E skips them", function()
  local home = check.path "home"
  check.run(("mkdir -p %s/.config/mgpulua %s/xdg/mgpulua"):format(home, home))
  check.write(home .. "/.config/mgpulua/init.lua", "a = (a or '') .. 'file'")
  check.write(home .. "/xdg/mgpulua/init.lua", "a = 'xdg'")
  check.write(check.path "mine.lua", "a = 'mine,'")
  check.equal(prompt "a\n", "file\n")
  check.equal(prompt("a\n", "MGPULUA_INIT=\"a = 'code,'\""), "code,file\n")
  check.equal(prompt("a\n", "MGPULUA_INIT=@" .. check.path "mine.lua"), "mine,file\n")
  check.equal(prompt("a\n", "MGPULUA_INIT=" .. check.path "mine.lua"), "mine,file\n")
  check.equal(prompt("a\n", ("XDG_CONFIG_HOME=%s/xdg"):format(home)), "xdg\n")
  check.matches(prompt("a\n", "MGPULUA_INIT='error \"bad\"'"), "MGPULUA_INIT:1: bad\n.*file\n$")
  check.equal(check.run(("echo a | HOME=%s MGPULUA_INIT='a = 1' %s -E -i"):format(home, check.program))
    :gsub("^[^\n]*\n", ""), "nil\n")
  check.equal(check.run(("HOME=%s MGPULUA_INIT='a = 1' %s -e 'print(a)'"):format(home, check.program)), "nil\n")
  os.remove(home .. "/.config/mgpulua/init.lua")
end)
