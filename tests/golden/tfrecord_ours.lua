-- Writes TFRecord files to the folder given, for make_tfrecord.py, which reads them with TensorFlow:
--
--     build/mgpulua tests/golden/tfrecord_ours.lua FOLDER
-- Ten rows, as a plain file, compressed in both ways, and in three shards.
local mgpu = require "mgpu"

local folder = ...

local SCHEMA = {
  { "image", "png", shape = { 3, 4 } },
  { "jpeg", "jpeg", quality = 80 },
  { "raw", "float64", shape = { 2 } },
  { "point", "float32", shape = { 2 } },
  { "label", "int64" },
  { "list", "int32", shape = { -1 } },
  { "text", "string", default = "" },
}

local function row(i)
  local list = {}
  for k = 1, i do list[k] = k - 3 end
  local image = mgpu.arange(12):to "uint8" * (i + 1)
  return { image = image:reshape { 3, 4 }, jpeg = mgpu.ones({ 3, 4, 3 }, { dtype = "uint8" }), raw = { i / 3, -i },
    point = { i / 3, -i }, label = i - 5, list = list, text = i ~= 4 and "row\0" .. i or nil }
end

local function write(name, options)
  local i = -1
  mgpu.data.write_tfrecord(folder .. "/" .. name, function()
    i = i + 1
    return i < 10 and row(i) or nil
  end, SCHEMA, options)
end

write "plain"
write("gzip", { compression = "gzip" })
write("zlib", { compression = "zlib" })
write("shards", { shards = 3 })
