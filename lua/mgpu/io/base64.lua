--- Bytes as base64 text (RFC 4648), and back.
local bit = require "bit"

local M = {}

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local letters, values = {}, {}
for i = 0, 63 do
  letters[i] = ALPHABET:sub(i + 1, i + 1)
  values[letters[i]] = i
end

--- encode(bytes) -> text, with padding.
function M.encode(bytes)
  local out, band, rshift = {}, bit.band, bit.rshift
  for at = 1, #bytes, 3 do
    local a, b, c = bytes:byte(at, at + 2)
    local word = a * 65536 + (b or 0) * 256 + (c or 0)
    out[#out + 1] = letters[rshift(word, 18)] .. letters[band(rshift(word, 12), 63)]
      .. (b and letters[band(rshift(word, 6), 63)] or "=") .. (c and letters[band(word, 63)] or "=")
  end
  return table.concat(out)
end

--- decode(text) -> bytes. Characters that are no base64, such as padding and line breaks, are skipped.
function M.decode(text)
  local bytes, word, bits = {}, 0, 0
  for letter in text:gmatch "[%w+/]" do
    word, bits = word * 64 + values[letter], bits + 6
    if bits >= 8 then
      bits = bits - 8
      bytes[#bytes + 1] = string.char(math.floor(word / 2 ^ bits))
      word = word % 2 ^ bits
    end
  end
  return table.concat(bytes)
end

return M
