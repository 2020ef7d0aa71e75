-- Trainings are killed: at each file call of their saves, and at random moments until they have come to their end.
local resumed = require "reliability.resumed"

local KILL = -2 -- MG_IO_KILL (core/io.h)
local CALLS = 70 -- more than two saves make

-- Kills at the n-th file call from the sixth step on.
local function at_call(folder, n)
  return resumed.stopped_and_resumed(folder, n, "", ("fault={%d,%d}"):format(n, KILL))
end

-- Kills a longer training again and again, at most `most` times, until it ends. RETURNS the number of kills, and a
-- problem or nil.
local function at_moments(folder, i, most)
  local run_folder, result, known = ("%s/long%d"):format(folder, i), folder .. "/result", { at = 0 }
  local options, kills = "epochs=25,freq=2," .. (i % 2 == 0 and "dataset=true" or ""), 0
  local command = resumed.command(run_folder, result, "%s", options)
  while true do
    local limit = kills < most and ("timeout -s KILL %.3f "):format(0.03 + 0.4 * math.random()) or ""
    local status, problem = resumed.continue(run_folder, limit .. command, known)
    if problem then return kills, problem end
    if status == 0 then return kills, resumed.compare(folder, result, options) end
    kills = kills + 1
  end
end

return {
  what = "fits killed while saving: state unreadable, step lost, or not byte-identical at the end",
  count = 200,
  few = 6,
  run = function(n, folder)
    local failed, note, kills, i = 0, "", 0, 0
    local function add(problem)
      if problem then failed, note = failed + 1, problem end
    end
    local calls = math.min(CALLS, math.ceil(n / 2))
    for k = 1, calls do add(at_call(folder, math.ceil(k * CALLS / calls))) end
    while kills < n do
      i = i + 1
      local more, problem = at_moments(folder, i, n - kills)
      kills = kills + math.max(more, 1)
      add(problem)
    end
    return failed, note ~= "" and note or ("%d at file calls, %d at random moments"):format(calls, kills), calls + kills
  end,
}
