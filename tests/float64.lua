-- Fixture: calls fn with float64 as the dtype of new tensors and weights, and restores float32 after it.
local mgpu = require "mgpu"

return function(fn)
  mgpu.set_floatx "float64"
  local ok, message = pcall(fn)
  mgpu.set_floatx "float32"
  if not ok then error(message, 0) end
end
