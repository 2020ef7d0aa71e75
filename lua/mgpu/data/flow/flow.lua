--- Flows: datasets that work on elements as values, once a step needs them.
--
-- A dataset of rows (dataset.lua) is an order of row numbers that C turns into batches. filter, padded_batch, zip and
-- the other methods here need the values, and so does every step after them: they make a flow, whose operators
-- (operators/) draw elements from one another. Users see one kind of dataset: methods have the same names and
-- meanings, which are tf.data's.
--
-- A flow is {operator = its class of operators, input or inputs = datasets, count = elements in a pass (math.huge: no
-- end; false: unknown), level = batches so far, passes = passes begun over it} and options of its operator. Fields that
-- a flow does not have are false, because reading nil is an error.
local batches = require "mgpu.data.flow.operators.batches"
local Cache = require "mgpu.data.flow.operators.cache"
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local functions = require "mgpu.data.flow.operators.functions"
local Iterator = require "mgpu.data.flow.iterator"
local joins = require "mgpu.data.flow.operators.joins"
local options = require "mgpu.options"
local order = require "mgpu.data.flow.operators.order"
local padding = require "mgpu.data.flow.padding"
local stack = require "mgpu.data.flow.stack"
local user_function = require "mgpu.data.flow.user_function"

local Flow, methods = { is_dataset = true }, {}
Flow.__tostring = function(self)
  local n = self.count
  return "dataset of " .. (not n and "an unknown number of" or n == math.huge and "endless" or n) .. " elements"
end

Flow.__call = checks.not_called

function Flow.__index(_, name)
  local method = methods[name]
  if method == nil and type(name) == "string" then checks.no_method(name, methods) end
  return method
end

--- new(operator, fields) -> a flow. Defaults of fields: level, the level of the input; count, unknown.
function Flow.new(operator, fields)
  fields.input, fields.inputs, fields.count = fields.input or false, fields.inputs or false, fields.count or false
  fields.level = fields.level or fields.input and fields.input.level or 0
  fields.operator, fields.passes = operator, 0
  return setmetatable(fields, Flow)
end

-- fn(the number of elements); false and math.huge stay as they are.
local function count_after(count, fn)
  if not count or count == math.huge then return count end
  return fn(count)
end

local function divided(n, drop_remainder)
  return function(count) return (drop_remainder and math.floor or math.ceil)(count / n) end
end

-- ---- functions ----------------------------------------------------------------------------------

--- ds:map(fn): fn(x, y, ...) of each element. It returns components: tensors, text, or tables of them by position or by
--- name; numbers become tensors. Traced by mgpu.jit, once for each shape, unless there is text among its arguments,
--- or there are more than 32.
function methods:map(fn)
  return Flow.new(functions.Map, { input = self, count = self.count, fn = user_function.new("map", fn) })
end

--- ds:filter(fn): the elements for which fn(x, y, ...) is true. fn returns a bool tensor of shape {} or a Lua boolean.
--- Traced as map's function is: compare with :eq, :gt, ..., and do not read numbers.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.arange(6) }
--     for x in ds:filter(function(x) return (x % 2):eq(0) end):iter() do print(x:item()) end
--     --> 0
--     --> 2
--     --> 4
function methods:filter(fn)
  return Flow.new(functions.Filter, { input = self, count = self.count == 0 and 0,
    fn = user_function.new("filter", fn) })
end

-- ---- batches ------------------------------------------------------------------------------------

local function batched(self, n, drop_remainder, combine)
  return Flow.new(batches.Batch, { input = self, size = n, drop_remainder = drop_remainder, combine = combine,
    count = count_after(self.count, divided(n, drop_remainder)), level = self.level + 1 })
end

--- ds:batch(n, {drop_remainder = false}): n elements as one, along a new first axis; the last batch may be smaller.
--- Strings become an array of strings. Errors: elements of different shapes.
function methods:batch(n, given)
  checks.count("batch", n, 1)
  return batched(self, n, checks.options("batch", checks.BATCH, given).drop_remainder,
    function(elements, place) return stack.batch("batch", elements, place) end)
end

--- ds:padded_batch(n, {padded_shapes =, padding_values = 0, drop_remainder = false}): n elements as one, along a new
--- first axis, after padding them at the end of each axis to padded_shapes: for each component an array of sizes, -1
--- for the largest size in the batch (the default). A lone shape or number stands for all components. Errors: an
--- element larger than its padded shape; elements of different dtypes or numbers of axes; text.
-- Example:
--     local words = { { 7, 8 }, { 9 }, { 4, 5, 6 } } -- of different lengths
--     local ds = mgpu.data.generator(function()
--       local i = 0
--       return function() i = i + 1; return words[i] end
--     end)
--     for x in ds:padded_batch(3):iter() do print(x) end
--     --> tensor {3, 3} float32 cpu:0
--     --> {{7, 8, 0},
--     -->  {9, 0, 0},
--     -->  {4, 5, 6}}
function methods:padded_batch(n, given)
  checks.count("padded_batch", n, 1)
  local chosen = padding(given)
  return batched(self, n, chosen.drop_remainder,
    function(elements, place) return stack.padded("padded_batch", elements, place, chosen) end)
end

--- ds:unbatch(): the rows of each element as elements. Errors: components without rows, or with different numbers.
function methods:unbatch()
  return Flow.new(batches.Unbatch, { input = self, level = math.max(self.level - 1, 0),
    count = self.count == 0 and 0 })
end

--- ds:window(size, {shift = size, stride = 1, drop_remainder = false}): batches of `size` elements that begin `shift`
--- elements apart; within a window only every stride-th element counts. The last windows may be smaller. tf.data's
--- windows are datasets: this is its window(...).flat_map(lambda w: w.batch(size)).
function methods:window(size, given)
  checks.count("window", size, 1)
  local chosen = checks.options("window", checks.WINDOW, given)
  local shift, drop = chosen.shift or size, chosen.drop_remainder
  local span = (size - 1) * chosen.stride + 1
  return Flow.new(batches.Window, { input = self, size = size, shift = shift, stride = chosen.stride,
    drop_remainder = drop, level = self.level + 1, count = count_after(self.count, function(count)
      return drop and math.max(0, math.floor((count - span) / shift) + 1) or math.ceil(count / shift)
    end) })
end

--- ds:augment {...}: raises: only rows can be augmented (dataset.lua).
function methods:augment(_) -- luacheck: no self
  checks.fail("augment", "it works on rows as they are read, so it must come before filter, zip, cache after a map and "
    .. "other steps that need values")
end

-- ---- order --------------------------------------------------------------------------------------

--- ds:take(n): the first n elements of each pass.
function methods:take(n)
  checks.count("take", n, 0)
  local count = n == 0 and 0 or self.count == math.huge and n or count_after(self.count, function(count)
    return math.min(count, n)
  end)
  return Flow.new(order.Take, { input = self, n = n, count = count })
end

--- ds:skip(n): the elements of each pass after the first n.
function methods:skip(n)
  checks.count("skip", n, 0)
  return Flow.new(order.Skip, { input = self, n = n,
    count = count_after(self.count, function(count) return math.max(count - n, 0) end) })
end

--- ds:shard(i, n): the elements i, i + n, i + 2 n, ... of each pass, i from 1 to n.
function methods:shard(i, n)
  checks.shard(i, n)
  return Flow.new(order.Shard, { input = self, index = i, shards = n, count = count_after(self.count, function(count)
    return math.ceil(math.max(count - i + 1, 0) / n)
  end) })
end

--- ds:cycle(n): n passes one after another; without n, passes without end.
function methods:cycle(n)
  if n ~= nil then checks.count("cycle", n, 0) end
  local count = self.count
  if n and count == math.huge then checks.fail("cycle", "the dataset is already endless") end
  if n == 0 or count == 0 then
    count = 0
  elseif not n then
    count = math.huge -- also where a pass turns out to have no element
  else
    count = count and count * n
  end
  return Flow.new(order.Cycle, { input = self, rounds = n or false, count = count })
end

--- ds:shuffle(n, seed): elements in random order, drawn from a window of n elements, anew in each pass. The order
--- depends on the seed alone (nil: drawn from mgpu.seed's state now).
function methods:shuffle(n, seed)
  checks.count("shuffle", n, 1)
  if seed == nil then seed = core.stream_seed() end
  checks.count("shuffle: the seed", seed, 0)
  return Flow.new(order.Shuffle, { input = self, window = n, seed = seed, count = self.count })
end

--- ds:enumerate(start = 0): elements i, element, with i an int64 tensor that counts from start. An element of several
--- components becomes one component, an array.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.tensor { 10, 20 } }
--     for i, x in ds:enumerate():iter() do print(i:item(), x:item()) end
--     --> 0 10
--     --> 1 20
function methods:enumerate(start)
  checks.count("enumerate", start == nil and 0 or start, 0)
  return Flow.new(order.Enumerate, { input = self, start = start or 0, count = self.count })
end

--- ds:cache(path): keeps the elements of the first pass in memory and gives them in every pass: the steps before it,
--- shuffles too, do not run again. With a path they are also written to that file, at the end of the first whole pass,
--- and read from it by the next program: delete the file when the steps before it change. A file is written whole or
--- not at all. Errors: a file that cannot be written, is damaged, is not a cache, or has another number of elements.
function methods:cache(path)
  if path ~= nil and type(path) ~= "string" then
    checks.fail("cache", "expected the path of a file, got a %s", type(path))
  end
  return Flow.new(Cache, { input = self, count = self.count, kept = Cache.memory(path) })
end

local MOST_AHEAD = 4096 -- rows; a batch ahead may be many of them

-- A copy of the dataset in which the datasets of rows that it draws on prefetch what n of its elements need.
local function prefetching(dataset, n, given)
  if getmetatable(dataset) ~= Flow then return dataset:prefetch(math.min(n, MOST_AHEAD), given) end
  local copy = {}
  for key, value in pairs(dataset) do copy[key] = value end
  local needed = dataset.operator == batches.Batch and n * dataset.size or n
  copy.passes, copy.input = 0, dataset.input and prefetching(dataset.input, needed, given)
  copy.inputs = dataset.inputs and {}
  for i, input in ipairs(dataset.inputs or {}) do copy.inputs[i] = prefetching(input, needed, given) end
  return setmetatable(copy, Flow)
end

--- ds:prefetch(n, {threads =}): threads read the rows of the next n elements while this one is used, for each dataset
--- of tensors or files that this one draws on. Steps that need values run when an element is asked for. Its place in
--- the chain has no effect.
function methods:prefetch(n, given)
  checks.count("prefetch", n, 1)
  return prefetching(self, n, given)
end

-- ---- several datasets ---------------------------------------------------------------------------

--- ds:zip(other, ...): see mgpu.data.zip.
-- Example:
--     local images = mgpu.data.from_tensors { mgpu.zeros { 2, 8, 8 } }
--     local labels = mgpu.data.from_tensors { mgpu.arange(2) }
--     for x, y in images:zip(labels):iter() do print(table.concat(x:shape(), " "), y:item()) end
--     --> 8 8 0
--     --> 8 8 1
function methods:zip(...) return require "mgpu.data.joins".zip { self, ... } end

--- ds:concatenate(other, ...): see mgpu.data.concatenate.
-- Example:
--     local a, b = mgpu.data.from_tensors { mgpu.arange(2) }, mgpu.data.from_tensors { mgpu.arange(10, 12) }
--     for x in a:concatenate(b):batch(4):iter() do print(x) end
--     --> tensor {4} float32 cpu:0
--     --> { 0,  1, 10, 11}
function methods:concatenate(...) return require "mgpu.data.joins".concatenate { self, ... } end

local INTERLEAVE = options.declare { { "cycle_length", "integer", min = 1 },
  { "block_length", "integer", min = 1, default = 1 } }
local CYCLE_LENGTH = 8 -- if the number of datasets is unknown

--- interleave_options(given) -> the checked options of interleave; cycle_length may be nil.
function Flow.interleave_options(given) return checks.options("interleave", INTERLEAVE, given) end

--- ds:interleave(fn, {cycle_length = 8, block_length = 1}): fn(x, y, ...) makes a dataset of each element; cycle_length
--- of them are open at a time and give block_length elements each in turn. fn is not traced.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.tensor { 10, 20 } }
--     local function three(x) return mgpu.data.from_tensors { mgpu.arange(3) + x } end
--     for x in ds:interleave(three):batch(6):iter() do print(x) end
--     --> tensor {6} float32 cpu:0
--     --> {10, 20, 11, 21, 12, 22}
function methods:interleave(fn, given)
  local chosen = Flow.interleave_options(given)
  return Flow.new(joins.Interleave, { input = self, fn = user_function.new("interleave", fn, false), level = 0,
    cycle_length = chosen.cycle_length or CYCLE_LENGTH, block_length = chosen.block_length,
    count = self.count == 0 and 0 })
end

--- ds:flat_map(fn): fn(x, y, ...) makes a dataset of each element; their elements come one dataset after another.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.tensor { { 1, 2 }, { 3, 4 } } }
--     local numbers = ds:flat_map(function(row) return mgpu.data.from_tensors { row } end)
--     for x in numbers:batch(4):iter() do print(x) end
--     --> tensor {4} float32 cpu:0
--     --> {1, 2, 3, 4}
function methods:flat_map(fn)
  return Flow.new(joins.Interleave, { input = self, fn = user_function.new("flat_map", fn, false), level = 0,
    cycle_length = 1, block_length = 1, count = self.count == 0 and 0 })
end

-- ---- passes -------------------------------------------------------------------------------------

--- ds:length() -> elements in a pass; nil if it has no end, or is known only after a pass.
function methods:length()
  local count = self.count
  return count and count < math.huge and count or nil
end

--- ds:iter(position) -> an iterator over a fresh pass, or over the rest of one: `position` is what iterator:position()
--- gave. It may be left early. Elements before the position are skipped without computing them where possible, and
--- computed again where later elements depend on them (filter, shuffle).
function methods:iter(position)
  if position ~= nil then checks.position(position, self.count) end
  local pass, element = self.passes, 0
  if position then pass, element = position.pass, position.element end
  self.passes = pass + 1
  return Iterator.new(self, pass, element)
end

--- lift(methods): adds to the methods of datasets of rows the methods of flows that they lack.
function Flow.lift(known)
  for name, method in pairs(methods) do known[name] = known[name] or method end
end

checks.colons(methods)
Flow.methods = methods

return Flow
