--- The functions that users give to map, filter and flat_map.
--
-- mgpu.jit traces a function whose arguments are tensors, once for each of their shapes. With text among them it runs
-- untraced, since the text would be a constant of the trace. It also runs untraced with more tensors than jitted
-- functions are sure to accept, and if it is an object with the field reads_values, as layers with a vocabulary are.
local core = require "mgpu.core"
local checks = require "mgpu.data.checks"
local span = require "mgpu.span"
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

--- text_of_place(number, rows) -> what messages say of an element: its number in the pass, from 1, and where its rows
--- come from (nil or "": not known).
function M.text_of_place(number, rows)
  return ("element %d%s"):format(number, rows and rows ~= "" and ", " .. rows or "")
end

--- new(who, fn, traced = true) -> the function, for `call`. who: the method, which begins messages; traced: false for a
--- function that must see its arguments' values. Errors: not a function.
function M.new(who, fn, traced)
  if not checks.is_callable(fn) then checks.fail(who, "expected a function, got %s", type(fn)) end
  local plain = fn
  if type(fn) ~= "function" then
    plain = function(...) return fn(...) end
    if type(fn) == "table" and fn.reads_values then traced = false end
  end
  return setmetatable({ who = who, name = M.place_of(fn), plain = plain,
    traced = traced ~= false and core.jit(plain, { many_traces = true }) or plain }, Function)
end

local MOST_TRACED = 32

local function can_be_traced(leaves)
  for _, leaf in ipairs(leaves) do
    if structure.is_text(leaf) then return false end
  end
  return #leaves <= MOST_TRACED
end

-- What messages say of the element that a function was called with: its number in the pass, from 1, or what a function
-- returns.
local function text_of(place)
  return type(place) == "number" and M.text_of_place(place) or place()
end

-- What pcall returned, as an array with the number of results; an error gets the place where it happened.
local function received(who, name, place, ok, ...)
  if ok then return { n = select("#", ...), ... } end
  local message = ...
  if type(message) == "string" and not message:find "interrupted!?$" then
    message = ("%s (%s: %s, %s)"):format(message, who, name, text_of(place))
  end
  error(message, 0)
end

--- call(who, name, place, fn, ...) -> the results of fn(...), an array with their number n. An error gets the method,
--- the function's name (place_of) and the element's place: its number in the pass, from 1, or a function that returns
--- the text.
function M.call(who, name, place, fn, ...)
  local element = type(place) == "number" and place or nil
  return received(who, name, place, pcall(span, "data", who .. ": " .. name, element, fn, ...))
end

--- fn:call(element, place) -> its results, as of M.call.
function Function:call(element, place)
  local fn = can_be_traced((structure.flatten(element))) and self.traced or self.plain
  return M.call(self.who, self.name, place, fn, unpack(element))
end

--- fn:fail(place, message, ...): raises an error about what the function did with the element at that place.
function Function:fail(place, message, ...)
  checks.fail(self.who, "%s %s (%s)", self.name, message:format(...), text_of(place))
end

-- Computes the tensors among the leaves together.
local function evaluate(leaves)
  local tensors = {}
  for _, leaf in ipairs(leaves) do
    if core.is_tensor(leaf) then tensors[#tensors + 1] = leaf end
  end
  core.eval(unpack(tensors))
end

-- After a call with these results: sets self.draws. A function that depends on a Lua number which it changes is traced
-- anew each time.
local function notice(self, leaves)
  local draws, assigns, traces = self.traced:effects()
  self.draws = traces == self.traces and assigns == 0 and can_be_traced(leaves) and draws or nil
  self.traces = traces
end

--- fn:element(element, place) -> the results as an element. Errors: no result, or one that cannot be a component.
-- Afterwards fn.draws is the number of random draws of the call if it ran a plan that was there before and changed
-- nothing, so that calls with elements of these shapes may be left out; else nil.
function Function:element(element, place)
  local results = self:call(element, place)
  if results.n == 0 then self:fail(place, "returns nothing; it must return tensors, as in `return x, y`") end
  local made = structure.element(function(value, path)
    self:fail(place, "must return tensors or text, but its result %s is %s", path, structure.kind_of(value))
  end, unpack(results, 1, results.n))
  local leaves = structure.flatten(made)
  evaluate(leaves)
  if self.traced ~= self.plain then notice(self, leaves) end
  return made
end

--- fn:truth(element, place) -> the result, which must be one truth value: a Lua boolean, or a bool tensor of shape {}.
function Function:truth(element, place)
  local results = self:call(element, place)
  local value = results[1]
  if type(value) == "boolean" then return value end
  if core.is_tensor(value) and value:rank() == 0 and value:dtype() == "bool" then return value:item() end
  local given = core.is_tensor(value) and ("a %s tensor of shape {%s}"):format(value:dtype(),
    table.concat(value:shape(), ", ")) or structure.kind_of(value)
  self:fail(place, "must return one truth value, such as x:sum():gt(0) or x:eq(y):all(), but it returns %s", given)
end

return M
