-- The CIFAR-10 network on the nodes of a SLURM job: the examples cifar10_cnn_distrib_slurm and
-- cifar10_cnn_distrib_v2_slurm of keras_experiments.
--
--     srun -N 2 --ntasks-per-node=1 mgpulua examples/cifar10_cnn_distrib_slurm.lua --epochs 3
--     srun -N 2 --ntasks-per-node=1 mgpulua examples/cifar10_cnn_distrib_slurm.lua --epochs 3 --v2
--     srun -N 3 --ntasks-per-node=1 mgpulua examples/cifar10_cnn_distrib_slurm.lua --epochs 3 --ps 1
--     mgpulua examples/cifar10_cnn_distrib_slurm.lua --help
--
-- What it teaches: one process for each node that drives all its GPUs, or several with one GPU each; nodes may have
-- different numbers of GPUs. With --ps some processes are parameter servers; without, all train together. Unlike in the
-- originals, training is synchronous unless --staleness is given, and each row is trained on once an epoch.

local mgpu = require "mgpu"
local folder = (arg[0]:match "^.*/" or "") .. "common/"
local command_line = dofile(folder .. "command_line.lua")
local cifar10 = dofile(folder .. "cifar10.lua")(command_line)

local parser = command_line.parser "Trains the CIFAR-10 network on the tasks of a SLURM job, or of any other launcher."
command_line.add_count(parser, "--batch_size", 1, "Rows per step for each device.", "32")
parser:option("--lr", "The learning rate; it is multiplied by the number of devices that train, or "
  .. "with --v2 by that of the first process."):argname "RATE":default "1e-4":convert(command_line.positive "--lr")
parser:flag("--v2", "The lines and the learning rate of cifar10_cnn_distrib_v2_slurm.")
parser:option("--ps", "How many processes, the last ones, are parameter servers."):argname "N":default "0"
  :convert(command_line.count(0, "--ps"))
parser:option("--staleness", "With --ps: how many steps a process may be ahead of the slowest, or unbounded. 0: all "
  .. "take each step together."):argname "N":default "0":convert(function(text)
  return text == "unbounded" and text or command_line.count(0, "--staleness")(text)
end)
parser:flag("--enqueue", "No effect: batches are always staged on the devices ahead of time.")
parser:flag("--syncopt", "No effect: the gradients of the devices are always averaged.")
parser:option("--rdma", "No effect: UCX uses RDMA where it finds it."):args "?":argname "verbs|gdr"
cifar10.add(parser, "cifar10_cnn_distrib_slurm.weights.best.hdf5", "val_acc")
local options = command_line.read(parser)

-- ---- the cluster --------------------------------------------------------------------------------

local world = mgpu.world()

-- A process that is alone on its node has all its GPUs; of several, each has one, and those left over have the CPU.
local function own_devices()
  local gpus = mgpu.parallel.get_available_gpus()
  if #gpus == 0 then return { mgpu.devices()[1] } end
  if world.local_size == 1 then return gpus end
  return { gpus[world.local_rank + 1] or "cpu:0" }
end
options.devices = own_devices()

local counts, all = world:gather(#options.devices), 0
local n_workers = world.size - options.ps
if n_workers < 1 then command_line.stop("--ps %d: %d processes leave none to train", options.ps, world.size) end
local hosts, device_lists = { worker = {}, ps = {} }, { worker = {}, ps = {} }
for task, count in ipairs(counts) do
  local role = task <= n_workers and "worker" or "ps"
  all = all + (role == "worker" and count or 0)
  table.insert(hosts[role], ("%q"):format(world.hosts[task] or "localhost"))
  table.insert(device_lists[role], ("/job:%s/task:%d: %d"):format(role, #hosts[role] - 1, count))
end
local function joined(list, none) return #list > 0 and table.concat(list, ", ") or none end
print(("CLUSTER_SPEC_DICT: {\"worker\": [%s], \"ps\": [%s]}"):format(joined(hosts.worker), joined(hosts.ps, "")))
if options.v2 then
  print("MYPS_DEVICE: " .. (options.ps > 0 and "the host memory of the servers" or "none"))
  print("MYWGDEV_LIST: " .. table.concat(options.devices, ", "))
else
  print("WGDEV_LIST (number of devices): " .. joined(device_lists.worker))
  print("PSDEV_LIST: " .. joined(device_lists.ps, "none"))
end
if options.ps == 0 and options.staleness ~= 0 then command_line.stop "--staleness needs servers: give --ps" end
if options.ps > 0 then
  options.strategy = mgpu.parallel.strategy("parameter_server", { devices = options.devices, servers = options.ps,
    staleness = options.staleness })
end

options.lr = options.lr * (options.v2 and counts[1] or all)
-- With staleness each process trains batches of its own, else all share those of the whole job.
options.batch_size = options.batch_size * (options.staleness == 0 and all or counts[1])

-- ---- training -----------------------------------------------------------------------------------

mgpu.seed(1) -- the same weights, shuffles and dropout on all processes, and for any number of them
local train, test = cifar10.load(options)
local model, callbacks = cifar10.model(options, train)
model:summary()
if options.staleness == 0 then -- else the processes are not in step, so nothing can be told after each batch
  table.insert(callbacks, mgpu.callbacks.BatchTiming {})
  table.insert(callbacks, mgpu.callbacks.SamplesPerSec { options.batch_size })
end
cifar10.fit_images(model, options, train, test, callbacks)

local loss, accuracy = unpack(model:evaluate(test.x:to "float32" / 255, test.y, { verbose = 0 }))
print(("\nCIFAR VALIDATION LOSS, ACC: %s, %s"):format(loss, accuracy))
