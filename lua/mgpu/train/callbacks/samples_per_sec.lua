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
local BatchTimer = require "mgpu.train.callbacks.batch_timer"
local core = require "mgpu.core"

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

return SamplesPerSec
