--- Spectra: the inverse of rfft, and short-time transforms of signals {..., samples}.
--
-- A spectrum is one tensor {..., 2, frequencies}: real parts, then imaginary parts. For n samples there are
-- math.floor(n / 2) + 1 frequencies.
local arguments = require "mgpu.tensor.arguments"
local core = require "mgpu.core"

local M, ops = {}, core.ops
local fail = arguments.fail

-- x with the axis cut, or filled with zeros, to `size`.
local function resized(x, axis, size)
  local shape = x:shape()
  local first, last, after = {}, {}, {}
  for i, n in ipairs(shape) do first[i], last[i], after[i] = 0, n, 0 end
  last[axis] = math.min(shape[axis], size)
  if shape[axis] > size then x = ops.slice(x, { start = first, stop = last }) end
  after[axis] = size - last[axis]
  return after[axis] > 0 and ops.pad(x, { before = first, after = after }) or x
end

-- A row of numbers in the dtype and on the device of x.
local function row(x, numbers) return core.tensor(numbers, { dtype = x:dtype(), device = x:device() }) end

--- irfft(spectrum, length =) -> {..., length} real numbers: the inverse of rfft.
-- spectrum {..., 2, frequencies}; length: 2 (frequencies - 1) by default; other lengths cut or fill it with
-- zeros. Source: keras.ops.irfft.
-- Example:
--     local x = mgpu.tensor { 1, 2, 4 }
--     print(x:rfft():irfft(3))
--     --> tensor {3} float32 cpu:0
--     --> {1, 2, 4}
function M.irfft(spectrum, ...)
  local n = arguments.read_options("irfft", { "length" }, ...)
  spectrum = arguments.floating(arguments.as_tensor("irfft", spectrum))
  local shape = spectrum:shape()
  local rank = #shape
  if rank < 2 or shape[rank - 1] ~= 2 then
    fail("irfft: a spectrum has the shape {..., 2, frequencies}, got {%s}", table.concat(shape, ", "))
  end
  n = arguments.whole("irfft", "length", n or math.max(2 * (shape[rank] - 1), 1), 1)
  local k = ops.iota({ math.floor(n / 2) + 1 }, 1, "int64")
  local weights = ops.where(ops.logical_or(ops.eq(k, 0), ops.eq(k * 2, n)), 1, 2) -- frequencies that stand for two
  local dtype = spectrum:dtype()
  local wide = dtype:find "16$" and "float32" or dtype -- the sums of halves may be too large for them
  spectrum = resized(ops.cast(spectrum, { dtype = wide }), rank, k:count())
  local sums = ops.rfft_transpose(spectrum * ops.cast(weights, { dtype = wide }), { length = n })
  return ops.cast(sums / n, { dtype = dtype })
end

-- The window as a list of fft_length numbers: in the middle, zeros around it. Windows are periodic, as in SciPy;
-- TensorFlow's of an odd length are those of the length below, with their first number again at the end.
local FORMULAS = { hann = { 0.5, 0.5 }, hamming = { 0.54, 0.46 } }

local function window_numbers(who, window, sequence_length, fft_length)
  local numbers, before = {}, math.floor((fft_length - sequence_length) / 2)
  if core.is_tensor(window) then window = window:totable() end
  if type(window) == "table" and #window ~= sequence_length then
    fail("%s: the window has %d numbers, but sequence_length is %d", who, #window, sequence_length)
  elseif type(window) == "string" and not FORMULAS[window] then
    fail('%s: the window must be "hann", "hamming" or a list, got %q', who, window)
  end
  local c = FORMULAS[window]
  for i = 1, fft_length do
    local t = i - before - 1
    local inside = t >= 0 and t < sequence_length
    if not window then
      numbers[i] = 1
    elseif not inside then
      numbers[i] = 0
    else
      numbers[i] = c and c[1] - c[2] * math.cos(2 * math.pi * t / sequence_length) or window[t + 1]
    end
  end
  return numbers
end

local LONGEST = 2 ^ 24 -- of windows: their numbers are made in Lua

-- The options that stft and istft share, checked.
local function read_frames(who, length, stride, fft_length)
  arguments.whole(who, "sequence_length", length, 1)
  arguments.whole(who, "sequence_stride", stride, 1)
  arguments.whole(who, "fft_length", fft_length, 1)
  if fft_length < length or fft_length > LONGEST then
    fail("%s: fft_length must be from sequence_length (%d) to %d, got %.0f", who, length, LONGEST, fft_length)
  end
end

-- The places in a signal of `frames` parts of `size` samples that begin every `stride`, one part after another.
local function places(frames, size, stride)
  return ops.reshape(ops.iota({ frames, 1 }, 1, "int32") * stride + ops.iota({ 1, size }, 2, "int32"),
    { shape = { -1 } })
end

-- x {..., samples} with `margin` samples at each end, mirrored without repeating the edge.
local function mirrored(x, margin)
  local n = x:shape()[x:rank()]
  if margin == 0 then return x end
  if margin >= n then
    fail("stft: with center, a signal needs more than fft_length / 2 = %d samples, got %d", margin, n)
  end
  local from_first = ops.abs(ops.iota({ n + 2 * margin }, 1, "int32") - margin)
  return ops.gather(x, n - 1 - ops.abs(n - 1 - from_first), { axis = -1 })
end

--- stft(x, sequence_length, sequence_stride, fft_length, window = "hann", center = true) -> {..., frames, 2,
--- frequencies}: the spectrum of each part of the signals x {..., samples}.
-- Frames of fft_length samples begin every sequence_stride; each is multiplied by the window of sequence_length numbers
-- in its middle: "hann", "hamming", a list, or false for none. center: frame i lies around sample i * sequence_stride;
-- the signal is mirrored at its ends. Source: keras.ops.stft.
-- Errors: fewer samples than a frame has.
-- Example:
--     local frames = mgpu.rand { 3, 100 }:stft { sequence_length = 16, sequence_stride = 8, fft_length = 16 }
--     print(unpack(frames:shape()))  --> 3 13 2 9
function M.stft(x, ...)
  local length, stride, fft_length, window, center = arguments.read_options("stft",
    { "sequence_length", "sequence_stride", "fft_length", "window", "center" }, ...)
  x = arguments.floating(arguments.as_tensor("stft", x))
  read_frames("stft", length, stride, fft_length)
  if window == nil then window = "hann" end
  if center ~= false then x = mirrored(x, math.floor(fft_length / 2)) end
  local shape = x:shape()
  local rank = #shape
  local frames = rank > 0 and math.floor((shape[rank] - fft_length) / stride) + 1 or 0
  if frames < 1 then fail("stft: the signal is shorter than fft_length = %d", fft_length) end
  local flat = ops.gather(x, places(frames, fft_length, stride), { axis = rank })
  shape[rank], shape[rank + 1] = frames, fft_length
  local parts = ops.reshape(flat, { shape = shape })
  if window then parts = parts * row(x, window_numbers("stft", window, length, fft_length)) end
  return ops.rfft(parts)
end

-- Adds up frames {..., frames, size}, which begin every `stride` samples: {..., (frames - 1) stride + size}.
local function overlapped(parts, stride)
  local shape = parts:shape()
  local rank = #shape
  local frames, size = shape[rank - 1], shape[rank]
  local samples = (frames - 1) * stride + size
  shape[rank], shape[rank - 1] = nil, frames * size
  return ops.scatter_add(ops.reshape(parts, { shape = shape }), places(frames, size, stride),
    { axis = rank - 1, size = samples })
end

-- What each frame is multiplied by before the sum: the window over the sum of the squares of all windows at a sample.
local function inverse_window(numbers, stride)
  local sums, inverse = {}, {}
  for i, w in ipairs(numbers) do sums[i % stride] = (sums[i % stride] or 0) + w * w end
  for i, w in ipairs(numbers) do inverse[i] = w == 0 and 0 or w / sums[i % stride] end
  return inverse
end

--- istft(spectra, sequence_length, sequence_stride, fft_length, length =, window = "hann", center = true) -> the
--- signals {..., samples} whose stft the spectra {..., frames, 2, frequencies} are.
-- length: the number of samples; by default all that the frames cover. Samples near the ends, which fewer frames cover
-- than the others, are too small, as in Keras. Source: keras.ops.istft.
-- Example:
--     local x = mgpu.rand { 64 }
--     local frames = { sequence_length = 16, sequence_stride = 4, fft_length = 16 }
--     local difference = x:stft(frames):istft(frames) - x
--     print(difference:slice { { 9, -9 } }:abs():max():item() < 1e-5)  --> true
function M.istft(spectra, ...)
  local length, stride, fft_length, samples, window, center = arguments.read_options("istft",
    { "sequence_length", "sequence_stride", "fft_length", "length", "window", "center" }, ...)
  spectra = arguments.floating(arguments.as_tensor("istft", spectra))
  read_frames("istft", length, stride, fft_length)
  if samples then arguments.whole("istft", "length", samples, 1) end
  if spectra:rank() < 3 then fail "istft: spectra have the shape {..., frames, 2, frequencies}" end
  if window == nil then window = "hann" end
  local parts = M.irfft(spectra, fft_length)
  if window then
    parts = parts * row(parts, inverse_window(window_numbers("istft", window, length, fft_length), stride))
  end
  local signal = overlapped(parts, stride)
  local rank, first, margin = signal:rank(), {}, center == false and 0 or math.floor(fft_length / 2)
  local last = signal:shape()
  for i = 1, rank do first[i] = 0 end
  first[rank] = margin
  last[rank] = samples and math.min(margin + samples, last[rank]) or last[rank] - margin
  return ops.slice(signal, { start = first, stop = last })
end

return M
