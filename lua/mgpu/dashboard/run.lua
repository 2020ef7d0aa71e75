--- A fit as a run on the page of the dashboard.
--
-- After each step fit calls run:step, which reads the clock and mostly does nothing else: values of batches go to the
-- page at most five times a second, less often in a run that has lasted for hours, so that a curve of a day has less
-- than 100,000 points. So do values of epochs after the first 1,000; the last epoch is always there. The
-- parts of the time come from sums in C (core.activity_sums).
local core = require "mgpu.core"
local events = require "mgpu.dashboard.events"
local logs = require "mgpu.train.logs"
local tables = require "mgpu.dashboard.tables"

local Run = {}
Run.__index = Run

local INTERVAL, PARTS_INTERVAL = 0.2, 1 -- seconds between values of batches, and between times of parts
local POINTS = 20000 -- at these intervals; the rest of the run adds as many each time it becomes 2.7 times as long
local ALL = 1000 -- epochs whose values are sent however short they are
local PAGE = 4096 -- bytes of memory in /proc/self/statm

-- Kinds of spans -> the part of a step's time. What is in no span is Lua.
local PARTS = { { "computing", "step", "launch", "collective" }, { "waiting for devices", "wait" }, { "data", "data" },
  { "callbacks", "callback" }, { "checkpoints", "checkpoint" }, { "tracing and planning", "trace", "plan" } }

-- ---- parts of the time, memory ------------------------------------------------------------------

-- {json =}: seconds by part since the last call.
local function parts_since(self, now)
  local sums, out, counted = core.activity_sums(), {}, 0
  for _, part in ipairs(PARTS) do
    local seconds = 0
    for i = 2, #part do seconds = seconds + sums[part[i]] - self.sums[part[i]] end
    counted = counted + seconds
    out[#out + 1] = events.name(part[1]) .. ":" .. events.number(math.max(seconds, 0))
  end
  out[#out + 1] = '"Lua":' .. events.number(math.max(now - self.parts_from - counted, 0))
  self.sums = sums
  return { json = "{" .. table.concat(out, ",") .. "}" }
end

local function process_memory()
  local file = io.open "/proc/self/statm"
  local pages = file and file:read "*l":match "^%d+ (%d+)"
  if file then file:close() end
  return pages and tonumber(pages) * PAGE
end

-- {json =}: {name, bytes in use, their peak or 0, the limit or 0} of each device, and of the process.
local function memory(self)
  local rows, bytes = {}, process_memory()
  for _, name in ipairs(self.devices) do
    local ok, m = pcall(core.memory, name)
    if ok then rows[#rows + 1] = { name, m.used, m.peak, m.limit or 0 } end
  end
  if bytes then rows[#rows + 1] = { "this process", bytes, 0, 0 } end
  return events.texts(rows)
end

local function send_parts(self, done, now)
  local steps = self.before + done - self.parts_at
  if steps <= 0 then return end
  self.send(events.line(20, { "t", "p", "r", self.number, "e", self.epoch, "s", done, "g", self.before + done,
    "w", now - self.began, "d", now - self.parts_from, "n", steps, "p", parts_since(self, now), "m", memory(self) }))
  self.parts_from, self.parts_at = core.clock(), self.before + done
  self.parts_due = self.parts_from + math.max(PARTS_INTERVAL, (now - self.began) / POINTS)
end

-- ---- values -------------------------------------------------------------------------------------

local function send_values(self, kind, done, values, now)
  self.send(events.line(14, { "t", kind, "r", self.number, "e", self.epoch, "s", done, "g", self.before + done, "w",
    now - self.began, "v", events.values(logs.each, values) }))
end

-- When the next values may be sent.
local function due_after(self, now) return now + math.max(INTERVAL, (now - self.began) / POINTS) end

--- run:begin_epoch(epoch).
function Run:begin_epoch(epoch) self.epoch = epoch end

--- run:step(done, read): called after each step; done: steps of this epoch; read() returns the logs so far and waits
--- for the device.
function Run:step(done, read)
  local now = core.clock()
  if now < self.due then return end
  send_values(self, "b", done, read(), now)
  if now >= self.parts_due then send_parts(self, done, now) end
  self.due = due_after(self, core.clock())
end

-- Histograms of the model's weights. They are read on this rank alone.
local function send_histograms(self, now)
  local histogram = require "mgpu.train.tensorboard.events"
  local ok, message = core.world_alone(function()
    for _, v in ipairs(self.model.variables) do
      local t = histogram.host_value(v)
      if t:count() > 0 then
        local buckets, counts = histogram.buckets(t), {}
        for i = 3, #buckets, 3 do counts[#counts + 1] = buckets[i] end
        self.send(events.line(18, { "t", "h", "r", self.number, "e", self.epoch, "w", now - self.began, "name", v.name,
          "low", buckets[1], "high", buckets[#buckets - 1], "n", t:count(), "c", events.texts(counts) }), true)
      end
    end
  end)
  if not ok then error(message, 0) end
end

--- run:end_epoch(done, values): the epoch has ended, with its validation and callbacks; values: its logs.
function Run:end_epoch(done, values)
  local now = core.clock()
  local is_early = self.n_epochs < ALL
  self.n_epochs = self.n_epochs + 1
  if is_early or now >= self.epoch_due then
    send_values(self, "e", done, values, now)
    self.epoch_due, self.left_out = due_after(self, now), nil
  else -- its values are read when they are sent, if ever
    local epoch, before = self.epoch, self.before
    self.left_out = function()
      self.epoch, self.before = epoch, before
      send_values(self, "e", done, values, now)
    end
  end
  if is_early or now >= self.parts_due then send_parts(self, done, now) end
  if self.histogram_freq > 0 and (self.epoch - 1) % self.histogram_freq == 0 then send_histograms(self, now) end
  self.before = self.before + done
  if is_early then self.due = 0 end
end

--- run:finish(ok, message): training has ended; message: the error, if it was one.
function Run:finish(ok, message)
  local state = ok and (self.epoch < self.epochs and "stopped" or "done")
    or core.error_code() == "interrupted" and "interrupted" or "failed"
  if self.left_out then self.left_out() end
  self.send(events.line(12, { "t", "x", "r", self.number, "w", core.clock() - self.began, "state", state, "text",
    not ok and { json = events.text(message) } or nil }))
  self.ended()
end

--- new(number, fit, chosen, send, ended) -> the run of a fit.
-- ARGS fit: the state of fit.lua; chosen: the options name and histogram_freq; send(line, extra) sends an event, extra:
--   whether it may be left out; ended(): called at the end.
function Run.new(number, fit, chosen, send, ended)
  local model, compiled, given = fit.model, fit.compiled, fit.given
  local now, first = core.clock(), given.initial_epoch
  local self = setmetatable({ number = number, model = model, send = send, ended = ended, epoch = first,
    epochs = given.epochs, histogram_freq = chosen.histogram_freq or 0, n_epochs = 0, began = now, due = 0,
    epoch_due = 0, parts_due = 0, parts_from = now, before = first * (fit.steps or 0),
    devices = compiled.devices or { core.default_device() } }, Run)
  self.parts_at, self.sums = self.before, core.activity_sums()
  send(tables.run_line(number, { name = chosen.name or model.name, model = model, compiled = compiled,
    history = fit.history, began = os.time(), epochs = given.epochs, first = first, steps = fit.steps }))
  return self
end

return Run
