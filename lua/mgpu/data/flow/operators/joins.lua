--- zip, concatenate and interleave: the elements of several datasets.
local checks = require "mgpu.data.checks"
local operator = require "mgpu.data.flow.operator"
local structure = require "mgpu.data.flow.structure"

local Zip, Concatenate, Interleave = operator.class(), operator.class(), operator.class()

operator.rows_of_input { Concatenate }

-- ---- zip: dataset.inputs, dataset.like (an element with the datasets' numbers as its leaves) -----

function Zip:begin()
  self.inputs = {}
  for i, dataset in ipairs(self.dataset.inputs) do self.inputs[i] = operator.open(dataset, self.pass) end
end

function Zip:pull()
  local leaves = {}
  for i, input in ipairs(self.inputs) do
    local element = input:pull()
    if not element then return nil end
    leaves[i] = #element == 1 and element[1] or element
  end
  return structure.unflatten(self.dataset.like, leaves)
end

function Zip:rows() return self.inputs[1]:rows() end -- as of rows that are zipped

function Zip:leap(n)
  local least = n
  for _, input in ipairs(self.inputs) do least = math.min(least, input:leap(n)) end
  return least
end

function Zip:close()
  for _, input in ipairs(self.inputs) do input:close() end
end

-- ---- concatenate: dataset.inputs ----------------------------------------------------------------

function Concatenate:begin() self.number = 0 end

-- Makes sure that an input is open; false after the last one.
local function open_next(self)
  if self.input then return true end
  local dataset = self.dataset.inputs[self.number + 1]
  if not dataset then return false end
  self.number, self.input = self.number + 1, operator.open(dataset, self.pass)
  return true
end

local function close_input(self)
  self.input:close()
  self.input = nil
end

-- Raises for elements with other components: later steps would take one component for another.
local function check_alike(self, element)
  local _, paths = structure.flatten(element)
  self.paths = self.paths or paths
  if paths ~= self.paths then
    checks.fail("concatenate", "the elements of dataset %d have %s, those before %s", self.number, paths, self.paths)
  end
  return element
end

function Concatenate:pull()
  while open_next(self) do
    local element = self.input:pull()
    if element then return check_alike(self, element) end
    close_input(self)
  end
  return nil
end

function Concatenate:leap(n)
  local left_out = 0
  while left_out < n and open_next(self) do
    left_out = left_out + self.input:leap(n - left_out)
    if left_out < n then close_input(self) end
  end
  return left_out
end

-- ---- interleave ---------------------------------------------------------------------------------
-- dataset.cycle_length, dataset.block_length; dataset.inputs, or dataset.input with dataset.fn. As in tf.data,
-- cycle_length datasets are open at a time; each in its turn gives block_length elements, or ends, and at its next turn
-- the next dataset has taken its place.

function Interleave:begin() self.slots, self.open, self.turn, self.given = {}, 0, 1, 0 end

-- The dataset that fn makes of the next element; nil at the end.
local function made_dataset(self)
  local fn, element = self.dataset.fn, self.input:pull()
  if not element then return nil end
  self.at = self.at + 1
  local results = fn:call(element, self.at)
  if not checks.is_dataset(results[1]) then
    fn:fail(self.at, "must return a dataset, but it returns %s", structure.kind_of(results[1]))
  end
  return results[1]
end

local function next_dataset(self)
  if self.input then return made_dataset(self) end
  self.at = self.at + 1
  return self.dataset.inputs[self.at]
end

local function end_turn(self)
  self.turn, self.given = self.turn % self.dataset.cycle_length + 1, 0
end

-- The operator whose turn it is; nil if its place is to stay empty.
local function present(self)
  local op = self.slots[self.turn]
  if op or self.exhausted then return op end
  local dataset = next_dataset(self)
  if not dataset then
    self.exhausted = true
    return nil
  end
  op = operator.open(dataset, self.pass)
  self.slots[self.turn], self.open = op, self.open + 1
  return op
end

-- The result of draw(op) for the operator whose turn it is. If draw returns nil, that operator has ended and the next
-- one takes its turn. nil at the end of all.
local function next_element(self, draw)
  repeat
    local op = present(self)
    local result = op and draw(op)
    if result then
      self.given = self.given + 1
      if self.given == self.dataset.block_length then end_turn(self) end
      return result
    end
    if op then
      op:close()
      self.slots[self.turn], self.open = nil, self.open - 1
    end
    end_turn(self)
  until self.exhausted and self.open == 0
  return nil
end

function Interleave:pull()
  return next_element(self, function(op) return op:pull() end)
end

function Interleave:leap(n)
  for left_out = 0, n - 1 do
    if not next_element(self, function(op) return op:leap(1) == 1 or nil end) then return left_out end
  end
  return n
end

function Interleave:close()
  if self.input then self.input:close() end
  for _, op in pairs(self.slots) do op:close() end
end

return { Zip = Zip, Concatenate = Concatenate, Interleave = Interleave }
