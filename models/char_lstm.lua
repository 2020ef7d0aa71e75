--- char_lstm {classes = 128, units = 128, layers = 2, embedding = 32, dropout = 0}: predicts the next
--- character.
-- ids {batch, steps} of whole numbers from 0 to classes - 1 -> {batch, steps, classes}, the probabilities of the next
-- id behind each step.
--     mgpu.models.char_lstm { classes = 96 }     -- RETURNS an uncompiled Sequential
-- Example:
--     local model = mgpu.models.char_lstm { classes = 10, units = 8, layers = 1, embedding = 4 }
--     -- 10 * 4, 4 * 8 * (4 + 8 + 1) and 8 * 10 + 10 parameters
--     print((model:count_params()))  --> 546
--     print(unpack(model(mgpu.zeros({ 2, 5 }, { dtype = "int32" })):shape()))  --> 2 5 10
local mgpu = require "mgpu"
local options = require "mgpu.options"
local L = mgpu.layers

local CHAR_LSTM = options.declare {
  { "classes", "integer", default = 128, min = 1 },
  { "units", "integer", default = 128, min = 1 },
  { "layers", "integer", default = 2, min = 1 },
  { "embedding", "integer", default = 32, min = 1 },
  { "dropout", "number", default = 0, min = 0, below = 1 },
}

return function(given)
  local chosen = options.check("char_lstm", CHAR_LSTM, given == nil and {} or given)
  local parts = { name = "char_lstm", L.Input { { -1 }, dtype = "int32" },
    L.Embedding { chosen.classes, chosen.embedding } }
  for _ = 1, chosen.layers do
    parts[#parts + 1] = L.LSTM { chosen.units, return_sequences = true, dropout = chosen.dropout }
  end
  parts[#parts + 1] = L.Dense { chosen.classes, activation = "softmax" }
  return mgpu.Sequential(parts)
end
