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

test("the rock says that it wants LuaJIT", function()
  refused("-e 'jit = nil' examples/packaging/rock.lua", "; the rock is for LuaJIT (run the script with luajit)")
end)
