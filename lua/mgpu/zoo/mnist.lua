--- What the convolutional networks for MNIST share: options, and the layers after the features.
local core = require "mgpu.core"
local L = require "mgpu.nn.layers"
local options = require "mgpu.options"
local Sequential = require "mgpu.nn.sequential"

local M = {}

local OPTIONS = options.declare {
  { "input_shape", "shape", default = { 28, 28, 1 } },
  { "classes", "integer", default = 10, min = 1 },
  { "dropout", "table", default = { 0.25, 0.5 } },
}

--- define(name, features) -> the function of the model: input, features() (an array of new layers), dropout, a dense
--- layer of 128, dropout, a softmax over the classes.
function M.define(name, features)
  return function(given)
    local chosen = options.check(name, OPTIONS, given == nil and {} or given)
    local dropout = chosen.dropout
    if #dropout ~= 2 then
      core.fail("usage", ('%s: option "dropout" must be two rates, got %d'):format(name, #dropout))
    end
    local parts = { name = name, L.Input(chosen.input_shape), unpack(features()) }
    for _, layer in ipairs { L.Dropout { dropout[1] }, L.Flatten {}, L.Dense { 128, activation = "relu" },
      L.Dropout { dropout[2] }, L.Dense { chosen.classes, activation = "softmax" } } do
      parts[#parts + 1] = layer
    end
    return Sequential(parts)
  end
end

return M
