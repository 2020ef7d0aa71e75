--- Layers as ops of ONNX: a function (graph, layer, value or array of values, options of the call) -> the layer's
--- output values, by class.
--
-- onnx/images.lua has those over images and sequences, recurrent.lua recurrent ones, attention.lua those of attention,
-- scaling.lua those that multiply by factors, rewrite.lua graphs that were read. At inference dropout and noise do
-- nothing.
local activations = require "mgpu.nn.onnx.activations"
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local lora = require "mgpu.nn.layers.lora"

local M = {}

-- ---- operations of functional models ------------------------------------------------------------

-- Operations of functional models (layers/operation.lua) as ops of ONNX: those element by element, reductions,
-- and those of axes.

local function output_shape(layer, vs)
  local shapes = {}
  for i, v in ipairs(vs) do shapes[i] = v.shape end
  return layer:output_shape(#shapes > 1 and shapes or shapes[1])
end

-- ---- element by element -------------------------------------------------------------------------

local UNARY = { Absolute = "Abs", Ceil = "Ceil", Cos = "Cos", Cosh = "Cosh", Erf = "Erf", Exp = "Exp", Floor = "Floor",
  Log = "Log", Negative = "Neg", Reciprocal = "Reciprocal", Relu = "Relu", Round = "Round", Sigmoid = "Sigmoid",
  Sign = "Sign", Sin = "Sin", Sinh = "Sinh", Softplus = "Softplus", Softsign = "Softsign", Sqrt = "Sqrt", Tan = "Tan",
  Tanh = "Tanh" }

local BINARY = { Add = "Add", Divide = "Div", Maximum = "Max", Minimum = "Min", Multiply = "Mul", Power = "Pow",
  Subtract = "Sub", TrueDivide = "Div" }

-- The remainder with the sign of b.
local function remainder(g, a, b)
  local whole = g:op("Floor", { g:op("Div", { a, b }) })
  return g:op("Sub", { a, g:op("Mul", { whole, b }) })
end

local function operate(g, op, a, b)
  if op == "Mod" then return remainder(g, a, b) end
  return g:op(BINARY[op], { a, b })
end

-- Two inputs broadcast as they are; a number does not care about the order of axes.
local function binary(g, layer, vs)
  local a, b = layer.arguments.x1, layer.arguments.x2
  if type(a) == "table" and type(b) == "table" then
    if not (a.input and b.input) then layer:fail "a constant tensor cannot be saved as .onnx" end
    local first, second = vs[a.input], vs[b.input]
    return g.value(operate(g, layer.op, g:plain(first), g:plain(second)), output_shape(layer, vs),
      first.dtype)
  end
  return g:map(vs[1], function(x)
    if type(a) == "table" then return operate(g, layer.op, x, g:number(b, vs[1].dtype)) end
    return operate(g, layer.op, g:number(a, vs[1].dtype), x)
  end)
end

-- ---- reductions ---------------------------------------------------------------------------------

local REDUCTIONS = { Amax = "ReduceMax", Amin = "ReduceMin", Max = "ReduceMax", Mean = "ReduceMean", Min = "ReduceMin",
  Prod = "ReduceProd", Sum = "ReduceSum" }

local function reduction(g, layer, vs)
  local axis, keepdims = layer.arguments.axis, layer.arguments.keepdims and 1 or 0
  local op, x = REDUCTIONS[layer.op], g:plain(vs[1])
  local axes = type(axis) == "number" and { axis } or axis
  local name
  if op == "ReduceSum" then -- axes are an input of this one only
    name = g:op(op, { x, axes and g:integers(axes) }, { keepdims = keepdims })
  else
    name = g:op(op, { x }, { axes = axes, keepdims = keepdims })
  end
  return g.value(name, output_shape(layer, vs), vs[1].dtype)
end

-- ---- axes ---------------------------------------------------------------------------------------

local function as_list(axis) return type(axis) == "table" and axis or { axis } end

-- Axes of size 1 that are added or dropped, and another order of axes.
local AXES = {
  ExpandDims = function(g, x, arguments) return g:op("Unsqueeze", { x, g:integers(as_list(arguments.axis)) }) end,
  Squeeze = function(g, x, arguments)
    return g:op("Squeeze", { x, arguments.axis and g:integers(as_list(arguments.axis)) })
  end,
  Transpose = function(g, x, arguments) return g:op("Transpose", { x }, { perm = arguments.axes }) end,
}

-- ---- the layer ----------------------------------------------------------------------------------

function M.Operation(g, layer, given)
  local vs = layer.count > 1 and given or { given }
  for _, v in ipairs(vs) do
    if not v.dtype:find "float" then layer:fail("an operation on %s cannot be saved as .onnx", v.dtype) end
  end
  local op, arguments = layer.op, layer.arguments
  if UNARY[op] then return g:map(vs[1], function(x) return g:op(UNARY[op], { x }) end) end
  if op == "Square" then return g:map(vs[1], function(x) return g:op("Mul", { x, x }) end) end
  if BINARY[op] or op == "Mod" then return binary(g, layer, vs) end
  if REDUCTIONS[op] and not arguments.initial and not arguments.dtype then return reduction(g, layer, vs) end
  if AXES[op] then
    return g.value(AXES[op](g, g:plain(vs[1]), arguments), output_shape(layer, vs), vs[1].dtype)
  end
  layer:fail("the operation %s cannot be saved as .onnx", op)
end

-- ---- layers that merge --------------------------------------------------------------------------

-- Layers with several inputs as ops of ONNX; see onnx/layers.lua.

-- ---- element by element -------------------------------------------------------------------------

-- The names of the tensors, all in the same order of axes, and the function that makes a value of that order. The
-- channels are second if all values have as many axes as the result and exist in that order already.
local function aligned(g, vs, rank)
  local second = rank > 2
  for _, v in ipairs(vs) do second = second and #v.shape == rank and v.first and true or false end
  local names = {}
  for i, v in ipairs(vs) do
    names[i] = second and v.first or g:plain(v)
    local missing = rank - #v.shape
    if missing > 0 then
      local axes = {}
      for k = 1, missing do axes[k] = k end -- after the batch
      names[i] = g:op("Unsqueeze", { names[i], g:integers(axes) })
    end
  end
  return names, second and g.first_value or g.value
end

local function shapes_of(vs)
  local shapes = {}
  for i, v in ipairs(vs) do shapes[i] = v.shape end
  return shapes
end

-- finish(graph, name, n, dtype): applied to the result for n inputs.
local function merge(op_type, finish)
  return function(g, layer, vs)
    local shape, dtype = layer:output_shape(shapes_of(vs)), vs[1].dtype
    local names, make = aligned(g, vs, #shape)
    local y = names[1]
    for i = 2, #names do y = g:op(op_type, { y, names[i] }) end
    return make(finish and finish(g, y, #names, dtype) or y, shape, dtype)
  end
end
M.Add, M.Subtract, M.Multiply, M.Maximum = merge "Add", merge "Sub", merge "Mul", merge "Max"
M.Average = merge("Add", function(g, sum, n, dtype) return g:op("Div", { sum, g:number(n, dtype) }) end)

function M.Concatenate(g, layer, vs)
  local shape = layer:output_shape(shapes_of(vs))
  local rank, names, make = #shape, aligned(g, vs, #shape)
  local axis = (layer.axis < 0 and layer.axis + rank or layer.axis - 1)
  if make == g.first_value and axis > 0 then axis = axis == rank - 1 and 1 or axis + 1 end
  return make(g:op("Concat", names, { axis = axis }), shape, vs[1].dtype)
end

-- ---- Dot ----------------------------------------------------------------------------------------

-- x scaled to length 1 along the axis, from 0; lengths below 1e-7 count as 1e-7.
local function unit(g, v, axis)
  local wide = v.dtype == "float64" and v or g:cast(v, "float32")
  local x = g:plain(wide)
  local squares = g:op("ReduceSum", { g:op("Mul", { x, x }), g:integers { axis } }, { keepdims = 1 })
  local length = g:op("Sqrt", { g:op("Max", { squares, g:number(1e-14, wide.dtype) }) })
  return g:cast(g.value(g:op("Div", { x, length }), v.shape, wide.dtype), v.dtype)
end

-- v as {batch, product of the other axes, size of the axis}, or with the last two swapped.
local function as_matrices(g, layer, v, axis, swapped)
  local perm, others = { 0 }, 1
  for k = 1, #v.shape - 1 do
    if v.shape[k + 1] == -1 then layer:fail "all sizes of its inputs must be known to save it as .onnx" end
    if k ~= axis then
      perm[#perm + 1] = k
      others = others * v.shape[k + 1]
    end
  end
  local sizes = { 0, others, v.shape[axis + 1] }
  if swapped then
    table.insert(perm, 2, axis)
    sizes[2], sizes[3] = sizes[3], sizes[2]
  else
    perm[#perm + 1] = axis
  end
  return g:op("Reshape", { g:op("Transpose", { g:plain(v) }, { perm = perm }), g:integers(sizes) })
end

function M.Dot(g, layer, vs)
  local axes, parts = type(layer.axes) == "table" and layer.axes or { layer.axes, layer.axes }, {}
  local shape = layer:output_shape(shapes_of(vs))
  for i, v in ipairs(vs) do
    local axis = axes[i] < 0 and axes[i] + #v.shape or axes[i] - 1
    parts[i] = as_matrices(g, layer, layer.normalize and unit(g, v, axis) or v, axis, i == 2)
  end
  local y = g:op("Reshape", { g:op("MatMul", parts), g:integers { 0, unpack(shape, 2) } })
  return g.value(y, shape, vs[1].dtype)
end

-- ---- layers -------------------------------------------------------------------------------------

local ops = core.ops

for _, name in ipairs { "attention", "images", "recurrent", "rewrite", "scaling" } do
  for class, convert in pairs(require("mgpu.nn.onnx." .. name)) do M[class] = convert end
end

-- x computed in float32, if it is of a half type: fn(value) -> value.
local function in_float32(g, v, dtype, fn)
  local wide = v.dtype == "float64" and v or g:cast(v, "float32")
  return g:cast(fn(wide), dtype)
end

-- ---- identities ---------------------------------------------------------------------------------

local function identity(_, _, v) return v end
for _, name in ipairs { "ActivityRegularization", "AlphaDropout", "Dropout", "GaussianDropout", "GaussianNoise",
  "Identity", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D" } do
  M[name] = identity
end

-- ---- weights ------------------------------------------------------------------------------------

function M.Dense(g, layer, v)
  local dtype, shape = layer.compute_dtype, { unpack(v.shape) }
  local x, kernel = g:plain(v), g:weight(lora.weight(layer), dtype)
  shape[#shape] = layer.units
  local name
  if #shape == 2 then
    name = g:op("Gemm", { x, kernel, layer.bias and g:weight(layer.bias, dtype) })
  else
    name = g:op("MatMul", { x, kernel })
    if layer.bias then name = g:op("Add", { name, g:weight(layer.bias, dtype) }) end
  end
  return activations.apply(g, layer, g.value(name, shape, dtype))
end

-- Fractions and ids outside the table are errors here; ONNX cuts fractions off.
function M.Embedding(g, layer, v)
  if layer.mask_zero then layer:fail "mask_zero: ONNX has no masks: such a layer cannot be saved as .onnx" end
  if not v.dtype:find "int" then v = g:cast(v, "int32") end
  local name = g:op("Gather", { g:weight(lora.weight(layer), layer.compute_dtype), g:plain(v) }, { axis = 0 })
  return g.value(name, layer:output_shape(v.shape), layer.compute_dtype)
end

-- The channels must be the second axis: they are moved there unless they are.
local function normalize(g, layer, v)
  local dtype = v.dtype
  local function constant(variable, number)
    if variable then return g:weight(variable, dtype) end
    return g:weight({ name = ("%s/%g"):format(layer.name, number), value = function()
      return ops.full({ layer.channels }, number, "float32")
    end }, dtype)
  end
  local inputs = { false, constant(layer.gamma, 1), constant(layer.beta, 0), constant(layer.moving_mean),
    constant(layer.moving_variance) }
  local function batch_norm(x)
    inputs[1] = x
    return g:op("BatchNormalization", inputs, { epsilon = { float = layer.epsilon } })
  end
  if layer.at == 2 and #v.shape > 2 then return g.value(batch_norm(g:plain(v)), v.shape, dtype) end
  if layer.at == #v.shape then return g.first_value(batch_norm(g:first(v)), v.shape, dtype) end
  local swapped = {}
  for i = 1, #v.shape do swapped[i] = i - 1 end
  swapped[2], swapped[layer.at] = layer.at - 1, 1
  local y = batch_norm(g:op("Transpose", { g:plain(v) }, { perm = swapped }))
  return g.value(g:op("Transpose", { y }, { perm = swapped }), v.shape, dtype)
end

function M.BatchNormalization(g, layer, v)
  return in_float32(g, v, v.dtype, function(wide) return normalize(g, layer, wide) end)
end

-- gamma or beta, which have the sizes of the axes, so that they broadcast against x.
local function broadcast(g, layer, variable, v)
  local sizes = {}
  for i = 1, #v.shape do sizes[i] = 1 end
  for i, at in ipairs(layer.axes) do sizes[at] = layer.sizes[i] end
  return g:weight(variable, v.dtype, "broadcast", function(t) return ops.reshape(t, { shape = sizes }) end)
end

local function normalize_samples(g, layer, v)
  local x, axes = g:plain(v), {}
  for i, at in ipairs(layer.axes) do axes[i] = at - 1 end
  local function mean(name) return g:op("ReduceMean", { name }, { axes = axes, keepdims = 1 }) end
  local centered = g:op("Sub", { x, mean(x) })
  local variance = mean(g:op("Mul", { centered, centered }))
  local deviation = g:op("Sqrt", { g:op("Add", { variance, g:number(layer.epsilon, v.dtype) }) })
  local y = g:op("Div", { layer.rms_scaling and x or centered, deviation })
  if layer.gamma then y = g:op("Mul", { y, broadcast(g, layer, layer.gamma, v) }) end
  if layer.beta then y = g:op("Add", { y, broadcast(g, layer, layer.beta, v) }) end
  return g.value(y, v.shape, v.dtype)
end

function M.LayerNormalization(g, layer, v)
  return in_float32(g, v, layer.compute_dtype, function(wide) return normalize_samples(g, layer, wide) end)
end

-- ---- activations --------------------------------------------------------------------------------

function M.Activation(g, layer, v) return activations.apply(g, layer, v) end

-- ONNX keeps the factor as float32.
function M.ELU(g, layer, v)
  return g:map(v, function(x) return g:op("Elu", { x }, { alpha = { float = layer.alpha } }) end)
end

function M.LeakyReLU(g, layer, v)
  return g:map(v, function(x) return g:op("LeakyRelu", { x }, { alpha = { float = layer.negative_slope } }) end)
end

function M.ThresholdedReLU(g, layer, v)
  return g:map(v, function(x) return g:op("ThresholdedRelu", { x }, { alpha = { float = layer.theta } }) end)
end

function M.ReLU(g, layer, v)
  local slope, from = layer.negative_slope, layer.threshold
  return g:map(v, function(x)
    local y
    if from == 0 and slope == 0 then
      y = g:op("Relu", { x })
    else
      local at = g:number(from, v.dtype)
      local below = g:op("Mul", { g:op("Sub", { x, at }), g:number(slope, v.dtype) })
      y = g:op("Where", { g:op("Greater", { x, at }), x, below })
    end
    return layer.max_value and g:op("Min", { y, g:number(layer.max_value, v.dtype) }) or y
  end)
end

function M.PReLU(g, layer, v)
  return g.value(g:op("PRelu", { g:plain(v), g:weight(layer.alpha, v.dtype) }), v.shape, v.dtype)
end

local function softmax_over(g, v, axes)
  local x, list = g:plain(v), g:integers(axes)
  local e = g:op("Exp", { g:op("Sub", { x, g:op("ReduceMax", { x }, { axes = axes, keepdims = 1 }) }) })
  return g.value(g:op("Div", { e, g:op("ReduceSum", { e, list }, { keepdims = 1 }) }), v.shape, v.dtype)
end

function M.Softmax(g, layer, v)
  local axes = {}
  for i, axis in ipairs(type(layer.axis) == "table" and layer.axis or { layer.axis }) do
    axes[i] = axis < 0 and axis + #v.shape or axis - 1
  end
  if #axes == 1 then return g.value(g:op("Softmax", { g:plain(v) }, { axis = axes[1] }), v.shape, v.dtype) end
  return in_float32(g, v, v.dtype, function(wide) return softmax_over(g, wide, axes) end)
end

-- ---- shapes -------------------------------------------------------------------------------------

-- channels_first data are flattened in channels_last order.
function M.Flatten(g, layer, v)
  local x = g:plain(v)
  if images.is_first(layer) and #v.shape > 2 then
    local perm = { 0 }
    for i = 2, #v.shape - 1 do perm[i] = i end
    perm[#v.shape] = 1
    x = g:op("Transpose", { x }, { perm = perm })
  end
  return g.value(g:op("Flatten", { x }, { axis = 1 }), layer:output_shape(v.shape), v.dtype)
end

-- 0 is the size of the batch, whatever it is.
function M.Reshape(g, layer, v)
  local name = g:op("Reshape", { g:plain(v), g:integers { 0, unpack(layer.target_shape) } })
  return g.value(name, layer:output_shape(v.shape), v.dtype)
end

function M.Permute(g, layer, v)
  local perm, shape = { 0, unpack(layer.dims) }, { v.shape[1] }
  for i, d in ipairs(layer.dims) do shape[i + 1] = v.shape[d + 1] end
  return g.value(g:op("Transpose", { g:plain(v) }, { perm = perm }), shape, v.dtype)
end

return M
