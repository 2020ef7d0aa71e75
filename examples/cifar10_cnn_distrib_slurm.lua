-- The CIFAR-10 network on the nodes of a SLURM job: the examples cifar10_cnn_distrib_slurm and
-- cifar10_cnn_distrib_v2_slurm of keras_experiments.
--
--     srun -N 2 --ntasks-per-node=1 mgpulua examples/cifar10_cnn_distrib_slurm.lua --epochs 3
--     srun -N 2 --ntasks-per-node=1 mgpulua examples/cifar10_cnn_distrib_slurm.lua --epochs 3 --v2
--     mgpulua examples/cifar10_cnn_distrib_slurm.lua --help
--
-- What it teaches: one process for each node that drives all its GPUs, or several with one GPU each; nodes may have
-- different numbers of GPUs. Unlike in the originals, training is synchronous, and each row is trained on once an
-- epoch.

local mgpu = require "mgpu"
local folder = (arg[0]:match "^.*/" or "") .. "common/"
local command_line = dofile(folder .. "command_line.lua")
local cifar10 = dofile(folder .. "cifar10.lua")(command_line)

local parser = command_line.parser "Trains the CIFAR-10 network on the tasks of a SLURM job, or of any other launcher."
command_line.add_count(parser, "--batch_size", 1, "Rows per step for each device.", "32")
parser:option("--lr", "The learning rate; it is multiplied by the number of all devices, or with --v2 by that of "
  .. "the first process."):argname "RATE":default "1e-4":convert(command_line.positive "--lr")
parser:flag("--v2", "The lines and the learning rate of cifar10_cnn_distrib_v2_slurm.")
parser:option("--ps", "No effect yet: there are no parameter servers. All processes train, with the strategy "
  .. "mirrored."):argname "N":convert(command_line.count(0, "--ps"))
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
local workers, device_lists = {}, {}
for task, count in ipairs(counts) do
  all = all + count
  workers[task] = ("%q"):format(world.hosts[task] or "localhost")
  device_lists[task] = ("/job:worker/task:%d: %d"):format(task - 1, count)
end
print(("CLUSTER_SPEC_DICT: {\"worker\": [%s], \"ps\": []}"):format(table.concat(workers, ", ")))
if options.v2 then
  print "MYPS_DEVICE: none"
  print("MYWGDEV_LIST: " .. table.concat(options.devices, ", "))
else
  print("WGDEV_LIST (number of devices): " .. table.concat(device_lists, ", "))
  print "PSDEV_LIST: none"
end
if options.ps then
  print("There are no parameter servers yet: all processes train, with the strategy mirrored.")
end

options.lr = options.lr * (options.v2 and counts[1] or all)
options.batch_size = options.batch_size * all

-- ---- training -----------------------------------------------------------------------------------

mgpu.seed(1) -- the same weights, shuffles and dropout on all processes, and for any number of them
local train, test = cifar10.load(options)
local model, callbacks = cifar10.model(options, train)
model:summary()
table.insert(callbacks, mgpu.callbacks.BatchTiming {})
table.insert(callbacks, mgpu.callbacks.SamplesPerSec { options.batch_size })
cifar10.fit_images(model, options, train, test, callbacks)

local loss, accuracy = unpack(model:evaluate(test.x:to "float32" / 255, test.y, { verbose = 0 }))
print(("\nCIFAR VALIDATION LOSS, ACC: %s, %s"):format(loss, accuracy))
