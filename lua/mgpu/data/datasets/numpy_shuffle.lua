--- The permutations of NumPy's RandomState(seed).shuffle, so that data sets are split as in Keras.
--
-- Source: Matsumoto & Nishimura, Mersenne Twister, 1998; NumPy's legacy shuffle: Fisher-Yates from the end, with
-- numbers cut to as few bits as needed and drawn again when they are too large.
local bit = require "bit"

local band, bor, bxor, lshift, rshift, tobit = bit.band, bit.bor, bit.bxor, bit.lshift, bit.rshift, bit.tobit

local N, PERIOD = 624, 397

-- a * b modulo 2^32
local function multiply(a, b)
  local low = band(b, 0xffff)
  return tobit((a % 2 ^ 32) * low % 2 ^ 32 + lshift(tobit((a % 2 ^ 32) * rshift(b, 16) % 2 ^ 32), 16) % 2 ^ 32)
end

local function new_state(seed)
  local words = { [0] = tobit(seed) }
  for i = 1, N - 1 do
    local previous = words[i - 1]
    words[i] = tobit(multiply(bxor(previous, rshift(previous, 30)), 1812433253) + i)
  end
  return { words = words, at = N }
end

local function renew(words)
  for i = 0, N - 1 do
    local y = bor(band(words[i], 0x80000000), band(words[(i + 1) % N], 0x7fffffff))
    local odd = band(y, 1) == 1 and 0x9908b0df or 0
    words[i] = bxor(words[(i + PERIOD) % N], rshift(y, 1), odd)
  end
end

-- The next 32 random bits, as a signed number.
local function next_word(state)
  if state.at == N then
    renew(state.words)
    state.at = 0
  end
  local y = state.words[state.at]
  state.at = state.at + 1
  y = bxor(y, rshift(y, 11))
  y = bxor(y, band(lshift(y, 7), 0x9d2c5680))
  y = bxor(y, band(lshift(y, 15), 0xefc60000))
  return bxor(y, rshift(y, 18))
end

-- A random number from 0 to most.
local function interval(state, most)
  local mask = most
  for shift = 0, 4 do mask = bor(mask, rshift(mask, 2 ^ shift)) end
  local value
  repeat value = band(next_word(state), mask) until value <= most
  return value
end

--- numpy_shuffle(seed) -> function(n) -> array of 1..n, in another random order at each call.
-- seed: from 0 to 2^32 - 1.
return function(seed)
  local state = new_state(seed)
  return function(n)
    local order = {}
    for i = 1, n do order[i] = i end
    for i = n, 2, -1 do
      local k = interval(state, i - 1) + 1
      order[i], order[k] = order[k], order[i]
    end
    return order
  end
end
