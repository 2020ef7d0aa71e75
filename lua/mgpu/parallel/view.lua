--- A parallel model: a view of a model for other devices, which the wrappers of other frameworks return.
local core = require "mgpu.core"

local M = {}

--- view_of(model, spread, fields) -> a view that has its own compiled state and shares everything else with the model:
--- weights, layers, names, and so what save and load do.
-- spread: {devices =, strategy =, home =}; fields: further fields of the view, or nil.
function M.view_of(model, spread, fields)
  local view = fields or {}
  view.spread = spread
  return setmetatable(view, {
    __index = function(_, key) return model[key] end,
    __newindex = function(self, key, value)
      if key == "trainable" then model.trainable = value else rawset(self, key, value) end
    end,
    __call = function(_, x, how) return model(x, how) end,
    __tostring = function() return tostring(model) end,
  })
end

--- check_model(who, what, model): raises unless it is a model that is not parallel yet; `what` names the argument.
function M.check_model(who, what, model)
  if type(model) ~= "table" or type(model.compile) ~= "function" then
    core.fail("usage", ("%s: %s must be a model, got %s"):format(who, what,
      model == nil and "nothing" or "a " .. type(model)))
  elseif rawget(model, "spread") then
    core.fail("usage", ("%s: the model is parallel already, on %s"):format(who,
      table.concat(model.spread.devices, ", ")))
  end
end

local told = {}

--- tell_once(who, name, why): prints, the first time, that an option of another framework has no effect here.
function M.tell_once(who, name, why)
  if told[who .. name] then return end
  told[who .. name] = true
  require "mgpu.say"("%s: the option %s has no effect: %s\n", who, name, why)
end

return M
