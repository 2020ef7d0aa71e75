--- batch, padded_batch, window and unbatch.
local operator = require "mgpu.data.flow.operator"
local stack = require "mgpu.data.flow.stack"

local Batch, Window, Unbatch = operator.class(), operator.class(), operator.class()

-- ---- batch, padded_batch ------------------------------------------------------------------------
-- dataset: size, drop_remainder, combine(elements, place) as in stack.lua.

function Batch:pull()
  local size, elements = self.dataset.size, {}
  for k = 1, size do
    local element = self.input:pull()
    if not element then break end
    elements[k] = element
  end
  if #elements == 0 or #elements < size and self.dataset.drop_remainder then return nil end
  local before = self.at * size
  self.at = self.at + 1
  return self.dataset.combine(elements, function(k) return before + k end)
end

function Batch:leap(n)
  local size = self.dataset.size
  local elements = self.input:leap(n * size)
  local batches = (self.dataset.drop_remainder and math.floor or math.ceil)(elements / size)
  self.at = self.at + batches
  return batches
end

-- ---- window -------------------------------------------------------------------------------------
-- dataset: size, shift, stride, drop_remainder. `held` are the elements from the beginning of the next window on.

function Window:begin() self.held = {} end

-- Leaves out the first n held elements, and more if fewer are held.
local function advance(self, n)
  local kept = {}
  for k = n + 1, #self.held do kept[#kept + 1] = self.held[k] end
  if n > #self.held then self.input:leap(n - #self.held) end
  self.held = kept
end

-- The elements of the next window; nil at the end.
local function next_window(self)
  local dataset = self.dataset
  if self.at > 0 then advance(self, dataset.shift) end
  local span = (dataset.size - 1) * dataset.stride + 1
  while #self.held < span do
    local element = self.input:pull()
    if not element then break end
    self.held[#self.held + 1] = element
  end
  if #self.held == 0 or #self.held < span and dataset.drop_remainder then return nil end
  self.at = self.at + 1
  local elements = {}
  for k = 1, math.min(span, #self.held), dataset.stride do elements[#elements + 1] = self.held[k] end
  return elements
end

function Window:pull()
  local elements, dataset = next_window(self), self.dataset
  if not elements then return nil end
  local before = (self.at - 1) * dataset.shift
  return stack.batch("window", elements, function(k) return before + (k - 1) * dataset.stride + 1 end)
end

function Window:leap(n)
  for left_out = 0, n - 1 do
    if not next_window(self) then return left_out end
  end
  return n
end

-- ---- unbatch ------------------------------------------------------------------------------------
-- `batch` is the element whose rows are given out: `left` of its `row_count` rows remain.

function Unbatch:begin() self.left = 0 end

-- Makes sure that there are rows left; false at the end.
local function next_batch(self)
  while self.left == 0 do
    self.batch, self.elements = self.input:pull(), nil
    if not self.batch then return false end
    self.at = self.at + 1
    self.row_count = stack.rows(self.batch, self.at)
    self.left = self.row_count
  end
  return true
end

function Unbatch:pull()
  if not next_batch(self) then return nil end
  self.elements = self.elements or stack.unbatch(self.batch, self.row_count)
  self.left = self.left - 1
  return self.elements[self.row_count - self.left]
end

function Unbatch:leap(n)
  local wanted = n
  while wanted > 0 and next_batch(self) do
    local some = math.min(wanted, self.left)
    self.left, wanted = self.left - some, wanted - some
  end
  return n - wanted
end

return { Batch = Batch, Window = Window, Unbatch = Unbatch }
