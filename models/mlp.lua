--- mlp {input_shape = {28, 28, 1}, classes = 10, units = 512, dropout = 0.2}: the multilayer perceptron of Keras's
--- MNIST example, two hidden layers with dropout.
--     mgpu.models.mlp { classes = 10, units = 64 }     -- RETURNS an uncompiled Sequential
-- Example:
--     local model = mgpu.models.mlp { input_shape = { 8, 8, 1 }, classes = 3, units = 16 }
--     -- 64 * 16 + 16, 16 * 16 + 16 and 16 * 3 + 3 parameters
--     print((model:count_params()))  --> 1363
local mgpu = require "mgpu"
local options = require "mgpu.options"
local L = mgpu.layers

local MLP = options.declare {
  { "input_shape", "shape", default = { 28, 28, 1 } },
  { "classes", "integer", default = 10, min = 1 },
  { "units", "integer", default = 512, min = 1 },
  { "dropout", "number", default = 0.2, min = 0, below = 1 },
}

return function(given)
  local chosen = options.check("mlp", MLP, given == nil and {} or given)
  return mgpu.Sequential {
    name = "mlp",
    L.Input(chosen.input_shape),
    L.Flatten {},
    L.Dense { chosen.units, activation = "relu" },
    L.Dropout { chosen.dropout },
    L.Dense { chosen.units, activation = "relu" },
    L.Dropout { chosen.dropout },
    L.Dense { chosen.classes, activation = "softmax" },
  }
end
