--- What the callbacks that set the learning rate share.
local core = require "mgpu.core"

local M = {}

M.NAME = "learning_rate" -- in the logs

--- check(callback): raises if the rate of the model's optimizer cannot be set.
function M.check(callback)
  local optimizer = callback.model.optimizer
  if (optimizer.inner_optimizer or optimizer).schedule then
    core.fail("usage", ("fit: %s: the learning_rate of %s is a schedule and cannot be set: make the optimizer with a "
      .. "number"):format(callback.class, optimizer.name))
  end
end

--- log(callback, logs): adds the rate to the logs of an epoch.
function M.log(callback, logs) logs[M.NAME] = callback.model.optimizer.learning_rate end

return M
