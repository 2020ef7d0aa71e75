--- 64-bit hashes of strings, equal to TensorFlow's: FarmHash's Fingerprint64, SipHash-2-4 with a key, and the
--- combination of fingerprints in crossed features.
--
-- Numbers are uint64_t of the FFI, whose arithmetic wraps at 2^64. Sources: FarmHash (farmhashna::Hash64), SipHash by
-- Aumasson and Bernstein, and FingerprintCat64 of TensorFlow.
local bit = require "bit"
local ffi = require "ffi"

local bxor, rotl, rshift = bit.bxor, bit.rol, bit.rshift

local M = {}

local K0, K1, K2 = 0xc3a5c85c97cb3127ULL, 0xb492b66fbe98f273ULL, 0x9ae16a3b2f90404fULL

local function rotate(v, n) return bit.ror(v, n) end

local function shift_mix(v) return bxor(v, rshift(v, 47)) end

-- The little-endian number at byte `at` from 0. Copied, since the address may be odd.
local word = ffi.new "uint64_t[1]"
local half = ffi.new "uint32_t[1]"

local function fetch(p, at)
  ffi.copy(word, p + at, 8)
  return word[0]
end

local function fetch32(p, at)
  ffi.copy(half, p + at, 4)
  return 0ULL + half[0]
end

local function mixed(u, v, mul)
  local a = shift_mix(bxor(u, v) * mul)
  return shift_mix(bxor(v, a) * mul) * mul
end

local function up_to_16(p, n)
  local mul = K2 + n * 2
  if n >= 8 then
    local a, b = fetch(p, 0) + K2, fetch(p, n - 8)
    return mixed(rotate(b, 37) * mul + a, (rotate(a, 25) + b) * mul, mul)
  elseif n >= 4 then
    return mixed(n + fetch32(p, 0) * 8, fetch32(p, n - 4), mul)
  elseif n > 0 then
    local y, z = 0ULL + p[0] + p[math.floor(n / 2)] * 256, 0ULL + n + p[n - 1] * 4
    return shift_mix(bxor(y * K2, z * K0)) * K2
  end
  return K2
end

local function up_to_32(p, n)
  local mul = K2 + n * 2
  local a, b, c, d = fetch(p, 0) * K1, fetch(p, 8), fetch(p, n - 8) * mul, fetch(p, n - 16) * K2
  return mixed(rotate(a + b, 43) + rotate(c, 30) + d, a + rotate(b + K2, 18) + c, mul)
end

local function up_to_64(p, n)
  local mul = K2 + n * 2
  local a, b, c, d = fetch(p, 0) * K2, fetch(p, 8), fetch(p, n - 8) * mul, fetch(p, n - 16) * K2
  local y = rotate(a + b, 43) + rotate(c, 30) + d
  local z = mixed(y, a + rotate(b + K2, 18) + c, mul)
  local e, f = fetch(p, 16) * mul, fetch(p, 24)
  local g, h = (y + fetch(p, n - 32)) * mul, (z + fetch(p, n - 24)) * mul
  return mixed(rotate(e + f, 43) + rotate(g, 30) + h, e + rotate(f + a, 18) + g, mul)
end

-- 32 bytes and two seeds as two numbers.
local function weak(p, at, a, b)
  a = a + fetch(p, at)
  b = rotate(b + a + fetch(p, at + 24), 21)
  local c = a
  a = a + fetch(p, at + 8) + fetch(p, at + 16)
  return a + fetch(p, at + 24), b + rotate(a, 44) + c
end

local function above_64(p, n)
  local x, y = 81ULL, 81ULL * K1 + 113
  local z = shift_mix(y * K2 + 113) * K2
  local v1, v2, w1, w2 = 0ULL, 0ULL, 0ULL, 0ULL
  x = x * K2 + fetch(p, 0)
  local function round(at, mul, wide)
    x = rotate(x + y + v1 + fetch(p, at + 8), 37) * mul
    y = rotate(y + v2 + fetch(p, at + 48), 42) * mul
    x = bxor(x, w2 * wide)
    y = y + v1 * wide + fetch(p, at + 40)
    z = rotate(z + w1, 33) * mul
    v1, v2 = weak(p, at, v2 * mul, x + w1)
    w1, w2 = weak(p, at + 32, z + w2, y + fetch(p, at + 16))
    x, z = z, x
  end
  local rest = (n - 1) % 64
  for at = 0, n - 1 - rest - 64, 64 do round(at, K1, 1) end
  local mul = K1 + bit.band(z, 0xffULL) * 2
  w1 = w1 + rest
  v1 = v1 + w1
  w1 = w1 + v1
  round(n - 64, mul, 9)
  return mixed(mixed(v1, w1, mul) + shift_mix(y) * K0 + z, mixed(v2, w2, mul) + x, mul)
end

--- farm(text) -> FarmHash's Fingerprint64.
function M.farm(text)
  local p, n = ffi.cast("const uint8_t *", text), #text
  if n <= 16 then return up_to_16(p, n) end
  if n <= 32 then return up_to_32(p, n) end
  return n <= 64 and up_to_64(p, n) or above_64(p, n)
end

--- whole(n) -> a whole number, of two's complement if it is negative, as its own fingerprint.
function M.whole(n) return ffi.cast("uint64_t", ffi.cast("int64_t", n)) end

--- sip(text, k0, k1) -> SipHash-2-4 with a key of two whole numbers.
function M.sip(text, k0, k1)
  k0, k1 = M.whole(k0), M.whole(k1)
  local v0, v1 = bxor(k0, 0x736f6d6570736575ULL), bxor(k1, 0x646f72616e646f6dULL)
  local v2, v3 = bxor(k0, 0x6c7967656e657261ULL), bxor(k1, 0x7465646279746573ULL)
  local function rounds(n)
    for _ = 1, n do
      v0 = v0 + v1
      v2 = v2 + v3
      v1, v3 = bxor(rotl(v1, 13), v0), bxor(rotl(v3, 16), v2)
      v0 = rotl(v0, 32) + v3
      v2 = v2 + v1
      v1, v3 = bxor(rotl(v1, 17), v2), bxor(rotl(v3, 21), v0)
      v2 = rotl(v2, 32)
    end
  end
  local function add(m)
    v3 = bxor(v3, m)
    rounds(2)
    v0 = bxor(v0, m)
  end
  local p, n = ffi.cast("const uint8_t *", text), #text
  local whole = n - n % 8
  for at = 0, whole - 8, 8 do add(fetch(p, at)) end
  local last = bit.lshift(0ULL + n % 256, 56)
  for i = 0, n - whole - 1 do last = last + bit.lshift(0ULL + p[whole + i], 8 * i) end
  add(last)
  v2 = bxor(v2, 0xffULL)
  rounds(4)
  return bxor(bxor(v0, v1), bxor(v2, v3))
end

local CAT = 0xc6a4a7935bd1e995ULL

--- cat(one, other) -> the fingerprint of two fingerprints in this order.
function M.cat(one, other)
  local result = bxor(bxor(one, CAT), shift_mix(other * CAT) * CAT) * CAT
  return shift_mix(shift_mix(result) * CAT)
end

--- bucket(hash, n) -> the hash modulo n, as a number.
function M.bucket(hash, n) return tonumber(hash % ffi.cast("uint64_t", n)) end

--- salted(layer): its option salt, a number or two, becomes two numbers. Errors: another length.
function M.salted(layer)
  if type(layer.salt) == "number" then layer.salt = { layer.salt, layer.salt } end
  if layer.salt and #layer.salt ~= 2 then
    layer:fail("salt must be one or two whole numbers, got %d", #layer.salt)
  end
end

--- bin(value, salt, n) -> the bin, below n, of a string or a whole number: by SipHash64 with a salt, else FarmHash64.
function M.bin(value, salt, n)
  local text = type(value) == "string" and value or ("%.0f"):format(value)
  return M.bucket(salt and M.sip(text, salt[1], salt[2]) or M.farm(text), n)
end

return M
