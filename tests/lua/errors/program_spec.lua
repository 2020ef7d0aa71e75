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
  check.matches(run_bare "require \"mgpu\".image.load \"tests/golden/images/rgb.png\"",
    "cannot read or write images: mgpu-image.so: " .. missing .. "; install libpng-dev and ")
  check.matches(run_bare "require \"mgpu.core\".h5_read \"tests/golden/keras/mlp_3.h5\"",
    "HDF5 files need the program mgpu-h5, which is not installed: install the package libhdf5-dev and build again")
  check.matches(run_bare "return require \"mgpu\".tensor({ 1 }, { device = \"cpu:0\" })",
    "device kind \"cpu\" is not available: mgpu-cpu.so: " .. missing)
  check.matches(run_bare "return require \"mgpu\".tensor({ 1 }, { device = \"gpu:0\" })",
    "no device kind here is a GPU: device kind ")
end)
