--- The functions that users give to map, filter and flat_map.
--
-- A function whose arguments are tensors is traced, once for each of their shapes, by mgpu.jit. With text among them it
-- runs as it is: the text would be a constant of the trace. So it does with more tensors than a jitted function surely
-- takes.
local core = require "mgpu.core"
local checks = require "mgpu.data.checks"
local structure = require "mgpu.data.flow.structure"

local Function = {}
Function.__index = Function

local M = {}

--- place_of(fn) -> "the function at FILE:LINE", or "the function" for a layer, a model or a jitted function.
function M.place_of(fn)
  if type(fn) ~= "function" then return "the function" end
  local place = debug.getinfo(fn, "S")
  return ("the function at %s:%d"):format(place.short_src, place.linedefined)
end

--- new(who, fn, traced = true) -> the function, for `call`. who: the method, which begins messages; traced: false for a
--- function that must see its arguments' values. Errors: not a function.
function M.new(who, fn, traced)
  if not checks.is_callable(fn) then checks.fail(who, "expected a function, got %s", type(fn)) end
  local plain = fn
  if type(fn) ~= "function" then plain = function(...) return fn(...) end end
  return setmetatable({ who = who, name = M.place_of(fn), plain = plain,
    traced = traced ~= false and core.jit(plain) or plain }, Function)
end

local MOST_TRACED = 32

local function can_be_traced(leaves)
  for _, leaf in ipairs(leaves) do
    if structure.is_text(leaf) then return false end
  end
  return #leaves <= MOST_TRACED
end

-- What pcall returned, as an array with the number of results; an error gets the place where it happened.
local function received(who, name, number, ok, ...)
  if ok then return { n = select("#", ...), ... } end
  local message = ...
  if type(message) == "string" and not message:find "interrupted!?$" then
    message = ("%s (%s: %s, element %d)"):format(message, who, name, number)
  end
  error(message, 0)
end

--- call(who, name, number, fn, ...) -> the results of fn(...), an array with their number n. An error gets the place:
--- the method, the function's name (place_of) and the number of the element in the pass, from 1.
function M.call(who, name, number, fn, ...) return received(who, name, number, pcall(fn, ...)) end

--- fn:call(element, number) -> its results, as of M.call.
function Function:call(element, number)
  local fn = can_be_traced((structure.flatten(element))) and self.traced or self.plain
  return M.call(self.who, self.name, number, fn, unpack(element))
end

--- fn:fail(number, message, ...): raises for what the function did with the element of that number.
function Function:fail(number, message, ...)
  checks.fail(self.who, "%s %s (element %d)", self.name, message:format(...), number)
end

-- Computes the tensors of an element together.
local function evaluate(element)
  local tensors = {}
  for _, leaf in ipairs((structure.flatten(element))) do
    if core.is_tensor(leaf) then tensors[#tensors + 1] = leaf end
  end
  core.eval(unpack(tensors))
end

--- fn:element(element, number) -> the results as an element. Errors: no result, or one that can be no component.
function Function:element(element, number)
  local results = self:call(element, number)
  if results.n == 0 then self:fail(number, "returns nothing; it must return tensors, as in `return x, y`") end
  local made = structure.element(function(value, path)
    self:fail(number, "must return tensors or text, but its result %s is %s", path, structure.kind_of(value))
  end, unpack(results, 1, results.n))
  evaluate(made)
  return made
end

--- fn:truth(element, number) -> the result, which must be one truth value: a Lua boolean, or a bool tensor of shape {}.
function Function:truth(element, number)
  local results = self:call(element, number)
  local value = results[1]
  if type(value) == "boolean" then return value end
  if core.is_tensor(value) and value:rank() == 0 and value:dtype() == "bool" then return value:item() end
  local given = core.is_tensor(value) and ("a %s tensor of shape {%s}"):format(value:dtype(),
    table.concat(value:shape(), ", ")) or structure.kind_of(value)
  self:fail(number, "must return one truth value, such as x:sum():gt(0) or x:eq(y):all(), but it returns %s", given)
end

return M
