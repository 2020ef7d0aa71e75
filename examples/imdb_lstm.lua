-- An LSTM that tells good reviews from bad ones.
--
--     mgpulua examples/imdb_lstm.lua --help
--
-- What it teaches: sequences of different lengths, padded with 0 and masked by Embedding; Bidirectional; own data.

local mgpu = require "mgpu"
local L = mgpu.layers
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser "Tells good reviews from bad ones by an LSTM."
parser:option("--data", "imdb: 50,000 reviews of films, which are downloaded; synthetic: made-up reviews.", "synthetic")
  :choices { "imdb", "synthetic" }
command_line.add_epochs(parser, 3)
command_line.add_count(parser, "--words", 20, "How many different words are known.", "2000")
command_line.add_count(parser, "--length", 4, "Words of a review; longer ones are cut.", "40")
command_line.add_count(parser, "--units", 1, "Units of the LSTM in each direction.", "16")
command_line.add_count(parser, "--rows", 10, "How many made-up reviews.", "2000")
local options = parser:parse()

-- Made-up reviews: the words 1 to 9 are good, 10 to 19 bad, all others say nothing. A review is good if it has more
-- good words than bad ones. It has at least a quarter of the length; the rest is 0.
local function made_up(rows)
  local random, x, y = math.random, {}, {}
  for row = 1, rows do
    local good, words = 0, {}
    local last = random(math.ceil(options.length / 4), options.length)
    for i = 1, options.length do
      local word = i <= last and (random() < 0.4 and random(1, 19) or random(20, options.words - 1)) or 0
      if word > 0 and word < 20 then good = good + (word < 10 and 1 or -1) end
      words[i] = word
    end
    x[row], y[row] = words, good > 0 and 1 or 0
  end
  return { x = mgpu.tensor(x, { dtype = "int32" }), y = mgpu.tensor(y, { dtype = "int32" }) }
end

math.randomseed(1)
mgpu.seed(1)
local train, test
if options.data == "imdb" then
  train, test = mgpu.datasets.imdb.load_data { num_words = options.words, length = options.length }
else
  train, test = made_up(options.rows), made_up(math.ceil(options.rows / 5))
end

local model = mgpu.Sequential {
  mgpu.Input { { options.length }, dtype = "int32" },
  L.Embedding { options.words, 32, mask_zero = true },
  L.Bidirectional { L.LSTM { options.units } },
  L.Dense { 1, activation = "sigmoid" },
}
model:summary()
model:compile { optimizer = mgpu.optimizers.Adam { 5e-3 }, loss = "binary_crossentropy", metrics = { "accuracy" } }
model:fit(train.x, train.y, { epochs = options.epochs, batch_size = 64, verbose = 2,
  validation_data = { test.x, test.y } })
print(("test accuracy %.3f"):format(model:evaluate(test.x, test.y, { verbose = 0 }).accuracy))
