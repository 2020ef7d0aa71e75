-- Several ranks train, and one of them comes to grief in one of the ways of tests/lua/world/faults/ranks.lua.
local ranks = require "lua.world.faults.ranks"

-- The cases, each on a rank that is the first, in the middle, or the last, of two to four.
local function case_of(i)
  local case, n = ranks.cases[(i - 1) % #ranks.cases + 1], 2 + math.floor((i - 1) / #ranks.cases) % 3
  return case, n, math.floor((i - 1) / #ranks.cases / 3) % n
end

return {
  what = "ranks that die or go astray: others that hang, say something else, or have other weights",
  count = 20 * #ranks.cases,
  few = 2,
  run = function(n)
    local failed, note, slowest = 0, ranks.problem "each", 0
    if note then return 0, note, 0 end
    for i = 1, n do
      local problem, seconds = ranks.try(case_of(i))
      if problem then failed, note = failed + 1, problem end
      slowest = math.max(slowest, seconds or 0)
    end
    return failed, note or ("%d ways; the slowest end came after %.0f s"):format(#ranks.cases, slowest)
  end,
}
