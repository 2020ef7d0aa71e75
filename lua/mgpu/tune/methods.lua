--- How a search chooses what to try. A method makes the trials, and for each round says which of them to train and for
--- how many epochs.
local core = require "mgpu.core"
local spaces = require "mgpu.tune.spaces"

local M = {}

local function fail(message, ...) core.fail("usage", "tune: " .. message:format(...)) end

local function refuse(chosen, name, method)
  if chosen[name] ~= nil then fail('option %q is not for method = "%s"', name, method) end
end

-- n trials with random parameters.
local function drawn(search, n)
  local list = {}
  for i = 1, n do list[i] = spaces.random(search.space, search.seed, i) end
  return list
end

local function refuse_budget(chosen, method)
  for _, name in ipairs { "min_epochs", "factor" } do refuse(chosen, name, method) end
end

-- ---- grid ---------------------------------------------------------------------------------------

--- Every combination of values, once.
M.grid = {
  check = function(chosen)
    refuse(chosen, "trials", "grid")
    refuse_budget(chosen, "grid")
  end,
  parameters = function(search) return spaces.grid(search.space) end,
  next_round = function(search, round)
    return round == 1 and { trials = search.trials, epochs = search.given.max_epochs } or nil
  end,
}

-- ---- random -------------------------------------------------------------------------------------

--- Parameters drawn independently.
M.random = {
  check = function(chosen)
    refuse_budget(chosen, "random")
    chosen.trials = chosen.trials or 10
  end,
  parameters = function(search) return drawn(search, search.given.trials) end,
  next_round = M.grid.next_round,
}

-- ---- successive halving ---------------------------------------------------------------------------

-- The number of trials that are left in a round, from 1 on, and its epochs; nil after the last.
local function size_of(given, round)
  local n = math.floor(given.trials / given.factor ^ (round - 1) + 1e-9)
  local epochs = given.min_epochs * given.factor ^ (round - 1)
  if round > 1 and (n < 1 or epochs / given.factor >= given.max_epochs) then return nil end
  return n, math.min(math.floor(epochs + 1e-9), given.max_epochs)
end

--- Successive halving: all trials train for min_epochs; the best 1 / factor of them go on to factor times as many, and
--- so on, until one is left or max_epochs is reached.
-- A round begins when all trials of the one before have ended, so results do not depend on how many run at a time (as
-- those of the asynchronous variant, ASHA, do). Source: Jamieson and Talwalkar, Non-stochastic best arm identification
-- and hyperparameter optimization, 2016, algorithm 1; with the names of Li et al., Hyperband, 2018.
M.halving = {
  check = function(chosen)
    chosen.trials, chosen.factor = chosen.trials or 9, chosen.factor or 3
    chosen.min_epochs = chosen.min_epochs or 1
    if not chosen.max_epochs then fail 'method = "halving" needs max_epochs, the epochs of the best trials' end
    if chosen.min_epochs > chosen.max_epochs then
      fail("min_epochs is %d, above max_epochs, %d", chosen.min_epochs, chosen.max_epochs)
    end
  end,
  parameters = function(search) return drawn(search, search.given.trials) end,
  next_round = function(search, round)
    local n, epochs = size_of(search.given, round)
    if not n then return nil end
    if round == 1 then return { trials = search.trials, epochs = epochs } end
    local list = {}
    for _, trial in ipairs(search:ranked()) do
      if #list < n and trial.reached == round - 1 then list[#list + 1] = trial end
    end
    table.sort(list, function(a, b) return a.number < b.number end)
    return #list > 0 and { trials = list, epochs = epochs } or nil
  end,
}

return M
