--- History {}: the callback that fit returns, with the values of each epoch.
--
--     local h = model:fit(x, y, {epochs = 3})
--     print(h.history.loss[3], h.epoch[3], h.params.epochs)
local Callback = require "mgpu.train.callbacks.callback"
local logs = require "mgpu.train.logs"

local History = Callback:extend("History", {})

--- on_train_begin(): starts again without epochs.
function History:on_train_begin()
  self.epoch, self.history = {}, logs.new()
end

--- on_epoch_end(epoch, logs): appends the epoch and its values.
function History:on_epoch_end(epoch, values)
  self.epoch[#self.epoch + 1] = epoch
  for name, value in logs.each(values) do
    if not rawget(self.history, name) then self.history[name] = {} end
    table.insert(self.history[name], value)
  end
end

return History
