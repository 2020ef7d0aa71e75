--- TensorBoardEmbedding {log_dir = "logs", embeddings_freq = 1, embeddings_layer_names =, embeddings_metadata =, ...}:
--- TensorBoard that writes the tables of Embedding layers after every epoch, as the callback of keras_experiments does.
--
-- embeddings_layer_names: an array of names of layers; without it all. Other options and errors: tensor_board.lua.
local TensorBoard = require "mgpu.train.callbacks.tensor_board"

local declared = { positional = TensorBoard.declared.positional }
for i, option in ipairs(TensorBoard.declared) do
  declared[i] = option[1] == "embeddings_freq" and { "embeddings_freq", "integer", default = 1, min = 0 } or option
end

return TensorBoard:extend("TensorBoardEmbedding", declared)
