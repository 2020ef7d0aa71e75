--- History {}: the callback that fit returns, with the values of each epoch.
--
--     local h = model:fit(x, y, {epochs = 3})
--     print(h.history.loss[3], h.epoch[3], h.params.epochs)
local Callback = require "mgpu.train.callbacks.callback"
local logs = require "mgpu.train.logs"

local History = Callback:extend("History", {})

History.adds = {}

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

--- The epochs and their values.
function History:get_state()
  local names, values = {}, {}
  for name, list in logs.each(self.history) do
    names[#names + 1], values[#values + 1] = name, list
  end
  return { epoch = self.epoch, names = names, values = values }
end

--- Continues from get_state's table.
function History:set_state(state)
  self.epoch, self.history = state.epoch, logs.new()
  for i, name in ipairs(state.names) do self.history[name] = state.values[i] end
end

return History
