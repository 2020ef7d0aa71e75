--- Profiles as files in the Chrome trace format, which Perfetto (ui.perfetto.dev) and chrome://tracing show.
--
-- A file is a JSON object with complete events ("X", times in microseconds) and names of processes and threads ("M").
-- A process is a rank. Times count from midnight (UTC), so files of several ranks fit together if they are put into
-- one (jq -s '{traceEvents: map(.traceEvents) | add}' trace.*.json).
local core = require "mgpu.core"

local Writer = {}
Writer.__index = Writer

local M = {}

local HEAD = '{"displayTimeUnit":"ms","traceEvents":[\n'

-- A string in JSON, each distinct one made once.
local function quoted(self, text)
  local known = self.texts[text]
  if not known then
    local ok, encoded = pcall(core.json_encode, text)
    known = ok and encoded or core.json_encode((text:gsub("[\128-\255]", "?"))) -- not UTF-8
    self.texts[text] = known
  end
  return known
end

local CHUNK = 1000 -- lines that are put together: LuaJIT's memory would not hold a whole large file twice

local function put(self, format, ...)
  local lines = self.lines
  lines[#lines + 1] = format:format(...)
  if #lines < CHUNK then return end
  self.chunks[#self.chunks + 1] = table.concat(lines, ",\n")
  self.lines, self.chunks[#self.chunks + 1] = {}, ",\n"
end

local function name_of(self, what, tid, name)
  put(self, '{"name":"%s","ph":"M","pid":%d,"tid":%d,"args":{"name":%s}}', what, self.rank, tid, quoted(self, name))
end

--- new(rank, size, began) -> a writer without events. began: the time of day at which the profile began, in
--- microseconds since midnight.
function M.new(rank, size, began)
  local self = setmetatable({ rank = rank, began = began, chunks = { HEAD }, lines = {}, texts = {}, named = {},
    of_name = {} }, Writer)
  name_of(self, "process_name", 0, size > 1 and ("rank %d of %d"):format(rank, size) or "mgpulua")
  return self
end

local function name_track(self, track)
  if self.named[track.index] then return end
  local n = (self.of_name[track.name] or 0) + 1
  self.named[track.index], self.of_name[track.name] = true, n
  name_of(self, "thread_name", track.index, n == 1 and track.name or ("%s %d"):format(track.name, n))
end

local FIELDS = { "layer", "where", "device" }

local function arguments(self, e)
  local list = {}
  for _, name in ipairs(FIELDS) do
    if e[name] then list[#list + 1] = ('"%s":%s'):format(name, quoted(self, e[name])) end
  end
  if e.backward then list[#list + 1] = '"gradient":true' end
  if e.number ~= 0 then list[#list + 1] = ('"number":%d'):format(e.number) end
  if e.flops > 0 then list[#list + 1] = ('"flops":%.0f'):format(e.flops) end
  if e.bytes > 0 then list[#list + 1] = ('"bytes":%.0f'):format(e.bytes) end
  return table.concat(list, ",")
end

--- add(track, event): an event as summary.read gives it.
function Writer:add(track, e)
  name_track(self, track)
  put(self, '{"name":%s,"cat":"%s","ph":"X","ts":%.3f,"dur":%.3f,"pid":%d,"tid":%d,"args":{%s}}',
    quoted(self, e.what or "?"), e.kind, self.began + e.start, e.stop - e.start, self.rank, track.index,
    arguments(self, e))
end

--- text() -> the file, as an array of strings.
function Writer:text()
  local chunks = self.chunks
  if #self.lines == 0 then chunks[#chunks] = nil end -- the last comma
  chunks[#chunks + 1], self.lines = table.concat(self.lines, ",\n"), {}
  chunks[#chunks + 1] = "\n]}\n"
  return chunks
end

--- path_of(path, rank, size) -> the file of a rank: of several, "trace.json" becomes "trace.0.json".
function M.path_of(path, rank, size)
  if size == 1 then return path end
  local stem, ending = path:match "^(.*)(%.[^./]+)$"
  return ("%s.%d%s"):format(stem or path, rank, ending or "")
end

return M
