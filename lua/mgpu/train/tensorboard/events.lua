--- Event files of TensorBoard, and the values in them.
local core = require "mgpu.core"
local protobuf = require "mgpu.io.protobuf"

local M = {}

-- ---- values -------------------------------------------------------------------------------------

-- Values of TensorBoard's summaries: Summary.Value messages (tensorflow/core/framework/summary.proto).
--
-- Each is a tag, a tensor, and the name of the plugin that shows it, as TensorFlow 2's tf.summary writes them.

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

--- host_value(v) -> the variable's value as floats in host memory.
function M.host_value(v)
  local t = v:value()
  if not t:dtype():find "float[36]" then t = t:to "float32" end
  return core.place(t, "cpu:0")
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

--- keras_model(tag, json) -> the value that the graph plugin shows as the conceptual graph (model_views.lua).
function M.keras_model(tag, json)
  return value(tag, tensor(DT_STRING, {}):bytes(8, json), "graph_keras_model", "1")
end

-- ---- files --------------------------------------------------------------------------------------

local ffi = require "ffi"

ffi.cdef "int getpid(void);"

--- An event file of TensorBoard: a TFRecord file of Event messages (tensorflow/core/util/event.proto).
--
--     local file = EventFile.new("logs/train")      -- the file is made by the first write
--     file:add(step, values)                        -- a Summary of these values (above)
--     local message = file:write()                  -- nil, or why nothing was written
-- Events wait in memory until write, which appends them all at once. After a failed write they are kept and written by
-- the next one; half a record that the disk took is cut off first. So the file ends with a whole record, unless the
-- machine stops during a write, and readers ignore half a record at the end.
local EventFile = {}
EventFile.__index = EventFile

-- Events in memory while the disk refuses them: beyond these bytes they are dropped.
local MOST_WAITING = 64 * 2 ^ 20

local started, started_clock = os.time(), core.clock()
local made = 0 -- files of this process, for different names

-- Seconds since 1970, with fractions, unlike os.time.
local function wall_time() return started + (core.clock() - started_clock) end

local function host_name()
  local file = io.open "/proc/sys/kernel/hostname"
  local name = file and file:read "*l"
  if file then file:close() end
  return (name or "localhost"):gsub("[^%w_-]", "_")
end

-- A name as TensorFlow's: TensorBoard reads files with "tfevents" in their names, in the order of the names.
local function new_path(folder)
  local path
  repeat
    path = ("%s/events.out.tfevents.%010d.%s.%d.%d.v2"):format(folder, wall_time(), host_name(), ffi.C.getpid(), made)
    made = made + 1
  until not core.file_exists(path)
  return path
end

local function drop_waiting(self) self.waiting, self.bytes = {}, 0 end

--- new(folder, state) -> the file. state: of file:state(), to go on with a file where it ended then.
function EventFile.new(folder, state)
  local self = setmetatable({ folder = folder, path = state and state.path or new_path(folder),
    size = state and state.size or 0 }, EventFile)
  drop_waiting(self)
  return self
end

local function event() return protobuf.message():double(1, wall_time()) end

--- file:add(step, values): an event of a step; values: an array of Summary.Value messages.
function EventFile:add(step, values)
  local summary = protobuf.message()
  for _, each in ipairs(values) do summary:message(1, each) end
  local text = event():varint(2, step):message(5, summary):text()
  self.waiting[#self.waiting + 1] = text
  self.bytes = self.bytes + #text
end

--- file:write() -> nil, or the reason why the events that wait could not be written.
function EventFile:write()
  if #self.waiting == 0 then return nil end
  local ok, message = pcall(function()
    if not core.file_exists(self.path) then -- yet, or somebody has removed it
      core.make_folder(self.folder)
      self.size = 0
    end
    local records = { self.size == 0 and event():bytes(3, "brain.Event:2"):text() or nil } -- the format's version
    for _, text in ipairs(self.waiting) do records[#records + 1] = text end
    self.size = core.tfrecord_append(self.path, self.size, records)
  end)
  if ok then
    drop_waiting(self)
    return nil
  end
  if core.error_code() ~= "io" then error(message, 0) end
  if self.bytes <= MOST_WAITING then return message .. "; they are written later" end
  drop_waiting(self)
  return message .. "; 64 MiB of events waited, they are dropped"
end

--- file:state() -> {path =, size =}: how far the file is written. size is 0 before the first write.
function EventFile:state() return { path = self.path, size = self.size } end

M.EventFile = EventFile

return M
