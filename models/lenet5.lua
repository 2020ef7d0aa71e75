--- lenet5 {input_shape = {28, 28, 1}, classes = 10}: LeNet-5 as it is built today, with same-padded first
--- convolution, max pools and ReLU. 61,706 parameters. Source: LeCun et al., Gradient-based learning, 1998.
--     mgpu.models.lenet5 { classes = 10 }     -- RETURNS an uncompiled Sequential
-- Example:
--     local model = mgpu.models.lenet5 {}
--     model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy", metrics = { "accuracy" } }
--     model:fit(mgpu.rand { 8, 28, 28, 1 }, mgpu.randint(0, 10, { 8 }), { verbose = 0 })
--     print((model:count_params()))  --> 61706
local mgpu = require "mgpu"
local options = require "mgpu.options"
local L = mgpu.layers

local LENET5 = options.declare {
  { "input_shape", "shape", default = { 28, 28, 1 } },
  { "classes", "integer", default = 10, min = 1 },
}

return function(given)
  local chosen = options.check("lenet5", LENET5, given == nil and {} or given)
  return mgpu.Sequential {
    name = "lenet5",
    L.Input(chosen.input_shape),
    L.Conv2D { 6, 5, padding = "same", activation = "relu" },
    L.MaxPooling2D { 2 },
    L.Conv2D { 16, 5, activation = "relu" },
    L.MaxPooling2D { 2 },
    L.Flatten {},
    L.Dense { 120, activation = "relu" },
    L.Dense { 84, activation = "relu" },
    L.Dense { chosen.classes, activation = "softmax" },
  }
end
