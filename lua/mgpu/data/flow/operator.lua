--- Operators: each gives the elements of one dataset in one pass, drawing on those of the datasets before it.
--
--     op:pull()    the next element, an array of its components; nil at the end
--     op:leap(n)   leaves out n elements, or all that are left; returns how many it left out
--     op:rows()    where the rows of the last element come from, as text; nil: not known
--     op:close()   ends the pass here: frees threads and files
-- Elements are not changed after they were given out. An operator that raised is not used again: iterators begin the
-- pass anew and leap to where they were.
local user_function = require "mgpu.data.flow.user_function"

local M = {}

local Base = {}

-- The default: makes the elements and drops them.
function Base:leap(n)
  for left_out = 0, n - 1 do
    if not self:pull() then return left_out end
  end
  return n
end

-- Operators whose elements are each made of one of the input's take this for their `rows`.
local function rows_of_input(self) return self.input and self.input:rows() end

-- Where the rows of the last element come from, as text; nil: not known.
function Base:rows() end -- luacheck: no self

function Base:close()
  if self.input then self.input:close() end
end

--- rows_of_input(classes): gives the classes a `rows` that returns the rows of their input.
function M.rows_of_input(classes)
  for _, class in ipairs(classes) do class.rows = rows_of_input end
end

--- place(op) -> a function that describes the element that op has drawn, for messages: its number and its rows.
function M.place(op)
  return function() return user_function.text_of_place(op.at, op.input:rows()) end
end

--- class(opens_later) -> a class of operators, whose pull, leap, close and begin(self) are to be defined. The fields of
--- an operator are dataset, pass, at = 0 (for the number of elements given so far) and input, the operator of
--- dataset.input, unless the class opens that later itself.
function M.class(opens_later)
  local class = setmetatable({ opens_later = opens_later }, { __index = Base })
  class.__index = class
  return class
end

--- open(dataset, pass) -> an operator at the beginning of that pass (from 0) over the dataset.
function M.open(dataset, pass)
  local class = rawget(dataset, "operator") or require "mgpu.data.flow.operators.rows"
  local op = setmetatable({ dataset = dataset, pass = pass, at = 0 }, class)
  local input = rawget(dataset, "input")
  op.input = input and not class.opens_later and M.open(input, pass) or nil
  if op.begin then op:begin() end
  return op
end

return M
