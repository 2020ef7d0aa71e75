--- concatenate {a, b, ...}: the elements of one dataset after those of another. Also ds:concatenate(other, ...).
--
-- Errors: an empty list; an entry that is not a dataset; elements with different components, raised as they are read.
-- Example:
--     local a, b = mgpu.data.from_tensors { mgpu.arange(2) }, mgpu.data.from_tensors { mgpu.arange(10, 13) }
--     for x in mgpu.data.concatenate({ a, b }):batch(5):iter() do print(x) end
--     --> tensor {5} float32 cpu:0
--     --> { 0,  1, 10, 11, 12}
local Flow = require "mgpu.data.flow.flow"
local joins = require "mgpu.data.flow.operators.joins"
local list = require "mgpu.data.flow.list"

--- concatenate {a, b, ...}: see the top.
return function(given)
  local inputs = list.datasets("concatenate", given)
  local rows = require "mgpu.data.dataset".concatenated(inputs)
  if rows then return rows end
  return Flow.new(joins.Concatenate, { inputs = inputs, count = list.total(inputs), level = list.least_level(inputs) })
end
