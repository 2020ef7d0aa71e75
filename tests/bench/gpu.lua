-- Training speed on a GPU beside the PyTorch of this machine: `make gpu-bench`, or
--
--     build/gpu/mgpulua tests/bench/gpu.lua [--only TEXT;...] [--rounds 5] [--seconds 540] [--python python3]
--       [--peers FOLDER] [--start SECONDS] [--device cuda:0] [--peer-device cuda] [--scale 1] [--answer 40]
--
-- Peers are PyTorch eager, its whole step recorded by hand in one CUDA graph, and torch.compile in the mode
-- max-autotune; all channels-last, with cudnn.benchmark and the same precision. Steps are enqueued without waiting;
-- only the loss of the last one is read. Rows come in the order of their importance; those that do not fit into
-- --seconds are listed as not measured, and a peer that gives no answer in time is skipped.
-- --only: the rows whose names contain one of the texts, which semicolons separate.
-- --scale: how many times the usual steps a round has, and how many times 12 epochs are trained.
-- --answer: the seconds that a contender may take to answer.
--
-- PyTorch compiles for minutes. With --start the processes that compile are started in the folder of --peers, for at
-- most that many seconds, and nothing is measured; a later run with this folder uses what they have compiled by then.
-- Else a run gives them a third of its seconds.
--
-- Kernels that are chosen by timing should be timed on an idle GPU: give MGPU_CACHE a folder that other
-- processes do not fill.

local HERE = "tests/bench/"
package.path = HERE .. "?.lua;" .. package.path
local race = require "race"

local BEGAN = os.time()
local options = { rounds = "5", python = "python3", only = "", seconds = "540", peers = "build/gpu-first",
  device = "cuda:0", ["peer-device"] = "cuda", scale = "1", answer = "40" }
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end

local function scaled(n) return math.max(1, math.floor(n * options.scale)) end
local function left() return BEGAN + tonumber(options.seconds) - os.time() end

-- steps: of a round, for a fifth of a second or more. eager, best: how many times faster we want to be than eager and
-- than the best other peer.
local EPOCHS = "12 epochs of train_mnist, process start to exit"
local ROWS = {
  { net = "mnist_cnn", batch = 128, precision = "fp16", steps = 200, eager = 4, best = 1.5 },
  { net = "lenet5", batch = 128, precision = "fp16", steps = 300, eager = 4, best = 1.5 },
  { net = "mnist_cnn", batch = 128, precision = "tf32", steps = 150, eager = 4, best = 1.5 },
  { net = "lenet5", batch = 128, precision = "tf32", steps = 300, eager = 4, best = 1.5 },
  { name = EPOCHS },
  { net = "cifar10_cnn", batch = 128, precision = "fp16", steps = 200, eager = 4, best = 1.5 },
  { net = "cifar10_cnn", batch = 128, precision = "tf32", steps = 200, eager = 4, best = 1.5 },
  { net = "mnist_cnn", batch = 1024, precision = "fp16", steps = 80, eager = 1.6, best = 1.3 },
  { net = "mnist_cnn", batch = 1024, precision = "tf32", steps = 40, eager = 1.6, best = 1.3 },
  { net = "resnet50", batch = 64, precision = "fp16", steps = 8, eager = 1.6, best = 1.3 },
  { net = "lenet5", batch = 1024, precision = "fp16", steps = 300, eager = 1.6, best = 1.3 },
  { net = "lenet5", batch = 1024, precision = "tf32", steps = 300, eager = 1.6, best = 1.3 },
  { net = "resnet50", batch = 64, precision = "tf32", steps = 6, eager = 1.6, best = 1.3 },
  { net = "resnet50", batch = 256, precision = "fp16", steps = 4, eager = 1.6, best = 1.3 },
  { net = "resnet50", batch = 256, precision = "tf32", steps = 3, eager = 1.6, best = 1.3 },
}

-- The rows that --only selects, with their names.
local function chosen_rows()
  local rows = {}
  for _, row in ipairs(ROWS) do
    row.name = row.name or ("%s, batch %d, %s"):format(row.net, row.batch, row.precision)
    local chosen = options.only == ""
    for text in options.only:gmatch "[^;]+" do chosen = chosen or row.name:find(text, 1, true) end
    if chosen then rows[#rows + 1] = row end
  end
  return rows
end

local rows = chosen_rows()

-- ---- contenders ---------------------------------------------------------------------------------

local PRECISIONS = { "fp16", "tf32" }

-- The pipes of a server, without their endings.
local function server(name) return options.peers .. "/" .. name end

-- The command of PyTorch's server, which ends itself after so many seconds.
local function torch(seconds, more)
  return ("%s %speer_torch_rows.py --device %s --seconds %d %s"):format(options.python, HERE, options["peer-device"],
    seconds, more or "")
end

-- Starts a process for each precision, which compiles the steps of the rows.
local function start_compiling(seconds)
  race.shell("mkdir -p " .. options.peers)
  for _, precision in ipairs(PRECISIONS) do
    local list = {}
    for _, row in ipairs(rows) do
      if row.precision == precision then list[#list + 1] = ("%s:%d:%s"):format(row.net, row.batch, precision) end
    end
    if #list > 0 then -- else each process would start as many workers as there are processors
      race.serve(server(precision), "TORCHINDUCTOR_COMPILE_THREADS=6 "
        .. torch(seconds, "--prepare " .. table.concat(list, ",")))
    end
  end
end

local function is_ready(precision)
  return not race.is_served(server(precision))
    or select(2, race.shell(("grep -q ^ready %s.err"):format(server(precision)))) == 0
end

local function all_are_ready()
  local all = true
  for _, precision in ipairs(PRECISIONS) do all = all and is_ready(precision) end
  return all
end

-- What the compiling processes have not done yet they leave out from now on. One that does not stop is ended.
local function stop_compiling()
  for second = 1, 15 do
    if all_are_ready() then break end
    for _, precision in ipairs(PRECISIONS) do
      if not is_ready(precision) then
        race.shell(("kill -%s $(cat %s.pid)"):format(second == 15 and "9" or "USR1", server(precision)))
      end
    end
    os.execute "sleep 1"
  end
  for _, precision in ipairs(PRECISIONS) do
    print(("compiled for %s: %s"):format(precision,
      (race.shell(("grep -s ^prepared %s.err | cut -c 10- | tr '\n' ';'"):format(server(precision))))))
  end
end

local function ours(row)
  return { name = "mgpulua", command = ("%s %sours.lua --device %s --net %s --batch %d --precision %s --read last")
    :format(arg[-1], HERE, options.device, row.net, row.batch, row.precision) }
end

local function contenders(row)
  local list, step = { ours(row), busy = true }, ("use %s %d %s "):format(row.net, row.batch, row.precision)
  list[2] = { name = "eager", server = server "eager", use = step .. "eager" }
  if options["peer-device"] ~= "cpu" then
    list[3] = { name = "CUDA graph by hand", server = server "eager", use = step .. "graph" }
  end
  list[#list + 1] = { name = "torch.compile max-autotune", server = server(row.precision), use = step .. "compiled" }
  return list
end

-- Lets our programs and PyTorch's compilers fill their caches, one after the other, so that our kernels are timed on an
-- idle GPU. What is running already has had its time.
local function prepare()
  local all = tonumber(options.seconds)
  local running = false
  for _, precision in ipairs(PRECISIONS) do running = running or race.is_served(server(precision)) end
  if not running then
    for _, row in ipairs(rows) do
      if row.net and left() > 0.75 * all then
        race.shell(("echo run 3 | timeout -k 2 %d %s"):format(all / 4, ours(row).command))
      end
    end
    start_compiling(all)
    while left() > 0.45 * all and not all_are_ready() do os.execute "sleep 1" end
  end
  stop_compiling()
  race.serve(server "eager", torch(all))
  print(("prepared in %d s"):format(os.time() - BEGAN))
end

-- ---- verdicts -----------------------------------------------------------------------------

local verdicts, reached = {}, 0

-- Prints and keeps a line about a figure where less is better. The ratio is theirs / ours.
local function verdict(row, what, ours_took, theirs, wanted)
  local ratio = theirs / ours_took
  local line = ("%s %s: %s: %.3f, %.3f, %.2f, wanted >= %.2f: %s"):format(ratio >= wanted and "=" or "FAIL", row.name,
    what, ours_took, theirs, ratio, wanted, ratio >= wanted and "reached" or "NOT reached")
  verdicts[#verdicts + 1] = line
  if ratio >= wanted then reached = reached + 1 end
  row.short = math.min(row.short or 1, ratio / wanted)
end

-- A verdict about time. The ratio is the median of the ratios within rounds, so theirs is shown as ours times
-- that ratio.
local function speed_verdict(row, our, peer, wanted)
  local ms = race.median(our.ms)
  verdict(row, "ms, " .. peer.name .. "'s", ms, ms * peer.ratio, wanted)
end

-- All verdicts of a row; list[1] is our result.
local function judge(row, list)
  local best
  for i = 2, #list do
    if list[i].name == "eager" then
      speed_verdict(row, list[1], list[i], row.eager)
    elseif not best or list[i].ratio < best.ratio then
      best = list[i]
    end
  end
  if best then speed_verdict(row, list[1], best, row.best) end
end

-- Lists the three rows that are furthest below what is wanted, for gpu_kernels.py.
local function list_slow_rows()
  local slow = {}
  for _, row in ipairs(rows) do
    if row.net and row.short and row.short < 1 then slow[#slow + 1] = row end
  end
  table.sort(slow, function(a, b) return a.short < b.short end)
  local file = assert(io.open(options.peers .. "/slow", "w"))
  for i = 1, math.min(3, #slow) do
    file:write(("%s %d %s\n"):format(slow[i].net, slow[i].batch, slow[i].precision))
  end
  file:close()
end

-- ---- measuring ----------------------------------------------------------------------------------

-- Races the contenders of a row.
local function race_row(row)
  local list = race.race(contenders(row), tonumber(options.rounds), scaled(row.steps),
    math.min(tonumber(options.answer), left() - 5), os.time() + left() - 5)
  race.report(row.name, list)
  judge(row, list)
end

-- How long a command takes from start to exit, in seconds.
local function seconds(command)
  local ns, status = race.shell(("s=$(date +%%s%%N); timeout -k 2 %d %s >build/bench.txt 2>&1 || "
    .. "{ echo \"status $?: $(tail -n 1 build/bench.txt)\"; exit 1; }; echo $(( $(date +%%s%%N) - s ))")
    :format(math.max(left(), 1), command))
  if status ~= 0 then error(command .. ": " .. ns, 0) end
  return tonumber(ns) / 1e9
end

-- Writes a file in the format of MNIST with random bytes, below `most` if that is given.
local function write_random(path, sizes, most)
  local header, n = string.char(0, 0, 8, #sizes), 1
  for _, size in ipairs(sizes) do
    header, n = header .. string.char(0, 0, math.floor(size / 256), size % 256), n * size
  end
  local random, file = assert(io.open "/dev/urandom"), assert(io.open(path, "wb"))
  local bytes = random:read(n)
  if most then bytes = bytes:gsub(".", function(c) return string.char(c:byte() % most) end) end
  file:write(header, bytes)
  file:close()
  random:close()
end

-- Random data: the peer's is random too, and making digits would count as training time.
local function write_mnist(folder)
  race.shell("mkdir -p " .. folder)
  for name, n in pairs { train = 60000, t10k = 10000 } do
    write_random(("%s/%s-images-idx3-ubyte"):format(folder, name), { n, 28, 28 })
    write_random(("%s/%s-labels-idx1-ubyte"):format(folder, name), { n }, 10)
  end
end

-- Both programs train mnist_cnn for 12 epochs, in turns.
local function race_training(row)
  write_mnist "build/bench-data/mnist"
  local our = ("env MGPU_DATA=build/bench-data %s examples/train_mnist.lua --devices %s --model mnist_cnn --epochs %d "
    .. "--data mnist --verbose 0 --save build/bench.safetensors"):format(arg[-1], options.device, scaled(12))
  local theirs = ("%s %speer_torch_mnist.py --device %s --epochs %d --images 60000"):format(options.python, HERE,
    options["peer-device"], scaled(12))
  local a, b = {}, {}
  print("\n" .. row.name)
  for i = 1, 3 do
    if i > 1 and a[i - 1] + b[i - 1] > left() / 4 then break end
    a[i], b[i] = seconds(our), seconds(theirs)
    print(("  mgpulua %.2f s, PyTorch %.2f s"):format(a[i], b[i]))
  end
  verdict(row, "s, wanted", race.median(a), 5, 1)
  verdict(row, "s, PyTorch's", race.median(a), race.median(b), 4)
end

io.stdout:setvbuf "line"
if options.start then
  start_compiling(tonumber(options.start))
  os.exit(0, true)
end
prepare()
local missing = {}
for _, row in ipairs(rows) do
  local before, ok, problem = #verdicts, false, "out of time"
  if left() > 12 then ok, problem = pcall(row.net and race_row or race_training, row) end
  if not ok then
    missing[#missing + 1] = ("FAIL %s: not measured: %s"):format(row.name, problem)
    print("\n" .. missing[#missing])
  end
  for i = before + 1, #verdicts do print("  " .. verdicts[i]) end
  list_slow_rows()
end
print((race.shell(("head -n 1 %s.err"):format(server "eager"))))
print "row: what: ours, theirs, ratio, wanted"
for _, line in ipairs(verdicts) do print(line) end
print(("%d passed, %d failed"):format(reached, #verdicts - reached + #missing))
for _, name in ipairs { "eager", unpack(PRECISIONS) } do race.shell(("kill $(cat %s.pid)"):format(server(name))) end
os.exit(#missing == 0 and #rows > 0 and 0 or 1, true)
