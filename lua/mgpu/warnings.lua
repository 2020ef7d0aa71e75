--- Warnings: lines on stderr about what runs, but can hardly be meant. Each names the option that mends it.
local core = require "mgpu.core"

local M = {}

local on = true
local chosen = os.getenv "MGPU_WARNINGS"
if chosen and chosen ~= "" and chosen ~= "yes" then
  if chosen ~= "no" then core.fail("usage", ("MGPU_WARNINGS must be yes or no, got %q"):format(chosen)) end
  on = false
end

--- mgpu.warnings(on) -> whether warnings were on before the call. false silences warnings, true lets them through; nil
--- only asks.
-- They are lines on stderr that begin with "mgpulua: warning:". The environment variable MGPU_WARNINGS = no silences
-- them from the start. Errors: another type.
-- Example:
--     print(mgpu.warnings(false))  --> true
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1, activation = "softmax" } }
--     -- no word about the softmax over one unit
--     model:compile { loss = "binary_crossentropy" }
--     print(mgpu.warnings(true))   --> false
function M.switch(value)
  if value ~= nil and type(value) ~= "boolean" then
    core.fail("usage", "warnings: expected true, false or nothing, got a " .. type(value))
  end
  local before = on
  if value ~= nil then on = value end
  return before
end

--- warn(message, ...): writes a line; the arguments are those of string.format.
function M.warn(message, ...)
  if not on then return end
  local text = core.printable(message:format(...), true)
  io.stderr:write("mgpulua: warning: " .. text .. "\n")
  if M.also then M.also(text) end -- the page of a dashboard
end

--- once(model, message, ...): warns, unless the model has caused the same message before.
function M.once(model, message, ...)
  local said = rawget(model, "warned") or {}
  model.warned = said
  if said[message] then return end
  said[message] = true
  M.warn(message, ...)
end

return M
