-- A convolutional variational autoencoder of digits: the example variational_autoencoder_deconv of Keras, and of
-- keras_experiments on several devices.
--
--     mgpulua examples/vae_deconv.lua --help
--
-- What it teaches: a model with a loss of its own and models that share its layers, pictures as SVG and PNG.

local mgpu = require "mgpu"
local core = require "mgpu.core"
local svg = require "mgpu.plot.svg"
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

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

-- ---- pictures -----------------------------------------------------------------------------------

-- The latent plane as SVG: a dot for each test image, in the color of its class.
local function scatter(places, labels, classes)
  local size, margin, legend = 480, 20, 70
  local most = 1e-6 -- the largest finite distance from the center
  for _, p in ipairs(places) do
    for axis = 1, 2 do
      if p[axis] - p[axis] == 0 then most = math.max(most, math.abs(p[axis])) end
    end
  end
  local function color(class) return ("hsl(%d,70%%,50%%)"):format(360 * class / classes) end
  local function pixel(v) return margin + (v / most + 1) / 2 * (size - 2 * margin) end
  local parts = {}
  for i, p in ipairs(places) do
    if p[1] - p[1] == 0 and p[2] - p[2] == 0 then
      parts[#parts + 1] = svg.element("circle", { cx = pixel(p[1]), cy = pixel(-p[2]), r = 2,
        fill = color(labels[i]) })
    end
  end
  for class = 0, classes - 1 do
    local y = margin + 20 * class
    parts[#parts + 1] = svg.element("circle", { cx = size + 10, cy = y, r = 5, fill = color(class) })
    parts[#parts + 1] = svg.text(size + 22, y + 4, class)
  end
  return svg.picture(size + legend, size, table.concat(parts, "\n"), "Test images in the latent plane") .. "\n"
end

-- The quantile of the standard normal distribution. Source: the logistic approximation of Bowling et al., 2009, whose
-- error of 0.01 does not show in a picture.
local function quantile(p) return -math.log(1 / p - 1) / 1.702 end

-- side * side points of the plane at equal steps of probability from 0.05 to 0.95, the first row on top.
local function plane(side)
  local points = {}
  for row = 1, side do
    for column = 1, side do
      points[#points + 1] = { quantile(0.05 + 0.9 * (column - 1) / (side - 1)),
        quantile(0.95 - 0.9 * (row - 1) / (side - 1)) }
    end
  end
  return mgpu.tensor(points)
end

local SIDE = 15
core.write_file(options.scatter, { scatter(encoder:predict(x_test, { verbose = 0 }):totable(), y_test:totable(),
  test.classes) })
mgpu.image.save(options.digits, decoder:predict(plane(SIDE), { verbose = 0 }), { columns = SIDE, padding = 0 })
print(("Wrote %s and %s"):format(options.scatter, options.digits))
