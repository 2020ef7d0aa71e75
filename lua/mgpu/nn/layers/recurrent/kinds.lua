--- The cells of Keras: SimpleRNNCell, LSTMCell, GRUCell, StackedRNNCells. Recurrent layers run them over sequences.
-- RETURNS the classes by name, and the options of each for the layer with its name.
local cells = require "mgpu.nn.layers.recurrent.cells"
local core = require "mgpu.core"
local gates = require "mgpu.nn.layers.recurrent.gates"
local Layer = require "mgpu.nn.layer"

local ops = core.ops
local M = {}

local UNITS = { "units", "integer", min = 1, required = true }
local TANH = { "activation", "activation", default = "tanh" }
local SIGMOID = { "recurrent_activation", "activation", default = "sigmoid" }

--- Own options of the cell, by its name: functions that return a new list.
M.OPTIONS = {
  SimpleRNN = function() return gates.options { positional = 1, UNITS, TANH } end,
  LSTM = function()
    return gates.options({ positional = 1, UNITS, TANH, SIGMOID },
      { { "unit_forget_bias", "boolean", default = true } })
  end,
  GRU = function()
    return gates.options({ positional = 1, UNITS, TANH, SIGMOID }, { { "reset_after", "boolean", default = true } })
  end,
}

-- ---- SimpleRNNCell ------------------------------------------------------------------------------

--- SimpleRNNCell {units, activation = "tanh", use_bias = true, ...}: one step of a fully connected recurrent network.
-- {x, h} -> {h', h'}, h' = activation(x W + h U + b); x {batch, features}, h {batch, units}; without h it is 0.
-- Weights: kernel W {features, units}, recurrent_kernel U {units, units}, bias b {units}. Options: as SimpleRNN.
-- Example:
--     local cell = L.SimpleRNNCell { 4 }
--     local output, state = unpack(cell { mgpu.ones { 2, 3 }, mgpu.zeros { 2, 4 } })
--     print(unpack(state:shape()))  --> 2 4
local SimpleRNNCell = gates.define("SimpleRNNCell", 1, M.OPTIONS.SimpleRNN())
M.SimpleRNNCell = SimpleRNNCell

function SimpleRNNCell.in_loop:step(x, states, constants)
  local h = self.activate(x + gates.product(states[1], self.recurrent_kernel, constants.recurrent))
  return h, { h }
end

-- ---- LSTMCell -----------------------------------------------------------------------------------

--- LSTMCell {units, activation = "tanh", recurrent_activation = "sigmoid", use_bias = true, unit_forget_bias = true,
-- ...}
-- One step of a long short-term memory. {x, h, c} -> {h', h', c'}: with the gates i, f, o = recurrent_activation(x W +
-- h U + b) and g = activation(...), c' = f c + i g, h' = o activation(c'). Without states they are 0.
-- Weights: kernel {features, 4 units}, recurrent_kernel {units, 4 units}, bias {4 units}, in the order i, f, g, o.
-- Options: as LSTM. Source: Hochreiter and Schmidhuber, Long short-term memory, 1997.
-- Example:
--     local cell = L.LSTMCell { 4 }
--     local output, h, c = unpack(cell { mgpu.ones { 2, 3 }, mgpu.zeros { 2, 4 }, mgpu.zeros { 2, 4 } })
--     print(unpack(c:shape()))  --> 2 4
local LSTMCell = gates.define("LSTMCell", 4, M.OPTIONS.LSTM())
M.LSTMCell = LSTMCell

function LSTMCell.in_loop:state_shapes() return { { self.units }, { self.units } } end

function LSTMCell.in_loop:step(x, states, constants)
  local z = x + gates.product(states[1], self.recurrent_kernel, constants.recurrent)
  local i, f, g, o = unpack(z:split(4, -1))
  local c = self.gate(f) * states[2] + self.gate(i) * self.activate(g)
  local h = self.gate(o) * self.activate(c)
  return h, { h, c }
end

-- ---- GRUCell ------------------------------------------------------------------------------------

--- GRUCell {units, activation = "tanh", recurrent_activation = "sigmoid", use_bias = true, reset_after = true, ...}
-- One step of a gated recurrent unit. {x, h} -> {h', h'}: h' = z h + (1 - z) g, with the gates z (update), r (reset)
-- and g = activation(x W + r (h U + b)), or, with reset_after = false, g = activation(x W + (r h) U + b).
-- Weights: kernel {features, 3 units}, recurrent_kernel {units, 3 units}, bias {2, 3 units} (of the input and of the
-- state), or {3 units} with reset_after = false; in the order z, r, g. Options: as GRU.
-- Source: Cho et al., Learning phrase representations, 2014.
-- Example:
--     local cell = L.GRUCell { 4 }
--     local output, h = unpack(cell { mgpu.ones { 2, 3 }, mgpu.zeros { 2, 4 } })
--     print(unpack(cell.bias:shape()))  --> 2 12
local GRUCell = gates.define("GRUCell", 3, M.OPTIONS.GRU())
M.GRUCell = GRUCell

function GRUCell.in_loop:bias_shape(n) return self.reset_after and { 2, n } or { n } end

function GRUCell.in_loop:input_bias() return self.reset_after and self.bias[1] or self.bias end

function GRUCell.in_loop:draw(shape, dtype, training)
  local constants = gates.draw(self, shape, dtype, training)
  if self.reset_after then
    constants.bias = self.bias and self.bias[2]
  else
    local kernel, units = self.recurrent_kernel, self.units
    constants.gates, constants.candidate = kernel:slice { {}, { 1, 2 * units } },
      kernel:slice { {}, { 2 * units + 1, 3 * units } }
  end
  return constants
end

-- The kernels' products where the state is reset before them.
local function reset_before(self, x, h, constants)
  local masks, xs = constants.recurrent, x:split(3, -1)
  local z, r = unpack(gates.product(h, constants.gates, masks and { masks[1], masks[2] }):split(2, -1))
  z, r = self.gate(xs[1] + z), self.gate(xs[2] + r)
  return z, self.activate(xs[3] + ops.matmul(r * (masks and h * masks[3] or h), constants.candidate))
end

function GRUCell.in_loop:step(x, states, constants)
  local h, z, g = states[1]
  if self.reset_after then
    local inner = gates.product(h, self.recurrent_kernel, constants.recurrent)
    if constants.bias then inner = inner + constants.bias end
    local xs, hs = x:split(3, -1), inner:split(3, -1)
    z = self.gate(xs[1] + hs[1])
    g = self.activate(xs[3] + self.gate(xs[2] + hs[2]) * hs[3])
  else
    z, g = reset_before(self, x, h, constants)
  end
  h = z * h + (1 - z) * g
  return h, { h }
end

-- ---- StackedRNNCells ----------------------------------------------------------------------------

--- StackedRNNCells {cells}: cells one above the other as one cell; each gets the output of the one below.
-- {x, state, ...} -> {output, state, ...}, with the states of the first cell first.
-- Example:
--     local cell = L.StackedRNNCells { { L.LSTMCell { 8 }, L.GRUCell { 4 } } }
--     local rnn = L.RNN { cell, return_state = true }
--     local y = rnn(mgpu.ones { 2, 5, 3 })
--     -- the output, h and c of the LSTM, h of the GRU
--     print(#y, unpack(y[1]:shape()))  --> 4 2 4
local StackedRNNCells = Layer:extend("StackedRNNCells", { positional = 1, { "cells", "layers", required = true } })
M.StackedRNNCells, StackedRNNCells.in_loop = StackedRNNCells, {}

function StackedRNNCells:init()
  if #self.cells == 0 then self:fail("needs at least one cell") end
  for i, cell in ipairs(self.cells) do
    if not cells.is_cell(cell) then
      self:fail("entry %d, %s, is not a cell: it has no state_size", i, tostring(cell))
    end
  end
end

function StackedRNNCells:build(shape)
  if type(shape[1]) == "table" then shape = shape[1] end
  for _, cell in ipairs(self.cells) do
    cell:ensure_built(shape)
    shape = { shape[1], unpack(cells.output_shape(cell)) }
  end
end

function StackedRNNCells.in_loop:state_shapes()
  local list = {}
  for _, cell in ipairs(self.cells) do
    for _, shape in ipairs(cells.state_shapes(cell)) do list[#list + 1] = shape end
  end
  return list
end

function StackedRNNCells.computed.output_size(self) return cells.output_shape(self.cells[#self.cells]) end

function StackedRNNCells:output_shape(shape) return cells.shapes_of_call(self, shape) end

function StackedRNNCells.in_loop:draw(shape, dtype, training)
  local list = {}
  for i, cell in ipairs(self.cells) do
    list[i] = cells.draw(cell, shape, dtype, training)
    shape = { shape[1], unpack(cells.output_shape(cell)) }
  end
  return list
end

function StackedRNNCells.in_loop:project(x, constants) return cells.project(self.cells[1], x, constants[1]) end

function StackedRNNCells.in_loop:step(x, states, constants)
  local after, first = {}, 1
  for i, cell in ipairs(self.cells) do
    local n = #cells.state_shapes(cell)
    if i > 1 then x = cells.project(cell, x, constants[i]) end
    local own
    x, own = cells.step(cell, x, { unpack(states, first, first + n - 1) }, constants[i])
    for _, state in ipairs(own) do after[#after + 1] = state end
    first = first + n
  end
  return x, after
end

function StackedRNNCells:call(x, training) return cells.call(self, x, training) end

return M
