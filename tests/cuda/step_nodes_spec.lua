-- How many nodes a training step's graph has, and how many bytes its passes over memory move (step_count.lua).
--
-- The limits are what was reached; they go down with each node that a change saves, and a change that adds one fails
-- here. `build/mgpulua tests/bench/step_nodes.lua --steps` lists them.
local gpu = require "tests.cuda.device"
local check = require "check"
local count = require "tests.cuda.step_count"

if gpu.real then return end

-- The network, the precision, the most nodes, the most megabytes of launches that are no products.
local LIMITS = {
  { "mnist_cnn", "fp16", 59, 320.5 },
  { "mnist_cnn", "tf32", 57, 553.5 },
  { "lenet5", "fp16", 34, 9 },
  { "lenet5", "tf32", 33, 14.5 },
}

for _, limit in ipairs(LIMITS) do
  local net, precision, nodes, megabytes = unpack(limit)
  check.test(("a step of %s in %s, batch 128: at most %d nodes and %.1f MB of passes"):format(net, precision, nodes,
    megabytes), function()
    local step = count(check.program, net, precision, 128)
    check.truthy(step.nodes <= nodes, ("%d nodes"):format(step.nodes))
    check.truthy(step.passes / 1e6 <= megabytes, ("%.2f MB"):format(step.passes / 1e6))
  end)
end
