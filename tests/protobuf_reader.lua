-- A reader of Protocol Buffers messages, for specs of files that the program writes. It shares no code with the writer.
--
--     local fields = reader.fields(bytes)      -- {[number] = {value, ...}}: varints and fixed numbers as Lua numbers,
--                                              -- strings and messages as bytes
--     for record in reader.records(bytes) ...  -- the records of a TFRecord file, with their checksums checked

local bit = require "bit"

local M = {}

-- The unsigned little-endian number of n bytes at `at`.
local function unsigned(bytes, at, n)
  local value = 0
  for i = n - 1, 0, -1 do value = value * 256 + assert(bytes:byte(at + i), "cut off") end
  return value
end

-- RETURNS the varint at `at` and the place behind it. Negative numbers have 64 bits.
local function varint(bytes, at)
  local value, scale = 0, 1
  for i = at, at + 9 do
    local byte = assert(bytes:byte(i), "cut off")
    if i == at + 9 then return value - 2 ^ 63, i + 1 end -- bit 63: the sign
    value, scale = value + byte % 128 * scale, scale * 128
    if byte < 128 then return value, i + 1 end
  end
end

-- The finite IEEE number of 4 or 8 bytes at `at`. Its sign and exponent are in the last two bytes.
local function ieee(bytes, at, size)
  local fraction_bits, bias = size == 4 and 23 or 52, size == 4 and 127 or 1023
  local top, split = unsigned(bytes, at + size - 2, 2), 2 ^ (fraction_bits - 8 * (size - 2))
  local exponent = math.floor(top % 32768 / split)
  local fraction = (unsigned(bytes, at, size - 2) + top % split * 256 ^ (size - 2)) / 2 ^ fraction_bits
  local value = exponent == 0 and math.ldexp(fraction, 1 - bias) or math.ldexp(1 + fraction, exponent - bias)
  return top >= 32768 and -value or value
end

--- The numbers in the bytes; size 4: float32, 8: float64.
function M.numbers(bytes, size)
  local list = {}
  for at = 1, #bytes, size do list[#list + 1] = ieee(bytes, at, size) end
  return list
end

--- The varints in the bytes of a packed field.
function M.varints(bytes)
  local list, at = {}, 1
  while at <= #bytes do list[#list + 1], at = varint(bytes, at) end
  return list
end

--- The fields of a message.
function M.fields(bytes)
  local fields, at = {}, 1
  while at <= #bytes do
    local key, value
    key, at = varint(bytes, at)
    local kind, number = key % 8, math.floor(key / 8)
    if kind == 0 then
      value, at = varint(bytes, at)
    elseif kind == 2 then
      local size
      size, at = varint(bytes, at)
      assert(at + size - 1 <= #bytes, "cut off")
      value, at = bytes:sub(at, at + size - 1), at + size
    else
      local size = assert(({ [1] = 8, [5] = 4 })[kind], "unknown wire type")
      value, at = ieee(bytes, at, size), at + size
    end
    fields[number] = fields[number] or {}
    table.insert(fields[number], value)
  end
  return fields
end

-- The masked CRC-32C, bit by bit.
local function checksum(bytes)
  local crc = bit.bnot(0)
  for i = 1, #bytes do
    crc = bit.bxor(crc, bytes:byte(i))
    for _ = 1, 8 do
      local low = bit.band(crc, 1)
      crc = bit.bxor(bit.rshift(crc, 1), low == 1 and bit.tobit(0x82f63b78) or 0)
    end
  end
  return (bit.ror(bit.bnot(crc), 15) + 0xa282ead8) % 2 ^ 32
end

--- Iterates over the records of a TFRecord file; raises for a damaged one and for half a record at the end.
function M.records(bytes)
  local at = 1
  return function()
    if at > #bytes then return nil end
    local size = unsigned(bytes, at, 8)
    assert(unsigned(bytes, at + 8, 4) == checksum(bytes:sub(at, at + 7)), "checksum of the length")
    local record = bytes:sub(at + 12, at + 11 + size)
    assert(#record == size and unsigned(bytes, at + 12 + size, 4) == checksum(record), "checksum of the record")
    at = at + 16 + size
    return record
  end
end

return M
