--- generator(fn, {length =, dtypes =}): the elements that a Lua function gives.
--
--     local ds = mgpu.data.generator(function()          -- called at the beginning of each pass
--       local i = 0
--       return function() i = i + 1; if i <= 10 then return { i, i * i }, i % 2 end end
--     end)
--     local batches = ds:shuffle(10, 1):batch(5)
-- fn is a factory if it returns a function or a coroutine, as makers of iterators for a loop do: passes are then equal,
-- and can be resumed. Otherwise fn itself (or the coroutine given in its place) gives an element at each call, and nil
-- at the end: a pass goes on where the one before ended, and cannot be resumed in its middle once it has begun.
-- An element is one or more values: tensors, text, numbers and nested arrays of them (which become tensors), or tables
-- of these by name. Elements are rows, unless you give whole batches and leave :batch out.
-- Options: length, the number of elements in a pass, if it is known; dtypes, a dtype for each component that is made of
-- numbers (default: floatx; "bool" for booleans). Errors: another number of elements than `length`.
-- Example:
--     local ds = mgpu.data.generator(function() -- called at the beginning of each pass
--       local i = 0
--       return function() i = i + 1; if i <= 3 then return { i, i * i }, i % 2 end end
--     end)
--     for x, y in ds:iter() do print(x[1]:item(), x[2]:item(), y:item()) end
--     --> 1 1 1
--     --> 2 4 0
--     --> 3 9 1
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local Flow = require "mgpu.data.flow.flow"
local operator = require "mgpu.data.flow.operator"
local options = require "mgpu.options"
local structure = require "mgpu.data.flow.structure"
local user_function = require "mgpu.data.flow.user_function"

-- ---- the operator -------------------------------------------------------------------------------

-- The elements that a Lua function or a coroutine gives: see mgpu.data.generator.
--
-- dataset.once is shared by all operators of the dataset. once.next is the function that gives the elements, if it is
-- no factory; once.pass is the pass in which it was called last, once.given whether it has given an element in it.

local Generator = operator.class()

local AGAIN = "give a function that makes a new one for each pass, and returns it"

-- A function that resumes the coroutine; its errors are raised as they are.
local function resumer(co)
  local function passed(ok, ...)
    if not ok then error((...), 0) end
    return ...
  end
  return function()
    if coroutine.status(co) == "dead" then return nil end
    return passed(coroutine.resume(co))
  end
end

local function is_source(value)
  return type(value) == "thread" or type(value) ~= "table" and checks.is_callable(value) and not core.is_tensor(value)
end

local function as_function(source) return type(source) == "thread" and resumer(source) or source end

-- Notes that the function, which is not a factory, is called in a pass now. A pass that it has begun cannot begin
-- again.
local function use_once(self, call)
  local once = self.dataset.once
  if not once.next and self.pass > 0 then
    checks.fail("generator", "%s gives elements once, so pass %d cannot be resumed: %s", self.name, self.pass + 1,
      AGAIN)
  end
  if once.pass and once.given and self.pass <= once.pass then
    checks.fail("generator", "%s has given its elements of pass %d already and cannot go back to them: %s", self.name,
      self.pass + 1, AGAIN)
  end
  once.next, once.pass, once.given = call, self.pass, false
  self.call, self.once = call, once
end

local function called(self, fn) return user_function.call("generator", self.name, self.at + 1, fn) end

-- RETURNS the results of the first call for an element.
local function begin(self)
  local fn, once = self.dataset.fn, self.dataset.once
  self.name = type(fn) == "thread" and "the coroutine" or user_function.place_of(fn)
  if once.next or type(fn) == "thread" then
    use_once(self, once.next or resumer(fn))
    return called(self, self.call)
  end
  local results = called(self, fn)
  if results.n == 1 and is_source(results[1]) then
    self.call = as_function(results[1])
    return called(self, self.call)
  end
  use_once(self, fn)
  return results
end

local function check_length(self)
  local length = self.dataset.count
  if length and self.at ~= length then
    checks.fail("generator", "%s gave %s elements in pass %d, but its length was given as %d", self.name,
      self.at < length and self.at or "more than " .. length, self.pass + 1, length)
  end
end

-- Nothing at the beginning of a later pass means that the function has ended for good.
local function end_pass(self)
  self.ended = true
  check_length(self)
  if self.once and self.at == 0 and self.pass > 0 then
    checks.fail("generator", "%s ended before pass %d: %s", self.name, self.pass + 1, AGAIN)
  end
  return nil
end

-- The values as an element; numbers get the dtypes of the options.
local function element_of(self, values)
  local function refuse(value, path)
    checks.fail("generator", "%s must give tensors, numbers or text, but value %s of element %d is %s", self.name, path,
      self.at + 1, structure.kind_of(value))
  end
  local element = {}
  for i = 1, values.n do
    element[i] = structure.component(values[i], refuse, tostring(i), self.dataset.dtypes[i])
  end
  return element
end

function Generator:pull()
  if self.ended then return nil end
  local values = self.call and called(self, self.call) or begin(self)
  if values[1] == nil then return end_pass(self) end
  if self.once then self.once.given = true end
  local element = element_of(self, values)
  self.at = self.at + 1
  if self.dataset.count and self.at > self.dataset.count then check_length(self) end
  return element
end

-- ---- the source ---------------------------------------------------------------------------------

local GENERATOR = options.declare { { "length", "integer", min = 0 }, { "dtypes", "table|string" } }

--- generator(fn, options): see the top.
return function(fn, given)
  if type(fn) ~= "thread" and not checks.is_callable(fn) then
    checks.fail("generator", "expected a function or a coroutine, got %s", type(fn))
  end
  local chosen = checks.options("generator", GENERATOR, given)
  local dtypes = type(chosen.dtypes) == "string" and { chosen.dtypes } or chosen.dtypes
  return Flow.new(Generator, { fn = fn, dtypes = dtypes or {}, count = chosen.length, once = {} })
end
