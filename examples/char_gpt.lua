-- A small GPT that learns the manual of mgpulua, character by character, and writes like it.
--
--     mgpulua examples/char_gpt.lua --help
--
-- What it teaches: texts as ids, windows over a long text, a loss of logits, writing from a trained model.

local mgpu = require "mgpu"
local here = arg[0]:match "^.*/" or ""
local command_line = dofile(here .. "common/command_line.lua")

local parser = command_line.parser "Learns the manual of mgpulua and writes like it."
command_line.add_epochs(parser, 3)
command_line.add_count(parser, "--steps", 1, "Batches of an epoch.", "200")
command_line.add_count(parser, "--context", 2, "Characters that the model sees.", "128")
command_line.add_count(parser, "--width", 4, "Width of the model, a multiple of 4.", "128")
command_line.add_count(parser, "--layers", 1, "Blocks of the model.", "4")
command_line.add_count(parser, "--samples", 1, "Texts to print at the end.", "2")
local options = parser:parse()
if options.width % 4 ~= 0 then command_line.stop "--width must be a multiple of 4, the number of heads" end

local PAGES = { "getting_started", "training", "models", "data", "own_code", "tensors", "saving", "devices" }
local BATCH, HEADS = 16, 4

local texts = {}
for i, name in ipairs(PAGES) do
  local path = here .. "../lua/manual/" .. name .. ".md"
  local file = io.open(path) or command_line.stop("there is no page " .. path)
  texts[i] = file:read "*a"
  file:close()
end
local text = table.concat(texts)

-- A character is a byte; those of the text are numbered in the order in which they appear.
local id_of, byte_of, ids = {}, {}, {}
for i = 1, #text do
  local byte = text:byte(i)
  if not id_of[byte] then
    byte_of[#byte_of + 1] = byte
    id_of[byte] = #byte_of - 1
  end
  ids[i] = id_of[byte]
end

-- Windows {rows, context} of the text and, one character later, what is to be predicted.
mgpu.seed(1)
local all = mgpu.tensor(ids, { dtype = "int32" })
local rows = options.steps * BATCH
local starts = mgpu.randint(0, #ids - options.context - 1, { rows, 1 })
local places = starts:to "int32" + mgpu.arange(options.context):to "int32"
local x, y = mgpu.gather(all, places), mgpu.gather(all, places + 1)

local model = mgpu.models.gpt { vocabulary = #byte_of, context = options.context, width = options.width,
  layers = options.layers, heads = HEADS }
model:summary()
model:compile { optimizer = mgpu.optimizers.AdamW { 1e-3 },
  loss = mgpu.losses.SparseCategoricalCrossentropy { from_logits = true } }
model:fit(x, y, { epochs = options.epochs, batch_size = BATCH, verbose = 2 })

for sample = 1, options.samples do
  local written = mgpu.models.gpt.generate(model, { id_of[("\n"):byte()] },
    { max_new_tokens = options.context - 1, temperature = 0.8, top_k = 20, seed = sample })
  for i, id in ipairs(written) do written[i] = string.char(byte_of[id + 1]) end
  print(("sample %d: %s"):format(sample, table.concat(written)))
end
