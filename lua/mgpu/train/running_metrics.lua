--- The running loss and metrics of a compiled model.
--
-- They add up in variables on the device, so a step returns nothing and the host waits for the device only when
-- somebody reads the values. With several outputs each output has a running loss of its own besides the total.
local core = require "mgpu.core"
local logs = require "mgpu.train.logs"
local masks = require "mgpu.nn.masks"
local Mean = require "mgpu.nn.metrics.mean".Mean

local RunningMetrics = {}
RunningMetrics.__index = RunningMetrics

-- The sums of all metrics, as a value that later batches do not change.
local function sums(self)
  local saved = {}
  self:each(function(metric) saved[#saved + 1] = metric:save() end)
  return saved
end

local function set_sums(self, saved)
  local i = 0
  self:each(function(metric)
    i = i + 1
    metric:restore(saved[i])
  end)
end

--- new(outputs): `outputs` as compile_options.outputs returns them.
function RunningMetrics.new(outputs)
  local self = setmetatable({ outputs = outputs, loss = Mean.new { name = "loss" }, losses = {} }, RunningMetrics)
  for i, output in ipairs(outputs) do
    self.losses[i] = #outputs > 1 and output.loss and Mean.new { name = "loss" } or false
  end
  return self
end

--- is_built(): whether all metrics have their sums.
function RunningMetrics:is_built()
  local built = true
  self:each(function(metric) built = built and #metric:variables() > 0 end)
  return built
end

--- build(shapes, device): makes the sums of metrics whose size depends on the predictions; shapes: of the outputs.
function RunningMetrics:build(shapes, device)
  for i, output in ipairs(self.outputs) do
    for _, list in ipairs { output.metrics, output.weighted_metrics } do
      for _, metric in ipairs(list) do metric:build(shapes[i], device) end
    end
  end
end

--- update(batch): adds one batch: {loss = the total, a scalar, rows, and by output number: each = the losses, y,
--- predictions, weight, masks = those of the predictions (nil: there are none)}.
function RunningMetrics:update(batch)
  local each, rows, y, predictions, weight = batch.each, batch.rows, batch.y, batch.predictions, batch.weight
  self.loss:update(batch.loss, rows)
  for i, output in ipairs(self.outputs) do
    if self.losses[i] and each[i] then self.losses[i]:update(each[i], rows) end
    if y[i] then
      local prediction, mask = core.place(predictions[i], y[i]:device()), batch.masks and batch.masks[i]
      if mask then masks.set(prediction, masks.beside(mask, prediction)) end -- a copy has none
      for _, metric in ipairs(output.metrics) do metric:update(y[i], prediction) end
      for _, metric in ipairs(output.weighted_metrics) do metric:update(y[i], prediction, weight[i]) end
    end
  end
end

--- each(fn): calls fn(metric, its name in the logs) for the loss, the losses of the outputs, then the metrics.
function RunningMetrics:each(fn)
  local several = #self.outputs > 1
  fn(self.loss, "loss")
  for i, output in ipairs(self.outputs) do
    if self.losses[i] then fn(self.losses[i], output.name .. "_loss") end
  end
  for _, output in ipairs(self.outputs) do
    for _, list in ipairs { output.metrics, output.weighted_metrics } do
      for _, metric in ipairs(list) do
        fn(metric, several and output.name .. "_" .. metric.name or metric.name)
      end
    end
  end
end

--- reset(): starts all of them again from nothing.
function RunningMetrics:reset()
  self.batch = nil
  self:each(function(metric) metric:reset() end)
end

--- read() -> logs with the values so far. Waits for the device.
function RunningMetrics:read()
  local values = logs.new()
  self:each(function(metric, name) values[name] = metric:result() end)
  return values
end

--- lazy() -> logs of the batch that was added last, read from the device when the first field is read. They can be
--- read until the next batch is added: keeping the sums of every batch would cost a copy of them in every step.
function RunningMetrics:lazy()
  local batch = {} -- batch.saved: where its sums are while others are added up
  self.batch = batch
  return logs.lazy(function()
    if self.batch == batch then return self:read() end
    if not batch.saved then
      core.fail("usage", "the logs of a batch can be read until the next one: read the fields you need in the callback")
    end
    local now = sums(self)
    set_sums(self, batch.saved)
    local values = self:read()
    set_sums(self, now)
    return values
  end)
end

--- names() -> array of the names in the logs.
function RunningMetrics:names()
  local names = {}
  self:each(function(_, name) names[#names + 1] = name end)
  return names
end

--- save() -> the present state, for restore(state): an evaluation inside an epoch must not disturb its sums.
function RunningMetrics:save()
  local saved = { sums = sums(self), batch = self.batch }
  if self.batch then self.batch.saved = saved.sums end
  self.batch = nil
  return saved
end

--- restore(state): see save.
function RunningMetrics:restore(saved)
  set_sums(self, saved.sums)
  self.batch = saved.batch
  if self.batch then self.batch.saved = nil end
end

return RunningMetrics
