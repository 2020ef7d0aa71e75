-- What a training step of tests/bench/ours.lua consists of on a GPU: the nodes of its recorded graph, and the bytes
-- that its launches read and write. Needs no GPU, but the fake CUDA, which counts the work without doing it.
--
--     require("tests.cuda.step_count")(program, "mnist_cnn", "fp16", 128)
--
-- RETURNS a table:
--     nodes      kernels, fills, copies and calls of libraries in one replay of the graph
--     kinds      { { name, how many of them are nodes }, ... }, the most frequent first
--     launches   { { phase =, what = "fused by generated", calls =, bytes = }, ... }, in order. A launch is one node or
--                a few: a sum by columns, for example, is two kernels
--     products   bytes of operands and results of convolutions and products of matrices
--     passes     bytes of those of all other launches
-- The bytes are those of operands and results, each counted once for a launch, as if none stayed in a cache.

local STEPS = 3 -- the first runs launch by launch, the second is recorded

local function shell(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

-- The launches of the longest program in a log: the step.
local function longest_program(text)
  local longest, current = {}, {}
  for line in text:gmatch "[^\n]+" do
    local phase, what, calls, bytes = line:match "launches: cuda:0: (%a+) (.-): (%d+) calls, (%d+) bytes$"
    if phase then
      current[#current + 1] = { phase = phase, what = what, calls = tonumber(calls), bytes = tonumber(bytes) }
    elseif line:find "launches: cuda:0: %d+ launches$" then
      if #current > #longest then longest = current end
      current = {}
    end
  end
  return longest
end

-- The nodes of one replay, by name.
local function nodes_of(log)
  local kinds, nodes = {}, 0
  for line in io.lines(log) do
    local name, replays = line:match "^(.*) in graph: (%d+)$"
    if name then
      local n = tonumber(replays) / (STEPS - 1)
      kinds[#kinds + 1] = { name:gsub("^kernel ", ""), n }
      nodes = nodes + n
    end
  end
  table.sort(kinds, function(a, b) return a[2] > b[2] or a[2] == b[2] and a[1] < b[1] end)
  return nodes, kinds
end

return function(program, net, precision, batch)
  local log = os.tmpname()
  local text = shell(("echo run %d | env MGPU_CUDA_LIBRARIES=build/fake_cuda MGPU_FAKE_CUDA_STILL=1 "
    .. "MGPU_CUDA_AUTOTUNE=1 MGPU_LOG=launches MGPU_FAKE_CUDA_LOG=%s %s tests/bench/ours.lua --device cuda:0 --net %s "
    .. "--batch %d --precision %s --read last 2>&1"):format(STEPS, log, program, net, batch, precision))
  local counted = { launches = longest_program(text), products = 0, passes = 0 }
  counted.nodes, counted.kinds = nodes_of(log)
  os.remove(log)
  if counted.nodes == 0 then error("no step was recorded:\n" .. text, 0) end
  for _, launch in ipairs(counted.launches) do
    local kind = (launch.what:find "^conv2d" or launch.what:find "^matmul") and "products" or "passes"
    counted[kind] = counted[kind] + launch.bytes
  end
  return counted
end
