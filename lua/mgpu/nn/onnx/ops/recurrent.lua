--- Recurrent layers of ONNX: RNN, GRU, LSTM; see ops/init.lua.
--
-- X {steps, batch, inputs} (layout 1: batch first), W {directions, gates * hidden, inputs}, R {directions, gates *
-- hidden, hidden}, B {directions, 2 * gates * hidden}: biases of the input and of the state. The products with the
-- input are one product for all steps; the loop over the steps is mgpu.scan. Formulas: ONNX's operator documentation.
local activations = require "mgpu.nn.activations"
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"
local scan = require "mgpu.tensor.scan".scan
local values = require "mgpu.nn.onnx.values"

local ops, plain = core.ops, values.plain

local M = {}

local function fail(message, ...) core.fail("data", message:format(...)) end
local function refuse(message, ...) core.fail("unsupported", message:format(...)) end

-- ---- attributes ---------------------------------------------------------------------------------

local NAMES = { Relu = "relu", Tanh = "tanh", Sigmoid = "sigmoid", Softsign = "softsign", Softplus = "softplus" }
local WITH_DEFAULTS = { HardSigmoid = function(t) return composite.clip(t * 0.2 + 0.5, 0, 1) end }

-- The functions of a direction: those of the attribute, or the defaults.
local function functions_of(c, defaults, direction)
  local list, given = {}, c.activations
  if (c.activation_alpha or c.activation_beta) and given then refuse "activation_alpha and activation_beta" end
  for i, default in ipairs(defaults) do
    local name = given and given[(direction - 1) * #defaults + i] or default
    for known in pairs(NAMES) do if known:lower() == name:lower() then name = known end end
    list[i] = WITH_DEFAULTS[name] or NAMES[name] and activations.get(NAMES[name]) or refuse("the activation %q", name)
  end
  return list
end

-- ---- steps: (parts, x, states) -> states, the output is the first one ---------------------------

local function split(t, n) return n == 1 and { t } or composite.split(t, { n = n, axis = 2 }) end

local function bounded(c, t)
  return c.clip and composite.clip(t, -c.clip, c.clip) or t
end

local function with_state(p, h) return ops.matmul(h, p.r, { transpose_b = true }) end

local STEPS = {}

function STEPS.RNN(c, p, x, states)
  return { p.functions[1](bounded(c, x + with_state(p, states[1]) + p.state_bias)) }
end

-- The gates are z, r, h.
function STEPS.GRU(c, p, x, states)
  local h, xs = states[1], split(x, 3)
  local f, g = p.functions[1], p.functions[2]
  local function gates(hs)
    return f(bounded(c, xs[1] + hs[1])), f(bounded(c, xs[2] + hs[2]))
  end
  local z, r, candidate
  if c.linear_before_reset ~= 0 then
    local hs = split(with_state(p, h) + p.state_bias, 3)
    z, r = gates(hs)
    candidate = xs[3] + r * hs[3]
  else
    local biases = split(p.state_bias, 3)
    local hs = split(ops.matmul(h, p.r_gates, { transpose_b = true }), 2)
    z, r = gates { hs[1] + biases[1], hs[2] + biases[2] }
    candidate = xs[3] + ops.matmul(r * h, p.r_candidate, { transpose_b = true }) + biases[3]
  end
  return { (1 - z) * g(bounded(c, candidate)) + z * h }
end

-- The gates are i, o, f, c.
function STEPS.LSTM(c, p, x, states)
  local f, g, h = unpack(p.functions)
  local parts = split(x + with_state(p, states[1]) + p.state_bias, 4)
  local function gate(i, peephole, state)
    local t = parts[i]
    if peephole then t = t + peephole * state end
    return f(bounded(c, t))
  end
  local before = states[2]
  local input = gate(1, p.peepholes[1], before)
  local forget = c.input_forget ~= 0 and 1 - input or gate(3, p.peepholes[3], before)
  local after = forget * before + input * g(bounded(c, parts[4]))
  return { gate(2, p.peepholes[2], after) * h(after), after }
end

-- ---- the loop -----------------------------------------------------------------------------------

local function direction_of(t, d) return t:tensor()[d] end

-- The weights of direction d, and the products of all steps with the input.
local function parts_of(c, kind, x, w, r, b, peepholes, d)
  local n, hidden = kind.gates, c.hidden
  local p = { r = direction_of(r, d), functions = functions_of(c, kind.activations, d), peepholes = {} }
  p.x = ops.matmul(x, direction_of(w, d), { transpose_b = true })
  local size = n * hidden
  if b then
    local bias = direction_of(b, d)
    p.x = p.x + composite.slice(bias, { { 1, size } })
    p.state_bias = ops.reshape(composite.slice(bias, { { size + 1, 2 * size } }), { shape = { 1, size } })
  else
    p.state_bias = ops.full({ 1, size }, 0, x:dtype())
  end
  if kind.op == "GRU" then
    p.r_gates = composite.slice(p.r, { { 1, 2 * hidden } })
    p.r_candidate = composite.slice(p.r, { { 2 * hidden + 1, 3 * hidden } })
  end
  if peepholes then p.peepholes = composite.split(direction_of(peepholes, d), { n = 3, axis = 1 }) end
  return p
end

-- Which steps of each sequence count: {steps, batch, 1} of bool, and nil where all do.
local function mask_of(lengths, steps, batch)
  if not lengths then return nil end
  if lengths.constant then
    local all = true
    for _, n in ipairs(lengths:numbers "sequence_lens") do all = all and n == steps end
    if all then return nil end
  end
  local sizes = ops.reshape(ops.cast(lengths:tensor(), "int32"), { shape = { 1, batch, 1 } })
  return ops.lt(ops.iota({ steps, 1, 1 }, 1, "int32"), sizes)
end

-- One direction over the steps -> the outputs {steps, batch, hidden} and the last states. Steps that do not count
-- leave the states as they are, and their output is 0.
local function loop(c, kind, p, states, mask, reverse)
  local step = STEPS[kind.op]
  local last, ys = scan(function(carry, x)
    local after = step(c, p, x.x, carry)
    local output = after[1]
    if x.mask then
      for i, state in ipairs(after) do after[i] = ops.where(x.mask, state, carry[i]) end
      output = ops.where(x.mask, output, 0)
    end
    return after, output
  end, states, { x = p.x, mask = mask }, { reverse = reverse })
  return ys, last
end

local function swapped(t)
  local order = { 2, 1 }
  for i = 3, t:rank() do order[i] = i end
  return ops.permute(t, { order = order })
end

local DIRECTIONS = { forward = { false }, reverse = { true }, bidirectional = { false, true } }

-- Checks sizes, and sets c.hidden and c.directions.
local function prepare(c, kind, x, w, r)
  c.directions = DIRECTIONS[c.direction:lower()] or fail("direction = %q", c.direction)
  if x:rank() ~= 3 or w:rank() ~= 3 or r:rank() ~= 3 then fail "X, W and R have three axes" end
  c.hidden = r:shape()[3]
  if c.hidden_size and c.hidden_size ~= c.hidden then fail("hidden_size = %d, R has %d", c.hidden_size, c.hidden) end
  local size = w:shape()
  if size[1] ~= #c.directions or r:shape()[1] ~= size[1] or size[2] ~= kind.gates * c.hidden
    or r:shape()[2] ~= size[2] then
    fail "W and R do not fit the direction and the hidden size"
  end
end

-- The states that are given, {directions, batch, hidden}, or zeros, for direction d.
local function first_states(c, given, n, d, batch, dtype)
  local list = {}
  for i = 1, n do
    local v = given[i]
    if v then
      local t = v:tensor()
      list[i] = (c.layout == 1 and swapped(t) or t)[d]
    else
      list[i] = ops.full({ batch, c.hidden }, 0, dtype)
    end
  end
  return list
end

local function run(c, kind, x, w, r, b, lengths, given, peepholes)
  prepare(c, kind, x, w, r)
  local t = c.layout == 1 and swapped(x:tensor()) or x:tensor()
  local shape, outputs, lasts = t:shape(), {}, {}
  local mask = mask_of(lengths, shape[1], shape[2])
  for d, reverse in ipairs(c.directions) do
    local p = parts_of(c, kind, t, w, r, b, peepholes, d)
    local ys, last = loop(c, kind, p, first_states(c, given, kind.states, d, shape[2], t:dtype()), mask, reverse)
    outputs[d] = ys
    for i, state in ipairs(last) do
      lasts[i] = lasts[i] or {}
      lasts[i][d] = state
    end
  end
  local y = composite.stack(outputs, { axis = 2 }) -- {steps, directions, batch, hidden}
  if c.layout == 1 then y = ops.permute(y, { order = { 3, 1, 2, 4 } }) end
  local results = { plain(y) }
  for i, list in ipairs(lasts) do
    local state = composite.stack(list, { axis = 1 })
    results[i + 1] = plain(c.layout == 1 and swapped(state) or state)
  end
  return unpack(results)
end

local ATTRIBUTES = ' | activation_alpha:floats? activation_beta:floats? activations:texts? clip:float? '
  .. 'direction:text="forward" hidden_size:int? layout:int=0'

local RNN = { op = "RNN", gates = 1, states = 1, activations = { "Tanh" } }
local GRU = { op = "GRU", gates = 3, states = 1, activations = { "Sigmoid", "Tanh" } }
local LSTM = { op = "LSTM", gates = 4, states = 2, activations = { "Sigmoid", "Tanh", "Tanh" } }

M.RNN = { "3-6" .. ATTRIBUTES, function(c, x, w, r, b, lengths, h)
  return run(c, RNN, x, w, r, b, lengths, { h })
end }
M.GRU = { "3-6" .. ATTRIBUTES .. " linear_before_reset:int=0", function(c, x, w, r, b, lengths, h)
  return run(c, GRU, x, w, r, b, lengths, { h })
end }
M.LSTM = { "3-8" .. ATTRIBUTES .. " input_forget:int=0", function(c, x, w, r, b, lengths, h, state, peepholes)
  return run(c, LSTM, x, w, r, b, lengths, { h, state }, peepholes)
end }

return M
