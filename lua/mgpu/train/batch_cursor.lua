--- Cursors: they go through a source and say which batches come next.
--
--     local cursor = batch_cursor.new(source, batch_size, shuffle, position)
--     cursor:start(pass)              -- begins pass number `pass`, counted from 0
--     local batch = cursor:take(n)    -- at most n batches of equal size for one step, nil at the end of the pass
-- A batch is the arguments of a step: {count, rows, layout, first, order, tensors}, see train_step.lua; with an order,
-- `at` is the number in `first`. If the
-- source is tensors, nothing is copied: the step itself gathers the rows order[first], ... from the whole tensors.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local row_share = require "mgpu.train.row_share"
local span = require "mgpu.span"

local SHUFFLE_STREAM = 1 -- number of the random stream for shuffling; the layers have others

-- ---- through tensors ------------------------------------------------------------------------------

local Rows = {}
Rows.__index = Rows

-- Makes the next step begin at this row of the order. With a position (train_step.position) the steps advance it
-- themselves; it is set only at the start of a pass, or after another fit has used the same steps.
local function begin_at(self, row)
  local position = self.position
  if position and position.at == row then return end
  local first = position and row == 0 and position.start or core.tensor(row, { dtype = "int32" })
  if position then
    position.row:assign(first)
  else
    if self.first then self.first:free() end -- the next one gets its address: GPU graphs stay valid
    self.first = first
  end
end

function Rows:take(limit)
  local source, size = self.source, self.batch_size
  local left = source.rows - self.at
  if left <= 0 then return nil end
  local rows = math.min(size, left)
  local count = rows < size and 1 or math.min(limit, math.floor(left / size))
  local at = self.at
  begin_at(self, at)
  self.at = at + count * rows
  if self.position then self.position.at = self.at end
  return { count = count, rows = rows, layout = source.layout, first = self.first, order = self.order, at = at,
    tensors = source.tensors }
end

-- The order of a shuffled pass depends on seed and pass alone. It permutes the first rows of the tensors: all of
-- them, or those before a validation split.
function Rows:start(pass)
  self.at, self.seed = 0, core.rng_state().seed
  if self.position then self.position.at = nil end -- a step that failed has not advanced it
  self.order = self.shuffle and core.permutation(self.source.rows, SHUFFLE_STREAM, pass)
    or self.source.order
end

-- get_state() -> plain data from which set_state(state, pass) continues the pass begun last, of that number.
function Rows:get_state() return { at = self.at, seed = self.seed } end

function Rows:set_state(state, pass)
  local now = core.rng_state()
  core.rng_state { seed = state.seed, base = now.base }
  self:start(pass)
  core.rng_state(now)
  self.at = state.at
end

-- skip_passes(n): n passes were made before the model was saved.
function Rows:skip_passes() end -- luacheck: no self

-- settle(device, position): continues for steps on other devices, in mid-pass. device: nil for several.
function Rows:settle(device, position)
  self.position, self.first = position, nil
  if device and self.order then self.order = self.order:to(device) end
end

-- ---- through a dataset ----------------------------------------------------------------------------

local Stream = {}
Stream.__index = Stream

local function next_element(self)
  if self.of_data and self.next:is_shared() then return row_share.only_here(self.next) end
  return self.next()
end

function Stream:take()
  local x, y, weight, more = span("data", "next batch", self.taken + 1, next_element, self)
  if x == nil then return nil end
  self.taken = self.taken + 1
  local part, rows = self.source.check(x, y, weight, more)
  return { count = 1, rows = rows, layout = part.layout, tensors = part.tensors }
end

-- Datasets of mgpu.data count their passes, each of which has an order of its own. Their iterators have threads, which
-- the pass before may still keep.
function Stream:start(_, position)
  local before = self.next
  if type(before) == "table" and before.close then before:close() end
  local dataset = self.source.dataset
  local of_data = checks.is_dataset(dataset)
  self.next = of_data and dataset:iter(position, self.device, self.spread) or dataset:iter(position)
  self.of_data = of_data
  self.taken = 0
end

-- A dataset that is not of mgpu.data, so that its iterators have no positions, begins the pass again.
function Stream:get_state()
  local it = self.next
  return { taken = self.taken, position = type(it) == "table" and it.position and it:position() or nil }
end

function Stream:set_state(state, pass)
  self:start(pass, state.position)
  if not state.position and not self.source.generator then
    for _ = 1, state.taken do self.next() end
  end
  self.taken = state.taken
end

function Stream:skip_passes(n)
  local dataset = self.source.dataset
  if dataset.passes then dataset.passes = math.max(dataset.passes, n) end
end

function Stream:settle(device) self.device, self.spread = device, nil end

-- ---- making them --------------------------------------------------------------------------------

local M = {}

--- new(source, batch_size, shuffle, position): `position` is train_step.position's, or nil. Call start before take.
function M.new(source, batch_size, shuffle, position)
  return setmetatable({ source = source, batch_size = batch_size, shuffle = shuffle, position = position,
    device = source.device, spread = source.spread }, source.dataset and Stream or Rows)
end

return M
