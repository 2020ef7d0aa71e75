-- A network that learns to add: it reads "12+7" and writes "19", character by character.
--
--     mgpulua examples/seq2seq_addition.lua --help
--
-- What it teaches: a model with two inputs of sequences, states that one LSTM hands to another, one-hot data, writing
-- an answer step by step.

local mgpu = require "mgpu"
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser "Learns to add numbers written as text."
command_line.add_epochs(parser, 20)
command_line.add_count(parser, "--digits", 1, "Digits of the numbers.", "2")
command_line.add_count(parser, "--rows", 10, "Sums to learn from.", "4000")
command_line.add_count(parser, "--units", 1, "Units of the LSTMs.", "64")
local options = parser:parse()

local CHARACTERS = "0123456789+ " -- the space also begins an answer
local CLASSES = #CHARACTERS
local QUESTION, ANSWER = 2 * options.digits + 1, options.digits + 1

local function ids(text, length)
  local list = {}
  for i = 1, length do list[i] = CHARACTERS:find(text:sub(i, i) ~= "" and text:sub(i, i) or " ", 1, true) - 1 end
  return list
end

-- Texts as one-hot tensors {rows, length, classes}.
local function one_hot(texts, length)
  local rows = {}
  for i, text in ipairs(texts) do rows[i] = ids(text, length) end
  return mgpu.one_hot(mgpu.tensor(rows, { dtype = "int32" }), CLASSES)
end

local function sums(rows)
  local questions, answers, before = {}, {}, {}
  local largest = 10 ^ options.digits - 1
  for i = 1, rows do
    local a, b = math.random(0, largest), math.random(0, largest)
    questions[i], answers[i] = ("%d+%d"):format(a, b), ("%d"):format(a + b)
    before[i] = " " .. answers[i]
  end
  return questions, answers, before
end

math.randomseed(1)
mgpu.seed(1)
local questions, answers, before = sums(options.rows)
local model = mgpu.models.seq2seq { classes = CLASSES, units = options.units }
model:summary()
model:compile { optimizer = mgpu.optimizers.Adam { 5e-3 }, loss = "categorical_crossentropy", metrics = { "accuracy" } }
model:fit({ one_hot(questions, QUESTION), one_hot(before, ANSWER) }, one_hot(answers, ANSWER),
  { epochs = options.epochs, batch_size = 64, verbose = 2, validation_split = 0.1 })

-- The answers, in which each character depends on those before it.
local function answer(texts)
  local written = {}
  for i = 1, #texts do written[i] = " " end
  local x = one_hot(texts, QUESTION)
  for step = 1, ANSWER do
    local next_ids = model:predict { x, one_hot(written, ANSWER) }:argmax(-1):slice { {}, step }:totable()
    for i, id in ipairs(next_ids) do written[i] = written[i] .. CHARACTERS:sub(id + 1, id + 1) end
  end
  return written
end

local asked, right = sums(10)
for i, text in ipairs(answer(asked)) do
  print(("%s = %s (%s)"):format(asked[i], text:gsub("%s", ""), right[i]))
end
