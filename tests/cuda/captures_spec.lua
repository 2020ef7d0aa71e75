-- NCCL in captured steps. Unless NCCL_GRAPH_REGISTER is 0, NCCL registers the buffers of a captured collective, for
-- which all ranks meet: a rank that captures while the others replay waits for ever. So does the fake NCCL.
local device = require "tests.cuda.device"
local check = require "check"

if device.real then return end

local test = check.test

-- Eight steps on two GPUs. With "alone" the second GPU gets its rows at new addresses in some steps, because a tensor
-- of their size is kept there: the second GPU must capture again, the first need not.
local TRAIN = [[
local mgpu = require "mgpu"
local L = mgpu.layers
mgpu.seed(1)
local x, y = mgpu.rand({ 32, 16 }, { device = "cuda:0" }), mgpu.rand({ 32, 1 }, { device = "cuda:0" })
mgpu.eval(x, y)
local model = mgpu.Sequential { L.Input { 16 }, L.Dense { 4 }, L.Dense { 1 } }
model:compile { loss = "mse", optimizer = "sgd", devices = { "cuda:0", "cuda:1" } }
local held = {}
for i = 1, 8 do
  model:train_on_batch(x, y)
  if arg[1] == "alone" and i >= 3 and i <= 5 then
    held[#held + 1] = mgpu.zeros({ 16, 16 }, { device = "cuda:1" })
    mgpu.eval(unpack(held))
  end
end
for _, w in ipairs(model:get_weights()) do print(unpack(w:reshape { -1 }:totable())) end
]]

-- Output and status of the script, and how many collectives each rank has captured.
local function train(argument, settings)
  local path, log = check.path "train.lua", check.path "calls"
  check.write(path, TRAIN)
  local output, status = check.run(("MGPU_CUDA_LIBRARIES=build/fake_cuda MGPU_CUDA_AUTOTUNE=1 "
    .. "MGPU_CUDA_KEPT=%d MGPU_FAKE_CUDA_LOG=%s %s timeout 250 %s %s %s"):format(2 ^ 28, log, settings or "",
    check.program, path, argument))
  local text = check.read(log) or ""
  return output, status, tonumber(text:match "nccl captures of rank 0: (%d+)") or 0,
    tonumber(text:match "nccl captures of rank 1: (%d+)") or 0
end

test("as long as no addresses change, all ranks capture in the same steps, or none does", function()
  local output, status, first, second = train "together"
  check.equal(status, 0, output)
  check.truthy(first > 0, "steps are captured")
  check.equal(first, second)
  local registered, again = train("together", "MGPU_FAKE_CUDA_NCCL=registers")
  check.equal(again, 0, registered)
  check.equal(registered, output)
end)

test("with NCCL_GRAPH_REGISTER=0, as we set it, a rank may capture alone", function()
  local wanted = train "together"
  local output, status, first, second = train "alone"
  check.equal(status, 0, output)
  check.truthy(second > first, ("rank 0 captured %d times, rank 1 %d times"):format(first, second))
  check.equal(output, wanted)
  check.equal(train("alone", "NCCL_GRAPH_REGISTER=1"), wanted) -- a user's own setting would hang
end)

test("an NCCL that registers buffers all the same would wait for ever", function()
  local output, status = train("alone", "MGPU_FAKE_CUDA_NCCL=registers MGPU_FAKE_CUDA_NCCL_LIMIT=1")
  check.truthy(status ~= 0, "the script fails")
  check.matches(output, "rank 1 registers buffers in a capture, but not all ranks do: NCCL would wait for ever")
end)
