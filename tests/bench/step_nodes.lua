-- What a training step on a GPU consists of: nodes, and the bytes that they read and write, counted on the plan. It
-- needs no GPU, but the fake CUDA (make fake_cuda), which runs no step that needs more than 30 MB: a small BATCH takes
-- minutes.
--
--     build/mgpulua tests/bench/step_nodes.lua [BATCH] [--steps]        -- 128; --steps lists the steps
--
-- A step of the plan is a node; a batch of updates and checks that follow one another (all_finite) are one; a reshape
-- is none. The bytes are those of the distinct operands and results, for convolutions and products apart from the
-- others. Operands that the plan does not define, such as variables, count as float32 of the result's shape where the
-- step is element by element, and not elsewhere. For lenet5 the nodes of the recorded CUDA graph are counted too, in
-- which a step of the plan may be several kernels and fills.

local NETS = { { "mnist_cnn", "fp16" }, { "mnist_cnn", "tf32" }, { "lenet5", "fp16" }, { "lenet5", "tf32" } }
local BYTES = { bool = 1, uint8 = 1, int32 = 4, int64 = 8, bfloat16 = 2, float16 = 2, float32 = 4, float64 = 8 }
local batch = tonumber(arg[1]) or 128
local list = arg[1] == "--steps" or arg[2] == "--steps"

local function shell(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

-- Runs ours.lua on the fake CUDA for some steps -> its output and messages.
local function ours(net, precision, rows, steps, settings)
  return shell(("echo run %d | env MGPU_CUDA_LIBRARIES=build/fake_cuda MGPU_CUDA_AUTOTUNE=1 %s %s "
    .. "tests/bench/ours.lua --device cuda:0 --net %s --batch %d --precision %s --read last 2>&1"):format(steps,
    settings, arg[-1], net, rows, precision))
end

-- The bytes of a value, as a plan prints it: "float16{3, 4}".
local function bytes_of(dtype, shape)
  local n = BYTES[dtype]
  for size in shape:gmatch "%d+" do n = n * tonumber(size) end
  return n
end

-- Counts a line of a plan. known: the bytes of the values so far.
local function count_step(line, known)
  local results, op, operands = line:match "^(.-) = ([%w_]+)%((.-)%)"
  local sum, largest, seen = 0, 0, {}
  for number, dtype, shape in results:gmatch "%%(%d+):(%w+)(%b{})" do
    known[number] = bytes_of(dtype, shape)
    sum = sum + known[number]
    largest = math.max(largest, bytes_of("float32", shape))
  end
  for number in operands:gmatch "%%(%d+)" do
    if not seen[number] then sum = sum + (known[number] or op == "fused" and largest or 0) end
    seen[number] = true
  end
  return op, sum
end

-- The plan of a training step is printed before its memory is allocated. That fails: the limit is below what it needs.
local function plan_of(net, precision)
  local text = ours(net, precision, batch, 1, "MGPU_MEMORY=cuda:0=30M MGPU_LOG=plan")
  local longest = ""
  for plan in (text .. "mgpulua: plan: "):gmatch "plan: cuda:0: %d+ steps\n(.-)mgpulua: " do
    if #plan > #longest then longest = plan end
  end
  return longest
end

-- The nodes, and the bytes of convolutions and products and of the other steps.
local function count_plan(net, precision)
  local nodes, products, passes, known, before = 0, 0, 0, {}, ""
  for line in plan_of(net, precision):gmatch "[^\n]+" do
    local phase, space = line:match "^(%a*)( *)" -- two spaces: of a batch, which has a line of its own
    if line:find " alike" then nodes = nodes + 1 end
    if line:find " = " then
      local op, size = count_step(line:gsub("^commit", ""), known)
      local member = #space == (phase == "" and 2 or 3)
      local joined = op == "reshape" or member or op == "all_finite" and before == phase .. op
      if not joined then nodes = nodes + 1 end
      if op:find "conv2d" or op == "matmul" then products = products + size else passes = passes + size end
      if list and op ~= "reshape" then print(("%9.3f MB  %s"):format(size / 1e6, line:sub(1, 110))) end
      if op ~= "reshape" then before = phase .. op end
    end
  end
  return nodes, products, passes
end

-- The nodes of the recorded graph: the second of two steps is captured, and runs once.
local function count_graph(net, precision)
  local log, nodes = os.tmpname(), 0
  ours(net, precision, 3, 2, "MGPU_FAKE_CUDA_LOG=" .. log)
  for line in io.lines(log) do nodes = nodes + (tonumber(line:match " in graph: (%d+)$") or 0) end
  os.remove(log)
  return nodes
end

for _, net in ipairs(NETS) do
  local name, precision = unpack(net)
  local nodes, products, passes = count_plan(name, precision)
  print(("%s, batch %d, %s: %d nodes of the plan; products %.0f MB, other steps %.0f MB%s"):format(name, batch,
    precision, nodes, products / 1e6, passes / 1e6,
    name == "lenet5" and ("; %d nodes of the graph"):format(count_graph(name, precision)) or ""))
end
