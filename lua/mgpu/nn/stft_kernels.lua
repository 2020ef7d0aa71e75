--- Kernels of convolutions that compute spectra: a window times a cosine or minus a sine for each frequency. For the
--- layer STFTSpectrogram and the initializer stft.
local core = require "mgpu.core"

local M = {}

local abs, cos, pi, sin = math.abs, math.cos, math.pi, math.sin

-- Windows as sums of cosines.
local COSINES = { none = { 1 }, boxcar = { 1 }, hann = { 0.5, 0.5 }, hamming = { 0.54, 0.46 },
  blackman = { 0.42, 0.5, 0.08 }, blackmanharris = { 0.35875, 0.48829, 0.14128, 0.01168 },
  nuttall = { 0.3635819, 0.4891775, 0.1365995, 0.0106411 },
  flattop = { 0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368 } }

-- Others: the value at t, from 0, of a symmetric window of m > 1 numbers; x goes from -1 to 1. As in scipy, with its
-- defaults.
local OTHERS = {
  bartlett = function(x) return 1 - abs(x) end,
  barthann = function(x) return 0.62 - 0.24 * abs(x) + 0.38 * cos(pi * x) end,
  bohman = function(x) return (1 - abs(x)) * cos(pi * abs(x)) + sin(pi * abs(x)) / pi end,
  cosine = function(_, t, m) return sin(pi * (t + 0.5) / m) end,
  exponential = function(x, _, m) return math.exp(-abs(x) * (m - 1) / 2) end,
  lanczos = function(x) return x == 0 and 1 or sin(pi * x) / (pi * x) end,
  parzen = function(x, _, m)
    local r = abs(x) * (m - 1) / m
    return abs(x) <= 0.5 and 1 - 6 * r ^ 2 * (1 - r) or 2 * (1 - r) ^ 3
  end,
  triang = function(x, _, m) return 1 - abs(x) * (m - 1) / (m + m % 2) end,
  tukey = function(x, t, m)
    local width = math.floor((m - 1) / 4)
    if t > width and t < m - width - 1 then return 1 end
    return 0.5 * (1 + cos(pi * (2 * abs(x) - 1)))
  end,
}

local NAMES = {}
for _, list in ipairs { COSINES, OTHERS } do
  for name in pairs(list) do NAMES[#NAMES + 1] = name end
end
table.sort(NAMES)

-- The number at t of a window of this length; a periodic one is longer by one that is left out.
local function number_at(window, t, length, periodic)
  if type(window) == "table" then return window[t + 1] end
  local m = periodic and length + 1 or length
  if m == 1 then return 1 end
  if OTHERS[window] then return OTHERS[window](2 * t / (m - 1) - 1, t, m) end
  local sum = 0
  for i, factor in ipairs(COSINES[window]) do
    sum = sum + (-1) ^ (i - 1) * factor * cos(2 * pi * (i - 1) * t / (m - 1))
  end
  return sum
end

--- check(window, fail): raises by fail(message, ...) unless it is the name of a window, or a list.
function M.check(window, fail)
  if type(window) == "string" and not COSINES[window] and not OTHERS[window] then
    fail("option \"window\": there is no window %q%s", window, core.did_you_mean(window, NAMES))
  end
end

--- check_length(window, length, fail): raises if it is a list of another length.
function M.check_length(window, length, fail)
  if type(window) == "table" and #window ~= length then
    fail("the window has %d numbers, but frame_length is %d", #window, length)
  end
end

-- The numbers of the window, scaled.
local function window_of(length, chosen, fail)
  local numbers, sum = {}, 0
  for t = 0, length - 1 do
    local w = number_at(chosen.window, t, length, chosen.periodic)
    numbers[t + 1] = w
    sum = sum + (chosen.scaling == "density" and w * w or abs(w))
  end
  local scale = chosen.scaling == "density" and math.sqrt(sum) or sum
  if chosen.scaling == "none" or chosen.window == "none" then return numbers end
  if scale == 0 then fail("all numbers of the window are 0: use a longer frame_length or periodic = true") end
  for i, w in ipairs(numbers) do numbers[i] = w / scale end
  return numbers
end

--- kernel(shape, side, chosen, dtype, fail) -> a tensor {length, 1, frequencies}.
-- ARGS shape: {length, 1, frequencies}; side: "real" or "imag"; chosen: {window =, scaling =, periodic =}.
-- Errors, by fail(message, ...): a window of 0 that is to be scaled.
function M.kernel(shape, side, chosen, dtype, fail)
  local length, frequencies = shape[1], shape[3]
  local wave, sign = cos, 1
  if side == "imag" then wave, sign = sin, -1 end
  local window, rows, period = window_of(length, chosen, fail), {}, math.max(2 * (frequencies - 1), 1)
  for t = 0, length - 1 do
    local row = {}
    for k = 0, frequencies - 1 do row[k + 1] = sign * window[t + 1] * wave(2 * pi * (t * k % period) / period) end
    rows[t + 1] = { row }
  end
  return core.tensor(rows, { dtype = dtype })
end

return M
