--- pad_axes(t, first, before, after, value = 0) -> the tensor with cells of the value before and after its axes from
--- `first` on: before and after are lists, a number for each of these axes.
local core = require "mgpu.core"

return function(t, first, before, after, value)
  local b, a, any = {}, {}, false
  for i = 1, t:rank() do b[i], a[i] = 0, 0 end
  for i = 1, #before do
    b[first + i - 1], a[first + i - 1] = before[i], after[i]
    any = any or before[i] > 0 or after[i] > 0
  end
  return any and core.ops.pad(t, { before = b, after = a, value = value or 0 }) or t
end
