-- Own layer classes: options, weights, inner layers, a loss term; trained, saved, loaded.
--
--     mgpulua examples/custom_layer.lua --help
--
-- What it teaches: mgpu.Layer:extend, build and call, add_weight, add_loss, layers in fields, and
-- load_model with `custom`.

local mgpu = require "mgpu"
local L = mgpu.layers
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser "Own layer classes: trained, saved, loaded."
command_line.add_epochs(parser, 8)
parser:option("--save", "File that the model is saved in.", "custom.safetensors"):argname "FILE"
local options = parser:parse()

-- x * scale + shift, with a scale and a shift for each feature. `rate` is an option with a default.
local Scale = mgpu.Layer:extend("Scale", { rate = 1e-3 })

function Scale:build(shape) -- shape[1], the batch, is -1
  self.scale = self:add_weight { name = "scale", shape = { shape[#shape] }, initializer = "ones" }
  self.shift = self:add_weight { name = "shift", shape = { shape[#shape] }, initializer = "zeros" }
end

function Scale:call(x)
  self:add_loss((self.scale - 1):square():sum() * self.rate) -- penalty for scales away from 1
  return x * self.scale + self.shift
end

-- y = x + f(x). Layers in fields of self are found: their weights are trained and saved.
local Residual = mgpu.Layer:extend("Residual", { units = "integer", activation = "relu" })

function Residual:init()
  self.first = L.Dense { self.units, activation = self.activation, name = self.name .. "_first" }
end

function Residual:build(shape)
  self.second = L.Dense { shape[#shape], name = self.name .. "_second" }
  self.second:ensure_built { -1, self.units }
  self.first:ensure_built(shape)
end

function Residual:call(x) return x + self.second(self.first(x)) end

local model = mgpu.Sequential { name = "custom", L.Input { 28, 28 }, L.Flatten {}, Scale {},
  L.Dense { 64, activation = "relu" }, Residual { units = 32, name = "residual" },
  L.Dense { 10, activation = "softmax" } }
model:summary()

local train, test = mgpu.datasets.digits(4000)
model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy", metrics = { "accuracy" } }
local x_train, x_test = train.x:to "float32" / 255, test.x:to "float32" / 255
model:fit(x_train, train.y, { epochs = options.epochs, batch_size = 64, verbose = 2 })
print(("test accuracy: %.3f"):format(model:evaluate(x_test, test.y, { verbose = 0 }).accuracy))

model:save(options.save)
local again = mgpu.load_model(options.save, { custom = { Scale = Scale, Residual = Residual } })
local a, b = model:predict(x_test), again:predict(x_test)
print(("the loaded model's predictions differ by at most %g"):format((a - b):abs():max():item()))
