-- The layers of runtime/: no file includes a header of a layer above its own.

local check = require "check"
local rules = assert(loadfile "tests/include_rules.lua")("module")

local test = check.test

local function found(path, text) return table.concat(rules.broken_rules(path, text), "\n") end

test("every C file of runtime/ includes only what its layer may know", function()
  local n = 0
  for path in check.run("find runtime -name '*.[ch]'"):gmatch "[^\n]+" do
    check.equal(rules.check(path), {})
    n = n + 1
  end
  check.truthy(n > 200, "the files were found")
end)

test("an include of a higher layer is found, wherever it stands", function()
  for _, case in ipairs {
    { "runtime/core/x.c", "ops/op.h" },
    { "runtime/core/x.c", "device/device.h" },
    { "runtime/core/x.h", "graph/graph.h" },
    { "runtime/ops/x.c", "device/device.h" },
    { "runtime/comm/x.c", "ops/op.h" },
    { "runtime/device/x.c", "graph/graph.h" },
    { "runtime/device/cpu/x.c", "graph/plan.h" },
    { "runtime/graph/x.c", "bind/bind.h" },
    { "runtime/data/x.c", "graph/graph.h" },
    { "runtime/graph/x.c", "mgpu.h" }, -- the public header stands above all layers
  } do
    local path, header = case[1], case[2]
    check.matches(found(path, '#include "core/alloc.h"\n#include "' .. header .. '"\n'), header)
  end
end)

test("an include of a lower layer is allowed", function()
  check.equal(found("runtime/graph/x.c", '#include "device/device.h"\n#include "ops/op.h"\n'), "")
  check.equal(found("runtime/device/cpu/x.c", '#include "device/cpu/cpu.h"\n#include "device/program/program.h"\n'), "")
end)

test("a device's folder is reached only through the device interface", function()
  check.matches(found("runtime/graph/x.c", '#include "device/cpu/cpu.h"\n'), "reaches inside a device")
  check.matches(found("runtime/device/cuda/x.c", '#include "device/cpu/cpu.h"\n'), "reaches inside a device")
end)

test("Lua's headers, an unknown folder and an overlong file are found", function()
  check.matches(found("runtime/graph/x.c", "#include <lua.h>\n"), "includes Lua")
  check.matches(found("runtime/elsewhere/x.c", ""), "without a layer")
  check.matches(found("runtime/graph/x.c", ("\n"):rep(601)), "at most 600")
end)
