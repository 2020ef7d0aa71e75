--- TensorBoardEmbedding {log_dir = "logs", embeddings_freq = 1, embeddings_layer_names =, embeddings_metadata =, ...}:
--- TensorBoard that writes the tables of Embedding layers after every epoch, as the callback of keras_experiments does.
--
-- embeddings_layer_names: an array of names of layers; without it all. Other options and errors: tensor_board.lua.
-- Example:
--     local words = L.Embedding { 10, 4, name = "words" }
--     local model = mgpu.Sequential { mgpu.Input { 3 }, words, L.Flatten {}, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     model:fit(mgpu.randint(0, 10, { 64, 3 }), mgpu.rand { 64, 1 }, { verbose = 0,
--       callbacks = mgpu.callbacks.TensorBoardEmbedding { "logs", embeddings_layer_names = { "words" } } })
--     print(io.open "logs/projector_config.pbtxt" ~= nil)  --> true
local TensorBoard = require "mgpu.train.callbacks.tensor_board"

local declared = { positional = TensorBoard.declared.positional }
for i, option in ipairs(TensorBoard.declared) do
  declared[i] = option[1] == "embeddings_freq" and { "embeddings_freq", "integer", default = 1, min = 0 } or option
end

return TensorBoard:extend("TensorBoardEmbedding", declared)
