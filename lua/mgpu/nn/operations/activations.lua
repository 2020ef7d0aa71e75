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

-- ---- losses, one value for each prediction or row -----------------------------------------------

local EPSILON = 1e-7 -- probabilities are at least this far from 0 and 1

local function within(p) return ops.minimum(ops.maximum(p, EPSILON), 1 - EPSILON) end

M.BinaryCrossentropy = { "target output | from_logits:boolean?", function(target, output, from_logits)
  target = ops.cast(target, { dtype = output:dtype() })
  if from_logits then return ops.softplus(output) - output * target end
  local p = within(output)
  return -(target * ops.log(p) + (1 - target) * ops.log(1 - p))
end }

local CROSSENTROPY = "target output | from_logits:boolean? axis?"

M.CategoricalCrossentropy = { CROSSENTROPY, function(target, output, from_logits, axis)
  axis = axis or -1
  target = ops.cast(target, { dtype = output:dtype() })
  local logs = from_logits and activations.log_softmax(output, axis)
    or ops.log(within(output / ops.sum(output, { axis = axis, keepdims = true })))
  return -ops.sum(target * logs, { axis = axis })
end }

-- target: class ids, with an axis of size 1 at the end or without.
M.SparseCategoricalCrossentropy = { CROSSENTROPY, function(target, output, from_logits, axis)
  axis = axis or -1
  local shape = target:shape()
  if #shape == output:rank() and shape[#shape] == 1 then
    target = ops.reshape(target, { shape = { unpack(shape, 1, #shape - 1) } })
  end
  local classes = output:shape()[arguments.axis_at("sparse_categorical_crossentropy", axis, output:rank())]
  local hot = M.OneHot[2](ops.cast(target, { dtype = "int32" }), classes, axis, output:dtype())
  local logs = activations.log_softmax(from_logits and output or ops.log(within(output)), axis)
  return -ops.sum(hot * logs, { axis = axis })
end }

M.MultiHot = { "inputs | num_classes axis? dtype? sparse?", function(x, classes, axis, dtype, sparse)
  if sparse or (axis and axis ~= -1) then
    core.fail("unsupported", "multi_hot: sparse tensors and an axis other than the last one are not supported")
  end
  local hot = composite.one_hot(x, { classes = classes, dtype = dtype })
  return ops.max(hot, { axis = x:rank() == 1 and 1 or -2 })
end }

return M
