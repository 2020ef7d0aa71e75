-- Several ranks train, and one of them comes to grief: the others end soon, with the same sentence and
-- unchanged weights.
local check = require "check"
local ranks = require "lua.world.faults.ranks"
local test = check.test

local function needs(launcher)
  local problem = ranks.problem(launcher)
  if problem then check.skip(problem) end
end

for i, case in ipairs(ranks.cases) do
  test(("a rank %s ends the others with a sentence that names it"):format(case[1]), function()
    needs "each"
    local problem = ranks.try(case, 2 + i % 2, math.floor(i / 2) % 2)
    if problem then check.fail(problem) end
  end)
end
