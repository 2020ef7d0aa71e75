-- The recurrent models of mgpu.models: sizes, a step of training, files.
local check = require "check"
local mgpu = require "mgpu"

local test = check.test

local function ids(rows, steps, classes)
  return (mgpu.rand { rows, steps } * classes):floor():to "int32"
end

test("char_lstm has the parameters of its layers, learns, and comes back from a file", function()
  mgpu.seed(1)
  local model = mgpu.models.char_lstm { classes = 7, units = 6, embedding = 3, dropout = 0.1 }
  -- by Keras: 7 * 3, 4 * 6 * (3 + 6 + 1), 4 * 6 * (6 + 6 + 1), 6 * 7 + 7
  check.equal((model:count_params()), 21 + 240 + 312 + 49)
  local x = ids(8, 5, 7)
  model:compile { optimizer = mgpu.optimizers.Adam { 0.05 }, loss = "sparse_categorical_crossentropy" }
  local history = model:fit(x, x, { epochs = 40, verbose = 0 })
  check.truthy(history.history.loss[40] < history.history.loss[1] * 0.8, "the loss falls")
  model:save(check.path "c.keras")
  check.near((mgpu.load_model(check.path "c.keras"):predict(x) - model:predict(x)):abs():max(), 0, 1e-6)
end)

test("seq2seq has the parameters of its layers, learns, and comes back from a file", function()
  mgpu.seed(1)
  local model = mgpu.models.seq2seq { classes = 5, output_classes = 4, units = 6 }
  -- 4 * 6 * (5 + 6 + 1), 4 * 6 * (4 + 6 + 1), 6 * 4 + 4
  check.equal((model:count_params()), 288 + 264 + 28)
  local question, answer = ids(8, 6, 5):one_hot(5), ids(8, 3, 4):one_hot(4)
  model:compile { optimizer = mgpu.optimizers.Adam { 0.05 }, loss = "categorical_crossentropy" }
  local history = model:fit({ question, answer }, answer, { epochs = 10, verbose = 0 })
  check.truthy(history.history.loss[10] < history.history.loss[1] * 0.8, "the loss falls")
  model:save(check.path "s.keras")
  local again = mgpu.load_model(check.path "s.keras")
  check.near((again:predict { question, answer } - model:predict { question, answer }):abs():max(), 0, 1e-6)
end)
