--- Values of TensorBoard's summaries: Summary.Value messages (tensorflow/core/framework/summary.proto).
--
-- Each is a tag, a tensor, and the name of the plugin that shows it, as TensorFlow 2's tf.summary writes them.
local protobuf = require "mgpu.io.protobuf"

local M = {}

local DT_FLOAT, DT_DOUBLE, DT_STRING = 1, 2, 7 -- tensorflow/core/framework/types.proto
local BUCKETS = 30 -- of a histogram, as TensorFlow's default

-- A TensorProto of this shape, without values.
local function tensor(dtype, shape)
  local sizes = protobuf.message()
  for _, size in ipairs(shape) do sizes:message(2, protobuf.message():varint(1, size)) end
  return protobuf.message():varint(1, dtype):message(2, sizes)
end

local function value(tag, proto, plugin, content)
  local data = protobuf.message():bytes(1, plugin)
  if content then data:bytes(2, content) end
  return protobuf.message():bytes(1, tag):message(8, proto):message(9, protobuf.message():message(1, data))
end

--- scalar(tag, number) -> the value; numbers are stored as float32.
function M.scalar(tag, number)
  return value(tag, tensor(DT_FLOAT, {}):bytes(4, protobuf.little_endian("float", { number })), "scalars")
end

-- The lowest and the highest finite number among n at p, and how many are finite.
local function limits(p, n)
  local low, high, finite = math.huge, -math.huge, 0
  for i = 0, n - 1 do
    local v = p[i]
    if v - v == 0 then
      finite = finite + 1
      if v < low then low = v end
      if v > high then high = v end
    end
  end
  return low, high, finite
end

-- How many of the n numbers at p are in each of BUCKETS ranges of equal width.
local function counts(p, n, low, high)
  local list, width = {}, (high - low) / BUCKETS
  for i = 1, BUCKETS do list[i] = 0 end
  for i = 0, n - 1 do
    local v = p[i]
    if v - v == 0 then
      local at = math.min(math.floor((v - low) / width), BUCKETS - 1) + 1
      list[at] = list[at] + 1
    end
  end
  return list
end

--- buckets(t) -> {left, right, count, left, right, count, ...}: the histogram of a tensor of floats in host memory.
-- It has 30 buckets. If all numbers are equal, the last bucket counts them. NaN and infinities are not counted.
function M.buckets(t)
  local p, n, list = t:pointer(), t:count(), {}
  local low, high, finite = limits(p, n)
  if finite == 0 then low, high = 0, 0 end
  local numbers = high > low and counts(p, n, low, high)
  for i = 1, BUCKETS do
    local count = numbers and numbers[i] or i == BUCKETS and finite or 0
    list[#list + 1] = low + (high - low) * (i - 1) / BUCKETS
    list[#list + 1] = i == BUCKETS and high or low + (high - low) * i / BUCKETS
    list[#list + 1] = count
  end
  return list
end

--- histogram(tag, t) -> the value; t: a tensor of floats in host memory.
function M.histogram(tag, t)
  local numbers = protobuf.little_endian("double", M.buckets(t))
  return value(tag, tensor(DT_DOUBLE, { BUCKETS, 3 }):bytes(4, numbers), "histograms")
end

--- images(tag, columns, rows, pngs) -> the value; pngs: images of this size, each the bytes of a PNG file.
function M.images(tag, columns, rows, pngs)
  local proto = tensor(DT_STRING, { #pngs + 2 }):bytes(8, tostring(columns)):bytes(8, tostring(rows))
  for _, png in ipairs(pngs) do proto:bytes(8, png) end
  return value(tag, proto, "images")
end

--- keras_model(tag, json) -> the value that the graph plugin shows as the conceptual graph (model_json.lua).
function M.keras_model(tag, json)
  return value(tag, tensor(DT_STRING, {}):bytes(8, json), "graph_keras_model", "1")
end

return M
