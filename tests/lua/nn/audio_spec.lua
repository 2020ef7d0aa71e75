-- Fourier transforms and spectrograms against Keras: golden/audio, by golden/make_audio.py.
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local L, test = mgpu.layers, check.test
local FOLDER = "tests/golden/audio/"

-- float32 on both sides, whose sums have other orders; near a zero the decibels and angles of both are rounding.
local function same(got, expected, tolerance)
  check.equal(table.concat(got:shape(), ","), table.concat(expected:shape(), ","))
  check.near((got - expected):abs():max():item(), 0, tolerance)
end

local function golden() return mgpu.load(FOLDER .. "expected.safetensors") end

test("rfft, stft and istft compute what those of Keras compute", function()
  local data = golden()
  local x, samples = data.signal, 300
  same(x:rfft(), data.rfft, 1e-4)
  same(mgpu.concat({ x, mgpu.zeros { 2, 20 } }, { axis = 2 }):rfft(), data.rfft_padded, 1e-4)
  same(x:slice { {}, { 1, 99 } }:rfft(), data.rfft_cut, 1e-4)
  same(x:rfft():irfft(samples), x, 1e-5)
  local window = mgpu.rand { 24 }
  same(x:stft(24, 10, 32, window), x:stft(24, 10, 32, window:totable()), 0)
  for name, options in pairs { stft = {}, stft_uncentered = { center = false, window = "hamming" },
    stft_rectangle = { window = false } } do
    options.sequence_length, options.sequence_stride, options.fft_length = 24, 10, 32
    local frames = x:stft(options)
    same(frames, data["ops_" .. name], 1e-4)
    same(frames:istft(options), data["ops_i" .. name], 1e-4)
  end
  same(x:stft(24, 10, 32):istft { sequence_length = 24, sequence_stride = 10, fft_length = 32, length = 250 },
    data.ops_istft_length, 1e-4)
end)

local MEL = {
  mel_plain = { fft_length = 64, sequence_stride = 32, num_mel_bins = 8, sampling_rate = 8000 },
  mel_options = { fft_length = 32, sequence_stride = 20, sequence_length = 24, window = "hamming",
    sampling_rate = 4000, num_mel_bins = 5, min_freq = 100, max_freq = 1500, power_to_db = false, mag_exp = 1 },
  mel_decibels = { fft_length = 32, sequence_stride = 16, num_mel_bins = 4, top_db = 20, min_power = 1e-3,
    ref_power = 2, window = "none" },
}
for name, options in pairs(MEL) do
  test("MelSpectrogram, " .. name .. ", makes what Keras makes, of one signal too", function()
    local data, layer = golden(), L.MelSpectrogram(options)
    local y = layer(data.signal)
    same(y, data[name], 2e-3)
    if not layer.power_to_db then same(layer(data.signal[1]), data[name][1], 2e-3) end
  end)
end

local STFT = {
  stft_options = { mode = "magnitude", frame_length = 12, frame_step = 5, fft_length = 20, window = "hamming",
    periodic = true, scaling = "spectrum", padding = "same" },
  stft_image = { mode = "psd", frame_length = 16, expand_dims = true, scaling = "none" },
  stft_plain = { mode = "real", frame_length = 16, window = "none" },
}
for _, mode in ipairs { "log", "magnitude", "psd", "real", "imag", "stft" } do
  STFT["stft_" .. mode] = { mode = mode, frame_length = 16 }
end
for name, options in pairs(STFT) do
  test("STFTSpectrogram, " .. name .. ", makes what Keras makes, channels_first too", function()
    local data = golden()
    -- the logarithm of a magnitude near 3e-4, the least there is, has errors 3000 times those of the sums
    local tolerance = options.mode == "log" and 2e-3 or 1e-4
    same(L.STFTSpectrogram(options)(data.channels), data[name], tolerance)
    options.data_format = "channels_first"
    local y = L.STFTSpectrogram(options)(data.channels:permute { 1, 3, 2 })
    same(y:permute(y:rank() == 4 and { 1, 3, 4, 2 } or { 1, 3, 2 }), data[name], tolerance)
  end)
end

test("the windows of the initializer stft are scipy's", function()
  local data, count = golden(), 0
  for key, wanted in pairs(data) do
    local kind, name = key:match "^(%a+)_(.*)$"
    if kind == "odd" or kind == "even" then
      local init = mgpu.initializers.stft { window = name, scaling = "none", periodic = kind == "even" }
      check.near(init { wanted:shape()[1], 1, 1 }:reshape { -1 }, wanted:totable(), 1e-6)
      count = count + 1
    end
  end
  check.equal(count, 32)
end)

test("the initializer stft scales its window, and goes to Keras's configurations and back", function()
  local objects = require "mgpu.nn.keras.objects"
  local plain = mgpu.initializers.stft { window = "hann", scaling = "none" } { 8, 1, 1 }
  local scaled = mgpu.initializers.stft { window = "hann", scaling = "spectrum" } { 8, 1, 1 }
  check.near(scaled:reshape { -1 }, (plain / plain:sum()):reshape { -1 }:totable(), 1e-6)
  local unscaled = mgpu.initializers.STFTInitializer { side = "imag", scaling = "none", window = { 1, 2 } }
  local theirs = objects.to_initializer(unscaled)
  check.equal({ theirs.class_name, theirs.config.scaling == core.null, theirs.config.side }, { "STFT", true, "imag" })
  check.equal(objects.from_initializer(theirs, {}, "kernel"), unscaled:get_config())
  check.raises(function() unscaled { 3, 1, 4 } end, "stft: the window has 2 numbers, but frame_length is 3", "usage")
  check.raises(function() unscaled { 3, 2, 4 } end, "stft: the shape must be {length, 1, frequencies}", "usage")
  check.raises(function() mgpu.initializers.stft { window = "hanm" } { 2, 1, 2 } end, 'did you mean "hann"?', "usage")
  local silent = mgpu.initializers.stft { window = { 0, 0 } }
  check.raises(function() silent { 2, 1, 2 } end, "all numbers of the window are 0", "usage")
end)

test("STFTSpectrogram makes the angles that Keras makes", function()
  local data = golden()
  local difference = L.STFTSpectrogram { "angle", frame_length = 16 } (data.channels) - data.stft_angle
  -- pi and -pi are one angle; parts that are 0 but for rounding have any
  check.near((1 - difference:cos()):mean():item(), 0, 0.05)
end)

for _, name in ipairs { "mel", "stft" } do
  test(name .. ".keras predicts as in Keras, also after it was saved", function()
    local data = golden()
    local x = name == "mel" and data.signal or data.channels
    local path = FOLDER .. name .. ".keras"
    local model = mgpu.load_model(path, { compile = false })
    same(model:predict(x, { verbose = 0 }), data[name .. "_options"], 1e-4)
    local saved = check.path("again_" .. name .. ".keras")
    model:save(saved)
    same(mgpu.load_model(saved):predict(x, { verbose = 0 }), data[name .. "_options"], 1e-4)
  end)
end

test("wrong options of spectrograms and transforms are errors that say what is wrong", function()
  local x = mgpu.zeros { 40 }
  check.raises(function() L.MelSpectrogram { fft_length = 8, sequence_length = 9 } end, "fft_length must be at least")
  check.raises(function()
    mgpu.rand({ 3, 2, 5 }):istft { sequence_length = 8, sequence_stride = 4, fft_length = 2 ^ 31 }
  end, "istft: fft_length must be from sequence_length (8) to 16777216, got 2147483648")
  check.raises(function() L.MelSpectrogram { window = "hanning" } end, '"hann", "hamming", "none" or a list')
  check.raises(function() L.MelSpectrogram { fft_length = 8 } (mgpu.zeros { 1, 2, 3 }) end, "which may be missing")
  check.raises(function() L.STFTSpectrogram { frame_length = 8, frame_step = 9 } end, "frame_step must be at most")
  check.raises(function() L.STFTSpectrogram { frame_length = 8, fft_length = 4 } end, "fft_length must be at least")
  check.raises(function() L.STFTSpectrogram { window = "hamm" } end, "no window")
  check.raises(function() L.STFTSpectrogram { window = { 1 } } end, "the window has 1 numbers")
  check.raises(function() L.STFTSpectrogram { frame_length = 2 } (mgpu.ones { 1, 9, 1 }) end, "the window are 0")
  check.raises(function() L.STFTSpectrogram {} (mgpu.zeros { 1, 9, 1 }) end, "do not fit into the input")
  check.raises(function() L.STFTSpectrogram {} (mgpu.zeros({ 1, 900, 1 }, { dtype = "int32" })) end, "floating")
  check.raises(function() x:stft(9, 4, 8) end, "fft_length must be from sequence_length (9)")
  check.raises(function() x:stft(8, 4, 90) end, "needs more than fft_length / 2")
  check.raises(function() x:stft { sequence_length = 8, sequence_stride = 4, fft_length = 90, center = false } end,
    "shorter than fft_length")
  check.raises(function() x:stft(8, 4, 8, "hanning") end, '"hann", "hamming" or a list')
  check.raises(function() x:stft(8, 4, 8, { 1 }) end, "the window has 1 numbers")
  check.raises(function() x:irfft() end, "irfft: a spectrum has the shape")
  check.raises(function() x:istft(8, 4, 8) end, "istft: spectra have the shape")
end)

test("inverse transforms of halves stay in their range, and options of istft are checked", function()
  check.equal((mgpu.ones { 2, 1025 } * 100):to "float16":irfft():max():item(), 100)
  local frames = mgpu.rand { 3, 2, 5 }
  for _, length in ipairs { -5, 2.5, "a" } do
    check.raises(function()
      frames:istft { sequence_length = 8, sequence_stride = 4, fft_length = 8, length = length }
    end, "istft: length")
  end
  check.raises(function() L.MelSpectrogram { window = { 1, 2 } } end, "the window has 2 numbers, but")
  check.raises(function() L.MelSpectrogram { sampling_rate = -3 } end, "sampling_rate")
end)
