-- The program mgpulua: its options, exit statuses, tracebacks, prompt and signals.

local check = require "check"
local test = check.test

local program = check.program

-- Runs the program with arguments in shell syntax; returns its output and exit status.
local function run(arguments) return check.run(program .. " " .. arguments) end

local function script(name, text)
  local path = check.path(name)
  check.write(path, text)
  return path
end

test("-e runs its argument and -l requires a library as a global", function()
  check.equal(run "-e 'print(1 + 1)'", "2\n")
  check.equal(run "-lffi -e 'print(ffi == require \"ffi\")'", "true\n")
  check.equal(run "-l bit -e 'print(bit.band(6, 3))'", "2\n")
end)

test("arg holds the script at 0, its arguments after it and the options before it", function()
  local path = script("arg.lua",
    "print(arg[0] == ..., arg[1], arg[2], arg[-1], arg[-2], select(2, ...))")
  local output = run("-e x=1 " .. path .. " " .. path .. " two")
  check.equal(output, ("true\t%s\ttwo\tx=1\t-e\ttwo\n"):format(path))
end)

test("options after the script's name belong to the script", function()
  local path = script("options.lua", "print(...)")
  check.equal(run(path .. " -e --help -z"), "-e\t--help\t-z\n")
  check.equal(run("-- " .. path .. " -v"), "-v\n")
end)

test("a script is read from standard input", function()
  check.equal(check.run("echo 'print(5, ...)' | " .. program .. " - a"), "5\ta\n")
  check.equal(check.run("echo 'print(6)' | " .. program), "6\n")
end)

test("LUA_INIT runs first and -E ignores it", function()
  check.equal(check.run("LUA_INIT='print(1)' " .. program .. " -e 'print(2)'"), "1\n2\n")
  check.equal(check.run("LUA_INIT='print(1)' " .. program .. " -E -e 'print(2)'"), "2\n")
end)

test("-j and -O reach LuaJIT", function()
  check.matches(run "-joff -e 'print(jit.status())'", "^false")
  check.matches(run "-jon -e 'print(jit.status())'", "^true")
  check.matches(run "-O1 -e 'print(jit.status())'", "fold")
  check.matches(run "-jnonsense", "unknown luaJIT command")
end)

test("--version and --help answer and end with 0", function()
  local text, status = run "--version"
  check.matches(text, "^mgpulua %d+%.%d+")
  check.equal(status, 0)
  text, status = run "--help"
  check.matches(text, "--list-devices")
  check.equal(status, 0)
end)

test("an unknown option is named and ends with 1", function()
  local text, status = run "--bogus"
  check.matches(text, "--bogus")
  check.equal(status, 1)
  for option, value in pairs { ["-e"] = "CHUNK", ["-l"] = "NAME", ["-j"] = "CMD", ["--resume"] = "DIR",
    ["--verify"] = "DIR", ["--devices"] = "LIST", ["--np"] = "N", ["-H"] = "LIST",
    ["--hostfile"] = "FILE", ["--output"] = "rank0|all|prefix", ["--nranks_per_gpu"] = "N", ["--restart"] = "N",
    ["--elastic"] = "MIN:MAX", ["--pack"] = "SCRIPT", ["--serve"] = "MODEL" } do
    text, status = run(option)
    check.equal(text:match "^[^\n]*", ("mgpulua: %s needs a value: %s %s"):format(option, option, value))
    check.equal(status, 1)
  end
end)

test("an error shows a traceback and ends with 1", function()
  local path = script("error.lua", "local function f()\n  error 'boom'\nend\nf()\n")
  local text, status = run(path)
  check.matches(text, "error.lua:2: boom\nstack traceback:")
  check.matches(text, "error.lua:4: in main chunk")
  check.equal(status, 1)
end)

test("a missing script ends with 74 and os.exit keeps its status", function()
  local text, status = run(check.path "missing.lua")
  check.matches(text, "missing.lua")
  check.equal(status, 74)
  check.equal({ run "-e 'os.exit(7)'" }, { "", 7 })
end)

test("a file that the system refuses ends with 74", function()
  local text, status = run "-e 'require(\"mgpu.core\").store_load \"/nonexistent/x.safetensors\"'"
  check.matches(text, "/nonexistent/x.safetensors")
  check.equal(status, 74)
end)

test("output that cannot be written ends with 74 and the reason", function()
  if not io.open "/dev/full" then check.skip "there is no /dev/full" end
  for _, chunk in ipairs { "print(1)", "for i = 1, 1e5 do print(i) end", "print(1) os.exit(0)" } do
    local text, status = check.run(("%s -e '%s' 2>&1 >/dev/full"):format(program, chunk))
    check.matches(text, "cannot write to standard output: No space left on device")
    check.equal(status, 74)
  end
  for _, option in ipairs { "--help", "--version", "--list-devices" } do
    local text, status = check.run(("%s %s 2>&1 >/dev/full"):format(program, option))
    check.matches(text, "cannot write to standard output: ")
    check.equal(status, 74)
  end
end)

test("the prompt prints expressions, keeps the last value in _, and a semicolon suppresses printing", function()
  local function prompt(text)
    check.write(check.path "input", text)
    local output = check.run(("%s -i <%s"):format(program, check.path "input"))
    return (output:gsub("^mgpulua[^\n]*\n", ""))
  end
  check.equal(prompt "1 + 1\n_ * 10\n", "2\n20\n")
  check.equal(prompt "6 * 7;\n_\n", "42\n")
  check.equal(prompt "x = 3\nx\n", "3\n")
  check.equal(prompt "for i = 1, 2 do\nprint(i)\nend\n'end'\n", "1\n2\nend\n")
  check.matches(prompt "error 'boo'\n'still here'\n", "boo.*\nstill here\n$")
  check.matches(prompt "x = = 1\n2\n", "unexpected symbol.*\n2\n$")
end)

test("an interrupt ends compiled and interpreted loops as an error", function()
  for _, option in ipairs { "-jon", "-joff" } do
    local text, status = check.run(("timeout --foreground -s INT 0.3 %s %s -e 'while true do end'")
      :format(program, option))
    check.matches(text, "interrupted!\nstack traceback:")
    check.truthy(status == 1 or status == 124, "status " .. status)
  end
end)

-- Starts the program in the background with its own exit status as the last line of the output. `signals` is shell
-- code in which $p is its process; `before` stands before the command.
local function signalled(arguments, signals, before)
  return check.run(("%s%s %s & p=$!; %s; wait $p; echo status $?"):format(before or "", program, arguments, signals))
end

test("Ctrl-C and SIGTERM are errors that a script can catch, and the script can ask which came", function()
  local path = script("ask.lua", [[
    local core = require "mgpu.core"
    print(core.interrupted())
    print(pcall(function() while true do end end))
    print(core.error_code(), core.interrupted())]])
  for _, name in ipairs { "INT", "TERM" } do
    check.equal(signalled(path, "sleep 0.5; kill -" .. name .. " $p"),
      "nil\nfalse\tinterrupted!\ninterrupted\tSIG" .. name .. "\nstatus 0\n")
  end
end)

test("a script that Ctrl-C or SIGTERM ends has the exit status that shells give to these signals", function()
  for name, status in pairs { INT = 130, TERM = 143 } do
    local output = signalled("-e 'while true do end'", "sleep 0.3; kill -" .. name .. " $p")
    check.matches(output, "interrupted!.*status " .. status)
  end
end)

test("a second interrupt kills a script that ignores the first", function()
  local path = script("stubborn.lua", "while true do pcall(function() while true do end end) end")
  local _, status = check.run(("timeout -k 3 2 sh -c '%s %s & p=$!; sleep 0.3; kill -INT $p; "
    .. "sleep 0.2; kill -INT $p; wait $p'"):format(program, path))
  check.equal(status, 130)
end)

test("with a launcher, a signal that comes twice at once, from a group's sender and from it, counts once", function()
  local path = script("twice.lua", "print(pcall(function() while true do end end))")
  local text
  for _ = 1, 5 do -- on a busy machine much time may pass between the two
    text = signalled(path, "sleep 0.3; kill -TERM $p; kill -INT $p",
      "env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=localhost MASTER_PORT=29500 ")
    if text:find "status 0" then break end
  end
  check.equal(text, "false\tinterrupted!\nstatus 0\n")
end)

test("Ctrl-C waits for an error handler to end", function()
  check.equal(check.run(check.program .. [[ -e 'local ffi = require "ffi" ffi.cdef "int raise(int);"
    print(pcall(function()
      print(xpcall(error, function() ffi.C.raise(2) for _ = 1, 100 do end return "handled" end))
    end))']]), "false\tinterrupted!\n")
end)

test("--list-devices names the reference device and --doctor tries it", function()
  local text, status = run "--list-devices"
  check.matches(text, "ref:0")
  check.equal(status, 0)
  check.slow()
  text, status = run "--doctor"
  check.matches(text, "ref:0 +works, trains, matmul of 256 x 256 at [%d.]+ GFLOP/s")
  check.matches(text, "mgpulua [%d.]+, LuaJIT 2.*ok +libjansson.so.4 +2%.%d+.*cpu +logical CPUs .*memory +[%d.]+ GiB")
  check.matches(text, "%.safetensors files +works")
  check.falsy(text:find "FAILS", text)
  check.equal(status, 0)
end)

test("--doctor asks for the libraries that the build uses, under their names on this system", function()
  check.slow()
  local folder = check.program:match "^(%S*)/mgpulua"
  local text = run "--doctor"
  for file, names in pairs { ["mgpu-cpu.so"] = { "dnnl" }, ["libmgpu.so"] = { "z", "jansson" },
    ["mgpu-fetch.so"] = { "curl", "crypto" }, ["mgpu-image.so"] = { "png", "jpeg" }, ["mgpu-h5"] = { "hdf5" } } do
    local linked = check.run(("ldd %s/%s 2>/dev/null"):format(folder, file))
    for _, name in ipairs(names) do
      local library = linked:match("lib" .. name .. "%d*%.so%.[%d.]+") or linked:match("lib" .. name .. "%S*_hl%.so%S+")
      check.matches(text, library and "ok +" .. library:gsub("%p", "%%%0") .. " " or "left out +lib" .. name)
    end
  end
end)

test("--doctor tells what is missing and how to install it, limits, and self-tests that fail", function()
  check.slow()
  local text = check.run(("MGPU_CUDA_LIBRARIES=/nonexistent MGPU_THREADS=1 sh -c 'ulimit -n 300; %s --doctor'")
    :format(program:gsub("'", "")))
  check.matches(text, "missing +libcudnn.so.9 +cuDNN, only for GPUs: apt%-get install libcudnn9%-cuda%-13\n")
  check.matches(text, "limit +Max open files +300 %(ulimit%)\n")
  check.matches(text, "set +MGPU_THREADS +1\n")
  check.write(check.path "fault.lua", [[
    require "mgpu.core".fault { device = "ref:0", op = "matmul" }
    require "mgpu.program".doctor() ]])
  local status
  text, status = run(check.path "fault.lua")
  check.matches(text, "ref:0 +FAILS: [^\n]*matmul: failed")
  check.equal(status, 1)
end)

test("--doctor shows the versions of CUDA's libraries", function()
  check.slow()
  local fake = io.open "build/fake_cuda/libcudnn.so.9"
  if not fake then check.skip "make fake_cuda" end
  fake:close()
  local text = check.run(("MGPU_CUDA_LIBRARIES=build/fake_cuda %s --doctor"):format(program))
  check.matches(text, "ok +libcudnn.so.9 +9%.%d+  cuDNN\n")
  check.matches(text, "ok +libcuda.so.1 +13%.%d+  the NVIDIA driver\n")
end)

test("--devices may name a kind once for several numbers, and one GPU several times", function()
  local parse = require("mgpu.program").parse_devices
  check.equal(parse "cuda:0,1,cpu:0-1", { "cuda:0", "cuda:1", "cpu:0", "cpu:1" })
  check.equal(parse "cuda:1/0-1,2", { "cuda:1/0", "cuda:1/1", "cuda:1/2" })
  for _, text in ipairs { "cpu:", "cuda:0/", "cpu:1-2-3", "0", "cpu:x", "cpu:0-x" } do
    check.raises(function() parse(text) end, "cannot read", "usage")
  end
  for _, text in ipairs { "null:0-511", "cuda:64" } do
    check.raises(function() parse(text) end, ('%q: device numbers go up to 63, since a step takes at most 64 devices')
      :format(text), "usage")
  end
end)

test("an option's value may follow a sign =, and a misspelt option is suggested", function()
  check.equal(run "--devices=ref:0-1 -e 'print(unpack(require(\"mgpu.core\").devices()))'", "ref:0\tref:1\n")
  for given, meant in pairs { ["--devces"] = "--devices", ["--resumee=x"] = "--resume", ["--doctor=3"] = "--doctor",
    ["--halp"] = "--help" } do
    local text, status = run(given)
    check.equal(status, 1)
    check.equal(text:match "^[^\n]*", ('mgpulua: wrong option %s (did you mean "%s"?)'):format(given, meant))
  end
  check.equal({ run "--resume= -e 'print(1)'" }, { "mgpulua: --resume: the name of the folder is empty\n", 1 })
  check.equal((run "--zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"):match "^[^\n]*",
    "mgpulua: wrong option --zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz")
end)

test("--devices sets what mgpu.devices() returns", function()
  check.equal(run "--devices ref:0-1 -e 'print(unpack(require(\"mgpu.core\").devices()))'",
    "ref:0\tref:1\n")
  local text, status = run "--devices rff:0 -e ''"
  check.matches(text, '^mgpulua: unknown device "rff:0"')
  check.equal(status, 1)
end)

-- How long a start takes is measured by make bench; what it loads is what makes it long.
test("a start loads the tensors only, and takes less than 10 MB of memory", function()
  check.equal(run [[-e 'require "mgpu"; local names = {}
    for name in pairs(package.loaded) do if name:find "^mgpu" then names[#names + 1] = name end end
    table.sort(names); print(table.concat(names, " "))']],
    "mgpu mgpu.aliases mgpu.core mgpu.methods mgpu.ordered_keys mgpu.tensor mgpu.tensor.arguments "
      .. "mgpu.tensor.composite_ops mgpu.tensor.images mgpu.tensor.indexing mgpu.tensor.matrices "
      .. "mgpu.tensor.movement mgpu.tensor.printing mgpu.tensor.reductions mgpu.tensor.scan mgpu.tensor.slicing "
      .. "mgpu.tensor.sorting mgpu.tensor.spectra\n")
  if os.getenv "MGPU_MALLOC" then check.skip "a sanitizer's build" end
  local peak = run "-e 'for line in io.lines \"/proc/self/status\" do print(line) end'"
  local kb = tonumber(peak:match "VmHWM:%s+(%d+)")
  check.truthy(kb < 10 * 1024, ("peak memory of %d KB"):format(kb))
end)

test("a script of bytecode is refused unless --bytecode asks for it", function()
  local source, code = check.path "plain.lua", check.path "code.lua"
  check.write(source, "print('ran', ...)")
  check.write(code, string.dump(assert(loadfile(source))))
  local text, status = run(code .. " x 2>&1")
  check.matches(text, "code.lua is bytecode, .* give %-%-bytecode before the script")
  check.equal(status, 1)
  check.matches(run("- <" .. code .. " 2>&1"), "standard input is bytecode")
  check.equal(run("--bytecode " .. code .. " x"), "ran\tx\n")
  check.equal(run("--bytecode " .. source .. " x"), "ran\tx\n")
end)

test("bytecode that a script loads is refused unless --bytecode asks for it", function()
  local code, loader = check.path "loaded.lua", check.path "loads.lua"
  check.write(code, string.dump(function() return "ran" end))
  check.write(loader, ([[
package.path = %q .. "/?.lua;" .. package.path
local text = io.open(%q):read "*a"
local function piecewise() local t = text; text = nil; return t end
print("load", pcall(load(text) or function() return select(2, load(text)) end))
print("mode b", select(2, load(text, "=chunk", "b")))
print("loadstring", select(2, loadstring(text)))
print("loadfile", select(2, loadfile(%q)))
print("dofile", pcall(dofile, %q))
print("require", pcall(require, "loaded"))
print("pieces", select(2, load(piecewise)))
print("text", load("return ...", "=x", "t", {})(1), loadstring "return 2"(), load("return y", "=x", nil, { y = 3 })())
print("wrong", select(2, load "return ="), select(2, loadfile "/none"), pcall(load))
]]):format(code:match "^(.*)/", code, code, code))
  local out, rows = run(loader .. " 2>&1"), {}
  for name, rest in out:gmatch "([^\t\n]+)\t([^\n]*)" do rows[name] = rest end
  for _, name in ipairs { "load", "mode b", "loadstring", "loadfile", "dofile", "pieces" } do
    check.matches(rows[name] or "", "is bytecode, .* give %-%-bytecode before the script")
  end
  check.matches(out, "require\tfalse\t.*loaded.lua is bytecode, .* give %-%-bytecode before the script")
  check.equal(rows.text, "1\t2\t3")
  check.matches(rows.wrong, "^.*unexpected symbol.*\tcannot open /none.*\tfalse\tbad argument #1")
  out = run("--bytecode " .. loader .. " 2>&1")
  check.matches(out, "load\ttrue\tran\n.*loadfile\ndofile\ttrue\tran\nrequire\ttrue\tran\n")
end)

test("the built files are position-independent, bound at start, and checked against overflows", function()
  check.needs "/usr/bin/readelf"
  local path = check.program:match "^'?(.-)'?$"
  if not path:find "build/mgpulua$" then check.skip "only release builds have them" end
  check.equal(require "hardening".faults(path, true), {})
end)
