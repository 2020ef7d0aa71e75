-- A callback made of functions given as options.
--
--     mgpu.callbacks.LambdaCallback {
--       on_epoch_end = function(epoch, logs) print(epoch, logs.loss) end,
--     }

local Callback = require "mgpu.train.callbacks.callback"

local declared = {}
for i, name in ipairs(Callback.METHODS) do declared[i] = { name, "function" } end

local LambdaCallback = Callback:extend("LambdaCallback", declared)

-- The functions do not take the callback itself.
function LambdaCallback:init()
  for _, name in ipairs(Callback.METHODS) do
    local fn = rawget(self, name)
    if fn then self[name] = function(_, ...) return fn(...) end end
  end
end

return LambdaCallback
