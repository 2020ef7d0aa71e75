--- base64(bytes) -> their base64 text (RFC 4648), with padding.
local bit = require "bit"

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local letters = {}
for i = 0, 63 do letters[i] = ALPHABET:sub(i + 1, i + 1) end

--- base64(bytes) -> text: see the top.
return function(bytes)
  local out, band, rshift = {}, bit.band, bit.rshift
  for at = 1, #bytes, 3 do
    local a, b, c = bytes:byte(at, at + 2)
    local word = a * 65536 + (b or 0) * 256 + (c or 0)
    out[#out + 1] = letters[rshift(word, 18)] .. letters[band(rshift(word, 12), 63)]
      .. (b and letters[band(rshift(word, 6), 63)] or "=") .. (c and letters[band(word, 63)] or "=")
  end
  return table.concat(out)
end
