--- Iterators over datasets whose steps need values: a pass, element by element, as those of mgpu.data.iterator.
--
-- After an error the next call begins the pass anew and leaps to where it was, so it tries the same element again.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local operator = require "mgpu.data.flow.operator"

local Iterator = {}
Iterator.__index = Iterator
Iterator.__tostring = function(self)
  return ("iterator: pass %d, %d elements taken"):format(self.pass, self.element)
end

--- new(dataset, pass, element) -> an iterator that begins at that element (from 0) of that pass (from 0).
function Iterator.new(dataset, pass, element)
  return setmetatable({ dataset = dataset, pass = pass, element = element, ended = false }, Iterator)
end

local function begin(self)
  self.op = operator.open(self.dataset, self.pass)
  local found = self.op:leap(self.element)
  if found < self.element then
    checks.fail("iter", "the position is past element %d, but this pass has %d", self.element, found)
  end
end

local function pull(self)
  if not self.op then begin(self) end
  return self.op:pull()
end

local function release(self)
  local op = self.op
  self.op = nil
  if op then op:close() end
end

function Iterator:__call()
  if self.ended then return nil end
  if core.tracing() then
    checks.fail("a dataset's iterator",
      "not available inside mgpu.jit: iterate outside and give the function the batch")
  end
  local ok, element = pcall(pull, self)
  if not ok then
    release(self)
    error(element, 0)
  end
  if not element then
    self:close()
    return nil
  end
  self.element = self.element + 1
  return unpack(element)
end

--- it:position() -> {pass = passes begun before, element = elements taken}, for ds:iter(position).
function Iterator:position() return { pass = self.pass, element = self.element } end

--- it:is_shared() -> false: every rank makes all rows of its elements, as the Lua functions may want all of them.
function Iterator.is_shared() return false end

--- it:close(): frees memory and threads now rather than when the iterator is collected.
function Iterator:close()
  self.ended = true
  release(self)
end

return Iterator
