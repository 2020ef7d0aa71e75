-- Asynchronous training: each device computes gradients on the weights as they are when it starts, and the
-- optimizer applies them as they come, without anybody waiting for anybody else.
--
-- The weights and the optimizer lie on the home device, the store. A device is given a batch, works on
-- the store's values at that moment, and pushes its gradients; by then others may have changed the
-- weights: the number of such changes is the gradients' staleness. Of those who have finished, the one
-- that was given its batch first comes first, so that nobody's gradients wait while others go round and
-- round: among devices of one speed the staleness is their number less one. Loss and metrics are those
-- that the devices saw. Moving statistics are those of the device that came last.

local core = require "mgpu.core"

local Async = {}
Async.__index = Async

-- Gradients, losses, predictions and the batch's targets, computed on one device.
local function gradient_step(compiled, model, device)
  local optimizer = compiled.optimizer
  return core.jit(function(rows, shape, key, first, order, ...) -- luacheck: no unused
    local x, y, weight = compiled.parts_of(shape, compiled.take({ ... }, order, first, rows))
    local variables, predictions, each, loss = model.trainable_variables, nil, nil, nil
    local _, grads = core.value_and_grad(function()
      predictions = compiled.outputs_of(model(compiled.inputs_of(x), { training = true }))
      loss, each = compiled:total_loss(model, y, predictions, weight)
      return optimizer:scale_loss(loss)
    end, variables)()
    compiled.guard(optimizer, loss, grads)
    return { grads = optimizer:unscale(grads), loss = loss, each = each, y = y, weight = weight,
      predictions = predictions }
  end, { devices = { device } })
end

-- ---- the store ----------------------------------------------------------------------------------

-- Everything in a result on the home device.
local function home(value, device)
  if type(value) == "userdata" then return value:device() == device and value or value:to(device) end
  if type(value) ~= "table" then return value end
  local copy = {}
  for key, item in pairs(value) do copy[key] = home(item, device) end
  return copy
end

local function store_step(compiled, model)
  return core.jit(function(result, rows, outputs, key) -- luacheck: no unused
    compiled.optimizer:apply_unscaled(result.grads, model.trainable_variables)
    compiled:count(result.loss, result.each, rows, result.y, result.predictions, result.weight)
    return outputs
  end)
end

-- Applies what a device has sent.
function Async:receive(job)
  local handle = job.handle
  job.handle = nil
  local result = handle:wait()
  local stale = self.version - job.version
  self.staleness = { sum = self.staleness.sum + stale, n = self.staleness.n + 1,
    max = math.max(self.staleness.max, stale) }
  self.apply(home(result, self.compiled.home), job.rows, #self.compiled.outputs, self.key)
  self.version = self.version + 1
end

-- ---- the devices --------------------------------------------------------------------------------

-- A device without work, or nil.
local function idle(self)
  for _, job in ipairs(self.jobs) do
    if not job.handle then return job end
  end
end

--- Whether a device has no work.
function Async:is_idle() return idle(self) ~= nil end

--- Gives the batch to an idle device.
function Async:submit(batch)
  local job = idle(self)
  self.given = self.given + 1
  job.version, job.rows, job.number = self.version, batch.rows, self.given
  job.handle = job.step:submit(batch.rows, batch.shape, self.key, batch.first, batch.order,
    unpack(batch.tensors))
end

--- Waits until a device has finished and applies its gradients; false if none is at work.
function Async:take()
  for _ = 1, math.huge do
    local oldest, working
    for _, job in ipairs(self.jobs) do
      working = working or job.handle
      if job.handle and (not oldest or job.number < oldest.number) and job.handle:done() then
        oldest = job
      end
    end
    if oldest then self:receive(oldest) end
    if oldest or not working then return oldest ~= nil end
    core.sleep(2e-5)
  end
end

--- Forgets what is under way: after an error.
function Async:abandon()
  for _, job in ipairs(self.jobs) do
    if job.handle then pcall(job.handle.wait, job.handle) end
    job.handle = nil
  end
end

--- The mean and the largest staleness since the last call.
function Async:report()
  local s = self.staleness
  self.staleness = { sum = 0, n = 0, max = 0 }
  return s.n > 0 and s.sum / s.n or 0, s.max
end

--- ARGS compiled: with devices and a home; model
local function new(compiled, model)
  local self = setmetatable({ compiled = compiled, jobs = {}, version = 0, given = 0, key = compiled.key(model),
    staleness = { sum = 0, n = 0, max = 0 }, apply = store_step(compiled, model) }, Async)
  for i, device in ipairs(compiled.devices) do
    self.jobs[i] = { step = gradient_step(compiled, model, device) }
  end
  return self
end

return { new = new }
