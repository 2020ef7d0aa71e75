--- Datasets: what the sources of mgpu.data return. Methods make new datasets and leave the old one alone.
--
--     local ds = mgpu.data.from_tensors { x, y }:shuffle(1000, 1):batch(32):prefetch(2)
--     for x, y in ds:iter() do ... end
-- Methods: shuffle, batch, unbatch, window, map, cycle, take, skip, shard, prefetch, cache, augment, iter, length, and
-- those of flow/flow.lua: filter, padded_batch, enumerate, zip, concatenate, interleave, flat_map. They have the
-- meaning and order of tf.data's.
-- An element is one row of each tensor (without the axis of rows) until :batch.
--
-- A dataset is a description: `stages` say which rows come in which order (runtime/data/order.h), and maps[k] holds
-- the functions to call after k batches. A map gives one element for each element. So the stages after it can still
-- work on row numbers, and only a batch after a map has to stack results.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local flow = require "mgpu.data.flow.flow"
local Iterator = require "mgpu.data.iterator"
local user_function = require "mgpu.data.flow.user_function"

local MOST_STAGES = 64
local fail, check_count = checks.fail, checks.count

local Dataset, methods = { is_dataset = true }, {}
Dataset.__tostring = function(self) return "dataset of " .. (self:length() or "endless") .. " elements" end

Dataset.__call = checks.not_called

function Dataset.__index(_, name)
  local method = methods[name]
  if method == nil and type(name) == "string" then checks.no_method(name, methods) end
  return method
end

-- A copy with the given fields replaced.
local function changed(self, fields)
  local copy = { passes = 0 } -- passes begun over the copy
  for key, value in pairs(self) do
    if copy[key] == nil then copy[key] = value end
  end
  for key, value in pairs(fields) do copy[key] = value end
  return setmetatable(copy, Dataset)
end

-- A copy with one more stage. count: elements in a pass, math.huge if it has no end; level: batches so far.
local function with_stage(self, stage, count, level)
  if #self.stages == MOST_STAGES then
    fail(stage.kind, "the chain is too long: %d steps that choose rows, at most %d", MOST_STAGES + 1,
      MOST_STAGES)
  end
  local stages = { unpack(self.stages) }
  stages[#stages + 1] = stage
  return changed(self, { stages = stages, count = count, level = level })
end

--- of_source(source, homes) -> a dataset of the rows of a source, a userdata of a core.source_* function.
-- homes: the device for the values of each field; nil, or false for a field: the default device when iter is called.
function Dataset.of_source(source, homes)
  local fields, devices = core.source_info(source), {}
  for k = 1, #fields do devices[k] = homes and homes[k] or false end
  return setmetatable({ source = source, homes = devices, count = fields.rows, stages = {}, maps = {}, level = 0,
    depth = 0, threads = false, passes = 0 }, Dataset)
end

--- transformed(ds, who, field, transform) -> the dataset with a transform (a userdata of core.transform_*) applied to
--- this field, from 1, of each row. It acts on rows, whatever their order, so stages may come before it. Errors, which
--- begin with `who`: a map comes before, whose results are no longer rows; the transform does not suit the field.
function Dataset.transformed(ds, who, field, transform)
  if next(ds.maps) then fail(who, "it works on rows as they are read, so it must come before map") end
  return changed(ds, { source = core.source_transform(ds.source, field, transform) })
end

--- fields(ds) -> {{dtype =, shape =}, ...} of the rows; a size that differs from row to row is -1, and strings have the
--- dtype "string". nil after a map: its results are known only when it runs.
function Dataset.fields(ds)
  if next(ds.maps) then return nil end
  return core.source_info(ds.source)
end

--- is_plain(ds) -> whether its elements are the rows of its source in their order: no steps so far.
function Dataset.is_plain(ds) return #ds.stages == 0 and next(ds.maps) == nil end

--- ds:shuffle(n, seed): elements in random order, drawn from a window of n elements, anew in each pass. n at or above
--- the number of elements shuffles fully. The order depends on the seed alone (nil: drawn from mgpu.seed's state now).
-- Example:
--     local ds = mgpu.data.from_tensors({ mgpu.arange(6) }):shuffle(6, 1):batch(6)
--     for x in ds:cycle(2):iter() do print(x) end -- another order in each pass
--     --> tensor {6} float32 cpu:0
--     --> {4, 5, 2, 0, 3, 1}
--     --> tensor {6} float32 cpu:0
--     --> {0, 1, 5, 2, 3, 4}
function methods:shuffle(n, seed)
  check_count("shuffle", n, 1)
  if seed == nil then seed = core.stream_seed() end
  check_count("shuffle: the seed", seed, 0)
  return with_stage(self, { kind = "shuffle", n = n, seed = seed }, self.count, self.level)
end

--- ds:batch(n, {drop_remainder = false}): n elements as one, along a new first axis; the last batch may be smaller.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.arange(5) }
--     for x in ds:batch(2):iter() do print(x) end
--     --> tensor {2} float32 cpu:0
--     --> {0, 1}
--     --> tensor {2} float32 cpu:0
--     --> {2, 3}
--     --> tensor {1} float32 cpu:0
--     --> {4}
--     print(ds:batch(2, { drop_remainder = true }):length())  --> 2
function methods:batch(n, given)
  check_count("batch", n, 1)
  local drop = checks.options("batch", checks.BATCH, given).drop_remainder
  local count = self.count == math.huge and math.huge or (drop and math.floor or math.ceil)(self.count / n)
  return with_stage(self, { kind = "batch", n = n, drop_remainder = drop, before = self.count }, count, self.level + 1)
end

--- ds:unbatch(): the entries of each batch as elements. Directly after :batch, it undoes that batch.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.tensor { { 1, 2 }, { 3, 4 } } }
--     for x in ds:unbatch():batch(4):iter() do print(x) end
--     --> tensor {4} float32 cpu:0
--     --> {1, 2, 3, 4}
function methods:unbatch()
  local last = self.stages[#self.stages]
  if not last or last.kind ~= "batch" or self.maps[self.level] then return flow.methods.unbatch(self) end
  local stages = { unpack(self.stages) }
  stages[#stages] = nil
  local ds = changed(self, { stages = stages, count = last.before, level = self.level - 1 })
  if not last.drop_remainder or last.before == math.huge then return ds end
  return ds:take(last.before - last.before % last.n)
end

--- ds:window(size, {shift = size, stride = 1, drop_remainder = false}): size elements, stride apart, as one, along a
--- new first axis; the next begins shift further, so with shift < size they overlap. The last ones may be smaller.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.arange(5) }
--     for x in ds:window(3, { shift = 1, drop_remainder = true }):iter() do print(x) end
--     --> tensor {3} float32 cpu:0
--     --> {0, 1, 2}
--     --> tensor {3} float32 cpu:0
--     --> {1, 2, 3}
--     --> tensor {3} float32 cpu:0
--     --> {2, 3, 4}
function methods:window(size, given)
  check_count("window", size, 1)
  local chosen = checks.options("window", checks.WINDOW, given)
  local shift, stride, drop, count = chosen.shift or size, chosen.stride, chosen.drop_remainder, self.count
  if count < math.huge then
    local reach = drop and (size - 1) * stride or 0
    count = math.max(math.ceil((count - reach) / shift), 0)
  end
  return with_stage(self, { kind = "window", n = size, shift = shift, stride = stride, drop_remainder = drop },
    count, self.level + 1)
end

--- ds:shard(i, n): every n-th element from the i-th on (from 1), so that n programs share the elements out.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.arange(7) }
--     for x in ds:shard(2, 3):batch(7):iter() do print(x) end -- the second of three programs
--     --> tensor {2} float32 cpu:0
--     --> {1, 4}
function methods:shard(i, n)
  checks.shard(i, n)
  return with_stage(self, { kind = "shard", n = n, index = i - 1 }, math.max(math.ceil((self.count - i + 1) / n), 0),
    self.level)
end

--- ds:cycle(n): n passes one after another; without n, passes without end.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.arange(3) }
--     print(ds:cycle(2):length(), ds:cycle():length()) -- nil: it has no end  --> 6 nil
function methods:cycle(n)
  if n ~= nil then check_count("cycle", n, 0) end
  if n and self.count == math.huge then fail("cycle", "the dataset is already endless") end
  local empty = n == 0 or self.count == 0
  return with_stage(self, { kind = "cycle", n = n }, empty and 0 or self.count * (n or math.huge), self.level)
end

--- ds:take(n): the first n elements of each pass.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.arange(10) }
--     for x in ds:take(3):batch(10):iter() do print(x) end
--     --> tensor {3} float32 cpu:0
--     --> {0, 1, 2}
function methods:take(n)
  check_count("take", n, 0)
  return with_stage(self, { kind = "take", n = n }, math.min(n, self.count), self.level)
end

--- ds:skip(n): the elements of each pass after the first n.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.arange(10) }
--     local valid, train = ds:take(2), ds:skip(2)
--     print(valid:length(), train:length())  --> 2 8
function methods:skip(n)
  check_count("skip", n, 0)
  return with_stage(self, { kind = "skip", n = n }, math.max(self.count - n, 0), self.level)
end

--- ds:map(fn): fn(x, y, ...) of each element. It returns components: tensors, text, or tables of them by position or
--- by name; numbers become tensors. Traced by mgpu.jit, once for each shape, unless there is text among its arguments,
--- or there are more than 32. It may be a jitted function, a layer or a model.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.tensor { 2, 4 }, mgpu.tensor { 0, 1 } }
--     for x, y in ds:map(function(x, y) return x / 10, y + 1 end):iter() do print(x, y:item()) end
--     --> tensor {} float32 cpu:0 0.2 1
--     --> tensor {} float32 cpu:0 0.4 2
function methods:map(fn)
  local maps = {}
  for level, list in pairs(self.maps) do maps[level] = list end
  maps[self.level] = { unpack(maps[self.level] or {}) }
  table.insert(maps[self.level], user_function.new("map", fn))
  return changed(self, { maps = maps })
end

--- ds:prefetch(n, {threads = the cores of this machine}): threads read the rows of the next n elements while this one
--- is used, and copy them to the GPU (or to the devices of fit) meanwhile. The elements do not depend on the number of
--- threads; the default is one where rows are only copied, as from_tensors does. Its place in the chain has no effect.
-- Example:
--     local ds = mgpu.data.from_tensors({ mgpu.arange(100) }):shuffle(100, 1):batch(50):prefetch(2)
--     for x in ds:iter() do print(x:count()) end -- the next batches are made meanwhile
--     --> 50
--     --> 50
function methods:prefetch(n, given)
  check_count("prefetch", n, 1)
  local threads = checks.options("prefetch", checks.PREFETCH, given).threads
  return changed(self, { depth = math.max(n, self.depth), threads = threads or self.threads })
end

--- ds:length() -> elements in a pass; nil if it has no end. (#ds is always 0, as LuaJIT cannot ask a table for it.)
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.zeros { 100, 3 } }
--     print(ds:length(), ds:batch(32):length())  --> 100 4
function methods:length() return self.count < math.huge and self.count or nil end

--- ds:iter(position, device, spread) -> an iterator (iterator.lua) over a fresh pass, or over the rest of one:
-- `position` is what iterator:position() gave. It may be left early. device: where the values are wanted; prefetch
-- sends them there ahead of time. With nil, or after a map: the device of the tensors, or the default device.
-- spread: the {devices =, weights =} that will share the rows of each batch; prefetch sends each device its rows. With
-- a `share` (train/row_share.lua) only the rows of these devices are read, and the other rows of a batch are undefined.
-- Maps of single rows run for these rows, too, once a call is known to be independent of those before it; the first
-- batch is made in whole. With text, or after a map of batches, all rows are read.
-- Errors: a position past the end.
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.arange(4) }
--     local it = ds:iter()
--     print(it():item(), it():item())  --> 0 1
--     for x in ds:iter(it:position()) do print(x:item()) end -- the rest of the pass
--     --> 2
--     --> 3
function methods:iter(position, device, spread)
  if position ~= nil then checks.position(position, self.count) end
  checks.destination(device, spread)
  local pass, element = self.passes, 0
  if position then pass, element = position.pass, position.element end
  local it = Iterator.new(self, pass, element, device, spread)
  self.passes = pass + 1
  return it
end

-- Stages that pass on all rows, in the same order in every pass; and stages that choose the same rows in every pass.
local USES_ALL = { batch = true, window = true, cycle = true }
local REPEATABLE = { batch = true, window = true, cycle = true, take = true, skip = true, shard = true }

local function has_only(stages, kinds)
  for _, stage in ipairs(stages) do
    if not kinds[stage.kind] then return false end
  end
  return true
end

--- ds:cache(path): each row is read and transformed once, and kept in memory for later passes; what augment chose at
--- random stays. With a path, all rows are kept in that file instead: the first iter writes it, whole or not at all,
--- and every later program reads it. Remove the file when the steps before it change. After a shuffle or a map the
--- elements of the first pass are kept, in their order. Errors: a file that cannot be written, is damaged, holds rows
--- of another dataset or is not a cache.
-- Example:
--     local calls = 0
--     local ds = mgpu.data.generator(function()
--       calls = calls + 1
--       local i = 0
--       return function() i = i + 1; if i <= 3 then return i end end
--     end):cache()
--     for _ = 1, 2 do for x in ds:iter() do print(x:item()) end end
--     --> 1
--     --> 2
--     --> 3
--     --> 1
--     --> 2
--     --> 3
--     print(calls) -- the second pass came from memory  --> 1
function methods:cache(path)
  if path ~= nil and type(path) ~= "string" then
    fail("cache", "expected the path of a file, got a %s", type(path))
  end
  if next(self.maps) or not has_only(self.stages, path and USES_ALL or REPEATABLE) then
    return flow.methods.cache(self, path)
  end
  return changed(self, { source = core.source_cache(self.source, path) })
end

-- The sources and devices of the datasets if all are rows without steps and have the same number of fields; else nil.
local function plain_rows(list)
  local sources, homes, depth = {}, {}, 0
  for key, ds in pairs(list) do
    if type(key) ~= "number" or getmetatable(ds) ~= Dataset or not Dataset.is_plain(ds) then return nil end
    sources[key], homes[key], depth = ds.source, ds.homes, math.max(depth, ds.depth)
  end
  if core.array_fault(sources) then return nil end
  for _, devices in ipairs(homes) do
    if #devices ~= #homes[1] then return nil end
  end
  return sources, homes, depth
end

--- zipped(list) -> the datasets side by side, row by row; nil unless each is rows without steps and has one field.
function Dataset.zipped(list)
  local sources, homes, depth = plain_rows(list)
  if not sources or #homes[1] ~= 1 then return nil end
  local devices = {}
  for i, home in ipairs(homes) do devices[i] = home[1] end
  return changed(Dataset.of_source(core.source_zip(sources), devices), { depth = depth })
end

--- concatenated(list) -> the rows of one dataset after those of another; nil unless they are rows without steps, of
--- the same fields and devices.
function Dataset.concatenated(list)
  local sources, homes, depth = plain_rows(list)
  if not sources then return nil end
  local first = core.source_info(sources[1])
  for i, source in ipairs(sources) do
    for k, field in ipairs(core.source_info(source)) do
      if field.dtype ~= first[k].dtype or #field.shape ~= #first[k].shape or homes[i][k] ~= homes[1][k] then
        return nil
      end
    end
  end
  return changed(Dataset.of_source(core.source_concatenate(sources), homes[1]), { depth = depth })
end

--- ds:augment {horizontal_flip = true, ...}: random and fixed changes of images, in C; the options are in augment.lua.
-- Example:
--     local images = mgpu.randint(0, 256, { 4, 10, 10, 3 }, { dtype = "uint8" })
--     local ds = mgpu.data.from_tensors { images }
--     ds = ds:augment { random_crop = { 8, 8 }, horizontal_flip = true, rescale = 1 / 255 }
--     for x in ds:batch(4):iter() do print(x:dtype(), table.concat(x:shape(), " ")) end  --> float32 4 8 8 3
function methods:augment(given) return require "mgpu.data.augment" (self, given) end

checks.colons(methods)
Dataset.methods = methods
flow.lift(methods) -- the methods that need values

return Dataset
