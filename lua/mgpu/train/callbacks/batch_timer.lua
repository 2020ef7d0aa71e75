--- BatchTimer: the base of callbacks that measure how long the batches of training take.
--
-- It calls measured(self, seconds, batches) after each step. Reading the logs makes the host wait for the step, so a
-- batch is timed from its beginning until the device has finished. With steps_per_execution a step has several
-- batches. With strategy "async" batches overlap, and the time since the last finished one counts.
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"

local BatchTimer = Callback:extend("BatchTimer", {})

BatchTimer.adds = {}

--- Starts the clock of a batch.
function BatchTimer:on_batch_begin(batch)
  self.last = batch
  if not self.begun then self.begun, self.ended = core.clock(), batch - 1 end
end

--- Stops the clock of the batches that have ended.
function BatchTimer:on_batch_end(batch, logs)
  local _ = logs.loss
  local now = core.clock()
  self:measured(now - self.begun, batch - self.ended)
  self.ended, self.begun = batch, self.last > batch and now or nil
end

--- median(list) -> the median of the numbers; NaN if there are none.
function BatchTimer.median(list)
  local sorted, n = {}, #list
  if n == 0 then return 0 / 0 end
  for i = 1, n do sorted[i] = list[i] end -- unpack takes a few thousand at most
  table.sort(sorted)
  return (sorted[math.floor((n + 1) / 2)] + sorted[math.floor(n / 2) + 1]) / 2
end

return BatchTimer
