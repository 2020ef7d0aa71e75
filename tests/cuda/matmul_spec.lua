-- matmul by cuBLASLt: which algorithm is taken, and what is remembered. On the stand-in.
local device = require "tests.cuda.device"
local check = require "check"

if device.real then return end

local test = check.test

-- A script in a process of its own, with a cache of its own -> what it prints, the folder.
local function run(script, settings)
  local path, cache = check.path "script.lua", check.path "cache"
  check.write(path, 'local mgpu, core = require "mgpu", require "mgpu.core"\ncore.default_device "cuda:0"\n' .. script)
  local output, status = check.run(("MGPU_CUDA_LIBRARIES=build/standin MGPU_CACHE=%s %s %s %s"):format(
    cache, settings or "", check.program, path))
  check.equal(status, 0, output)
  return output, cache
end

test("a choice is remembered for one operand shared by a batch, and for one each, apart", function()
  local _, cache = run [[
local a, b = mgpu.ones { 3, 4, 5 }, mgpu.ones { 3, 5, 6 }
local one_a, one_b = mgpu.ones { 1, 4, 5 }, mgpu.ones { 1, 5, 6 }
for _, pair in ipairs { { a, b }, { one_a, b }, { a, b } } do mgpu.eval(core.ops.matmul(pair[1], pair[2])) end
mgpu.eval(core.ops.matmul(mgpu.ones { 3, 5, 4 }, one_b, { transpose_a = true }))
mgpu.eval(core.ops.matmul(mgpu.ones { 3, 5, 4 }, b, { transpose_a = true }))
]]
  check.equal(select(2, check.run("ls " .. cache):gsub("matmul%-", "")), 4)
end)

test("an algorithm that says it cannot is left out", function()
  local output = run [[
core.deterministic(true) -- the first one
print(unpack(core.ops.matmul(mgpu.ones { 2, 3 }, mgpu.ones { 3, 1 }):reshape { -1 }:totable()))
]]
  check.equal(output, "3\t3\n")
end)

test("a bias and a relu are added by cuBLASLt itself, which is asked for an aligned bias", function()
  local output = run([[
local x, w, b = mgpu.tensor { { 1, 2 }, { 3, 4 } }, mgpu.tensor { { 1, -1 }, { 1, -1 } }, mgpu.tensor { 1, 5 }
local dense = mgpu.jit(function(v) return core.ops.relu(core.ops.matmul(v, w) + b) end)
print(unpack(dense(x):reshape { -1 }:totable()))
]], "MGPU_LOG=dispatch")
  check.matches(output, "matmul float32{2, 2} float32{2, 2} float32{2}: cuBLASLt\n")
  check.matches(output, "4\t2\t8\t0\n")
end)
