-- A convolutional variational autoencoder of digits: the example variational_autoencoder_deconv of Keras, and of
-- keras_experiments on several devices.
--
--     mgpulua examples/vae_deconv.lua --help
--
-- What it teaches: a model with a loss of its own and models that share its layers, pictures as SVG and PNG.

local mgpu = require "mgpu"
local folder = (arg[0]:match "^.*/" or "") .. "common/"
local command_line = dofile(folder .. "command_line.lua")
local latent_plane = dofile(folder .. "latent_plane.lua")

local parser = command_line.parser "Trains a variational autoencoder on MNIST, on one or several devices."
command_line.add_mgpu(parser)
command_line.add_epochs(parser, 5)
command_line.add_data(parser, { "mnist", "fashion", "digits" })
parser:option("--scatter", "The picture of the test images in the latent plane.", "vae_scatter.svg")
  :argname "FILE"
parser:option("--digits", "The picture of digits decoded from the latent plane, as .png or .jpg.", "vae_digit.png")
  :argname "FILE"
command_line.add_limit(parser)
local options = command_line.read(parser)

-- ---- data ---------------------------------------------------------------------------------------

local train, test = command_line.load(options)

local function prepare(set)
  local x, y = command_line.first_rows(set, options.limit)
  return x:reshape { x:shape()[1], 28, 28, 1 }:to "float32" / 255, y
end
local x_train = prepare(train)
local x_test, y_test = prepare(test)
print("x_train shape: " .. command_line.shape_text(x_train))

-- ---- training -----------------------------------------------------------------------------------

local batch_size = 128 * options.ngpus
local serial, encoder, decoder = mgpu.models.vae_deconv {}
local vae = mgpu.parallel.make_parallel(serial, options.gpus)
if #options.gpus > 0 then print("Using GPUs: " .. table.concat(options.gpus, ", ")) end
mgpu.parallel.print_mgpu_modelsummary(vae)

local compile_options = { optimizer = mgpu.optimizers.RMSprop { learning_rate = 1e-3 * options.ngpus },
  loss = mgpu.models.vae_deconv.reconstruction }
vae:compile(compile_options)
vae:fit(x_train, x_train, { batch_size = batch_size, epochs = options.epochs, shuffle = true,
  validation_data = { x_test, x_test }, callbacks = { mgpu.callbacks.BatchTiming {},
    mgpu.callbacks.SamplesPerSec { batch_size } } })
local loss = vae:evaluate(x_test, x_test, { batch_size = batch_size, verbose = 0 }).loss
print(("\nVAE VALIDATION LOSS: %s"):format(loss))
latent_plane(encoder, decoder, x_test, y_test, test.classes, options)
