-- A network that writes down the tones of a recording, in their order, without being told when each one sounds.
--
--     mgpulua examples/audio_ctc.lua --help
--
-- What it teaches: spectrograms as a layer of the model, the loss CTC, a label from the best class of each step.

local mgpu = require "mgpu"
local L = mgpu.layers
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser "Recognizes sequences of tones by the loss CTC."
command_line.add_epochs(parser, 12)
command_line.add_count(parser, "--rows", 10, "How many recordings to learn from.", "1000")
command_line.add_count(parser, "--tones", 1, "How many different tones there are, at most 12.", "6")
command_line.add_count(parser, "--units", 1, "Channels of the convolutions.", "32")
local options = parser:parse()
if options.tones > 12 then command_line.stop "--tones must be at most 12" end

local RATE, SAMPLES = 4000, 4096 -- samples a second, samples of a recording
local MOST = 4 -- the most tones that a recording has
local STRIDE = 128 -- samples from one step to the next

-- The samples and the label of a recording. The frequencies begin at 440 Hz, each a whole tone above the one before.
-- A tone sounds for 400 to 700 samples, with a random loudness, behind a pause of 200 to 300 samples.
local function recording()
  local random, samples, label = math.random, {}, {}
  for i = 1, SAMPLES do samples[i] = 0 end
  local at = 0
  for i = 1, random(MOST) do
    local tone, length, loudness = random(options.tones), random(400, 700), 0.3 + 0.7 * random()
    at = at + random(200, 300)
    local step = 2 * math.pi * 440 * 2 ^ ((tone - 1) / 6) / RATE
    for j = 1, length do samples[at + j] = loudness * math.sin(j * step) end
    at = at + length
    label[i] = tone
  end
  for i = #label + 1, MOST do label[i] = 0 end -- class 0 is CTC's blank and fills the rest of a label
  return samples, label
end

-- rows recordings {rows, SAMPLES} with noise, and their labels {rows, MOST}.
local function recordings(rows)
  local x, y = {}, {}
  for i = 1, rows do x[i], y[i] = recording() end
  return mgpu.tensor(x) + mgpu.randn { rows, SAMPLES } * 0.05, mgpu.tensor(y, { dtype = "int32" })
end

math.randomseed(1)
mgpu.seed(1)
local x_train, y_train = recordings(options.rows)
local x_test, y_test = recordings(math.ceil(options.rows / 5))

local model = mgpu.Sequential {
  mgpu.Input { SAMPLES },
  L.MelSpectrogram { fft_length = 256, sequence_stride = STRIDE, sampling_rate = RATE, num_mel_bins = 40,
    min_freq = 300 },
  L.Permute { { 2, 1 } }, -- {steps, bins}
  L.BatchNormalization {},
  L.Conv1D { options.units, 3, padding = "same", activation = "relu" },
  L.Conv1D { options.units, 3, padding = "same", activation = "relu" },
  L.Dense { options.tones + 1 }, -- logits of the blank and of each tone
}
model:summary()
model:compile { optimizer = mgpu.optimizers.Adam { 3e-3 }, loss = "ctc" }
model:fit(x_train, y_train, { epochs = options.epochs, batch_size = 32, verbose = 2 })

-- The text of a label, without its blanks.
local function text(label)
  local tones = {}
  for _, class in ipairs(label) do
    if class ~= 0 then tones[#tones + 1] = class end
  end
  return table.concat(tones, " ")
end

-- The label that the best classes of the steps spell: a run of equal classes counts once.
local function spelled(classes)
  local label = {}
  for step, class in ipairs(classes) do
    if class ~= classes[step - 1] then label[#label + 1] = class end
  end
  return text(label)
end

local best, labels = model:predict(x_test):argmax(-1):totable(), y_test:totable()
local right = 0
for i, classes in ipairs(best) do
  if spelled(classes) == text(labels[i]) then right = right + 1 end
end
print(("tones of the first recording: %s, recognized: %s"):format(text(labels[1]), spelled(best[1])))
print(("right sequences: %.3f"):format(right / #best))
