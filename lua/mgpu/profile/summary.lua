--- What a profile adds up to: the parts of the time of the script's thread, and a row for each layer and op.
--
-- Events come by their starts, outer ones first, so a stack finds what each contains. The time of a span less that of
-- the spans inside it is its own time. In the script's thread the own times add up to the time of the whole.
local core = require "mgpu.core"
local rows = require "mgpu.profile.rows"

local Summary = {}
Summary.__index = Summary

-- Kind of span -> the part of the time that its own time belongs to.
local PART = { script = "Lua", callback = "callbacks", data = "data", trace = "tracing", plan = "making plans",
  step = "starting steps", launch = "computing", collective = "collectives", wait = "waiting for devices",
  checkpoint = "checkpoints" }

--- The parts, in the order of tables.
local PARTS = { "computing", "collectives", "waiting for devices", "starting steps", "data", "callbacks", "checkpoints",
  "tracing", "making plans", "Lua" }

local M = { PARTS = PARTS }

--- new(root) -> a summary of no events. root: the text of the span that is the whole.
function M.new(root)
  local parts, calls = {}, {}
  for _, name in ipairs(PARTS) do parts[name], calls[name] = 0, 0 end
  return setmetatable({ root = root, parts = parts, calls = calls, by_key = {}, rows = {},
    callbacks = {}, functions = {}, devices = {}, has_device = {}, data_threads = 0, wall = 0 }, Summary)
end

-- ---- rows ---------------------------------------------------------------------------------------

local function count_launch(self, e, seconds)
  e.op = e.what
  local row = rows.count(self.rows, self.by_key, e)
  if not row.seconds then
    row.collective, row.seconds = e.kind == "collective", 0
    row.first, row.first_calls, row.seen = 0, 0, {}
  end
  row.seconds = row.seconds + seconds
  if e.device and not row.seen[e.device] then
    row.seen[e.device], row.first, row.first_calls = true, row.first + seconds, row.first_calls + 1
  end
  if e.device and not self.has_device[e.device] then
    self.has_device[e.device], self.devices[#self.devices + 1] = true, e.device
  end
end

-- ---- the script's thread ------------------------------------------------------------------------

local function count_own(self, e, seconds)
  local part = PART[e.kind]
  self.parts[part], self.calls[part] = self.parts[part] + seconds, self.calls[part] + 1
  if e.kind == "callback" then self.callbacks[e.what] = (self.callbacks[e.what] or 0) + seconds end
  if e.kind == "data" and e.what:find ": " then self.functions[e.what] = (self.functions[e.what] or 0) + seconds end
end

-- ---- events -------------------------------------------------------------------------------------

local function finish(self, e)
  local own = (e.stop - e.start - e.inside) * 1e-6
  if e.kind == "launch" or e.kind == "collective" then count_launch(self, e, own + e.waited * 1e-6) end
  if e.counts then count_own(self, e, own) end
end

local function pop(self, depth)
  local stack = self.stack
  while #stack > 0 and stack[#stack].depth >= depth do finish(self, table.remove(stack)) end
end

--- begin_track(name): the events that follow are of this thread.
function Summary:begin_track(name)
  self.stack = {}
  if name == "data" then self.data_threads = self.data_threads + 1 end
end

--- add(event): event: {kind, what, start, stop, depth, device, layer, where, backward, number, flops, bytes}, times in
--- microseconds. The table is kept.
function Summary:add(e)
  local stack = self.stack
  pop(self, e.depth)
  local outer = stack[#stack]
  e.inside, e.waited = 0, 0 -- waited: of a collective, for the other devices
  e.counts = outer and outer.counts or e.kind == "script" and e.what == self.root
  if outer then
    outer.inside = outer.inside + e.stop - e.start
    if e.kind == "wait" and outer.kind == "collective" then outer.waited = outer.waited + e.stop - e.start end
  end
  if e.counts and not outer then self.wall = self.wall + (e.stop - e.start) * 1e-6 end
  if e.counts and outer and e.kind == "script" and e.what == "batch" then self.batches = (self.batches or 0) + 1 end
  if e.kind == "step" and e.what == "step" and e.counts then self.steps = (self.steps or 0) + 1 end
  stack[#stack + 1] = e
end

--- end_track(): all its events were added.
function Summary:end_track() pop(self, 0) end

--- read(root) -> a summary of the profile that was recorded last, and the time from which on it has all events, in
--- microseconds since the profile began. sink(track, event), if given, gets each event too.
function M.read(root, sink)
  local summary, from = M.new(root), core.profile_kept_from()
  for _, track in ipairs(core.profile_tracks()) do
    summary:begin_track(track.name)
    core.profile_each(track.index, function(kind, what, start, stop, depth, device, layer, where, backward, number,
      flops, bytes)
      if stop <= from then return end
      local event = { kind = kind, what = what, start = math.max(start, from), stop = stop, depth = depth,
        device = device, layer = layer, where = where, backward = backward, number = number, flops = flops,
        bytes = bytes }
      if sink then sink(track, event) end
      summary:add(event)
    end)
    summary:end_track()
  end
  return summary, from
end

return M
