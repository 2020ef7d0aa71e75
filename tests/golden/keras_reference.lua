-- The model in keras/reference.h5, .keras and .weights.h5: files that we have written and Keras has loaded. The weights
-- are the same on every machine. keras_ours.lua writes the files; keras_files_spec.lua writes them again and compares.

local mgpu = require "mgpu"
local L = mgpu.layers

-- Gives the n-th variable the numbers n + 0, 1, 2, ... over 64.
local function fill(variables)
  for n, v in ipairs(variables) do
    v:assign((mgpu.arange(v:count()):reshape(v:shape()) + n) / 64)
  end
end

return function()
  local a, b = mgpu.Input { 4, 4, 2, name = "a" }, mgpu.Input { 3, name = "b" }
  local inner = mgpu.Sequential { name = "inner", L.Input { 3 }, L.Dense { 2, name = "inner_dense" },
    L.BatchNormalization { name = "inner_norm", axis = 2 } }
  local h = L.Conv2D { 2, { 3, 2 }, name = "conv", activation = "relu", kernel_regularizer = "l2",
    kernel_constraint = "max_norm", bias_initializer = mgpu.initializers.constant { 0.5 } } (a)
  h = L.LeakyReLU { 0.2, name = "leaky" } (L.Flatten { name = "flat" } (h))
  local y = L.Concatenate { name = "both", axis = 2 } { h, inner(b), L.Dropout { 0.5, name = "drop" } (b) }
  local model = mgpu.Model { name = "reference", inputs = { a, b },
    outputs = { L.Dense { 2, activation = "softmax", name = "out" } (y), inner(L.Dense { 3, name = "wide" } (h)) } }
  model:compile { optimizer = mgpu.optimizers.Adam { learning_rate = 0.25, clipnorm = 1 },
    loss = { "categorical_crossentropy", mgpu.losses.Huber { delta = 2 } }, loss_weights = { 1, 0.5 },
    metrics = { { "accuracy", mgpu.metrics.TopK { k = 1 } }, { "mae" } } }
  fill(model.variables)
  model.optimizer:build(model.trainable_variables)
  return model
end
