--- PiecewiseConstantDecay {boundaries, values}
--
--     rate = values[1]      while step <= boundaries[1],
--            values[i + 1]  while boundaries[i] < step <= boundaries[i + 1],
--            the last       after the last boundary
-- Errors: boundaries that do not rise; #values other than #boundaries + 1.
-- Example:
--     local rate = mgpu.schedules.PiecewiseConstantDecay { { 1000, 2000 }, { 0.5, 0.25, 0.125 } }
--     print(rate(1000), rate(1001), rate(5000))  --> 0.5 0.25 0.125
local Schedule = require "mgpu.nn.schedules.schedule"

local function numbers_only(list, name, fail)
  for i, v in ipairs(list) do
    if type(v) ~= "number" or v ~= v or v < 0 or v == math.huge then
      fail("%s[%d] must be a finite number of at least 0, got %s", name, i, tostring(v))
    end
  end
end

return Schedule.define {
  class = "PiecewiseConstantDecay",
  declared = {
    { "boundaries", "table", required = true },
    { "values", "table", required = true },
  },
  validate = function(chosen, fail)
    local boundaries, values = chosen.boundaries, chosen.values
    if #boundaries == 0 then fail("boundaries must be a list of at least one step") end
    if #values ~= #boundaries + 1 then
      fail("%d boundaries need %d values, got %d", #boundaries, #boundaries + 1, #values)
    end
    numbers_only(boundaries, "boundaries", fail)
    numbers_only(values, "values", fail)
    for i = 2, #boundaries do
      if boundaries[i] <= boundaries[i - 1] then
        fail("boundaries must rise: boundaries[%d] = %g follows %g", i, boundaries[i], boundaries[i - 1])
      end
    end
  end,
  rate = function(self, step, m)
    local boundaries, values = self.boundaries, self.values
    local rate = values[#values] + 0 * step
    for i = #boundaries, 1, -1 do rate = m.where(m.le(step, boundaries[i]), values[i], rate) end
    return rate
  end,
}
