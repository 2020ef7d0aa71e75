--- Callback: the base of all callbacks, objects with methods that fit, evaluate and predict call.
--
--   on_train_begin(logs)            on_train_end(logs)
--   on_epoch_begin(epoch, logs)     on_epoch_end(epoch, logs)
--   on_train_batch_begin(batch, logs)  on_train_batch_end(batch, logs), also named on_batch_begin, on_batch_end
--   on_test_begin(logs)             on_test_end(logs): evaluate, and the validation of fit
--   on_test_batch_begin(batch, logs)   on_test_batch_end(batch, logs)
--   on_predict_begin(logs)          on_predict_end(logs)
--   on_predict_batch_begin(batch, logs)  on_predict_batch_end(batch, logs), with logs.outputs
-- Epochs and batches count from 1. `logs` holds each value by name; it is empty where something begins. `acc` reads
-- `accuracy` too. The logs of a batch are lazy: reading a field waits for that step, and a callback that reads none
-- costs no waiting; they can be read until the next batch. pairs does not see those fields, but
-- `for name, value in Callback.each(logs)` reads them all. What on_epoch_end adds to the logs goes into the history and
-- the printed line.
-- self.model is the model, self.params {epochs, steps, batch_size, verbose, samples, metrics = names in the logs}.
-- self.model.stop_training = true ends fit after this step; stop_evaluating and stop_predicting likewise.
-- A table with some of these functions as fields is a callback too. A misspelled method is an error of fit.
--
-- A class may have check_fit(names), called before training starts (log_names.lua), the array `adds` of names it adds
-- to the logs, and get_state() and set_state(state).
-- Example:
--     local Stop = mgpu.callbacks.Callback:extend("Stop", { at = "number" })
--     function Stop:on_epoch_end(epoch, logs)
--       if logs.loss < self.at then self.model.stop_training = true end
--     end
--     local model = mgpu.Sequential { mgpu.Input { 1 }, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     local x = mgpu.rand { 32, 1 }
--     local h = model:fit(x, x, { epochs = 9, verbose = 0, callbacks = Stop { at = 1e9 } })
--     -- it stopped after the first epoch
--     print(#h.epoch)  --> 1
local logs = require "mgpu.train.logs"
local options = require "mgpu.options"

local Callback = {}

Callback.METHODS = {
  "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end",
  "on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end",
  "on_test_begin", "on_test_end", "on_test_batch_begin", "on_test_batch_end",
  "on_predict_begin", "on_predict_end", "on_predict_batch_begin", "on_predict_batch_end",
}

Callback.each = logs.each

--- callback.write(message, ...): prints a line through mgpu.output; the arguments are those of string.format. Control
--- characters become visible.
-- Example:
--     local Greet = mgpu.callbacks.Callback:extend "Greet"
--     function Greet:on_train_begin() self.write("%s has %d layers", self.model.name, #self.model.layers) end
--     local model = mgpu.Sequential { name = "m", mgpu.Input { 1 }, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     model:fit(mgpu.ones { 4, 1 }, mgpu.ones { 4, 1 }, { verbose = 0, callbacks = Greet {} })
--     --> m has 1 layers
function Callback.write(message, ...) require "mgpu.say"(message .. "\n", ...) end

--- callback:get_state() -> what a checkpoint must hold of it: a table of numbers, strings, booleans and tables of
--- them. Tensors are allowed in arrays.
-- Example:
--     local Count = mgpu.callbacks.Callback:extend "Count" -- goes on counting where a checkpoint continues
--     function Count:on_epoch_end() self.epochs = (self.epochs or 0) + 1 end
--     function Count:get_state() return { epochs = self.epochs } end
--     function Count:set_state(state) self.epochs = state.epochs end
--     local first, second = Count {}, Count {}
--     first:on_epoch_end()
--     second:set_state(first:get_state())
--     print(second.epochs)  --> 1
function Callback.get_state() return {} end

--- callback:set_state(state): continues from what get_state returned. It is called after on_train_begin or, where fit
--- continues in the middle of an epoch, after that epoch's on_epoch_begin.
-- Example:
--     local first, second = mgpu.callbacks.ReduceLROnPlateau {}, mgpu.callbacks.ReduceLROnPlateau {}
--     second:set_state(first:get_state()) -- it has waited as many epochs as the first one
function Callback.set_state() end

--- Callback:extend(name, declared) -> a class of callbacks, to be called with options. declared: its options, as for
--- mgpu.Layer:extend; they become fields. A method init(self), if there is one, is called on each new callback.
-- Example:
--     local Best = mgpu.callbacks.Callback:extend("Best", { name = "loss" }) -- an option with a default
--     function Best:on_epoch_end(epoch, logs) self.value = math.min(self.value or math.huge, logs[self.name]) end
--     local best = Best { name = "val_loss" }
--     best:on_epoch_end(1, { val_loss = 0.5 })
--     best:on_epoch_end(2, { val_loss = 0.75 })
--     print(best.value)  --> 0.5
function Callback:extend(name, declared)
  local class = setmetatable({ class = name }, {
    __index = self,
    __call = options.construct,
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
