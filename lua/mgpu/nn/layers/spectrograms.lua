--- Layers that make spectrograms of signals.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"
local spaces = require "mgpu.nn.layers.spaces"
local spectra = require "mgpu.tensor.spectra"
local stft_kernels = require "mgpu.nn.stft_kernels"

local ops = core.ops
local M = {}

-- The smallest value whose root or logarithm is taken (Keras's epsilon).
local EPSILON = 1e-7

-- ---- MelSpectrogram -----------------------------------------------------------------------------

--- MelSpectrogram {fft_length = 2048, sequence_stride = 512, sequence_length =, window = "hann", ...}
-- The power of signals in bands of equal width on the mel scale, in decibels.
-- Frames as those of mgpu.stft: fft_length, sequence_stride, sequence_length = fft_length, window ("hann", "hamming", a
-- list, or "none"). num_mel_bins = 128 triangular bands between min_freq = 20 and max_freq (half the sampling_rate =
-- 16000) hertz; mag_exp = 2: the exponent of the magnitudes. power_to_db = true: 10 log10(power / ref_power), with
-- powers and ref_power = 1 of at least min_power = 1e-10, and at most top_db = 80 below the largest of the batch.
-- x {batch, samples} or {samples} -> {batch, num_mel_bins, frames}. Source: Keras, which follows HTK.
-- Example:
--     local layer = L.MelSpectrogram { fft_length = 64, sequence_stride = 32, num_mel_bins = 8 }
--     print(unpack(layer(mgpu.rand { 2, 320 }):shape()))  --> 2 8 11
local MelSpectrogram = Layer:extend("MelSpectrogram", { positional = 0,
  { "fft_length", "integer", min = 1, default = 2048 },
  { "sequence_stride", "integer", min = 1, default = 512 },
  { "sequence_length", "integer", min = 1 },
  { "window", "string|table", default = "hann" },
  { "sampling_rate", "number", default = 16000, above = 0 },
  { "num_mel_bins", "integer", min = 1, default = 128 },
  { "min_freq", "number", default = 20 },
  { "max_freq", "number" },
  { "power_to_db", "boolean", default = true },
  { "top_db", "number", default = 80 },
  { "mag_exp", "number", default = 2 },
  { "min_power", "number", default = 1e-10, above = 0 },
  { "ref_power", "number", default = 1 },
})

local function mel(hertz) return 1127 * math.log(1 + hertz / 700) end

-- {frequencies, num_mel_bins}: the weight of each frequency in each band. Frequency 0 counts in none.
local function mel_weights(self)
  local count, bins, rows = math.floor(self.fft_length / 2) + 1, self.num_mel_bins, {}
  local low, high = mel(self.min_freq), mel(self.max_freq or math.floor(self.sampling_rate / 2))
  local width = (high - low) / (bins + 1)
  for k = 0, count - 1 do
    local at, row = mel(k * self.sampling_rate / 2 / math.max(count - 1, 1)), {}
    for b = 1, bins do
      local center = low + b * width
      row[b] = k == 0 and 0 or math.max(0, 1 - math.abs(at - center) / width)
    end
    rows[k + 1] = row
  end
  return rows
end

function MelSpectrogram:init()
  if self.sequence_length and self.sequence_length > self.fft_length then
    self:fail("fft_length must be at least sequence_length (%d), got %d", self.sequence_length, self.fft_length)
  elseif type(self.window) == "string" and not ({ hann = 1, hamming = 1, none = 1 })[self.window] then
    self:fail('option "window" must be "hann", "hamming", "none" or a list, got %q', self.window)
  elseif type(self.window) == "table" and #self.window ~= (self.sequence_length or self.fft_length) then
    self:fail("the window has %d numbers, but sequence_length is %d", #self.window,
      self.sequence_length or self.fft_length)
  end
end

function MelSpectrogram:output_shape(shape)
  if #shape ~= 1 and #shape ~= 2 then
    self:fail("the input has the axes batch (which may be missing) and samples, got shape %s", self.shape_text(shape))
  end
  local samples, batch = shape[#shape], #shape == 2 and { shape[1] } or {}
  local padded = samples + 2 * math.floor(self.fft_length / 2)
  batch[#batch + 1] = self.num_mel_bins
  batch[#batch + 1] = samples == -1 and -1 or math.floor((padded - self.fft_length) / self.sequence_stride) + 1
  return batch
end

-- 10 log10(t), from the smallest power on.
local function decibels(self, t) return ops.log(ops.maximum(t, self.min_power)) * (10 / math.log(10)) end

function MelSpectrogram:call(x)
  self:output_shape(x:shape())
  if x:dtype() ~= "float64" and x:dtype() ~= "float32" then x = ops.cast(x, { dtype = "float32" }) end
  local window = self.window ~= "none" and self.window
  local parts = spectra.stft(x, self.sequence_length or self.fft_length, self.sequence_stride, self.fft_length, window)
  local power = ops.sum(ops.square(parts), { axis = -2 }) ^ (self.mag_exp / 2)
  self.mel = self.mel or mel_weights(self) -- the same in each call
  local weights = core.tensor(self.mel, { dtype = x:dtype(), device = x:device() })
  local bands = ops.matmul(power, weights)
  if self.power_to_db then
    local ref = 10 * math.log(math.max(math.abs(self.ref_power), self.min_power)) / math.log(10)
    bands = decibels(self, bands) - ref
    bands = ops.maximum(bands, ops.max(bands) - self.top_db)
  end
  local rank = bands:rank()
  bands = ops.permute(bands, { order = rank == 2 and { 2, 1 } or { 1, 3, 2 } })
  return bands:dtype() == self.compute_dtype and bands or ops.cast(bands, { dtype = self.compute_dtype })
end

M.MelSpectrogram = MelSpectrogram

-- ---- STFTSpectrogram ----------------------------------------------------------------------------

--- STFTSpectrogram {mode = "log", frame_length = 256, frame_step =, fft_length =, window = "hann", ...}
-- Spectra of parts of signals, by a convolution whose kernels are weights, so that they can be trained.
-- mode: "log", "magnitude", "psd" (power), "real", "imag", "angle", or "stft" (real, then imaginary parts). A part of
-- frame_length samples begins every frame_step = frame_length / 2; fft_length: by default the next power of 2.
-- window: "none", a list, or a name that mgpu.initializers.stft knows; periodic = false; scaling = "density",
-- "spectrum" or "none"; padding = "valid" or "same". expand_dims: each channel's spectrogram is an image.
-- x {batch, samples, channels} -> {batch, frames, channels * frequencies}, or {batch, frames, frequencies, channels}
-- with expand_dims. data_format as usual. Weights: real_kernel, imag_kernel {frame_length, 1, frequencies}.
-- Errors: integers; frame_step above frame_length; fft_length below it.
-- Example:
--     local layer = L.STFTSpectrogram { mode = "magnitude", frame_length = 16 }
--     print(unpack(layer(mgpu.rand { 2, 64, 1 }):shape()))  --> 2 7 9
local STFTSpectrogram = Layer:extend("STFTSpectrogram", { positional = 1,
  { "mode", "string", default = "log", values = { "log", "magnitude", "psd", "real", "imag", "angle", "stft" } },
  { "frame_length", "integer", min = 2, default = 256 },
  { "frame_step", "integer", min = 1 },
  { "fft_length", "integer", min = 1 },
  { "window", "string|table", default = "hann" },
  { "periodic", "boolean", default = false },
  { "scaling", "string", default = "density", values = { "density", "spectrum", "none" } },
  { "padding", "string", default = "valid", values = { "valid", "same" } },
  { "expand_dims", "boolean", default = false },
  images.data_format,
})

function STFTSpectrogram:init()
  local length = self.frame_length
  if self.frame_step and self.frame_step > length then
    self:fail("frame_step must be at most frame_length (%d), got %d", length, self.frame_step)
  elseif self.fft_length and self.fft_length < length then
    self:fail("fft_length must be at least frame_length (%d), got %d", length, self.fft_length)
  end
  local function fail(...) self:fail(...) end
  stft_kernels.check(self.window, fail)
  stft_kernels.check_length(self.window, length, fail)
  self.step = self.frame_step or math.floor(length / 2)
  self.frequencies = math.floor((self.fft_length or 2 ^ math.ceil(math.log(length) / math.log(2))) / 2) + 1
end

-- The initializer of a kernel.
local function waves(self, side)
  return function(shape, dtype)
    return stft_kernels.kernel(shape, side, self, dtype, function(...) self:fail(...) end)
  end
end

function STFTSpectrogram:build(shape)
  self:need_rank(shape, 3, "batch, samples, channels")
  local size = { self.frame_length, 1, self.frequencies }
  if self.mode ~= "imag" then
    self.real_kernel = self:add_weight { name = "real_kernel", shape = size, initializer = waves(self, "real") }
  end
  if self.mode ~= "real" then
    self.imag_kernel = self:add_weight { name = "imag_kernel", shape = size, initializer = waves(self, "imag") }
  end
end

function STFTSpectrogram:output_shape(shape)
  local s = spaces.shape_last(self, shape)
  local frames = images.output_size(s[2], self.frame_length, self.step, self.padding)
  if frames < 1 and s[2] ~= -1 then
    self:fail("frames of %d samples do not fit into the input %s", self.frame_length, self.shape_text(shape))
  end
  local count = self.frequencies * (self.mode == "stft" and 2 or 1)
  local first = images.is_first(self)
  if self.expand_dims then
    return first and { s[1], s[3], frames, count } or { s[1], frames, count, s[3] }
  end
  return spaces.shape_back(self, { s[1], frames, s[3] == -1 and -1 or s[3] * count })
end

-- signals {n, samples} and a kernel -> {n, frames, frequencies}.
local function convolved(self, signals, kernel)
  local s, k = signals:shape(), kernel:shape()
  local before, after = spaces.pads(self.padding, s[2], self.frame_length, self.step)
  kernel = ops.reshape(ops.cast(kernel, { dtype = signals:dtype() }), { shape = { 1, k[1], 1, k[3] } })
  local y = ops.conv2d(ops.reshape(signals, { shape = { s[1], 1, s[2], 1 } }), kernel,
    { strides = { 1, self.step }, pads = { 0, 0, before, after } })
  local made = y:shape()
  return ops.reshape(y, { shape = { made[1], made[3], made[4] } })
end

-- What each mode makes of real and imaginary parts {n, frames, frequencies}.
local function power(real, imaginary) return ops.square(real) + ops.square(imaginary) end
local function magnitude(real, imaginary) return ops.sqrt(ops.maximum(power(real, imaginary), EPSILON)) end

local MODES = {
  real = function(real) return real end,
  imag = function(_, imaginary) return imaginary end,
  angle = function(real, imaginary) return ops.atan2(imaginary, real) end,
  stft = function(real, imaginary) return ops.concat({ real, imaginary }, { axis = 3 }) end,
  magnitude = magnitude,
  log = function(real, imaginary) return ops.log(ops.maximum(magnitude(real, imaginary), EPSILON)) end,
  -- frequencies between the first and the last stand for two
  psd = function(real, imaginary)
    local p = power(real, imaginary)
    local count, twice = p:shape()[3], {}
    for k = 1, count do twice[k] = (k == 1 or k == count) and 1 or 2 end
    return p * core.tensor(twice, { dtype = p:dtype(), device = p:device() })
  end,
}

function STFTSpectrogram:call(x)
  self:need_rank(x:shape(), 3, "batch, samples, channels")
  if not x:dtype():find "float" then self:fail("the input must be floating, got %s", x:dtype()) end
  local first = images.is_first(self)
  if not first then x = ops.permute(x, { order = { 1, 3, 2 } }) end
  local s = x:shape()
  self:output_shape(first and s or { s[1], s[3], s[2] })
  local signals = ops.reshape(x, { shape = { s[1] * s[2], s[3] } })
  local y = MODES[self.mode](self.real_kernel and convolved(self, signals, self.real_kernel),
    self.imag_kernel and convolved(self, signals, self.imag_kernel))
  local frames, count = y:shape()[2], y:shape()[3]
  y = ops.reshape(y, { shape = { s[1], s[2], frames, count } })
  if self.expand_dims then return first and y or ops.permute(y, { order = { 1, 3, 4, 2 } }) end
  local order, shape = { 1, 3, 2, 4 }, { s[1], frames, s[2] * count }
  if first then order, shape = { 1, 2, 4, 3 }, { s[1], s[2] * count, frames } end
  return ops.reshape(ops.permute(y, { order = order }), { shape = shape })
end

M.STFTSpectrogram = STFTSpectrogram

return M
