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
local Flow = require "mgpu.data.flow.flow"
local Generator = require "mgpu.data.flow.operators.generator"
local options = require "mgpu.options"

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
