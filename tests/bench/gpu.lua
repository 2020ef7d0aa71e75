-- Training speed on a GPU beside the PyTorch of this machine: `make gpu-bench`, or
--
--     build/gpu/mgpulua tests/bench/gpu.lua [--only TEXT,...] [--rounds 5] [--seconds 540]
--       [--python python3]
--
-- Peers are PyTorch eager, torch.compile in two modes, and the whole step recorded by hand in one CUDA
-- graph; all channels-last, with cudnn.benchmark and the same precision. Steps are enqueued without waiting;
-- only the loss of the last one is read. Rows come in the order of their importance; those that do not fit
-- into --seconds are listed as not measured, and a peer that gives no answer in time is skipped.
-- --only: the rows whose names contain one of the texts.
--
-- Kernels that are chosen by timing should be timed on an idle GPU: give MGPU_CACHE a folder that other
-- processes do not fill.

local HERE = "tests/bench/"
package.path = HERE .. "?.lua;" .. package.path
local race = require "race"

local BEGAN = os.time()
local options = { rounds = "5", python = "python3", only = "", seconds = "540" }
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end

local function left() return BEGAN + tonumber(options.seconds) - os.time() end

-- steps: of a round, for about half a second. eager, best: how many times faster we want to be than eager and
-- than the best other peer. memory: the wanted ratio of peak memory to eager's.
local EPOCHS = "12 epochs of train_mnist, process start to exit"
local ROWS = {
  { net = "mnist_cnn", batch = 128, precision = "fp16", steps = 400, eager = 4, best = 1.5 },
  { net = "lenet5", batch = 128, precision = "tf32", steps = 1000, eager = 5 },
  { name = EPOCHS },
  { net = "mnist_cnn", batch = 1024, precision = "fp16", steps = 150, eager = 1.6, best = 1.3 },
  { net = "mnist_cnn", batch = 8192, precision = "fp16", steps = 20, eager = 1.6, best = 1.3, memory = 0.5 },
  { net = "mnist_cnn", batch = 128, precision = "tf32", steps = 300, eager = 2.5, best = 1.2 },
  { net = "mnist_cnn", batch = 1024, precision = "tf32", steps = 100, eager = 2.5, best = 1.2 },
  { net = "mnist_cnn", batch = 128, precision = "bf16", steps = 400, eager = 4, best = 1.5 },
}

-- ---- contenders ---------------------------------------------------------------------------------

local function contenders(row)
  local common = (" --net %s --batch %d --precision %s --read last"):format(row.net, row.batch,
    row.precision)
  -- no warmup: all processes start at once, and choices by timing must be made one process at a time
  local torch = options.python .. " " .. HERE
    .. "peer_torch.py --device cuda --layout channels_last --warmup 0" .. common
  local list = {
    { name = "mgpulua", command = arg[-1] .. " " .. HERE .. "ours.lua --device cuda:0" .. common },
    { name = "eager", command = torch },
    { name = "CUDA graph by hand", command = torch .. " --graph" },
  }
  for _, mode in ipairs(row.best and { "default", "reduce-overhead" } or {}) do
    list[#list + 1] = { name = "torch.compile " .. mode, command = torch .. " --compile " .. mode,
      compiles = true }
  end
  return list
end

-- Sets row.contenders and warms their caches. First our own programs, one after the other, so that kernels
-- are timed on an idle GPU and the later figures of memory do not include that; then torch.compile's, all at
-- once. A contender whose warm-up fails or takes too long is left out.
local function warm_caches(rows)
  local all = tonumber(options.seconds)
  local slow, limit = {}, math.floor(all / 3)
  local folder = race.shell("mktemp -d"):gsub("\n", "")
  for r, row in ipairs(rows) do
    row.contenders = row.net and contenders(row)
    for i, c in ipairs(row.contenders or {}) do
      c.log = ("%s/%d-%d"):format(folder, r, i)
      local once = ("echo run 3 | timeout -k 2 %d %s >/dev/null 2>%s"):format(limit, c.command, c.log)
      if i == 1 and left() > 0.7 * all then os.execute(once) end
      if c.compiles then slow[#slow + 1] = ("( %s && >%s.done ) &"):format(once, c.log) end
    end
  end
  -- else each compiling process would start as many workers as there are processors
  os.execute("export TORCHINDUCTOR_COMPILE_THREADS=4; " .. table.concat(slow, " ") .. " wait")
  for _, row in ipairs(rows) do
    for i = #(row.contenders or {}), 1, -1 do
      local c = row.contenders[i]
      if c.compiles and select(2, race.shell(("test -e %s.done"):format(c.log))) ~= 0 then
        print(("skipped: %s: %s did not start in %d s, or failed: %s"):format(row.name, c.name, limit,
          race.shell(("grep -v '^ *$' %s | tail -n 1"):format(c.log)):gsub("\n", "")))
        table.remove(row.contenders, i)
      end
    end
  end
  race.shell("rm -rf " .. folder)
  print(("prepared in %d s"):format(os.time() - BEGAN))
end

-- ---- verdicts -----------------------------------------------------------------------------

local verdicts = {}

-- Prints and keeps a line about a figure where less is better. The ratio is theirs / ours.
local function verdict(row, what, ours, theirs, wanted)
  local ratio = theirs / ours
  local line = ("%s: %s: %.3f, %.3f, %.2f, wanted >= %.2f: %s"):format(row.name, what, ours, theirs, ratio,
    wanted, ratio >= wanted and "reached" or "NOT reached")
  verdicts[#verdicts + 1] = line
  print("  " .. line)
end

-- A verdict about time. The ratio is the median of the ratios within rounds, so theirs is shown as ours times
-- that ratio.
local function speed_verdict(row, ours, peer, wanted)
  local ms = race.median(ours.ms)
  verdict(row, "ms, " .. peer.name .. "'s", ms, ms * peer.ratio, wanted)
end

-- All verdicts of a row; list[1] is our result.
local function judge(row, list)
  local ours, eager, best = list[1], nil, nil
  for i = 2, #list do
    if list[i].name == "eager" then eager = list[i] end
    if list[i].name ~= "eager" and (not best or list[i].ratio < best.ratio) then best = list[i] end
  end
  if eager then speed_verdict(row, ours, eager, row.eager) end
  if best and row.best then speed_verdict(row, ours, best, row.best) end
  if ours.host then verdict(row, "us of the host's time for a step, wanted", ours.host, 15, 1) end
  if eager and row.memory then verdict(row, "peak MB, eager's", ours.memory, eager.memory, 1 / row.memory) end
end

-- ---- measuring ----------------------------------------------------------------------------------

local ANSWER = 75 -- seconds that a contender may take to start with warm caches

-- Races the contenders of a row.
local function race_row(row)
  local list = race.race(row.contenders, tonumber(options.rounds), row.steps,
    math.min(ANSWER, left() - 15), os.time() + left() - 15)
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
  local ours = "env MGPU_DATA=build/bench-data " .. arg[-1] .. " examples/train_mnist.lua --devices cuda:0"
    .. " --model mnist_cnn --epochs 12 --data mnist --verbose 0 --save build/bench.safetensors"
  local theirs = options.python .. " " .. HERE .. "peer_torch_mnist.py --epochs 12 --images 60000"
  local a, b = {}, {}
  print("\n" .. row.name)
  for i = 1, math.min(3, tonumber(options.rounds)) do
    if i > 1 and a[i - 1] + b[i - 1] > left() then break end
    a[i], b[i] = seconds(ours), seconds(theirs)
    print(("  mgpulua %.2f s, PyTorch %.2f s"):format(a[i], b[i]))
  end
  verdict(row, "s, PyTorch's", race.median(a), race.median(b), 4)
end

-- The rows that --only selects, with their names.
local function chosen_rows()
  local rows = {}
  for _, row in ipairs(ROWS) do
    row.name = row.name or ("%s, batch %d, %s"):format(row.net, row.batch, row.precision)
    local chosen = options.only == ""
    for text in options.only:gmatch "[^,]+" do chosen = chosen or row.name:find(text, 1, true) end
    if chosen then rows[#rows + 1] = row end
  end
  return rows
end

io.stdout:setvbuf "line"
local rows, missing = chosen_rows(), {}
warm_caches(rows)
for _, row in ipairs(rows) do
  local ok, problem
  if left() > 25 then
    ok, problem = pcall(row.net and race_row or race_training, row)
  else
    problem = "out of time"
  end
  if not ok then
    missing[#missing + 1] = ("%s: not measured: %s"):format(row.name, problem)
    print("\n" .. missing[#missing])
  end
end
print "\nrow: what: ours, theirs, ratio, wanted"
for _, line in ipairs(verdicts) do print(line) end
for _, line in ipairs(missing) do print(line) end
os.exit(#missing == 0 and #rows > 0 and 0 or 1, true)
