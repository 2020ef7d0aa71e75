-- Speed on a GPU, side by side with the PyTorch of this machine: `make gpu-bench`, or
--
--     build/gpu/mgpulua tests/bench/gpu.lua [--rounds 5] [--python python3] [--only TEXT]
--
-- Peers: eager, torch.compile in two modes, and the whole step recorded by hand into one CUDA graph,
-- all channels-last with cudnn.benchmark and the same precision. Steps run ahead; the loss of the
-- last one is read. Each row ends with the ratios wanted.

local HERE = "tests/bench/"
package.path = HERE .. "?.lua;" .. package.path
local race = require "race"

local options = { rounds = "5", python = "python3", only = "" }
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end

-- Steps of a round take about half a second; wanted: by eager, and by the best other peer.
local ROWS = {
  { net = "mnist_cnn", batch = 128, precision = "fp16", steps = 400, eager = 4, best = 1.5 },
  { net = "mnist_cnn", batch = 1024, precision = "fp16", steps = 150, eager = 1.6, best = 1.3 },
  { net = "mnist_cnn", batch = 8192, precision = "fp16", steps = 20, eager = 1.6, best = 1.3, memory = 0.5 },
  { net = "mnist_cnn", batch = 128, precision = "bf16", steps = 400, eager = 4, best = 1.5 },
  { net = "mnist_cnn", batch = 128, precision = "tf32", steps = 300, eager = 2.5, best = 1.2 },
  { net = "mnist_cnn", batch = 1024, precision = "tf32", steps = 100, eager = 2.5, best = 1.2 },
  { net = "lenet5", batch = 128, precision = "tf32", steps = 1000, eager = 5 },
}

local function contenders(row)
  local common = (" --net %s --batch %d --precision %s --read last"):format(row.net, row.batch,
    row.precision)
  local torch = options.python .. " " .. HERE .. "peer_torch.py --device cuda --layout channels_last"
    .. common
  return {
    { name = "mgpulua", command = arg[-1] .. " " .. HERE .. "ours.lua --device cuda:0" .. common },
    { name = "eager", command = torch },
    { name = "torch.compile", command = torch .. " --compile default" },
    { name = "torch.compile reduce-overhead", command = torch .. " --compile reduce-overhead" },
    { name = "CUDA graph by hand", command = torch .. " --graph" },
  }
end

local function verdict(what, got, wanted)
  print(("  %-44s %6.2f, wanted %.2f: %s"):format(what, got, wanted,
    got >= wanted and "reached" or "NOT reached"))
end

local function judge(row, list)
  local eager, best
  for i = 2, #list do
    if list[i].name == "eager" then eager = list[i] end
    if list[i].name ~= "eager" and (not best or list[i].ratio < best.ratio) then best = list[i] end
  end
  if eager then verdict("times as fast as eager", eager.ratio, row.eager) end
  if best and row.best then verdict("times as fast as " .. best.name, best.ratio, row.best) end
  if eager and row.memory then
    verdict("eager's peak memory by ours", eager.memory / list[1].memory, 1 / row.memory)
  end
end

-- From process start to exit.
local function seconds(command)
  local ns, status = race.shell("s=$(date +%s%N); " .. command
    .. " >/dev/null 2>&1 || exit 1; echo $(( $(date +%s%N) - s ))")
  return status == 0 and tonumber(ns) / 1e9 or nil
end

local function whole_training()
  local ours = arg[-1] .. " examples/train_mnist.lua --devices cuda:0 --model mnist_cnn --epochs 12"
    .. " --data digits --limit 60000 --verbose 0 --save build/bench.safetensors"
  local theirs = options.python .. " " .. HERE .. "peer_torch_mnist.py --epochs 12 --images 60000"
  local a, b = {}, {}
  for i = 1, 3 do
    a[i], b[i] = seconds(ours), seconds(theirs)
    if not a[i] or not b[i] then
      print("\n12 epochs of train_mnist: " .. (a[i] and theirs or ours) .. " failed")
      return
    end
  end
  print("\n12 epochs of train_mnist, process start to exit")
  print(("  mgpulua %.2f s, PyTorch %.2f s"):format(race.median(a), race.median(b)))
  verdict("times as fast as PyTorch", race.median(b) / race.median(a), 4)
end

for _, row in ipairs(ROWS) do
  local title = ("%s, batch %d, %s"):format(row.net, row.batch, row.precision)
  if title:find(options.only, 1, true) then
    local ok, list = pcall(race.race, contenders(row), tonumber(options.rounds), row.steps)
    if ok then
      race.report(title, list)
      if list[1].host then verdict("15 us by the host's time for a step", 15 / list[1].host, 1) end
      judge(row, list)
    else
      print(("\n%s: %s"):format(title, list))
    end
  end
end
if ("12 epochs"):find(options.only, 1, true) then whole_training() end
