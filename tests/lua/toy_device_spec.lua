-- A device kind from outside the tree: tests/toy_device/toy.c, compiled into a folder of MGPU_PLUGINS, is found,
-- listed, held to the table of ops, and trains models. Nothing in the tree knows its name.

local check = require "check"
local test = check.test

if os.getenv "MGPU_MALLOC" then check.skip "a sanitizer's build needs plug-ins built with it" end

local compiler = check.run("command -v cc gcc clang | head -n 1"):match "%S+"
if not compiler then check.skip "there is no C compiler" end

-- Compiles a source as the plug-in of this name. Undefined symbols are found in the running libmgpu.
local function build(source, name)
  local plugin = check.path("mgpu-" .. name .. ".so")
  local out, status = check.run(("%s -std=gnu11 -O1 -shared -fPIC -Wall -Wextra -Werror -Iruntime -o %s %s")
    :format(compiler, plugin, source))
  if status ~= 0 then check.fail("the plug-in does not compile:\n" .. out) end
  return plugin:match "^(.*)/"
end

local folder = build("tests/toy_device/toy.c", "toy")

-- Runs the program with arguments as the shell sees them and the plug-in in sight: output and exit status.
local function run(arguments)
  return check.run(("MGPU_PLUGINS=/nowhere:%s %s %s"):format(folder, check.program, arguments))
end

local function run_script(options, text)
  local path = check.path "script.lua"
  check.write(path, text)
  local out, status = run(options .. " " .. path)
  if status ~= 0 then check.fail(out) end
  return out
end

test("a kind from a plug-in is listed by kind and by --list-devices, in the order of ranks", function()
  check.equal(run_script("", [[
    local mgpu = require "mgpu"
    print(unpack(mgpu.devices "toy"))
    print((" " .. table.concat(mgpu.devices(), " ")):find " toy" and "listed" or "not listed unasked")
  ]]), "toy:0\ttoy:1\ttoy:2\ttoy:3\nnot listed unasked\n")
  local out, status = run "--list-devices"
  check.equal(status, 0)
  check.matches(out, "\ntoy:0    toy number 1 of 4, 1.0 GiB\n")
  check.matches(out, "\ntoy:3 [^\n]*\nref:0 ")
end)

test("messages about unknown devices name the kind and suggest it", function()
  local out = run "-e 'require(\"mgpu\").ones({ 1 }, { device = \"toyy:0\" })'"
  check.matches(out, 'unknown device "toyy:0" (did you mean "toy"?)')
  check.matches(out, "the kinds of devices are [^\n]*ref, toy")
  check.matches(run "-e 'require(\"mgpu.core\").default_device \"cpu1\"'", "the kinds of devices are [^\n]*ref, toy")
  check.matches(run "--devices toy:4 -e ''", 'device "toy:4" does not exist: there are 4 of its kind')
  check.matches(run "--devices toy:0/1 -e ''", 'device "toy:0/1": toy:0 cannot be shared')
end)

test("the op table gives the same on the plug-in's device and on ref", function()
  local out, status = run "--devices toy:0 tests/check.lua tests/ops/ops_spec.lua 'is the same on ref and toy:0'"
  local passed = out:match "(%d+) passed, 0 failed, 0 skipped"
  if status ~= 0 or not passed then check.fail(out) end
  check.truthy(tonumber(passed) > 300, passed .. " rows were run, more than 300 expected")
end)

test("the plug-in's own kernel is used, and where it refuses the reference kernel", function()
  local out = run_script("", [[
    local mgpu = require "mgpu"
    local v = mgpu.tensor({ 1, 2, 3 }, { device = "toy:1" }):cumsum(1)
    local m = mgpu.tensor({ { 1, 2 }, { 3, 4 } }, { device = "toy:1" }):cumsum(2)
    print(v:device(), v:totable()[3], m:totable()[2][2])
    print(pcall(v.pointer, v))
  ]])
  check.matches(out, "^toy:1\t6\t7\nfalse\t.*pointer: the tensor lies on toy:1: move it with :to \"cpu\"")
  check.write(check.path "one.lua", "print(require('mgpu').ones({ 4 }, { device = 'toy:0' }):cumsum(1))")
  out = check.run(("MGPU_LOG=dispatch MGPU_PLUGINS=%s %s %s"):format(folder, check.program, check.path "one.lua"))
  check.matches(out, "toy_cumsum")
end)

test("a model trains on two of the plug-in's devices, with the losses of two ref devices", function()
  local text = [[
    local mgpu = require "mgpu"
    local L = mgpu.layers
    mgpu.seed(5)
    local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 8, activation = "relu" }, L.Dense { 1 } }
    model:compile { optimizer = "adam", loss = "mean_squared_error", devices = mgpu.devices() }
    local rows, targets = {}, {}
    for i = 1, 16 do
      rows[i] = { math.sin(i), math.cos(i), i / 16 }
      targets[i] = { rows[i][1] + rows[i][2] }
    end
    local h = model:fit(mgpu.tensor(rows), mgpu.tensor(targets),
      { epochs = 5, batch_size = 8, shuffle = false, verbose = 0 })
    assert(h.history.loss[5] < h.history.loss[1])
    for _, loss in ipairs(h.history.loss) do print(("%.6g"):format(loss)) end
  ]]
  local out = run_script("--devices toy:0-1", text)
  check.equal(select(2, out:gsub("\n", "")), 5)
  check.equal(out, run_script("--devices ref:0-1", text))
end)

test("a plug-in built against another version of the interface is refused", function()
  local source = check.path "old.c"
  check.write(source, [[
    #include "device/device.h"
    static const mg_device_api api = {.size = sizeof(mg_device_api) - 8, .kind = "old"};
    const mg_device_api *mg_device_plugin(void);
    const mg_device_api *mg_device_plugin(void) { return &api; }
  ]])
  build(source, "old")
  local out, status = run "--list-devices"
  check.equal(status, 0)
  check.matches(out, "old      not available: device kind \"old\" is not available: mgpu-old.so: it was built "
    .. "against another version of the library")
  check.matches(out, "toy:0 ")
end)

test("starting the program loads no plug-in, and damaged files are passed over", function()
  check.write(check.path "mgpu-cut.so", check.read(folder .. "/mgpu-toy.so"):sub(1, 700))
  check.write(check.path "mgpu-text.so", "not a library")
  check.write(check.path "mgpu-empty.so", "")
  check.falsy(run("--list-devices"):find("cut", 1, true))
  check.matches(run "-e 'print(require(\"mgpu\").devices(\"toy\")[1])'", "^toy:0\n$")
  local loaded = check.run(("LD_DEBUG=files MGPU_PLUGINS=%s %s -e ''"):format(folder, check.program))
  check.falsy(loaded:find("mgpu-toy.so", 1, true))
  check.falsy(loaded:find("mgpu-cpu.so", 1, true))
end)
