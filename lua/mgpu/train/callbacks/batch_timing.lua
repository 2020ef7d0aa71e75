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
local BatchTimer = require "mgpu.train.callbacks.batch_timer"
local core = require "mgpu.core"

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

return BatchTiming
