-- The variational autoencoder of vae_deconv.lua on several processes: the example
-- variational_autoencoder_deconv_horovod of keras_experiments.
--
--     mpirun -np 4 mgpulua examples/vae_deconv_horovod.lua
--     mgpulua examples/vae_deconv_horovod.lua --help
--
-- What it teaches: a model that draws random numbers, which are the same on any number of processes; predictions that
-- all processes compute, and pictures that rank 0 writes.

local mgpu = require "mgpu"
local folder = (arg[0]:match "^.*/" or "") .. "common/"
local command_line = dofile(folder .. "command_line.lua")
local ranks = dofile(folder .. "ranks.lua")(command_line)
local latent_plane = dofile(folder .. "latent_plane.lua")

local parser = command_line.parser "Trains a variational autoencoder on MNIST, on several processes, one device each."
ranks.add(parser, 128, 1e-3)
command_line.add_epochs(parser, 5)
command_line.add_data(parser, { "mnist", "fashion", "digits" })
parser:option("--scatter", "The picture of the test images in the latent plane.", "vae_scatter.svg")
  :argname "FILE"
parser:option("--digits", "The picture of digits decoded from the latent plane, as .png or .jpg.", "vae_digit.png")
  :argname "FILE"
command_line.add_limit(parser)
local options = ranks.read(parser)

mgpu.seed(1) -- the same weights, shuffles and latent noise on all processes, and for any number of them
local train, test = command_line.load(options)

local function prepare(set)
  local x, y = command_line.first_rows(set, options.limit)
  return x:reshape { x:shape()[1], 28, 28, 1 }:to "float32" / 255, y
end
local x_train = prepare(train)
local x_test, y_test = prepare(test)
print("x_train shape: " .. command_line.shape_text(x_train))

local vae, encoder, decoder = mgpu.models.vae_deconv {}
vae:summary()
vae:compile { optimizer = mgpu.optimizers.RMSprop { learning_rate = options.lr },
  loss = mgpu.models.vae_deconv.reconstruction, devices = { options.device } }
vae:fit(x_train, x_train, { batch_size = options.batch_size, epochs = options.epochs,
  validation_data = { x_test, x_test }, callbacks = { mgpu.callbacks.BatchTiming {},
    mgpu.callbacks.SamplesPerSec { options.batch_size } } })
local loss = vae:evaluate(x_test, x_test, { batch_size = options.batch_size, verbose = 0 }).loss
print(("\nVAE VALIDATION LOSS: %s"):format(loss))
latent_plane(encoder, decoder, x_test, y_test, test.classes, options)
