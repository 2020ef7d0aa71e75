-- The examples for several processes: each prints the same last line on one process and on two.

local check = require "check"
local launched = require "lua.world.launched"
local mgpu = require "mgpu"

local test = check.test

if not pcall(require, "argparse") then check.skip "lua-argparse is not installed" end
check.needs "cpu"

local built = check.program:match "^(.*)/"
local MPI = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "

-- How two processes are started: what the command begins with, options of mgpulua, and what must be there.
local LAUNCHERS = {
  np = { before = "", options = "--np 2", plugin = "ucx" },
  openmpi = { before = MPI .. "mpirun.openmpi --oversubscribe -np 2", options = "", plugin = "openmpi",
    program = "mpirun.openmpi" },
  mpich = { before = "mpirun.mpich -np 2", options = "", plugin = "mpich", program = "mpirun.mpich" },
}

-- Runs an example in the temporary folder, where its files go. RETURNS the output and the status.
local function run(name, words, launcher)
  local l = launcher and LAUNCHERS[launcher] or { before = "", options = "" }
  if launcher then check.needs(("%s/mgpu-%s.so"):format(built, l.plugin)) end
  if l.program and check.run("command -v " .. l.program) == "" then check.skip("there is no " .. l.program) end
  return check.run(([[root=$PWD; program=$(realpath %s); cd %s
    timeout -k 5 300 %s $program %s $root/examples/%s.lua %s]]):format(check.program, check.path "", l.before,
    l.options, name, words))
end

-- The output of a run that must end well, and the numbers that the last line begins with.
local function output_of(name, words, launcher, last)
  local output, status = run(name, words, launcher)
  if status ~= 0 then check.fail(("%s.lua %s: status %d: %s"):format(name, words, status, output)) end
  local numbers = {}
  for number in (output:match(last) or check.fail(output)):gmatch "[%d.]+" do
    numbers[#numbers + 1] = tonumber(number)
  end
  return output, numbers
end

-- Sums over the rows of a batch are taken in another order by several processes. RMSprop and Adam divide each gradient
-- by its own size, so the first steps enlarge the rounding of those near 0.
local ROUNDING = 1e-3

-- One process with twice the batch, and twice the learning rate where it is multiplied by the number of processes,
-- must end with the loss of two, and with their accuracy up to one row whose classes are as good as equal. ARGS case:
-- the example's name, the words for one and for two, the pattern of the last line, and the number of test rows. RETURNS
-- the output of two.
local function compare(case, launcher)
  local _, one = output_of(case.name, case.one, nil, case.last)
  local output, two = output_of(case.name, case.two, launcher, case.last)
  check.equal(#two, #one)
  check.near(two[1], one[1], ROUNDING * one[1])
  if one[2] then check.near(two[2], one[2], 1.01 / case.rows) end
  return output
end

local CIFAR = "--data shapes --limit 60 --epochs 1 "
local CIFAR_LINE = "\nCIFAR VALIDATION LOSS, ACC: ([%d.]+, [%d.]+)\n$"

for _, name in ipairs { "cifar10_cnn_horovod", "cifar10_cnn_horovod_queue" } do
  for _, more in ipairs { "", "--aug " } do
    test(name .. ".lua " .. more .. "gives the numbers of one process on two", function()
      local output = compare({ name = name, last = CIFAR_LINE, rows = 60,
        one = CIFAR .. more .. "--batch_size 16 --lr 2e-4",
        two = CIFAR .. more .. "--batch_size 8 --lr 1e-4" }, "np")
      check.matches(output, "^Rank 0 of 2, local_rank, GPU_LOCAL_RANK: 0, 0, on cpu:0\n"
        .. "x_train shape: %(60, 32, 32, 3%)\n60 train samples\n60 test samples\n")
      check.matches(output, "4/4 ") -- 60 images in batches of 16
      check.matches(output, "\n%[TRAINING%] finished in [%d.]+ s\n")
    end)
  end
end

for _, launcher in ipairs { "openmpi", "mpich" } do
  test("cifar10_cnn_horovod.lua is started by mpirun of " .. launcher, function()
    compare({ name = "cifar10_cnn_horovod", last = CIFAR_LINE, rows = 60, one = CIFAR .. "--batch_size 16 --lr 2e-4",
      two = CIFAR .. "--batch_size 8" }, launcher)
  end)
end

test("cifar10_cnn_horovod.lua saves its best weights, from which one process continues", function()
  local words = CIFAR .. "--batch_size 8 --checkpt best.hdf5"
  local output = output_of("cifar10_cnn_horovod", words, "np", CIFAR_LINE)
  check.matches(output, "saving model to best.hdf5")
  check.falsy(output:find("Loaded", 1, true))
  output = output_of("cifar10_cnn_horovod", words, nil, CIFAR_LINE)
  check.matches(output, "Loaded the weights in best.hdf5")
end)

test("cifar10_cnn_horovod.lua refuses more processes than devices, unless some share one", function()
  local output, status = run("cifar10_cnn_horovod", CIFAR .. "--batch_size 8 --nranks_per_gpu 0", "np")
  check.equal(status, 1)
  check.matches(output, "--nranks_per_gpu 0: it must be a whole number from 1 on")
  LAUNCHERS.three = { before = "", options = "--np 3 --devices cpu:0-1", plugin = "ucx" }
  output, status = run("cifar10_cnn_horovod", CIFAR .. "--batch_size 8", "three")
  check.truthy(status ~= 0)
  check.matches(output, "process 2 of this host needs device number 2, but it has only cpu:0, cpu:1: start fewer "
    .. "processes on it, or raise --nranks_per_gpu\n")
end)

for _, more in ipairs { "", "--v2 " } do
  test("cifar10_cnn_distrib_slurm.lua " .. more .. "gives the numbers of one process on two", function()
    local output = compare({ name = "cifar10_cnn_distrib_slurm", last = CIFAR_LINE, rows = 60,
      one = CIFAR .. more .. "--batch_size 16 --lr " .. (more == "" and "2e-4" or "1e-4"),
      two = CIFAR .. more .. "--batch_size 8 --lr 1e-4 --rdma --syncopt --enqueue --network x" }, "np")
    check.matches(output, 'CLUSTER_SPEC_DICT: {"worker": %["[^"]+", "[^"]+"%], "ps": %[%]}\n')
    check.matches(output, more == "" and "WGDEV_LIST %(number of devices%): /job:worker/task:0: 1, "
      .. "/job:worker/task:1: 1\nPSDEV_LIST: none\n" or "MYPS_DEVICE: none\nMYWGDEV_LIST: cpu:0\n")
  end)
end

test("cifar10_cnn_distrib_slurm.lua gives the numbers of one process on a worker and a parameter server", function()
  local words = CIFAR .. "--batch_size 16 --lr 2e-4"
  local output = compare({ name = "cifar10_cnn_distrib_slurm", last = CIFAR_LINE, rows = 60, one = words,
    two = words .. " --ps 1" }, "np")
  check.matches(output, 'CLUSTER_SPEC_DICT: {"worker": %["[^"]+"%], "ps": %["[^"]+"%]}\n')
  check.matches(output, "PSDEV_LIST: /job:ps/task:0: 1\n")
  output_of("cifar10_cnn_distrib_slurm", words .. " --v2 --ps 1 --staleness unbounded", "np", CIFAR_LINE)
end)

test("vae_deconv_horovod.lua gives the numbers and pictures of one process on two", function()
  local words = "--data digits --limit 60 --epochs 1 "
  compare({ name = "vae_deconv_horovod", last = "\nVAE VALIDATION LOSS: ([%d.]+)\nWrote vae_scatter.svg and "
    .. "vae_digit.png\n$", one = words .. "--batch_size 20 --lr 2e-3", two = words .. "--batch_size 10 --lr 1e-3" },
    "np")
  local _, dots = check.read(check.path "vae_scatter.svg"):gsub("<circle", "")
  check.equal(dots, 70) -- 60 images and the legend of 10 classes
  check.equal(mgpu.image.load(check.path "vae_digit.png"):shape(), { 15 * 28, 15 * 28, 1 })
end)

test("resnet50_tfrecord_horovod.lua gives the numbers of one process on two", function()
  local output, status = run("make_imagenet_records", "--datadir imagenet --images 24 --shards 2")
  check.equal(status, 0, output)
  local words = "--network resnet18 --image_size 32 --classes 10 --epochs 1 --distort_color "
  output = compare({ name = "resnet50_tfrecord_horovod", last = "\nTest loss, acc: ([%d.]+, [%d.]+)\n$", rows = 4,
    one = words .. "--batch_size 8", two = words .. "--batch_size 4" }, "np")
  check.matches(output, "Num images: 24\n")
  check.matches(output, "3/3 ") -- 24 images in batches of 8
end)

-- ---- TF_CONFIG ----------------------------------------------------------------------------------

local LAST = "\nTest loss: ([%d.]+\nTest accuracy: [%d.]+)\n$"
local WORDS = "--data digits --limit 200 --epochs 1"

test("multi_worker.lua gives the numbers of one process on two", function()
  local output = compare({ name = "multi_worker", last = LAST, rows = 200, one = WORDS, two = WORDS }, "np")
  check.matches(output, "Worker 0 of 2, started by mgpulua\nNumber of replicas in sync: 2\n")
end)

-- Runs multi_worker.lua once for each task of the cluster, all at once; `roles`: {"worker 0", ...}.
local function run_tasks(cluster, roles)
  local command = {}
  for i, role in ipairs(roles) do
    local kind, index = role:match "(%S+) (%d)"
    command[i] = ([[TF_CONFIG='{"cluster": %s, "task": {"type": "%s", "index": %s}}' MGPU_JOIN=20 timeout 200 \
      $program $root/examples/multi_worker.lua %s >task%d 2>&1 & processes="$processes $!"]]):format(cluster, kind,
      index, WORDS, i)
  end
  return check.run(([[root=$PWD; program=$(realpath %s); cd %s; processes=; status=0
    %s
    for p in $processes; do wait $p || status=$?; done; cat task*; exit $status]]):format(check.program, check.path "",
    table.concat(command, "\n")))
end

test("multi_worker.lua reads its place from TF_CONFIG", function()
  check.needs(built .. "/mgpu-ucx.so")
  local address = ('"127.0.0.1:%s"'):format(launched.free_port())
  local output, status = run_tasks(('{"chief": [%s], "worker": ["127.0.0.1:9"]}'):format(address),
    { "chief 0", "worker 0" })
  check.equal(status, 0, output)
  check.matches(output, "Worker 0 of 2 %(chief%), started by tf_config\nNumber of replicas in sync: 2\n")
  local _, one = output_of("multi_worker", WORDS, nil, LAST)
  check.near(tonumber(output:match "\nTest loss: ([%d.]+)"), one[1], ROUNDING)
end)

test("multi_worker.lua trains with a parameter server of TF_CONFIG", function()
  check.needs(built .. "/mgpu-ucx.so")
  local output, status = run_tasks(('{"worker": ["127.0.0.1:%s"], "ps": ["127.0.0.1:9"]}'):format(launched.free_port()),
    { "worker 0", "ps 0" })
  check.equal(status, 0, output)
  check.matches(output, "Parameter servers: 1\n")
  local _, one = output_of("multi_worker", WORDS, nil, LAST)
  check.near(tonumber(output:match "\nTest loss: ([%d.]+)"), one[1], ROUNDING)
end)

-- ---- help ---------------------------------------------------------------------------------------

for _, name in ipairs { "cifar10_cnn_horovod", "cifar10_cnn_horovod_queue", "cifar10_cnn_distrib_slurm",
  "vae_deconv_horovod", "resnet50_tfrecord_horovod", "multi_worker" } do
  test(name .. ".lua has help and knows its options", function()
    local output, status = run(name, "--help")
    check.equal(status, 0)
    check.matches(output, "Usage: mgpulua " .. name .. ".lua")
    output, status = run(name, "--nonsense")
    check.equal(status, 1)
    check.equal(output, name .. ".lua: unknown option '--nonsense' (see --help)\n")
  end)
end
