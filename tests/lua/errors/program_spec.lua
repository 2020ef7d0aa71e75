-- Error texts of the example scripts that other specs of the examples do not bring about.
local check = require "check"
local test = check.test

local function refused(arguments, expected)
  local output, status = check.run(check.program .. " " .. arguments)
  check.matches(output, expected)
  check.truthy(status ~= 0, "the exit status")
end

test("an example says that it makes at most 512 files", function()
  refused("examples/make_imagenet_records.lua --shards 513", "make_imagenet_records.lua: --shards: at most 512")
end)

test("an output that failed before its end is told", function()
  if not check.run "test -e /dev/full" then check.skip "no /dev/full" end
  refused("-e 'io.stdout:setvbuf \"no\" print(1)' >/dev/full",
    "mgpulua: cannot write to standard output: a write failed")
end)

test("the rock says that it wants LuaJIT", function()
  refused("-e 'jit = nil' examples/packaging/rock.lua", "; the rock is for LuaJIT (run the script with luajit)")
end)

-- What the program prints for a script where only the library stands beside it.
local function run_bare(script)
  local folder, here = check.path "bare", check.run("pwd"):gsub("\n", "")
  check.run(("mkdir -p %s/build && cp build/mgpulua build/libmgpu.so.0 %s/build && ln -sfn %s/lua %s/lua"):format(
    folder, folder, here, folder))
  return (check.run(("%s/build/mgpulua -e '%s'"):format(folder, script)))
end

test("without its plug-ins the program says which one is missing", function()
  if not check.program:find "build/mgpulua" then check.skip "another build" end
  local missing = "it is not beside the library, nor in a folder of MGPU_PLUGINS"
  check.matches(run_bare "require \"mgpu.core\".fetch(\"file:///x\", \"y\")",
    "cannot download file:///x: mgpu-fetch.so: " .. missing .. "; install libcurl and build again")
  check.matches(run_bare "require \"mgpu.core\".check_post()", "mgpu-fetch.so: " .. missing .. "; install libcurl and ")
  check.matches(run_bare "require \"mgpu\".callbacks.RemoteMonitor {}:check_fit()", "RemoteMonitor: mgpu-fetch.so: ")
  check.matches(run_bare "require \"mgpu\".image.load \"tests/golden/images/rgb.png\"",
    "cannot read or write PNG or JPEG images: mgpu-image.so: " .. missing .. "; install libpng-dev and ")
  check.matches(run_bare "require \"mgpu.core\".h5_read \"tests/golden/keras/mlp_3.h5\"",
    "HDF5 files need the program mgpu-h5, which is not installed: install the package libhdf5-dev and build again")
  check.matches(run_bare "return require \"mgpu\".tensor({ 1 }, { device = \"cpu:0\" })",
    "device kind \"cpu\" is not available: mgpu-cpu.so: " .. missing)
  check.matches(run_bare "return require \"mgpu\".tensor({ 1 }, { device = \"gpu:0\" })",
    "no device kind here is a GPU: device kind ")
end)

test("an example on three devices says how many names it got", function()
  refused("examples/model_parallel.lua --devices a,b", "--devices needs three names, got 2 (see --help)")
end)

test("require says that package.path is not text", function()
  refused("-e 'package.path = nil require \"x\"'", "'package.path' must be a string")
end)

-- What luaopen_mgpu says in a plain LuaJIT, after these lines.
local function open_library(lines, library)
  local script = ("local open = assert(package.loadlib(%q, 'luaopen_mgpu')) %s print(pcall(open))"):format(
    library or "build/libmgpu-lua.so", lines)
  check.write(check.path "open.lua", script)
  return (check.run("env -u MGPU_ROOT luajit " .. check.path "open.lua"))
end

test("the library for host programs says what is missing in the state, or beside it", function()
  if not check.program:find "build/mgpulua" then check.skip "another build" end
  if select(2, check.run "command -v luajit") ~= 0 then check.skip "no luajit" end
  check.matches(open_library "package = nil", "luaopen_mgpu: the state has no table package: call luaL_openlibs first")
  check.matches(open_library "package.preload = 1", "luaopen_mgpu: package.preload is damaged")
  check.run(("mkdir -p %s && cp build/libmgpu.so.0 build/libmgpu-lua.so.0 %s"):format(check.path "alone",
    check.path "alone"))
  check.matches(open_library("", check.path "alone" .. "/libmgpu-lua.so.0"), "luaopen_mgpu: the Lua files of mgpu were "
    .. "not found from where the library lies: set MGPU_ROOT to the folder that holds lua and models")
end)

test("a plug-in under the name of another is refused", function()
  if not check.program:find "build/mgpulua" then check.skip "another build" end
  check.run(("mkdir -p %s && cp build/mgpu-cpu.so %s/mgpu-other.so"):format(check.path "renamed", check.path "renamed"))
  local text = check.run(("MGPU_PLUGINS=%s %s -e 'require \"mgpu\".ones({ 1 }, { device = \"other:0\" })'"):format(
    check.path "renamed", check.program))
  check.matches(text, 'device kind "other" is not available: mgpu-other.so: it holds a device of another kind')
end)

-- Reads an HDF5 file with a script in place of mgpu-h5; `lines` is what the script does, under `limits` (of ulimit).
local function read_with(lines, limits)
  local folder = check.path "helper"
  check.run(("mkdir -p %s && cp build/mgpulua build/libmgpu.so.0 %s"):format(folder, folder))
  check.write(folder .. "/mgpu-h5", lines)
  check.run(("chmod +x %s/mgpu-h5"):format(folder))
  local script = [[require "mgpu.core".h5_read "tests/golden/keras/mlp_3.h5"]]
  return (check.run(("ulimit %s; MGPU_ROOT=%s %s/mgpulua -e '%s'"):format(limits or "-c 0",
    (check.run "pwd"):gsub("\n", ""), folder, script)))
end

test("what becomes of mgpu-h5 is told in place of its records", function()
  if not check.program:find "build/mgpulua" then check.skip "another build" end
  local FILE = "tests/golden/keras/mlp_3.h5: "
  check.matches(read_with "#!/nowhere/sh\n", FILE .. "cannot start ")
  check.matches(read_with "#!/bin/sh\nexit 127\n", FILE .. "HDF5 files need the program mgpu-h5, which does not find "
    .. "its libraries: install the package libhdf5-dev and build again")
  check.matches(read_with "#!/bin/sh\nkill -XCPU $$\n", FILE .. "the file takes too long to read: it is damaged")
  check.matches(read_with "#!/bin/sh\nkill -XFSZ $$\n", FILE .. "the file takes too much memory to read: it is damaged")
  check.matches(read_with("#!/bin/sh\nkill -XFSZ $$\n", "-f 0"), FILE
    .. "no room for its contents in a file in memory: File too large "
    .. "(limited to 0 bytes in a file: raise it with ulimit -f)")
  check.matches(read_with("#!/bin/sh\nkill -XCPU $$\n", "-S -t 50"), FILE
    .. "the limit on CPU time (ulimit -t) is too low to read the file")
  check.matches(read_with("#!/bin/sh\nexit 3\n", "-S -v 9000000"), FILE
    .. "mgpu-h5 gave up on the file: it is damaged, or memory is short "
    .. "(limited to 9216000000 bytes of address space: raise it with ulimit -v)")
end)

test("mgpu-h5 reads files only", function()
  check.needs "build/mgpu-h5"
  check.matches(check.run "build/mgpu-h5 read </dev/null", "the input is not a regular file")
end)

test("files in memory that cannot grow are an error, and nothing is written", function()
  check.needs "build/mgpu-h5"
  local path = check.path "large.h5"
  local function limited(script)
    check.write(check.path "limited.lua", "local core, mgpu = require 'mgpu.core', require 'mgpu'\n" .. script)
    return (check.run(("sh -c 'ulimit -f 2048; %s %s 2>&1 | cat'"):format(check.program,
      check.path "limited.lua")))
  end
  check.matches(limited(("core.h5_write(%q, { { path = '' }, { path = 'a', tensor = mgpu.ones { 1000000 } } })")
    :format(path)), "no room for the contents of an HDF5 file in memory: File too large %(limited to ")
  require "mgpu.core".zip_write(check.path "large.zip", { { name = "w.h5", bytes = ("x"):rep(4000000) } })
  check.matches(limited(("core.h5_read(core.zip_read %q, 'w.h5')"):format(check.path "large.zip")),
    "w.h5: no room for the contents of an HDF5 file in memory: File too large %(limited to ")
  check.equal(check.run("ls " .. path .. " 2>/dev/null"), "")
end)

test("an instruction set that no processor has, or not this one, is refused", function()
  local function with_isa(name)
    return (check.run(("MGPU_ISA=%s %s -e 'require \"mgpu\".ones({ 1 }, { device = \"cpu:0\" })'"):format(name,
      check.program)))
  end
  check.matches(with_isa "avx3",
    "MGPU_ISA=avx3: unknown instruction set; choose avx512, avx2 or baseline (on aarch64 neon)")
  local foreign = jit.arch == "arm64" and "avx2" or "neon"
  check.matches(with_isa(foreign),
    "MGPU_ISA=" .. foreign .. ": this processor lacks that instruction set; the widest it has is ")
end)

test("a number of threads that cannot be meant is refused", function()
  local function with_threads(settings, script)
    return (check.run(("env -u OMP_NUM_THREADS %s %s -e '%s'"):format(settings, check.program, script)))
  end
  local make = [[print(pcall(require("mgpu").ones, { 2 }))]] -- not ref:0 in silence
  for _, wrong in ipairs { "0", "-2", "abc", "2x", "2.5", "1025", "99999999999999999999" } do
    check.matches(with_threads("MGPU_THREADS=" .. wrong, make), "false%s+.*MGPU_THREADS="
      .. wrong:gsub("%p", "%%%0") .. ": the number of threads must be an integer from 1 to 1024")
  end
  local describe = [[print(require("mgpu.core").device_info("cpu:0").text)]]
  check.matches(with_threads("MGPU_THREADS=0", describe), "MGPU_THREADS=0: the number of threads must be")
  check.matches(with_threads("MGPU_THREADS=3", describe), "^3 threads")
  check.matches(with_threads("MGPU_THREADS= OMP_NUM_THREADS=5,2", describe), "^5 threads") -- empty: not set
  local default = with_threads("", describe)
  for _, foreign in ipairs { "0", "abc", "4x", "99999999999999999999" } do -- another program's variable
    check.equal(with_threads("OMP_NUM_THREADS=" .. foreign, describe):match "[^\n]+\n$", default)
  end
end)

test("commands of the prompt without their argument say what they need", function()
  local text = check.run(("printf ':load\\n:save\\n:time\\n' | %s -i 2>&1"):format(check.program))
  check.matches(text, ":load needs the name of a file")
  check.matches(text, ":save needs the name of a file")
  check.matches(text, ":time needs an expression, as in :time x:matmul%(y%)")
end)
