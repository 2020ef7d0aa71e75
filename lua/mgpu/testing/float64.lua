--- Checks compute in float64, where rounding is far smaller than what they look for.
local core = require "mgpu.core"
local mixed_precision = require "mgpu.nn.mixed_precision"

--- in_float64(fn): calls fn() while layers, weights and numbers are float64; then all is as before, also after an
--- error.
return function(fn)
  local before = core.floatx()
  core.floatx "float64"
  local ok, message = pcall(mixed_precision.with_policy, "float64", fn)
  core.floatx(before)
  if not ok then error(message, 0) end
end
