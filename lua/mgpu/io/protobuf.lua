--- Writing messages of Protocol Buffers: TensorBoard's events and ONNX models.
--
--     local m = protobuf.message()
--     m:bytes(1, "loss"):float(2, 0.5):message(3, inner)
--     core.write_file(path, m.pieces)
-- Fields are written in the order of the calls, each with its number in the .proto file. A message is an array of
-- strings, its pieces, so that large tensors are not copied into each of the messages around them. This is Lua rather
-- than C because the numbers of a message are few: its large fields are single strings.
local ffi = require "ffi"

local char = string.char

local Message = {}
Message.__index = Message

--- message() -> an empty message. Fields: pieces, an array of strings; size, the sum of their lengths.
local function message() return setmetatable({ pieces = {}, size = 0 }, Message) end

local function add(self, piece)
  self.pieces[#self.pieces + 1] = piece
  self.size = self.size + #piece
end

-- A whole number, possibly negative, as a varint: 7 bits a byte, the lowest first.
local function varint(value)
  if value >= 0 and value < 128 then return char(value) end
  local left, bytes = ffi.cast("uint64_t", ffi.cast("int64_t", value)), {}
  while left >= 128 do
    bytes[#bytes + 1] = char(tonumber(left % 128) + 128)
    left = left / 128
  end
  bytes[#bytes + 1] = char(tonumber(left))
  return table.concat(bytes)
end

local VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5 -- wire types

local function key(field, wire_type) return varint(field * 8 + wire_type) end

--- m:varint(field, value) -> m. value: of an int32, int64, uint64, bool (0 or 1) or enum field; exact up to 2^53.
function Message:varint(field, value)
  add(self, key(field, VARINT) .. varint(value))
  return self
end

--- little_endian(ctype, list) -> the numbers as bytes; ctype: "float", "double", "int64_t" ... (on the machines that
--- this program runs on, the bytes in memory).
local function little_endian(ctype, list)
  local array = ffi.new(ctype .. "[?]", #list)
  for i, value in ipairs(list) do array[i - 1] = value end
  return ffi.string(array, ffi.sizeof(array))
end

--- m:float(field, value), m:double(field, value) -> m
function Message:float(field, value)
  add(self, key(field, FIXED32) .. little_endian("float", { value }))
  return self
end

function Message:double(field, value)
  add(self, key(field, FIXED64) .. little_endian("double", { value }))
  return self
end

--- m:bytes(field, text) -> m. For string and bytes fields, and for packed lists of numbers.
function Message:bytes(field, text)
  add(self, key(field, BYTES) .. varint(#text))
  add(self, text)
  return self
end

--- m:message(field, inner) -> m. `inner` must not be changed later.
function Message:message(field, inner)
  add(self, key(field, BYTES) .. varint(inner.size))
  for _, piece in ipairs(inner.pieces) do add(self, piece) end
  return self
end

--- m:text() -> the message as one string.
function Message:text() return table.concat(self.pieces) end

return { message = message, little_endian = little_endian }
