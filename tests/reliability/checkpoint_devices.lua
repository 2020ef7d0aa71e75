-- A training on 4 devices is stopped at a random step and goes on on 2: as on one device, up to rounding.
--
-- With SGD, because Adam divides gradients that are zero but for rounding by their size.
local check = require "check"
local resumed = require "reliability.resumed"

local SGD = [[optimizer="sgd"]]

local function numbers_of(text)
  local list = {}
  for number in text:gmatch "%-?%d+%.?%d*e?[-+]?%d*" do list[#list + 1] = tonumber(number) end
  return list
end

-- The largest difference, relative to numbers above 1.
local function distance(a, b)
  local worst = #a == #b and 0 or math.huge
  for i, number in ipairs(a) do worst = math.max(worst, math.abs(number - b[i]) / math.max(1, math.abs(b[i]))) end
  return worst
end

return {
  what = "fits stopped on 4 devices and resumed on 2: different from fits on one device",
  count = 20,
  few = 2,
  run = function(n, folder)
    local failed, note, serial = 0, "", numbers_of(resumed.expected(folder, SGD))
    for i = 1, n do
      local run_folder, result, known = ("%s/run%d"):format(folder, i), folder .. "/result", { at = 0 }
      os.remove(result)
      local _, problem = resumed.continue(run_folder, resumed.command(run_folder, result,
        [[kill=%d,signal=15,devices={"cpu:0-3"},%s]], math.random(2, 26), SGD), known)
      local status, other = resumed.continue(run_folder, resumed.command(run_folder, result,
        [[devices={"cpu:0-1"},%s]], SGD), known)
      problem = problem or other or status ~= 0 and "exit status " .. status
      local off = problem and math.huge or distance(numbers_of(check.read(result)), serial)
      if off > 1e-4 then failed, note = failed + 1, problem or ("run %d is off by %g"):format(i, off) end
    end
    return failed, note
  end,
}
