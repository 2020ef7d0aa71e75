--- interleave({a, b, ...}, {cycle_length =, block_length = 1}): the elements of several datasets in turns.
--
-- As in tf.data: cycle_length datasets (all, unless given) are open at a time; each in turn gives block_length
-- elements. When one has ended, the next unopened dataset takes its place at its next turn. ds:interleave(fn, ...)
-- is the same for datasets that fn makes of elements.
-- Errors: an empty list; an entry that is not a dataset; elements with different components, raised as they are read.
-- Example:
--     local a, b = mgpu.data.from_tensors { mgpu.arange(3) }, mgpu.data.from_tensors { mgpu.arange(10, 13) }
--     for x in mgpu.data.interleave({ a, b }):batch(6):iter() do print(x) end
--     --> tensor {6} float32 cpu:0
--     --> { 0, 10,  1, 11,  2, 12}
local Flow = require "mgpu.data.flow.flow"
local joins = require "mgpu.data.flow.operators.joins"
local list = require "mgpu.data.flow.list"

--- interleave({a, b, ...}, options): see the top.
return function(given, options)
  local inputs = list.datasets("interleave", given)
  local chosen = Flow.interleave_options(options)
  return Flow.new(joins.Interleave, { inputs = inputs, cycle_length = chosen.cycle_length or #inputs,
    block_length = chosen.block_length, count = list.total(inputs), level = list.least_level(inputs) })
end
