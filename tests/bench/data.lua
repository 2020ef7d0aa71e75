-- The data pipeline beside tf.data and PyTorch's DataLoader, and what it costs a training.
--
--     build/mgpulua tests/bench/data.lua [--rounds 7] [--threads 2] [--venv FOLDER]
--
-- augment: shuffle, random flip and shift, batches of 128, of 20,000 images of CIFAR's size, uint8.
-- records: 600 JPEG images of 256 x 256 in a TFRecord file (PyTorch: in memory), random resized crops of 224 x 224, in
-- batches of 32.
-- The peers are measured with several settings (workers, order of map and batch), and the best counts. A figure is the
-- time of a batch, in a pass that never ends; the first batches are not counted.
-- Then mgpulua alone: an epoch of cached rows against copying their bytes, and training fed by a dataset against
-- training on the same tensors.
--
-- `--serve WORK --folder FOLDER` is our side of a race (the protocol of peer_protocol.py).

local HERE = "tests/bench/"
package.path = HERE .. "?.lua;" .. package.path
local core = require "mgpu.core"
local mgpu = require "mgpu"
local ffi = require "ffi"

local IMAGES, SIDE, JPEGS = 20000, 32, 600
local BATCH, JPEG_BATCH = 128, 32

local options = { rounds = "7", threads = "2",
  venv = (os.getenv "XDG_CACHE_HOME" or os.getenv "HOME" .. "/.cache") .. "/mgpulua/bench-venv" }
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end

local SCHEMA = { { "image", "jpeg", channels = 3, quality = 90 }, { "label", "int64" } }

-- ---- one side of a race ---------------------------------------------------------------------------

local works = {}

function works.augment()
  mgpu.seed(1)
  local x = mgpu.randint(0, 256, { IMAGES, SIDE, SIDE, 3 }, { dtype = "uint8" })
  return mgpu.data.from_tensors { x, mgpu.randint(0, 10, { IMAGES }) }:shuffle(IMAGES, 1)
    :augment { seed = 1, horizontal_flip = true, width_shift = 3, height_shift = 3 }
end

function works.records(folder)
  return mgpu.data.tfrecord(folder .. "/images.tfrecord", SCHEMA):shuffle(JPEGS, 1)
    :augment { seed = 1, random_resized_crop = { 224, 224 } }
end

-- The peak of this process's memory in MB.
local function memory()
  for line in io.lines "/proc/self/status" do
    local kb = line:match "^VmHWM:%s*(%d+)"
    if kb then return tonumber(kb) / 1024 end
  end
end

-- Answers requests: "run N" measures N batches together.
local function serve(ds, batch)
  local take = ds:cycle():batch(batch):prefetch(4, { threads = tonumber(options.threads) }):iter()
  for _ = 1, 8 do take() end
  for line in io.lines() do
    local n = tonumber(line:match "^run (%d+)$")
    if n then
      local start = core.clock()
      for _ = 1, n do take() end
      print(('{"ms": [%.5f]}'):format((core.clock() - start) / n * 1e3))
    elseif line == "memory" then
      print(('{"mb": %.1f}'):format(memory()))
    end
    io.flush()
  end
end

if options.serve then
  return serve(works[options.serve](options.folder), options.serve == "records" and JPEG_BATCH or BATCH)
end

-- ---- the races ------------------------------------------------------------------------------------

local race = require "race"

-- Smooth images that compress as photographs do.
local function write_records(folder)
  local rows, i = mgpu.linspace(0, 6, 256):reshape { 256, 1, 1 }, 0
  local columns = mgpu.linspace(0, 6, 256):reshape { 1, 256, 1 }
  mgpu.data.write_tfrecord(folder .. "/images.tfrecord", function()
    i = i + 1
    if i > JPEGS then return nil end
    local wave = (rows * (1 + i % 7) + columns * (1 + i % 5) + mgpu.tensor { 0, 1, 2 }):sin() * 100 + 127
    return { ((wave + mgpu.randn { 256, 256, 3 } * 8):clip(0, 255)):to "uint8", i % 10 }
  end, SCHEMA)
end

local PEERS = {
  { "tf.data", "peer_tf_data.py --setting map" }, { "tf.data, batch first", "peer_tf_data.py --setting batch" },
  { "DataLoader, in process", "peer_torch_data.py --setting 0" },
  { "DataLoader, workers", "peer_torch_data.py --setting workers" },
}

local function compare(work, title, folder, steps)
  local ours = ("%s %sdata.lua --serve %s --folder %s --threads %s"):format(arg[-1], HERE, work, folder,
    options.threads)
  local list = { { name = "mgpulua", command = ours } }
  local python = options.venv .. "/bin/python"
  if select(2, race.shell(python .. " -c 'import torch, tensorflow'")) == 0 then
    for _, peer in ipairs(PEERS) do
      list[#list + 1] = { name = peer[1], command = ("%s %s%s --work %s --folder %s --threads %s"):format(python, HERE,
        peer[2], work, folder, options.threads) }
    end
  else
    print("skipped: tf.data and DataLoader: run tests/bench/run.lua once, which installs them")
  end
  race.report(title, race.race(list, tonumber(options.rounds), steps))
end

-- ---- mgpulua alone --------------------------------------------------------------------------------

-- The time of an epoch of cached rows, divided by the time to copy the same bytes batch by batch: in seven rounds.
local function cached_epochs()
  local n, bytes = 20000, 20000 * 3072
  local x = mgpu.randint(0, 256, { n, SIDE, SIDE, 3 }, { dtype = "uint8" })
  local ds = mgpu.data.from_tensors { x }:cache():batch(BATCH):prefetch(2)
  local from, shares = ffi.cast("char *", x:pointer()), {}
  for _ in ds:iter() do end
  for round = 1, tonumber(options.rounds) do
    local start = core.clock()
    for _ in ds:iter() do end
    local ours = core.clock() - start
    start = core.clock()
    for at = 0, bytes - 1, BATCH * 3072 do -- into new memory each time, as batches are
      local batch = mgpu.zeros({ BATCH * 3072 }, { dtype = "uint8" })
      core.eval(batch)
      ffi.copy(batch:pointer(), from + at, math.min(BATCH * 3072, bytes - at))
    end
    shares[round] = (core.clock() - start) / ours
  end
  return race.median(shares)
end

-- An epoch of fit over a dataset that shuffles and prefetches, in time of fit over the same tensors.
local function training_share(net, rows)
  local x, y = mgpu.rand { rows, 28, 28, 1 }, mgpu.randint(0, 10, { rows })
  local model, shares = mgpu.models[net] {}, {}
  model:compile { optimizer = "rmsprop", loss = "sparse_categorical_crossentropy" }
  local ds = mgpu.data.from_tensors { x, y }:shuffle(rows, 1):batch(BATCH):prefetch(2)
  local function seconds(...)
    local start = core.clock()
    model:fit(...)
    return core.clock() - start
  end
  for round = 0, tonumber(options.rounds) do
    local fed = seconds(ds, { verbose = 0 })
    local ready = seconds(x, y, { verbose = 0, batch_size = BATCH })
    if round > 0 then shares[round] = fed / ready end
  end
  return race.median(shares)
end

local function alone()
  print "\nmgpulua alone (medians of ratios within rounds)"
  print(("  %-60s %8.2f"):format("cached epoch: share of the speed of copying the bytes", cached_epochs()))
  print(("  %-60s %8.3f"):format("lenet5: time of fit from a dataset / from tensors", training_share("lenet5", 12800)))
  print(("  %-60s %8.3f"):format("mnist_cnn: the same", training_share("mnist_cnn", 1280)))
end

local folder = race.shell("mktemp -d"):gsub("\n", "")
write_records(folder)
compare("augment", ("shuffle, flip, shift: a batch of %d images 32 x 32 x 3"):format(BATCH), folder, 200)
compare("records", ("TFRecord, JPEG, resized crop: a batch of %d images"):format(JPEG_BATCH), folder, 100)
os.execute("rm -rf " .. folder)
alone()
