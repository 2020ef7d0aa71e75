--- Activations in keras.ops.nn, one_hot and losses without weights; see init.lua.
local activations = require "mgpu.nn.activations"
local arguments = require "mgpu.tensor.arguments"
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"

local ops = core.ops

local M = {}

for name, activation in pairs { HardSigmoid = "hard_sigmoid", HardSilu = "hard_silu", HardTanh = "hard_tanh",
  LogSigmoid = "log_sigmoid", Relu = "relu", Relu6 = "relu6", Selu = "selu", Sigmoid = "sigmoid", Silu = "silu",
  Softplus = "softplus", Softsign = "softsign", SparsePlus = "sparse_plus", SparseSigmoid = "sparse_sigmoid",
  TanhShrink = "tanh_shrink" } do
  -- other arguments of our functions are options of Keras's layers
  M[name] = { "x", function(x) return activations[activation](x) end }
end

M.Celu = { "x | alpha?", activations.celu }
M.Elu = { "x | alpha?", activations.elu }
M.HardShrink = { "x | threshold?", activations.hard_shrink }
M.LeakyRelu = { "x | negative_slope?", activations.leaky_relu }
M.SoftShrink = { "x | threshold?", activations.soft_shrink }
M.Squareplus = { "x | b?", activations.squareplus }
M.Gelu = { "x | approximate?", function(x, approximate) return activations.gelu(x, approximate ~= false) end }
M.Threshold = { "x | threshold default_value", activations.threshold }

M.Glu = { "x | axis?", activations.glu }
M.LogSoftmax = { "x | axis?", activations.log_softmax }

-- Several axes are taken as one.
M.Softmax = { "x | axis?", function(x, axis)
  if type(axis) ~= "table" then return activations.softmax(x, axis) end
  local top = ops.stop_gradient(ops.max(x, { axis = axis, keepdims = true }))
  local e = ops.exp(x - top)
  return e / ops.sum(e, { axis = axis, keepdims = true })
end }

-- The new axis is a position of the result.
M.OneHot = { "x | num_classes axis? dtype? sparse?", function(x, classes, axis, dtype, sparse)
  if sparse then core.fail("unsupported", "one_hot: sparse tensors are not supported") end
  local hot = composite.one_hot(x, { classes = classes, dtype = dtype })
  local rank = hot:rank()
  local at = arguments.axis_at("one_hot", axis or -1, rank)
  if at == rank then return hot end
  local order = {}
  for i = 1, rank - 1 do order[#order + 1] = i end
  table.insert(order, at, rank)
  return ops.permute(hot, { order = order })
end }

M.MultiHot = { "inputs | num_classes axis? dtype? sparse?", function(x, classes, axis, dtype, sparse)
  if sparse or (axis and axis ~= -1) then
    core.fail("unsupported", "multi_hot: sparse tensors and an axis other than the last one are not supported")
  end
  local hot = composite.one_hot(x, { classes = classes, dtype = dtype })
  return ops.max(hot, { axis = x:rank() == 1 and 1 or -2 })
end }

return M
