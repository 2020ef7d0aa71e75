-- Mean and variance of columns whose numbers are far from 0: the variance must not cancel.
require "tests.cuda.device"
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local test = check.test

-- The variances of `rows` x `columns` numbers in [offset, offset + 1).
local function variances(on, rows, columns, offset)
  local values = {}
  for i = 1, rows * columns do values[i] = offset + (0.5 + i * 0.6180339887498949) % 1 end
  local x = mgpu.tensor(values, { device = on }):reshape { rows, columns }
  return core.ops.moments(x)[2]:to("float64"):totable()
end

-- The tolerance is float32's rounding of a few thousand additions in a tree. A kernel that also summed the
-- offset (10000) would be wrong by a thousandth.
for _, case in ipairs { { 184, 34 }, { 5000, 3 }, { 3000, 64 }, { 700, 1 }, { 9, 200 } } do
  local rows, columns = unpack(case)
  test(("moments of {%d,%d} far from 0 are as exact as ref's"):format(rows, columns), function()
    local got, expected = variances("cuda:0", rows, columns, 10000), variances("ref:0", rows, columns, 10000)
    for c = 1, columns do
      local off = math.abs(got[c] / expected[c] - 1)
      check.truthy(off < 4e-6, ("column %d's variance is off by %g"):format(c, off))
    end
  end)
end
