--- What is printed and warned while a dashboard is open also goes to its page: lines of mgpu.output, and warnings.
--
-- A progress bar draws its line again and again; the page gets the last drawing. A script that prints very much loses
-- lines on the page, which says how many; after MOST bytes of them it gets no more.
local core = require "mgpu.core"
local warnings = require "mgpu.warnings"

local Messages = {}
Messages.__index = Messages

local RATE, BURST = 20, 200 -- lines a second; and how many may come at once
local MOST = 64 * 2 ^ 20 -- bytes of all lines
local MOST_WAITING = 4096 -- bytes of a line that has no end yet

local function plain(line)
  line = line:match "([^\r]*)\r*$"
  return (line:gsub("\27%[[%d;?]*%a", ""))
end

-- Whether one more line may be sent.
local function has_room(self)
  local now = core.clock()
  self.room = math.min(BURST, self.room + (now - self.filled) * RATE)
  self.filled = now
  if self.room < 1 then
    self.dropped = self.dropped + 1
    return false
  end
  self.room = self.room - 1
  return true
end

local function send(self, kind, text)
  if self.sent > MOST or not has_room(self) then return end
  self.sent = self.sent + #text
  if self.sent > MOST then return self.sink("warning", "there are 64 MiB of messages: more is not shown here") end
  if self.dropped > 0 then
    self.sink("warning", ("%d lines are left out here"):format(self.dropped))
    self.dropped = 0
  end
  self.sink(kind, text)
end

local function take(self, text)
  self.waiting = self.waiting .. text
  local at = 1
  for line, stop in self.waiting:gmatch "([^\n]*)\n()" do
    line, at = plain(line), stop
    if line:find "%S" then send(self, "output", line) end
  end
  self.waiting = self.waiting:sub(at):sub(-MOST_WAITING)
end

--- messages:quietly(fn, ...): fn(...), whose output the page does not get.
function Messages:quietly(fn, ...)
  self.quiet = true
  local ok, message = pcall(fn, ...)
  self.quiet = false
  if not ok then error(message, 0) end
end

--- messages:stop(): restores mgpu.output, unless the script has replaced it meanwhile.
function Messages:stop()
  local mgpu = require "mgpu"
  if mgpu.output == self.output then mgpu.output = self.before end
  self.sink, warnings.also = function() end, nil
end

--- start(sink) -> the messages; sink(kind, text) gets each line, kind: "output" or "warning".
function Messages.start(sink)
  local mgpu = require "mgpu"
  local self = setmetatable({ sink = sink, before = mgpu.output, waiting = "", sent = 0, dropped = 0, room = BURST,
    filled = core.clock() }, Messages)
  function self.output(text)
    self.before(text)
    if not self.quiet then take(self, text) end
  end
  mgpu.output = self.output
  warnings.also = function(text) send(self, "warning", text) end
  return self
end

return Messages
