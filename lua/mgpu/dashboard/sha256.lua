--- SHA-256 (FIPS 180-4), for the hashes that a page's Content-Security-Policy names.
local bit = require "bit"

local band, bxor, bnot, ror, shr, tobit = bit.band, bit.bxor, bit.bnot, bit.ror, bit.rshift, bit.tobit

-- The first 32 bits of the fractional parts of the roots of the first primes: cube roots of 64 primes, square roots of
-- eight. A double has enough digits for them.
local CUBE, SQUARE = {}, {}
do
  local n, found = 2, 0
  while found < 64 do
    local prime = true
    for i = 2, math.floor(math.sqrt(n)) do prime = prime and n % i ~= 0 end
    if prime then
      found = found + 1
      local cube, square = n ^ (1 / 3), math.sqrt(n)
      CUBE[found] = tobit(math.floor((cube - math.floor(cube)) * 2 ^ 32))
      if found <= 8 then SQUARE[found] = tobit(math.floor((square - math.floor(square)) * 2 ^ 32)) end
    end
    n = n + 1
  end
end

local function word_at(text, at)
  local a, b, c, d = text:byte(at, at + 3)
  return tobit(((a * 256 + b) * 256 + c) * 256 + d)
end

-- The block of 64 bytes at `at` as 64 words.
local function schedule(text, at, w)
  for i = 1, 16 do w[i] = word_at(text, at + 4 * i - 4) end
  for i = 17, 64 do
    local x, y = w[i - 15], w[i - 2]
    local s0 = bxor(ror(x, 7), ror(x, 18), shr(x, 3))
    local s1 = bxor(ror(y, 17), ror(y, 19), shr(y, 10))
    w[i] = tobit(w[i - 16] + s0 + w[i - 7] + s1)
  end
end

local function add_block(h, w)
  local a, b, c, d, e, f, g, k = unpack(h)
  for i = 1, 64 do
    local s1 = bxor(ror(e, 6), ror(e, 11), ror(e, 25))
    local t1 = tobit(k + s1 + bxor(band(e, f), band(bnot(e), g)) + CUBE[i] + w[i])
    local s0 = bxor(ror(a, 2), ror(a, 13), ror(a, 22))
    local t2 = tobit(s0 + bxor(band(a, b), band(a, c), band(b, c)))
    k, g, f, e, d, c, b, a = g, f, e, tobit(d + t1), c, b, a, tobit(t1 + t2)
  end
  for i, x in ipairs { a, b, c, d, e, f, g, k } do h[i] = tobit(h[i] + x) end
end

local function bytes_of(word)
  return string.char(shr(word, 24), band(shr(word, 16), 255), band(shr(word, 8), 255), band(word, 255))
end

--- sha256(text) -> its hash, 32 bytes.
return function(text)
  local bits, h, w = #text * 8, { unpack(SQUARE) }, {}
  text = text .. "\128" .. ("\0"):rep((55 - #text) % 64) .. bytes_of(math.floor(bits / 2 ^ 32)) .. bytes_of(tobit(bits))
  for at = 1, #text, 64 do
    schedule(text, at, w)
    add_block(h, w)
  end
  for i = 1, 8 do h[i] = bytes_of(h[i]) end
  return table.concat(h)
end
