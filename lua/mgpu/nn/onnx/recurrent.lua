--- Recurrent layers as the ops LSTM, GRU and RNN of ONNX. Masks and states that stay have no place there.
local core = require "mgpu.core"

local ops = core.ops
local M = {}

-- Our activations by ONNX's names; those with parameters are not among them.
local ACTIVATIONS = { tanh = "Tanh", sigmoid = "Sigmoid", relu = "Relu", softsign = "Softsign", softplus = "Softplus" }

-- class -> op: its name; order: which of our gates comes at each place; functions: the options with the activations;
-- states: how many.
local ROWS = {
  SimpleRNN = { op = "RNN", order = { 1 }, functions = { "activation" }, states = 1 },
  LSTM = { op = "LSTM", order = { 1, 4, 2, 3 }, functions = { "recurrent_activation", "activation", "activation" },
    states = 2 },
  GRU = { op = "GRU", order = { 1, 2, 3 }, functions = { "recurrent_activation", "activation" }, states = 1 },
}

-- t {..., gates * units} with its gates in ONNX's order.
local function reordered(t, order)
  local rank, ranges, list = t:rank(), {}, {}
  local units = t:shape()[rank] / #order
  for axis = 1, rank do ranges[axis] = {} end
  for i, from in ipairs(order) do
    ranges[rank] = { (from - 1) * units + 1, from * units }
    list[i] = t:slice(ranges)
  end
  return ops.concat(list, { axis = -1 })
end

-- The constants W, R and B: a kernel {inputs, gates * units} is {1, gates * units, inputs} there; B holds the biases of
-- inputs and state.
local function weights_of(g, cell, row, dtype)
  local function kernel(t) return reordered(t, row.order):transpose():expand_dims(1) end
  local function bias(t)
    t = reordered(t, row.order)
    if t:rank() == 1 then t = ops.concat({ t, t * 0 }, { axis = 1 }) end
    return t:reshape { 1, -1 }
  end
  return g:weight(cell.kernel, dtype, "W", kernel), g:weight(cell.recurrent_kernel, dtype, "R", kernel),
    cell.bias and g:weight(cell.bias, dtype, "B", bias) or ""
end

local function activations_of(layer, row)
  local list = {}
  for i, option in ipairs(row.functions) do
    list[i] = ACTIVATIONS[layer[option] or "linear"]
      or layer:fail("%s = %s has no form in ONNX's recurrent ops: such a layer cannot be saved as .onnx", option,
        tostring(layer[option]))
  end
  return list
end

-- The op for a layer over v. RETURNS the names of all outputs, with the steps in their order in x or, with `as_keras`,
-- in the layer's order, and of the last states.
local function run(g, layer, v, states, as_keras)
  local row, dtype = ROWS[layer.class_name], v.dtype
  if not row then layer:fail "ONNX has no op for this class: such a layer cannot be saved as .onnx" end
  if layer.stateful then layer:fail "it is stateful, for which a .onnx file has no place" end
  local axis = g:integers { 0 }
  local w, r, b = weights_of(g, layer.cell, row, dtype)
  local inputs = { g:op("Transpose", { g:plain(v) }, { perm = { 1, 0, 2 } }), w, r, b }
  if #states > 0 then inputs[5] = "" end
  for i, state in ipairs(states) do inputs[5 + i] = g:op("Unsqueeze", { g:plain(g:cast(state, dtype)), axis }) end
  local attributes = { hidden_size = layer.units, direction = layer.go_backwards and "reverse" or "forward",
    activations = activations_of(layer, row) }
  if row.op == "GRU" then attributes.linear_before_reset = layer.reset_after and 1 or 0 end
  local outputs = g:ops(row.op, inputs, attributes, 1 + row.states)
  local all = g:op("Transpose", { g:op("Squeeze", { outputs[1], g:integers { 1 } }) }, { perm = { 1, 0, 2 } })
  if as_keras and layer.go_backwards then
    all = g:op("Slice", { all, g:integers { -1 }, g:integers { -2147483648 }, g:integers { 1 }, g:integers { -1 } })
  end
  local last = {}
  for i = 1, row.states do last[i] = g:op("Squeeze", { outputs[1 + i], axis }) end
  return all, last
end

-- fn(x, states) for the inputs of a layer, in float32 where its dtype is a half type: onnxruntime has these ops for no
-- other.
local function with_inputs(g, layer, vs, fn)
  local listed = vs[1] ~= nil
  local x, states = listed and vs[1] or vs, listed and { unpack(vs, 2) } or {}
  if x.dtype ~= "float64" then x = g:cast(x, "float32") end
  local names, shapes = fn(x, states), { layer:output_shape(x.shape) }
  if layer.return_state or type(shapes[1][1]) == "table" then shapes = shapes[1] end
  for i, name in ipairs(names) do names[i] = g:cast(g.value(name, shapes[i], x.dtype), layer.compute_dtype) end
  return unpack(names)
end

for class in pairs(ROWS) do
  M[class] = function(g, layer, vs)
    return with_inputs(g, layer, vs, function(x, states)
      local all, last = run(g, layer, x, states, true)
      local names = { layer.return_sequences and all or last[1] }
      for _, state in ipairs(layer.return_state and last or {}) do names[#names + 1] = state end
      return names
    end)
  end
end

local MERGE = {
  concat = function(g, a, b) return g:op("Concat", { a, b }, { axis = -1 }) end,
  sum = function(g, a, b) return g:op("Add", { a, b }) end,
  mul = function(g, a, b) return g:op("Mul", { a, b }) end,
  ave = function(g, a, b) return g:op("Mean", { a, b }) end,
}

function M.Bidirectional(g, layer, vs)
  local forward, backward = layer.forward_layer, layer.backward_layer
  return with_inputs(g, layer, vs, function(x, states)
    local half = #states / 2
    local all, last = run(g, forward, x, { unpack(states, 1, half) })
    local other, first = run(g, backward, x, { unpack(states, half + 1) })
    local a, b = forward.return_sequences and all or last[1], forward.return_sequences and other or first[1]
    local names = layer.merge_mode == "none" and { a, b } or { MERGE[layer.merge_mode](g, a, b) }
    for _, list in ipairs(forward.return_state and { last, first } or {}) do
      for _, state in ipairs(list) do names[#names + 1] = state end
    end
    return names
  end)
end

return M
