--- An event file of TensorBoard: a TFRecord file of Event messages (tensorflow/core/util/event.proto).
--
--     local file = EventFile.new("logs/train")      -- the file is made by the first write
--     file:add(step, values)                        -- a Summary of these values (summaries.lua)
--     local message = file:write()                  -- nil, or why nothing was written
-- Events wait in memory until write, which appends them all at once. After a failed write they are kept and written by
-- the next one; half a record that the disk took is cut off first. So the file ends with a whole record, unless the
-- machine stops during a write, and readers ignore half a record at the end.
local core = require "mgpu.core"
local ffi = require "ffi"
local protobuf = require "mgpu.io.protobuf"

ffi.cdef "int getpid(void);"

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
  for _, value in ipairs(values) do summary:message(1, value) end
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

return EventFile
