--- sha256(text) -> its SHA-256 as 64 hexadecimal digits, as the program sha256sum prints it. Source: FIPS 180-4.
local bit = require "bit"

local band, bxor, bnot, ror, rshift, tobit = bit.band, bit.bxor, bit.bnot, bit.ror, bit.rshift, bit.tobit

-- The first 32 bits of the fraction of x.
local function fraction(x) return tobit(math.floor((x - math.floor(x)) * 2 ^ 32)) end

local K, START = {}, {} -- from the cube roots and square roots of the first primes
do
  local n, p = 0, 2
  while n < 64 do
    local prime = true
    for q = 2, math.floor(math.sqrt(p)) do prime = prime and p % q ~= 0 end
    if prime then
      n = n + 1
      K[n] = fraction(p ^ (1 / 3))
      if n <= 8 then START[n] = fraction(math.sqrt(p)) end
    end
    p = p + 1
  end
end

-- The 64 words of a block's schedule; the block begins after `at` bytes.
local function schedule(text, at, w)
  for i = 1, 16 do
    local a, b, c, d = text:byte(at + 4 * i - 3, at + 4 * i)
    w[i] = tobit(a * 2 ^ 24 + b * 2 ^ 16 + c * 2 ^ 8 + d)
  end
  for i = 17, 64 do
    local x, y = w[i - 15], w[i - 2]
    w[i] = tobit(w[i - 16] + bxor(ror(x, 7), ror(x, 18), rshift(x, 3)) + w[i - 7]
      + bxor(ror(y, 17), ror(y, 19), rshift(y, 10)))
  end
end

local function add_block(hash, w)
  local a, b, c, d, e, f, g, h = unpack(hash)
  for i = 1, 64 do
    local first = tobit(h + bxor(ror(e, 6), ror(e, 11), ror(e, 25)) + bxor(band(e, f), band(bnot(e), g)) + K[i] + w[i])
    local second = tobit(bxor(ror(a, 2), ror(a, 13), ror(a, 22)) + bxor(band(a, b), band(a, c), band(b, c)))
    h, g, f, e, d, c, b, a = g, f, e, tobit(d + first), c, b, a, tobit(first + second)
  end
  for i, x in ipairs { a, b, c, d, e, f, g, h } do hash[i] = tobit(hash[i] + x) end
end

return function(text)
  local bits, hash, w = #text * 8, { unpack(START) }, {}
  text = text .. "\128" .. ("\0"):rep((55 - #text) % 64)
  for shift = 56, 0, -8 do text = text .. string.char(math.floor(bits / 2 ^ shift) % 256) end
  for at = 0, #text - 64, 64 do
    schedule(text, at, w)
    add_block(hash, w)
  end
  for i = 1, 8 do hash[i] = bit.tohex(hash[i]) end
  return table.concat(hash)
end
