--- Trial calls: fit calls a model with a few rows to learn the shapes of its outputs. Layers that keep a state between
--- batches leave it alone in such calls, and take any number of rows.
local M = {}

local running = false

--- call(model, x) -> what model(x) returns, as a trial.
function M.call(model, x)
  local before = running
  running = true
  local ok, y = pcall(model, x)
  running = before
  if not ok then error(y, 0) end
  return y
end

--- running() -> whether a trial call is in progress.
function M.running() return running end

return M
