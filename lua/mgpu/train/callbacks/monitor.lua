--- Monitor: the base of callbacks that watch one value of the logs and decide whether it has improved.
--
-- A class has the options monitor and mode, and may have min_delta. mode "auto" takes the direction of the metric:
-- losses and errors are to fall, accuracies to rise; a metric made of a function needs mode "min" or "max".
-- Values are compared in float32, as Keras compares them. Source: Keras's MonitorCallback.
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"
local ffi = require "ffi"
local logs = require "mgpu.train.logs"

local Monitor = Callback:extend("Monitor", {})

Monitor.adds = {}
Monitor.MODE = { "mode", "string", default = "auto", values = { "auto", "min", "max" } }
Monitor.VERBOSE = { "verbose", "integer", default = 0, min = 0, max = 2 }

local single = ffi.new "float[1]"
local function to_float32(x)
  single[0] = x
  return single[0]
end

-- "min" or "max": which values of the metric called `monitor` in the logs are better; nil if nobody knows.
local function direction_of(model, monitor)
  local base, found = logs.new(), nil
  base[monitor:gsub("^val_", "")] = true -- logs know that acc is accuracy
  model.compiled.metrics:each(function(metric, name)
    if base[name] then found = metric.name == "loss" and "min" or metric.direction end
  end)
  return found
end

--- check_fit(names): see callback.lua. Errors: no such value; mode "auto" for a metric without direction; a metric
--- with several values.
function Monitor:check_fit(names, when)
  self.presence = names:check(self.class, "monitor", self.monitor, when)
  self.direction = self.mode ~= "auto" and self.mode or direction_of(self.model, self.monitor)
  if not self.direction then
    core.fail("usage", ('fit: %s: whether %q should rise or fall is not known: give mode = "max" or mode = "min"')
      :format(self.class, self.monitor))
  end
end

--- monitor:current(values) -> the watched value of these logs, or nil. Says once if one that should be there is not.
function Monitor:current(values)
  local value = values[self.monitor]
  if type(value) == "table" then
    core.fail("usage", ("fit: %s: %q has several values: monitor a metric with one"):format(self.class, self.monitor))
  end
  if value == nil and self.presence ~= "sometimes" and not self.warned then
    local names = {}
    for name in logs.each(values) do names[#names + 1] = name end
    self.warned = true
    self.write("%s: the logs have no value %q; they have %s", self.class, self.monitor, table.concat(names, ", "))
  end
  return value
end

--- monitor:is_improvement(value, reference) -> whether the value is better than the reference by more than min_delta.
--- Any value is better than nil.
function Monitor:is_improvement(value, reference)
  if reference == nil then return true end
  local delta = math.abs(self.min_delta or 0)
  if self.direction == "max" then return to_float32(value - delta) > to_float32(reference) end
  return to_float32(value + delta) < to_float32(reference)
end

return Monitor
