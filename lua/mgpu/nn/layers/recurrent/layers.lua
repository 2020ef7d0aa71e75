--- The recurrent layers of one cell: SimpleRNN, LSTM, GRU.
--
-- Options of all three: use_bias = true, kernel_initializer = "glorot_uniform", recurrent_initializer = "orthogonal",
-- bias_initializer = "zeros", kernel_regularizer, recurrent_regularizer, bias_regularizer, activity_regularizer,
-- kernel_constraint, recurrent_constraint, bias_constraint; dropout = 0 and recurrent_dropout = 0, the parts of the
-- inputs and of the state that training drops, the same ones in all steps of a batch; seed; and those of RNN. use_cudnn
-- is accepted and changes nothing.
-- RETURNS the classes by name.
local kinds = require "mgpu.nn.layers.recurrent.kinds"
local RNN = require "mgpu.nn.layers.recurrent.rnn"

local M = {}

local function options_of(name)
  local list = kinds.OPTIONS[name]()
  if name ~= "SimpleRNN" then list[#list + 1] = { "use_cudnn", "boolean|string", default = "auto" } end
  return list
end

--- SimpleRNN {units, activation = "tanh", return_sequences = false, ...}: a fully connected recurrent network.
-- x {batch, steps, features} -> {batch, units}, or {batch, steps, units} with return_sequences: in each step h =
-- activation(x W + h U + b). Weights: kernel W {features, units}, recurrent_kernel U {units, units}, bias b {units}.
-- Options: use_bias, initializers, regularizers and constraints of the weights, dropout, recurrent_dropout, seed, and
-- those of RNN: masks, states, stateful. Errors: as RNN.
-- Example:
--     local rnn = L.SimpleRNN { 4, return_sequences = true }
--     print(unpack(rnn(mgpu.ones { 2, 5, 3 }):shape()))  --> 2 5 4
--     print((rnn:count_params()))  --> 32
M.SimpleRNN = RNN.of_cell("SimpleRNN", kinds.SimpleRNNCell, options_of "SimpleRNN")

--- LSTM {units, activation = "tanh", recurrent_activation = "sigmoid", return_sequences = false, ...}
-- Long short-term memory. x {batch, steps, features} -> {batch, units}, or {batch, steps, units} with
-- return_sequences; with return_state {output, h, c}. Formula and weights: LSTMCell.
-- Options: unit_forget_bias = true (the bias of the forget gate begins with 1), use_bias, initializers, regularizers
-- and constraints of the weights, dropout, recurrent_dropout, seed, and those of RNN: masks, states, stateful.
-- Errors: as RNN. Source: Hochreiter and Schmidhuber, Long short-term memory, 1997.
-- Example:
--     local lstm = L.LSTM { 4, return_state = true }
--     local y, h, c = unpack(lstm(mgpu.ones { 2, 5, 3 }))
--     print(y:eq(h):all():item(), unpack(c:shape()))  --> true 2 4
--     -- goes on from these states
--     print(unpack(lstm { mgpu.ones { 2, 5, 3 }, h, c }[1]:shape()))  --> 2 4
M.LSTM = RNN.of_cell("LSTM", kinds.LSTMCell, options_of "LSTM")

--- GRU {units, activation = "tanh", recurrent_activation = "sigmoid", reset_after = true, ...}
-- Gated recurrent unit. x {batch, steps, features} -> {batch, units}, or {batch, steps, units} with return_sequences;
-- with return_state {output, h}. Formula and weights: GRUCell.
-- Options: use_bias, initializers, regularizers and constraints of the weights, dropout, recurrent_dropout, seed, and
-- those of RNN: masks, states, stateful. Errors: as RNN. Source: Cho et al., Learning phrase representations, 2014.
-- Example:
--     local gru = L.GRU { 4, reset_after = false }
--     print(unpack(gru(mgpu.ones { 2, 5, 3 }):shape()))  --> 2 4
--     print((gru:count_params()))  --> 96
M.GRU = RNN.of_cell("GRU", kinds.GRUCell, options_of "GRU")

return M
