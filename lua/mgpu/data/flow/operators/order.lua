--- take, skip, shard, cycle, shuffle and enumerate: which elements come, and when.
local core = require "mgpu.core"
local operator = require "mgpu.data.flow.operator"

local Take, Skip, Shard = operator.class(), operator.class(), operator.class()
local Cycle, Shuffle, Enumerate = operator.class(true), operator.class(), operator.class()

operator.rows_of_input { Take, Skip, Shard, Cycle, Enumerate }

-- ---- take, skip: dataset.n ----------------------------------------------------------------------

-- Notes that n more elements were taken; after the last one, what comes before can free its memory.
local function taken(self, n)
  self.at = self.at + n
  if self.at >= self.dataset.n then self.input:close() end
end

function Take:pull()
  if self.at >= self.dataset.n then return nil end
  local element = self.input:pull()
  taken(self, 1)
  return element
end

function Take:leap(n)
  local left_out = self.input:leap(math.min(n, self.dataset.n - self.at))
  taken(self, left_out)
  return left_out
end

local function skip_first(self)
  if not self.skipped then self.input:leap(self.dataset.n) end
  self.skipped = true
end

function Skip:pull()
  skip_first(self)
  return self.input:pull()
end

function Skip:leap(n)
  skip_first(self)
  return self.input:leap(n)
end

-- ---- shard: dataset.index (from 1), dataset.shards ----------------------------------------------
-- `gap`: elements of other shards before the next one of this.

function Shard:begin() self.gap = self.dataset.index - 1 end

function Shard:pull()
  self.input:leap(self.gap)
  self.gap = self.dataset.shards - 1
  return self.input:pull()
end

function Shard:leap(n)
  if n == 0 then return 0 end
  local shards, gap = self.dataset.shards, self.gap
  self.gap = shards - 1
  local passed = self.input:leap(gap + 1 + (n - 1) * shards)
  return math.max(0, math.ceil((passed - gap) / shards))
end

-- ---- cycle: dataset.rounds (nil: without end) ---------------------------------------------------

-- The pass of the input in the present round; runtime/data/order.c numbers the rounds in the same way. Without end,
-- passes repeat after 2^21, because a pass is a number below 2^53.
local function pass_of_round(self)
  local rounds = self.dataset.rounds
  return rounds and self.pass * rounds + self.round or self.pass % 2 ^ 21 * 2 ^ 32 + self.round
end

function Cycle:begin()
  self.round, self.empty = 0, true
end

-- Makes sure that a round is open; false after the last one, or after a round without elements that would come again.
local function open_round(self)
  if self.input then return true end
  local rounds = self.dataset.rounds
  if rounds and self.round >= rounds or not rounds and self.round > 0 and self.empty then return false end
  self.input, self.empty = operator.open(self.dataset.input, pass_of_round(self)), true
  return true
end

local function end_round(self)
  self.input:close()
  self.input, self.round = nil, self.round + 1
end

function Cycle:pull()
  while open_round(self) do
    local element = self.input:pull()
    if element then
      self.empty = false
      return element
    end
    end_round(self)
  end
  return nil
end

-- Rounds of a known length are left out whole.
local function leap_rounds(self, n)
  local length, rounds = self.dataset.input.count, self.dataset.rounds
  if self.input or not length or length == 0 or length == math.huge then return 0 end
  local whole = math.min(math.floor(n / length), (rounds or math.huge) - self.round)
  self.round, self.empty = self.round + whole, false
  return whole * length
end

function Cycle:leap(n)
  local left_out = leap_rounds(self, n)
  while left_out < n and open_round(self) do
    local some = self.input:leap(n - left_out)
    left_out, self.empty = left_out + some, self.empty and some == 0
    if left_out < n then end_round(self) end
  end
  return left_out
end

-- ---- shuffle: dataset.window, dataset.seed ------------------------------------------------------
-- The same draws from the same window as those of runtime/data/order.c, so the same order.

function Shuffle:begin() self.held = {} end

function Shuffle:pull()
  local held, dataset = self.held, self.dataset
  while #held < dataset.window and not self.filled do
    local element = self.input:pull()
    self.filled = not element
    held[#held + 1] = element
  end
  if #held == 0 then return nil end
  local place = core.shuffle_draw(dataset.seed, self.pass, self.at, #held)
  local element = held[place]
  held[place] = held[#held]
  held[#held] = nil
  self.at = self.at + 1
  return element
end

-- ---- enumerate: dataset.start -------------------------------------------------------------------

function Enumerate:pull()
  local element = self.input:pull()
  if not element then return nil end
  local number = core.tensor(self.dataset.start + self.at, { dtype = "int64" })
  self.at = self.at + 1
  return { number, #element == 1 and element[1] or element }
end

function Enumerate:leap(n)
  local left_out = self.input:leap(n)
  self.at = self.at + left_out
  return left_out
end

return { Take = Take, Skip = Skip, Shard = Shard, Cycle = Cycle, Shuffle = Shuffle, Enumerate = Enumerate }
