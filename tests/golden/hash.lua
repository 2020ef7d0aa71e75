-- The integer hash that makes the weights and inputs of golden cases; hashed.py computes the same numbers.
--
-- A value depends only on its index i (from 0, row-major) and a salt, so golden files need not store it:
--     z = i + salt * 0x9E3779B9;   z ^= z >> 16;   z *= 0x7FEB352D;   z ^= z >> 15;
--     z *= 0x846CA68B;             z ^= z >> 16    (all modulo 2^32)
-- unit = z / 2^32 in [0, 1), centred = 2 unit - 1. Both are exact doubles.

local bit = require "bit"
local bxor, rshift, lshift, tobit = bit.bxor, bit.rshift, bit.lshift, bit.tobit

local M = {}

-- a * (high * 2^16 + low) modulo 2^32, as a signed number. The products stay below 2^51, where tobit is
-- exact.
local function multiply(a, high, low)
  return tobit(a * low + lshift(tobit(a * high), 16))
end

local function hash(i, base)
  local z = tobit(i + base)
  z = bxor(z, rshift(z, 16))
  z = multiply(z, 0x7FEB, 0x352D)
  z = bxor(z, rshift(z, 15))
  z = multiply(z, 0x846C, 0xA68B)
  return bxor(z, rshift(z, 16)) % 4294967296
end

-- salt * 0x9E3779B9: computed once for an array.
local function base_of(salt)
  return multiply(salt, 0x9E37, 0x79B9)
end

function M.unit(i, salt)
  return hash(i, base_of(salt)) / 4294967296
end

function M.centred(i, salt)
  return 2 * M.unit(i, salt) - 1
end

-- n numbers scale * centred + offset; scale is 1 and offset 0 by default.
function M.array(n, salt, scale, offset)
  scale, offset = scale or 1, offset or 0
  local base, values = base_of(salt), {}
  for i = 0, n - 1 do
    values[i + 1] = scale * (2 * (hash(i, base) / 4294967296) - 1) + offset
  end
  return values
end

-- n class ids from 0 to classes - 1.
function M.labels(n, salt, classes)
  local base, ids = base_of(salt), {}
  for i = 0, n - 1 do
    ids[i + 1] = math.floor(hash(i, base) / 4294967296 * classes)
  end
  return ids
end

return M
