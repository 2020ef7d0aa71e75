-- Numbers that ranks tell each other: world:gather, and the replicas of a strategy.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test

test("in one process gather returns the process's number", function()
  check.equal(mgpu.world():gather(-7), { -7 })
  check.equal(mgpu.world():gather(2 ^ 53), { 2 ^ 53 })
end)

test("gather takes whole numbers only", function()
  for _, wrong in ipairs { 0.5, 1 / 0, 0 / 0, 2 ^ 54, "many", {} } do
    local ok, message = pcall(function() return mgpu.world():gather(wrong) end)
    check.falsy(ok)
    check.matches(message, "gather: a whole number was expected, got ")
  end
end)

test("the ranks of many processes get lists of all lengths in the order of ranks", function()
  check.needs(check.program:match "^(.*)/" .. "/mgpu-ucx.so")
  local path = check.path "lists.lua"
  check.write(path, [[
    local mgpu = require "mgpu"
    local core = require "mgpu.core"
    local world = mgpu.world()
    local weights = {}
    for i = 1, world.rank % 3 + 1 do weights[i] = 10 * world.rank + i end
    print(table.concat(core.world_devices(#weights, weights).weights, " "))]])
  for _, n in ipairs { 8, 9, 13 } do
    local expected = {}
    for rank = 0, n - 1 do
      for i = 1, rank % 3 + 1 do expected[#expected + 1] = 10 * rank + i end
    end
    local output = check.run(("%s --np %d --output all %s"):format(check.program, n, path))
    check.equal(output, (table.concat(expected, " ") .. "\n"):rep(n))
  end
end)

test("all ranks get the numbers of all, and a strategy counts the devices of all", function()
  check.needs(check.program:match "^(.*)/" .. "/mgpu-ucx.so")
  local path = check.path "gather.lua"
  check.write(path, [[
    local mgpu = require "mgpu"
    local world = mgpu.world()
    local devices = world.rank == 0 and { "cpu:0", "cpu:1" } or { "cpu:0" }
    print(table.concat(world:gather(10 * world.rank - 1), " "),
      mgpu.parallel.strategy("mirrored", { devices = devices }).num_replicas_in_sync,
      mgpu.parallel.strategy("central", { devices = devices }).num_replicas_in_sync)]])
  local output, status = check.run(("%s --devices cpu:0-1 --np 3 --output all %s"):format(check.program, path))
  check.equal(output, ("-1 9 19\t4\t4\n"):rep(3))
  check.equal(status, 0)
end)
