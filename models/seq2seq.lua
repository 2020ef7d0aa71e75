--- seq2seq {classes = 128, output_classes = classes, units = 128}: an LSTM reads a sequence, another one writes an
--- answer from its states.
-- Inputs, one-hot: encoder_inputs {batch, steps, classes} and decoder_inputs {batch, steps', output_classes}, the
-- answer one step later, so that each step gets the one before it. Output {batch, steps', output_classes}: the
-- probabilities of each step of the answer.
--     mgpu.models.seq2seq { classes = 12 }     -- RETURNS an uncompiled Model
-- Source: Sutskever et al., Sequence to sequence learning, 2014; Keras's example lstm_seq2seq.
-- Example:
--     local model = mgpu.models.seq2seq { classes = 5, units = 8 }
--     -- two LSTMs of 4 * 8 * (5 + 8 + 1) and 8 * 5 + 5 parameters
--     print((model:count_params()))  --> 941
--     print(unpack(model { mgpu.zeros { 2, 7, 5 }, mgpu.zeros { 2, 3, 5 } }:shape()))  --> 2 3 5
local mgpu = require "mgpu"
local options = require "mgpu.options"
local L = mgpu.layers

local SEQ2SEQ = options.declare {
  { "classes", "integer", default = 128, min = 1 },
  { "output_classes", "integer", min = 1 },
  { "units", "integer", default = 128, min = 1 },
}

return function(given)
  local chosen = options.check("seq2seq", SEQ2SEQ, given == nil and {} or given)
  local answers = chosen.output_classes or chosen.classes
  local question = mgpu.Input { shape = { -1, chosen.classes }, name = "encoder_inputs" }
  local before = mgpu.Input { shape = { -1, answers }, name = "decoder_inputs" }
  local _, h, c = unpack(L.LSTM { chosen.units, return_state = true, name = "encoder" } (question))
  local y = L.LSTM { chosen.units, return_sequences = true, name = "decoder" } { before, h, c }
  return mgpu.Model { name = "seq2seq", inputs = { question, before },
    outputs = L.Dense { answers, activation = "softmax", name = "answer" } (y) }
end
