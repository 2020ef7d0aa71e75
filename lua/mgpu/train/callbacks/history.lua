--- History {}: the callback that fit returns, with the values of each epoch.
--
--     local h = model:fit(x, y, {epochs = 3})
--     print(h.history.loss[3], h.epoch[3], h.params.epochs)
--     h:plot "curves.svg"
--     h:report "report.html"
-- Fields: history (arrays of values by name), epoch (the epochs' numbers), epochs_of (for each name the epochs of its
-- values, which validation_freq makes fewer), seconds (the time of each epoch, with its validation), params, settings
-- (the options of fit that are numbers, text or booleans), compiled (what compile made), attached (what an attached
-- prompt has run: an array of {epoch, step, time = seconds since 1970, what = the input}, with times = n for an input
-- that was run n times in a row; the last 1,000).
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     local x, y = mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }
--     local h = model:fit(x, y, { epochs = 3, validation_split = 0.5, verbose = 0 })
--     print(#h.history.loss, #h.history.val_loss, h.epoch[3], h.params.epochs)  --> 3 3 3 3
--     h:plot "curves.svg"
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"
local logs = require "mgpu.train.logs"

local History = Callback:extend("History", {})

History.adds = {}

local MOST_ATTACHED, MOST_TEXT = 1000, 500 -- inputs of attached prompts, and bytes of one

--- history:keep_settings(given): notes the options of fit, without data.
function History:keep_settings(given)
  self.settings = {}
  for name, value in pairs(given) do
    if type(value) ~= "table" and type(value) ~= "userdata" then self.settings[name] = value end
  end
end

--- on_train_begin(): starts again without epochs.
function History:on_train_begin()
  self.compiled = self.model and self.model.compiled
  self.epoch, self.history, self.epochs_of, self.seconds = {}, logs.new(), logs.new(), {}
  self.attached = {}
end

--- history:note_attached(epoch, step, what): an attached prompt has run this input there.
function History:note_attached(epoch, step, what)
  local list = self.attached
  local last = list[#list]
  if #what > MOST_TEXT then what = what:sub(1, MOST_TEXT) .. "..." end
  if last and last.what == what then
    last.times = (last.times or 1) + 1
    return
  end
  list[#list + 1] = { epoch = epoch, step = step, time = os.time(), what = what }
  if #list > MOST_ATTACHED then table.remove(list, 1) end
end

--- on_epoch_begin(): starts the clock.
function History:on_epoch_begin() self.began = core.clock() end

--- on_epoch_end(epoch, logs): appends the epoch and its values.
function History:on_epoch_end(epoch, values)
  self.epoch[#self.epoch + 1] = epoch
  self.seconds[#self.epoch] = self.began and core.clock() - self.began
  for name, value in logs.each(values) do
    if not rawget(self.history, name) then self.history[name], self.epochs_of[name] = {}, {} end
    table.insert(self.history[name], value)
    table.insert(self.epochs_of[name], epoch)
  end
end

--- The epochs and their values.
function History:get_state()
  local names, values, epochs = {}, {}, {}
  for name, list in logs.each(self.history) do
    names[#names + 1], values[#values + 1], epochs[#epochs + 1] = name, list, self.epochs_of[name]
  end
  return { epoch = self.epoch, names = names, values = values, epochs = epochs, seconds = self.seconds,
    attached = self.attached }
end

--- Continues from get_state's table.
function History:set_state(state)
  self.epoch, self.history, self.epochs_of, self.seconds = state.epoch, logs.new(), logs.new(), state.seconds
  self.attached = state.attached or {} -- older checkpoints have none
  for i, name in ipairs(state.names) do self.history[name], self.epochs_of[name] = state.values[i], state.epochs[i] end
end

--- history:plot(path, {metrics =, scale = "auto", title =}): draws the values of the epochs, training and validation,
--- into an .svg file, which browsers show.
-- metrics: names of values, as {"loss", "accuracy"}; all if nil. scale: "linear", "log", or "auto", which is
-- logarithmic for positive values that span two decades. Values that are not finite leave a gap.
-- Errors: another ending, no epoch, an unknown name, the disk.
-- Example:
--     local model = mgpu.Sequential { mgpu.layers.Dense { 1, input_shape = { 2 } } }
--     model:compile { optimizer = "sgd", loss = "mse" }
--     local history = model:fit(mgpu.rand { 32, 2 }, mgpu.rand { 32, 1 }, { epochs = 3, verbose = 0 })
--     history:plot("curves.svg", { metrics = "loss", title = "Three epochs" })
--     print(io.open("curves.svg"):read(4))  --> <svg
function History:plot(path, given) require "mgpu.plot.history".plot(self, path, given) end

--- history:report(path, {title =}): writes an .html page about the run: curves, final and best values, the model,
--- settings, times, devices and versions. It needs no other file. Errors: another ending, no epoch, the disk.
-- Example:
--     local model = mgpu.Sequential { mgpu.layers.Dense { 1, input_shape = { 2 } } }
--     model:compile { optimizer = "sgd", loss = "mse" }
--     local history = model:fit(mgpu.rand { 32, 2 }, mgpu.rand { 32, 1 }, { epochs = 3, verbose = 0 })
--     history:report("run.html", { title = "A first run" })
--     print(io.open("run.html"):read "*a":match "<title>(.-)</title>")  --> A first run
function History:report(path, given) require "mgpu.plot.report".write(self, path, given) end

return History
