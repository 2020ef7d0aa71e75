--- Asynchronous training: each device computes gradients on the weights as they are when it starts, and the
-- optimizer applies them in the order of arrival, without any device waiting for another.
--
-- The weights and the optimizer are on the home device, the store. A device gets a batch, computes on the weights of
-- that moment, and sends its gradients back; other devices may have changed the weights by then. The number of such
-- changes is the staleness of the gradients. Of the devices that have finished, the one whose batch was submitted
-- first is served first, so that no gradients wait while faster devices go round: with equally fast devices the
-- staleness is the number of devices less one. Loss and metrics are as the devices computed them; moving
-- statistics (batch normalization) come from the device served last.
local core = require "mgpu.core"
local train_step = require "mgpu.train.train_step"

local Async = {}
Async.__index = Async

-- The jitted step that computes unscaled gradients, losses and what the metrics need of one batch. spread: as core.jit
-- takes it.
local function gradient_step(compiled, model, spread)
  local optimizer = compiled.optimizer
  return core.jit(function(rows, layout, key, first, order, ...) -- luacheck: no unused
    local batch = train_step.gradients(compiled, model, order, first, rows, layout, { ... })
    return { grads = optimizer:unscale(batch.grads), loss = batch.loss, each = batch.each, y = batch.y,
      weight = batch.weight, predictions = batch.predictions, masks = batch.masks }
  end, spread)
end

-- ---- the store ----------------------------------------------------------------------------------

-- The result with all its tensors copied to the device.
local function to_device(value, device)
  if type(value) == "userdata" then return value:device() == device and value or value:to(device) end
  if type(value) ~= "table" then return value end
  local copy = {}
  for key, item in pairs(value) do copy[key] = to_device(item, device) end
  return copy
end

-- The jitted step that applies the gradients of a batch and updates loss and metrics.
local function store_step(compiled, model)
  return core.jit(function(result, rows, outputs, key) -- luacheck: no unused
    compiled.optimizer:apply_unscaled(result.grads, model.trainable_variables)
    result.rows = rows
    compiled.metrics:update(result)
    return outputs
  end)
end

-- Waits for a device's result and applies it.
local function receive(self, job)
  local handle = job.handle
  job.handle = nil
  local result = handle:wait()
  local stale = self.version - job.version
  self.staleness = { sum = self.staleness.sum + stale, n = self.staleness.n + 1,
    max = math.max(self.staleness.max, stale) }
  self.apply(to_device(result, self.compiled.home), job.rows, #self.compiled.outputs, self.key)
  self.version = self.version + 1
end

-- ---- the devices --------------------------------------------------------------------------------

-- RETURNS the job of a device without work, or nil.
local function idle_job(self)
  for _, job in ipairs(self.jobs) do
    if not job.handle then return job end
  end
end

-- Starts a batch of a cursor (batch_cursor.lua) on an idle device.
local function submit(self, job, batch)
  self.given = self.given + 1
  job.version, job.rows, job.number = self.version, batch.rows, self.given
  job.handle = job.step:submit(batch.rows, batch.layout, self.key, batch.first, batch.order,
    unpack(batch.tensors))
end

-- Waits until a device has finished and applies its gradients. RETURNS false if no device is working.
local function receive_next(self)
  for _ = 1, math.huge do
    local oldest, working
    for _, job in ipairs(self.jobs) do
      working = working or job.handle
      if job.handle and (not oldest or job.number < oldest.number) and job.handle:done() then
        oldest = job
      end
    end
    if oldest then receive(self, oldest) end
    if oldest or not working then return oldest ~= nil end
    core.sleep(2e-5)
  end
end

-- The methods of a trainer: see strategies.lua.

--- train_batch(take): gives batches to the idle devices and applies one device's gradients, which is what a step is.
function Async:train_batch(take)
  local job = idle_job(self)
  while job do
    local batch = take()
    if not batch then break end
    submit(self, job, batch)
    job = idle_job(self)
  end
  return receive_next(self)
end

function Async:end_epoch() end -- luacheck: no self

--- abandon(): stops the devices and drops their results. Called at the end, after an error too.
function Async:abandon()
  for _, job in ipairs(self.jobs) do
    if job.handle then job.handle:cancel() end
    job.handle = nil
  end
end

Async.reports = { "staleness_mean", "staleness_max" }

--- report(values): the mean and the largest staleness since the last call.
function Async:report(values)
  local s = self.staleness
  self.staleness = { sum = 0, n = 0, max = 0 }
  values.staleness_mean, values.staleness_max = s.n > 0 and s.sum / s.n or 0, s.max
end

--- new(compiled, model): `compiled` has strategy "async", hence several devices and a home.
local function new(compiled, model)
  local self = setmetatable({ compiled = compiled, jobs = {}, version = 0, given = 0, key = train_step.plan_key(model),
    staleness = { sum = 0, n = 0, max = 0 }, apply = store_step(compiled, model) }, Async)
  for i, device in ipairs(compiled.devices) do
    self.jobs[i] = { step = gradient_step(compiled, model, { devices = { device } }) }
  end
  return self
end

return { new = new, gradient_step = gradient_step }
