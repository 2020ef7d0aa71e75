--- Callbacks that measure how long the batches of training take.
-- RETURNS the callbacks by name.
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"

local M = {}

-- ---- BatchTimer ---------------------------------------------------------------------------------

--- BatchTimer: the base of callbacks that measure how long the batches of training take.
--
-- It calls measured(self, seconds, batches) after each step. Reading the logs makes the host wait for the step, so a
-- batch is timed from its beginning until the device has finished. With steps_per_execution a step has several
-- batches. With strategy "async" batches overlap, and the time since the last finished one counts.
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

M.BatchTimer = BatchTimer

-- ---- BatchTiming --------------------------------------------------------------------------------

--- BatchTiming {}: prints the median time of a batch and the time of the epoch after each epoch, and both medians at
--- the end.
--
--     Epoch timing - batch (median): 0.00512, epoch: 2.41000 (sec), overhead (epoch - steps*batch): 0.01360 (sec)
--     Overall - batch (median): 0.00510, epoch (median): 2.40800 (sec)
-- Timing makes the host wait for every step. Source: BatchTiming of keras_experiments and keras-multi-gpu.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     model:fit(mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }, { verbose = 0, callbacks = mgpu.callbacks.BatchTiming {} })
--     --> Epoch timing - batch (median): ..., epoch: ... (sec), overhead (epoch - steps*batch): ... (sec)
--     --> Overall - batch (median): ..., epoch (median): ... (sec)
local BatchTiming = BatchTimer:extend("BatchTiming", {})

--- Starts again without times.
function BatchTiming:on_train_begin() self.batch_times, self.epoch_times = {}, {} end

--- Starts the clock of the epoch.
function BatchTiming:on_epoch_begin()
  self.started, self.first = core.clock(), #self.batch_times + 1
end

--- Notes the time of each batch.
function BatchTiming:measured(seconds, batches)
  for _ = 1, batches do self.batch_times[#self.batch_times + 1] = seconds / batches end
end

--- Prints the times of the epoch.
function BatchTiming:on_epoch_end()
  local epoch, times = core.clock() - self.started, {}
  for i = self.first, #self.batch_times do times[#times + 1] = self.batch_times[i] end
  self.epoch_times[#self.epoch_times + 1] = epoch
  local batch = self.median(times)
  self.write("\nEpoch timing - batch (median): %0.5f, epoch: %0.5f (sec), overhead (epoch - steps*batch): %0.5f (sec)",
    batch, epoch, epoch - batch * #times)
end

--- Prints the medians of all epochs.
function BatchTiming:on_train_end()
  self.write("\nOverall - batch (median): %0.5f, epoch (median): %0.5f (sec)", self.median(self.batch_times),
    self.median(self.epoch_times))
end

--- The times of all batches and epochs so far, and the position of the first time of this epoch.
function BatchTiming:get_state()
  return { batch_times = self.batch_times, epoch_times = self.epoch_times, first = self.first }
end

--- Continues from get_state's table.
function BatchTiming:set_state(state)
  self.batch_times, self.epoch_times, self.first = state.batch_times, state.epoch_times, state.first
end

M.BatchTiming = BatchTiming

-- ---- SamplesPerSec ------------------------------------------------------------------------------

--- SamplesPerSec {batch_size = fit's}: prints the median number of samples per second so far, after each epoch.
--
--     Samples/sec: 12345.67
-- Timing makes the host wait for every step. Errors: a dataset, whose batch size is not known, without the option.
-- Source: SamplesPerSec of keras_experiments and keras-multi-gpu.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     model:fit(mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }, { verbose = 0, callbacks = mgpu.callbacks.SamplesPerSec {} })
--     --> Samples/sec: ...
local SamplesPerSec = BatchTimer:extend("SamplesPerSec", { positional = 1, { "batch_size", "integer", min = 1 } })

--- Raises if the batch size is not known.
function SamplesPerSec:check_fit()
  if not (self.batch_size or self.params.batch_size) then
    core.fail("usage", "fit: SamplesPerSec: the batch size of a dataset is not known: give batch_size")
  end
end

--- Starts again without times.
function SamplesPerSec:on_train_begin() self.rates = {} end

--- Notes the rate of a step.
function SamplesPerSec:measured(seconds, batches)
  self.rates[#self.rates + 1] = (self.batch_size or self.params.batch_size) * batches / seconds
end

--- Prints the median.
function SamplesPerSec:on_epoch_end() self.write("\nSamples/sec: %0.2f", self.median(self.rates)) end

--- All rates so far.
function SamplesPerSec:get_state() return { rates = self.rates } end

--- Continues from get_state's table.
function SamplesPerSec:set_state(state) self.rates = state.rates end

M.SamplesPerSec = SamplesPerSec

return M
