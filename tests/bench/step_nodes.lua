-- What a training step on a GPU consists of: the nodes of its recorded graph, and the bytes that they read and write.
-- It needs no GPU, but the fake CUDA (make fake_cuda), which counts the work without doing it. What is counted:
-- tests/cuda/step_count.lua. Limits: tests/cuda/step_nodes_spec.lua.
--
--     build/mgpulua tests/bench/step_nodes.lua [BATCH] [--steps]        -- 128; --steps lists the launches

local count = require "tests.cuda.step_count"

local NETS = { { "mnist_cnn", "fp16" }, { "mnist_cnn", "tf32" }, { "lenet5", "fp16" }, { "lenet5", "tf32" } }
local batch = tonumber(arg[1]) or 128
local list = arg[1] == "--steps" or arg[2] == "--steps"

for _, net in ipairs(NETS) do
  local name, precision = unpack(net)
  local step = count(arg[-1], name, precision, batch)
  for _, launch in ipairs(list and step.launches or {}) do
    print(("%9.3f MB  %-7s %3d  %s"):format(launch.bytes / 1e6, launch.phase, launch.calls, launch.what))
  end
  for _, kind in ipairs(list and step.kinds or {}) do print(("%6d %s"):format(kind[2], kind[1])) end
  print(("%s, batch %d, %s: %d nodes; products %.0f MB, other launches %.1f MB"):format(name, batch, precision,
    step.nodes, step.products / 1e6, step.passes / 1e6))
end
