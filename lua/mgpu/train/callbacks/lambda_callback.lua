--- LambdaCallback {on_epoch_end = function(epoch, logs) ... end, ...}: a callback made of functions.
-- Each option is named like a method of Callback; the functions do not get the callback itself as an argument.
-- Example:
--     local seen = mgpu.callbacks.LambdaCallback {
--       on_epoch_begin = function(epoch) print("epoch " .. epoch) end,
--       on_train_end = function() print "done" end,
--     }
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     model:fit(mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }, { epochs = 2, verbose = 0, callbacks = seen })
--     --> epoch 1
--     --> epoch 2
--     --> done
local Callback = require "mgpu.train.callbacks.callback"

local declared = {}
for i, name in ipairs(Callback.METHODS) do declared[i] = { name, "function" } end

local LambdaCallback = Callback:extend("LambdaCallback", declared)

--- Wraps the given functions, which do not take the callback itself.
function LambdaCallback:init()
  for _, name in ipairs(Callback.METHODS) do
    local fn = rawget(self, name)
    if fn then self[name] = function(_, ...) return fn(...) end end
  end
end

return LambdaCallback
