--- text_cnn {vocabulary = 10000, width = 128, filters = 100, sizes = {3, 4, 5}, dropout = 0.5, classes = 2}:
--- classifies texts by convolutions over neighboring words.
-- ids {batch, steps} from 0 to vocabulary - 1 -> {batch, classes}, probabilities. Each size has `filters` convolutions,
-- and each of them counts with its largest value over the steps. Texts may have any length: their ends are padded with
-- zeros, and id 0, the usual padding, is a word like all others.
--     mgpu.models.text_cnn { classes = 5 }     -- RETURNS an uncompiled Model
-- Errors: sizes that are not distinct whole numbers from 1 on.
-- Source: Kim, Convolutional neural networks for sentence classification, 2014 (CNN-rand).
-- Example:
--     local model = mgpu.models.text_cnn { vocabulary = 10, width = 4, filters = 3, sizes = { 2, 3 }, classes = 5 }
--     -- 10 * 4, 3 * (2 * 4 + 1), 3 * (3 * 4 + 1) and 5 * (2 * 3 + 1) parameters
--     print((model:count_params()))  --> 141
--     print(unpack(model(mgpu.zeros({ 2, 7 }, { dtype = "int32" })):shape()))  --> 2 5
local core = require "mgpu.core"
local L = require "mgpu.nn.layers"
local Model = require "mgpu.nn.model"
local options = require "mgpu.options"

local TEXT_CNN = options.declare {
  { "vocabulary", "integer", default = 10000, min = 1 },
  { "width", "integer", default = 128, min = 1 },
  { "filters", "integer", default = 100, min = 1 },
  { "sizes", "integers", default = { 3, 4, 5 } },
  { "dropout", "number", default = 0.5, min = 0, below = 1 },
  { "classes", "integer", default = 2, min = 1 },
}

local function check_sizes(sizes)
  local seen, good = {}, #sizes > 0
  for _, size in ipairs(sizes) do
    good = good and size >= 1 and not seen[size]
    seen[size] = true
  end
  if not good then
    core.fail("usage", ('text_cnn: option "sizes" must be distinct numbers from 1 on, got {%s}'):format(
      table.concat(sizes, ", ")))
  end
end

return function(given)
  local chosen = options.check("text_cnn", TEXT_CNN, given == nil and {} or given)
  check_sizes(chosen.sizes)
  local ids = L.Input { { -1 }, dtype = "int32", name = "ids" }
  local words = L.Embedding { chosen.vocabulary, chosen.width, name = "token_embedding" } (ids)
  local found = {}
  for i, size in ipairs(chosen.sizes) do
    local x = L.Conv1D { chosen.filters, size, padding = "same", activation = "relu", data_format = "channels_last",
      name = "conv_" .. size } (words)
    found[i] = L.GlobalMaxPooling1D { data_format = "channels_last", name = "max_pool_" .. size } (x)
  end
  local x = #found > 1 and L.Concatenate { name = "features" } (found) or found[1]
  if chosen.dropout > 0 then x = L.Dropout { chosen.dropout, name = "dropout" } (x) end
  return Model { inputs = ids, name = "text_cnn",
    outputs = L.Dense { chosen.classes, activation = "softmax", name = "predictions" } (x) }
end
