--- Where layers without an own `device` option are made and run: scopes of with_device, and device groups.
--
-- The state is the innermost open scope of with_device, and, while a step is traced on device groups, the first
-- device of each stage: there a layer with device = 2 runs on the second stage.
local core = require "mgpu.core"

local M = {}

local scope -- the device of the innermost open with_device
local stages -- array of devices, or nil

--- mgpu.with_device(device, fn) -> what fn() returns: layers and tensors made in fn are on `device`, unless they state
--- another.
--
-- device: a name, or the number of a stage in device groups, which places layers only. Unlike the option `device` of a
-- layer it is not saved, and a model made in one scope as a whole, then compiled for several devices, leaves the
-- scope's device.
-- Errors: a device that is not there; fn that is not a function; errors of fn.
-- Example:
--     local layer = mgpu.with_device("cpu:1", function() return mgpu.layers.Dense(4) end)
--     print(layer(mgpu.zeros { 1, 8 }):device())  --> cpu:1
function M.with_device(device, fn)
  if type(device) == "string" then
    device = core.device_name(device)
  elseif type(device) ~= "number" or device < 1 or device % 1 ~= 0 then
    core.fail("usage", "with_device: expected a device's name or its place in a group, got " .. tostring(device))
  end
  if type(fn) ~= "function" then core.fail("usage", "with_device: expected a function, got " .. type(fn)) end
  local before, default = scope, core.default_device()
  if type(device) == "string" then core.default_device(device) end
  scope = device
  local results = { pcall(fn) }
  scope = before
  pcall(core.default_device, default) -- fails if that device was lost meanwhile: then the new default stays
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2)
end

--- current() -> the device of the innermost scope, or nil.
function M.current() return scope end

--- with_stages(devices, fn, ...) -> what fn(...) returns, run with these devices as the stages.
function M.with_stages(devices, fn, ...)
  local before = stages
  stages = devices
  local results = { pcall(fn, ...) }
  stages = before
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2)
end

--- device_of(layer) -> where the layer runs: on the device it states, else with its weights; nil: with its input.
function M.device_of(layer)
  local own = rawget(layer, "device")
  if type(own) == "string" then return own end
  if own and stages then return stages[own] end
  return layer.weights[1] and layer.weights[1]:device()
end

return M
