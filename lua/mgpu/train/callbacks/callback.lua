--- Callback: the base of all callbacks, objects with methods that fit calls.
--
--     local Stop = mgpu.callbacks.Callback:extend("Stop", {at = "number"})
--     function Stop:on_epoch_end(epoch, logs)
--       if logs.loss < self.at then self.model.stop_training = true end
--     end
--     model:fit(x, y, {callbacks = Stop {at = 0.1}})
--
--   on_train_begin()  on_train_end()  on_epoch_begin(epoch)  on_epoch_end(epoch, logs)
--   on_train_batch_begin(batch)  on_train_batch_end(batch, logs)  on_test_begin()  on_test_end(logs)
-- Epochs and batches count from 1. `logs` holds each value by name; `acc` reads `accuracy` too. self.model is the
-- model, self.params {epochs, steps, batch_size, verbose, samples}. A table with some of these functions as fields
-- is a callback too. on_train_batch_end makes the host wait for the metrics after every step; it is called only for
-- callbacks that have it. A misspelled method is an error of fit.
local options = require "mgpu.options"

local Callback = {}

Callback.METHODS = {
  "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_train_batch_begin",
  "on_train_batch_end", "on_test_begin", "on_test_end",
}

--- Callback:extend(name, declared) -> a class of callbacks, to be called with options. declared: its options, as for
--- mgpu.Layer:extend; they become fields. A method init(self), if there is one, is called on each new callback.
function Callback:extend(name, declared)
  local class = setmetatable({ class = name }, {
    __index = self,
    __call = function(class, given) return class.new(given) end,
    __tostring = function() return "callback class " .. name end,
  })
  class.__index = class
  class.__tostring = function() return "callback " .. name end
  class.declared = options.declare(declared or {})
  --- new(options) -> a callback of the class; the same as calling the class.
  function class.new(given)
    local callback = setmetatable({}, class)
    for key, value in pairs(options.check(name, class.declared, given or {})) do
      callback[key] = value
    end
    if callback.init then callback:init() end
    return callback
  end
  return class
end

return Callback
