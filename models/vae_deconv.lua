--- vae_deconv {input_shape = {28, 28, 1}, latent_dim = 2, filters = 64, units = 128}: the convolutional variational
--- autoencoder of Keras's variational_autoencoder_deconv example.
--     local vae, encoder, decoder = mgpu.models.vae_deconv {}     -- RETURNS three uncompiled models that share layers
--     vae:compile { optimizer = "rmsprop", loss = mgpu.models.vae_deconv.reconstruction }
--     vae:fit(x, x, { batch_size = 128, epochs = 5 })        -- x in [0, 1]
-- vae: images -> images; encoder: images -> the mean {latent_dim} of the latent numbers; decoder: latent numbers ->
-- images. The loss is as in the example: rows * columns times the mean binary cross-entropy of the pixels, and the
-- Kullback-Leibler divergence, which the layer "z" adds: -0.5 mean(1 + log_var - mean^2 - exp(log_var)).
-- z draws its numbers at every call, at inference too. A saved vae is loaded with custom = {Sampling =
-- mgpu.models.vae_deconv.Sampling}. Errors: rows or columns that are odd.
-- Source: Kingma & Welling, Auto-encoding variational Bayes, 2013; the example of Keras 2.
-- Example:
--     local vae, encoder, decoder = mgpu.models.vae_deconv { filters = 8, units = 16 }
--     vae:compile { optimizer = "rmsprop", loss = mgpu.models.vae_deconv.reconstruction }
--     local x = mgpu.rand { 8, 28, 28, 1 }
--     vae:fit(x, x, { verbose = 0 })
--     print(unpack(encoder:predict(x):shape()))  --> 8 2
--     print(unpack(decoder:predict(mgpu.zeros { 1, 2 }):shape()))  --> 1 28 28 1
local core = require "mgpu.core"
local mgpu = require "mgpu"
local options = require "mgpu.options"
local L = mgpu.layers
local ops = core.ops

local VAE = options.declare {
  { "input_shape", "shape", default = { 28, 28, 1 } },
  { "latent_dim", "integer", default = 2, min = 1 },
  { "filters", "integer", default = 64, min = 1 },
  { "units", "integer", default = 128, min = 1 },
}

local LAST = "channels_last" -- as input_shape is, whatever the image data format

-- {mean, log_var} -> mean + exp(log_var / 2) * normal numbers; adds the Kullback-Leibler divergence to the loss.
local Sampling = mgpu.Layer:extend("Sampling", {})

function Sampling:build() self.stream = self:own_stream() end

function Sampling:output_shape(shapes) return shapes[1] end -- luacheck: no self

function Sampling:call(inputs)
  local mean, log_var = inputs[1], inputs[2]
  self:add_loss((1 + log_var - mean:square() - log_var:exp()):mean() * -0.5)
  local noise = ops.random { shape = mean:shape(), kind = "normal", a = 0, b = 1, dtype = mean:dtype(),
    stream = self.stream }
  return mean + (log_var * 0.5):exp() * noise
end

-- The binary cross-entropy of each image, summed over its pixels and averaged over its channels.
local function reconstruction(y_true, y_pred)
  local shape = y_pred:shape()
  return mgpu.losses.binary_crossentropy.per_sample(y_true, y_pred) * (shape[2] * shape[3])
end

local function check_shape(shape)
  if #shape ~= 3 or shape[1] < 4 or shape[2] < 4 or shape[1] % 2 == 1 or shape[2] % 2 == 1 then
    core.fail("usage", ("vae_deconv: input_shape must be {rows, columns, channels} with even rows and columns of at "
      .. "least 4, got {%s}"):format(table.concat(shape, ", ")))
  end
end

-- The layers of the encoder, which RETURN mean and log_var.
local function encode(image, chosen)
  local filters = chosen.filters
  local function conv(x, n, size, strides)
    return L.Conv2D { n, size, strides = strides, padding = "same", activation = "relu", data_format = LAST } (x)
  end
  local x = conv(conv(image, chosen.input_shape[3], 2, 1), filters, 2, 2)
  x = conv(conv(x, filters, 3, 1), filters, 3, 1)
  x = L.Dense { chosen.units, activation = "relu" } (L.Flatten {} (x))
  return L.Dense { chosen.latent_dim, name = "z_mean" } (x), L.Dense { chosen.latent_dim, name = "z_log_var" } (x)
end

-- The layers of the decoder, each applied to x in turn.
local function decoder_layers(chosen)
  local rows, columns, filters = chosen.input_shape[1] / 2, chosen.input_shape[2] / 2, chosen.filters
  local function deconv(size, strides, padding)
    return L.Conv2DTranspose { filters, size, strides = strides, padding = padding, activation = "relu",
      data_format = LAST }
  end
  return {
    L.Dense { chosen.units, activation = "relu" },
    L.Dense { filters * rows * columns, activation = "relu" },
    L.Reshape { rows, columns, filters },
    deconv(3, 1, "same"), deconv(3, 1, "same"), deconv(3, 2, "valid"),
    L.Conv2D { chosen.input_shape[3], 2, activation = "sigmoid", data_format = LAST },
  }
end

local function through(layers, x)
  for _, layer in ipairs(layers) do x = layer(x) end
  return x
end

local function make(given)
  local chosen = options.check("vae_deconv", VAE, given == nil and {} or given)
  check_shape(chosen.input_shape)
  local image, latent = L.Input(chosen.input_shape), L.Input { chosen.latent_dim }
  local mean, log_var = encode(image, chosen)
  local layers = decoder_layers(chosen)
  local z = Sampling { name = "z" } { mean, log_var }
  return mgpu.Model { inputs = image, outputs = through(layers, z), name = "vae_deconv" },
    mgpu.Model { inputs = image, outputs = mean, name = "encoder" },
    mgpu.Model { inputs = latent, outputs = through(layers, latent), name = "decoder" }
end

return setmetatable({ reconstruction = reconstruction, Sampling = Sampling },
  { __call = function(_, given) return make(given) end })
