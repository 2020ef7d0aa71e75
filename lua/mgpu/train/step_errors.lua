--- Errors of a step, raised again with the place in the training: "fit: epoch 2, step 7: ...".
--
-- A step runs compute, then guards, then commit, so a step that raises has changed nothing, unless a device failed in
-- the commit phase: then the message says whether the step counts.
local core = require "mgpu.core"
local BatchNormalization = require "mgpu.nn.layers.norms".BatchNormalization
local LossScale = require "mgpu.nn.optimizers.loss_scale_optimizer"
local Optimizer = require "mgpu.nn.optimizers.optimizer"
local train_step = require "mgpu.train.train_step"

local M = {}

local NOT_FINITE = { train_step.BAD_LOSS, train_step.BAD_GRADIENT, LossScale.BAD_SCALE,
  BatchNormalization.BAD_STATISTICS, Optimizer.BAD_UPDATE, train_step.BAD_SUM, train_step.BAD_HALF_SUM }
local KEPT = "the weights are those before this step"
local MET = "the ranks have met since: the weights are what they agreed on"
local REMEDY = "; lower the learning rate or look for bad values in the data"
local LATE = "on some rank in the last %d steps: " -- before the message of a guard

--- cause(message) -> the number, from 1, of the guard that raised it for a loss, a gradient or a new weight that is not
--- finite, which ranks can tell each other; nil for another error.
function M.cause(message)
  if core.error_code() ~= "nonfinite" or type(message) ~= "string" then return nil end
  for number, what in ipairs(NOT_FINITE) do
    if message:sub(-#what) == what then return number end
  end
end

--- is_nonfinite(message) -> the message of that guard, or nil.
function M.is_nonfinite(message) return NOT_FINITE[M.cause(message) or 0] end

--- raise_cause(number, steps): raises the message of that guard; 0: nothing. steps: how many steps the ranks have made
--- alone before they met and learned of it; nil for a step that no rank has completed.
function M.raise_cause(number, steps)
  if number > 0 then core.fail("nonfinite", (steps and LATE:format(steps) or "") .. NOT_FINITE[number]) end
end

--- check_weights(model, place): raises if a variable of the compiled model is not finite. The guards of a step look
--- at the values that it gives them; this is for those that it began with.
function M.check_weights(model, place)
  local name = train_step.bad_variable(model)
  if name then core.fail("nonfinite", ("%s: %s %s"):format(place, name, Optimizer.BAD_UPDATE)) end
end

--- raise(message, place, model): raises `message` again, with the place if a step raised it. core.error_code alone is
--- not enough: it may be the code of an error that was caught before. With the compiled model a weight that is not
--- finite is named.
function M.raise(message, place, model)
  if type(message) ~= "string" then error(message, 0) end
  local code = core.error_code()
  if code == "interrupted" and message:find "interrupted!?$" then
    core.fail(code, place .. ": interrupted; the model can be used and trained on")
  end
  if (code == "device" or code == "comm") and not message:find(place, 1, true) then
    core.fail(code, ("%s: %s"):format(place, (message:gsub("^[^:]*:%d+: ", ""))))
  end
  if M.is_nonfinite(message) and not message:find(place, 1, true) then
    if model then M.check_weights(model, place) end
    local state = message:find("on some rank in the last %d+ steps: ") and MET or KEPT
    local remedy = message:sub(-#Optimizer.BAD_UPDATE) == Optimizer.BAD_UPDATE and "" or ": " .. state .. REMEDY
    core.fail(code, ("%s: %s%s"):format(place, (message:gsub("^[^:]*:%d+: ", "")), remedy))
  end
  error(message, 0)
end

--- guarded(place, fn, ...) -> fn(...)'s first result. `place` is a function that returns the place as text, and
--- perhaps the model, as raise takes them; it is called only after an error.
function M.guarded(place, fn, ...)
  local ok, result = pcall(fn, ...)
  if not ok then M.raise(result, place()) end
  return result
end

return M
