-- Training on several machines as TF_CONFIG describes them: the part on MultiWorkerMirroredStrategy of DataFlair's
-- article on Keras multi-GPU.
--
--     TF_CONFIG='{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}' \
--       mgpulua examples/multi_worker.lua                    on host a; with "index": 1 on host b
--     TF_CONFIG='{"cluster": {"worker": ["a:2222", "b:2222"], "ps": ["c:2222"]}, "task": ...}' \
--       mgpulua examples/multi_worker.lua                    with a parameter server on host c
--     mgpulua --np 2 examples/multi_worker.lua               or by a launcher
--     mgpulua examples/multi_worker.lua --help
--
-- What it teaches: a strategy whose replicas are the devices of all machines, or of all but the parameter servers;
-- ModelCheckpoint, and continuing from its file.

local mgpu = require "mgpu"
local core = require "mgpu.core"
local L = mgpu.layers
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser "Trains a small network on the workers of TF_CONFIG, or of any other launcher."
command_line.add_epochs(parser, 3)
command_line.add_count(parser, "--batch_size", 1, "Rows per step of all workers together.", "64")
command_line.add_data(parser, { "mnist", "fashion", "digits" })
parser:option("--filepath", "The file of the checkpoints.", "multi_worker.safetensors"):argname "FILE"
command_line.add_limit(parser)
local options = command_line.read(parser)

local world, role = mgpu.world(), core.launch().role
if role == "evaluator" then
  command_line.stop("TF_CONFIG: this process is %q, but all workers evaluate: leave %q out of the cluster", role, role)
end
print(("Worker %d of %d%s, started by %s"):format(world.rank, world.size, role ~= "" and " (" .. role .. ")" or "",
  world.launcher))

-- A worker that is alone on its machine has all its GPUs; of several, each has one.
local gpus = mgpu.devices "gpu"
local devices = #gpus == 0 and { mgpu.devices()[1] }
  or world.local_size == 1 and gpus or { gpus[world.local_rank % #gpus + 1] }

mgpu.seed(1) -- the same weights and shuffles on all workers, and for any number of them
local servers = 0 -- of all processes, those that TF_CONFIG calls "ps"
for _, is_server in ipairs(world:gather(role == "ps" and 1 or 0)) do servers = servers + is_server end
local strategy = mgpu.parallel.strategy(servers > 0 and "parameter_server" or "mirrored", { devices = devices })
if servers > 0 then print("Parameter servers: " .. servers) end
print("Number of replicas in sync: " .. strategy.num_replicas_in_sync)

local model = strategy:scope(function()
  local model = mgpu.Sequential { L.Input { 28, 28 }, L.Flatten {}, L.Dense { 128, activation = "relu" },
    L.Dropout { 0.2 }, L.Dense { 10, activation = "softmax" } }
  model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy", metrics = { "accuracy" } }
  return model
end)

local function images(set)
  local x, y = command_line.first_rows(set, options.limit)
  return x:to "float32" / 255, y
end
local train, test = command_line.load(options)
local x_train, y_train = images(train)
local x_test, y_test = images(test)

local checkpoint = mgpu.callbacks.ModelCheckpoint { options.filepath, save_weights_only = true, monitor = "val_acc",
  mode = "max", save_best_only = true } -- rank 0 writes it
model:fit(x_train, y_train, { batch_size = options.batch_size, epochs = options.epochs, verbose = 2,
  validation_data = { x_test, y_test }, callbacks = { checkpoint } })

local loss, accuracy = unpack(model:evaluate(x_test, y_test, { verbose = 0 }))
print(("Test loss: %s\nTest accuracy: %s"):format(loss, accuracy))
