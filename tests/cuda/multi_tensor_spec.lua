-- Updates that run as one, and everything in place, on a cuda device; groups in a row that do the
-- same are one launch.
local device = require "tests.cuda.device"
dofile "tests/lua/multi_tensor_spec.lua"
local check = require "check"

if device.real then return end

local CASTS = [[
local mgpu = require "mgpu"
local list = {}
for i = 1, 9 do list[i] = mgpu.full({ i * 7 }, i + 0.25, { device = "cuda:0" }) end
mgpu.eval(unpack(list))
local step = mgpu.jit(function(...)
  local made = { ... }
  for i = 1, #made do made[i] = made[i]:to "float16" end
  return unpack(made)
end)
for _ = 1, RUNS do
  for i, t in ipairs { step(unpack(list)) } do
    assert(t:dtype() == "float16" and t:totable()[i * 7] == i + 0.25)
  end
end
]]

local function launches(runs)
  local log, path = check.path "calls", check.path "script.lua"
  check.write(path, (CASTS:gsub("RUNS", runs)))
  local out, status = check.run("MGPU_CUDA_RECORD=no MGPU_STANDIN_LOG=" .. log .. " " .. check.program
    .. " " .. path)
  check.equal(out, "")
  check.equal(status, 0)
  return tonumber(check.read(log):match "cuLaunchKernel: (%d+)")
end

check.test("casts in a row are one launch", function()
  check.equal(launches(3) - launches(1), 2)
end)
