--- Iterators: a pass through a dataset, element by element.
--
--     for x, y in ds:iter() do ... end      -- may be left early
--     local it = ds:iter()
--     local x, y = it()                     -- nil at the end
--     local here = it:position()
--     for x, y in ds:iter(here) do ... end  -- exactly the rest of the pass, perhaps in another process
-- After an error (memory, an interrupt, a map's function) the next call tries the same element again.
--
-- Rows come from C (runtime/data/stream.h), with the batches before the first map as axes. For each further batch
-- they come in parts: the maps are called on the parts, whose results are then stacked here.
--
-- With a share of the rows, as one of several processes has it, maps of single rows run for these rows only, once it is
-- known that a call does not depend on the calls before it: the first elements are made in whole. The other rows of a
-- batch are undefined; the random numbers of the calls that are left out are passed over.
--
-- Threads of prefetch hand over small rows in blocks, as the parts of a batch: row by row, the handing over would take
-- longer than the reading.
local core = require "mgpu.core"
local host = require "mgpu.data.host"
local stack = require "mgpu.data.flow.stack"
local structure = require "mgpu.data.flow.structure"
local user_function = require "mgpu.data.flow.user_function"

local Iterator = {}
Iterator.__index = Iterator
Iterator.__tostring = function(self)
  return ("iterator: pass %d, %d elements taken"):format(self.pass, self.element)
end

-- The number of batches in the chain before the first map.
local function level_of_first_map(dataset)
  for level = 0, dataset.level do
    if dataset.maps[level] then return level end
  end
  return dataset.level
end

-- The device for each field: `wanted`, else the dataset's own, else the default. With a map, `wanted` does not count.
local function devices_of(dataset, wanted)
  local devices = {}
  for k, home in ipairs(dataset.homes) do
    devices[k] = not next(dataset.maps) and wanted or home or core.default_device()
  end
  return devices
end

-- ---- blocks -------------------------------------------------------------------------------------

local MOST_ROWS, MOST_BYTES = 64, 2 ^ 18 -- of a block
local VARYING = 256 -- the guess for a size that differs from row to row
local MOST_AXES, MOST_STAGES = 8, 64

-- How many rows the threads hand over at once; 1: they do not make blocks.
local function rows_in_block(dataset)
  if dataset.depth == 0 or dataset.level > 0 or #dataset.stages + 2 > MOST_STAGES then return 1 end
  local bytes = 0
  for _, field in ipairs(core.source_info(dataset.source)) do
    if #field.shape == MOST_AXES then return 1 end
    local size = tonumber(field.dtype:match "%d+$" or 8) / 8
    for _, n in ipairs(field.shape) do size = size * (n < 0 and VARYING or n) end
    bytes = bytes + size
  end
  return math.max(1, math.min(MOST_ROWS, math.floor(MOST_BYTES / math.max(bytes, 1))))
end

-- Opens the stream at the present element. rows: in a block.
local function open(self, rows)
  local dataset, stages, depth, first = self.dataset, self.dataset.stages, self.dataset.depth, self.element
  if rows > 1 then
    stages = { unpack(stages) }
    if first > 0 then stages[#stages + 1] = { kind = "skip", n = first } end
    stages[#stages + 1] = { kind = "batch", n = rows }
    depth, first = math.ceil(depth / rows), 0
  end
  self.blocks = rows > 1
  local spread = rows == 1 and self.spread or {}
  self.stream = core.stream(dataset.source, stages, { devices = devices_of(dataset, self.device), host = host(),
    shards = spread.devices, weights = spread.weights, share = spread.share, pass = self.pass, element = first,
    depth = depth, threads = dataset.threads or nil, dense = self.dense })
end

-- ---- a share of the rows ------------------------------------------------------------------------

-- Whether all maps are of single rows, whose shapes are fixed.
local function maps_rows(dataset)
  for level in pairs(dataset.maps) do
    if level > 0 then return false end
  end
  for _, field in ipairs(core.source_info(dataset.source)) do
    if field.dtype == "string" then return false end
    for _, n in ipairs(field.shape) do
      if n < 0 then return false end
    end
  end
  return true
end

-- Whether calls of the maps may be left out: see user_function.lua.
local function are_independent(maps)
  for _, map in ipairs(maps) do
    if not map.draws then return false end
  end
  return true
end

-- The spread to begin with, and the one for later, when the maps are known to be independent.
local function spreads_of(dataset, spread)
  if not spread or dataset.level == 0 then return nil end
  if not next(dataset.maps) then return spread end
  if not spread.share or not maps_rows(dataset) then return nil end
  local share = { share = spread.share }
  if are_independent(dataset.maps[0]) then return share end
  return nil, share
end

-- Goes on at the present element with another spread, and keeps one for later.
local function change_spread(self, spread, later)
  self.spread, self.later, self.parts = spread, later, nil
  core.stream_close(self.stream)
  open(self, 1)
end

-- The rows of the outermost batch that are made here, {first (from 0), count, rows}; nil: all. At least one is made,
-- which gives the batch its shape.
local function window_of(self, rows)
  if not self:is_shared() or not next(self.maps) then return nil end
  local first, count = core.share_rows(self.spread.share, rows)
  if count == 0 then first, count = 0, 1 end
  return { first = first, count = count, rows = rows }
end

local function pass_over(draws)
  if draws == 0 then return end
  local now = core.rng_state()
  core.rng_state { seed = now.seed, base = now.base + draws }
end

--- new(dataset, pass, element, device, spread) -> an iterator that begins at that element (from 0) of that pass (from
--- 0). device, spread: as of dataset:iter.
function Iterator.new(dataset, pass, element, device, spread)
  local self = setmetatable({ dataset = dataset, device = device, dense = level_of_first_map(dataset),
    level = dataset.level, maps = dataset.maps, pass = pass, element = element, ended = false }, Iterator)
  self.spread, self.later = spreads_of(dataset, spread)
  self.place = function() return user_function.text_of_place(self.element + 1, self:rows()) end
  open(self, rows_in_block(dataset))
  return self
end

-- ---- from parts to an element -------------------------------------------------------------------

-- Arrays of strings, from C, as batches of text.
local function with_texts(parts)
  for _, part in ipairs(parts) do
    for _, component in ipairs(part) do
      if type(component) == "table" then structure.text(component) end
    end
  end
  return parts
end

-- For messages, self.part and self.of say that the function is called with part number `part` of `of` parts from C.
-- window: of window_of; the parts are those of its rows. RETURNS nil if a map is not independent after all.
local function mapped(self, parts, maps, window)
  local each = window and #parts / window.count or 0 -- parts of a row
  local before, after = 0, 0
  if window then
    before, after = each * window.first, each * (window.rows - window.first - window.count)
  end
  for _, map in ipairs(maps or {}) do
    local made, draws = {}, map.draws or 0
    pass_over(draws * before)
    for i, part in ipairs(parts) do
      if not self.blocks then self.part, self.of = before + i, before + #parts + after end
      made[i] = map:element(part, self.place)
    end
    pass_over(draws * after)
    if window and map.draws ~= draws then return nil end
    parts = made
  end
  return parts
end

-- Each n parts as one; with a window, all as the rows of the window in one.
local function batched(parts, n, window)
  local made = {}
  if window then
    return { stack.batch("batch", parts, function(k) return window.first + k end, window) }
  end
  for first = 1, #parts, n do
    local list = {}
    for k = first, math.min(first + n - 1, #parts) do list[#list + 1] = parts[k] end
    made[#made + 1] = stack.batch("batch", list, function(k) return first + k - 1 end)
  end
  return made
end

-- The parts of the window's rows.
local function cut(parts, window)
  local each = #parts / window.rows
  local own, before = {}, each * window.first
  for i = 1, each * window.count do own[i] = parts[before + i] end
  return own
end

-- The element made of these parts. outer: the sizes of the batches after the first map, the last one first. RETURNS nil
-- if it must be made of all rows, but some were left out.
local function assemble(self, parts, outer)
  local window = window_of(self, outer[1])
  if window then parts = cut(parts, window) end
  for level = self.dense, self.level do
    parts = mapped(self, parts, self.maps[level], window)
    if not parts then return nil end
    if level < self.level then
      parts = batched(parts, outer[self.level - level], level == self.level - 1 and window or nil)
    end
  end
  return parts[1]
end

-- ---- the iterator -------------------------------------------------------------------------------

-- Draws the next parts: of an element, or the rows of a block. nil at the end.
local function draw(self)
  if not self.blocks then return core.stream_next(self.stream) end
  local ok, parts, outer = pcall(core.stream_next, self.stream)
  if ok then return parts, outer end
  if core.error_code() == "interrupted" then error(parts, 0) end
  core.stream_close(self.stream) -- one row by itself shows which of them fails
  open(self, 1)
  return core.stream_next(self.stream)
end

function Iterator:__call()
  if not self.parts and not self.ended then
    self.parts, self.outer = draw(self)
    self.taken = 0 -- of a block
    if self.parts then with_texts(self.parts) else self:close() end
  end
  if self.ended then return nil end
  local parts = self.parts
  if self.blocks then
    self.part, self.of = self.taken + 1, #parts
    parts = { parts[self.part] }
  end
  local random = self.spread and core.rng_state()
  local element = assemble(self, parts, self.outer)
  if not element then
    core.rng_state(random)
    change_spread(self, nil, self.spread)
    return self()
  end
  if not self.blocks then self.part, self.of = 1, 1 end
  self.taken, self.element = self.taken + 1, self.element + 1
  if not self.blocks or self.taken == #self.parts then self.parts = nil end
  if self.later and are_independent(self.maps[0]) then change_spread(self, self.later) end
  return unpack(element)
end

--- it:rows() -> where the rows of the last element come from, as text: "cats.tfrecord: record 7"; "row 3, row 9".
function Iterator:rows() return core.stream_rows(self.stream, self.part or 1, self.of or 1) end

--- it:position() -> {pass = passes begun before, element = elements taken}, for ds:iter(position).
-- Example:
--     local ds = mgpu.data.from_tensors { mgpu.arange(4) }
--     local it = ds:iter()
--     it()
--     print(it:position().pass, it:position().element) -- one element was taken  --> 0 1
--     for x in ds:iter(it:position()) do print(x:item()) end
--     --> 1
--     --> 2
--     --> 3
function Iterator:position() return { pass = self.pass, element = self.element } end

--- it:is_shared() -> whether it reads only a share of the rows of each batch: see `spread` of dataset:iter.
function Iterator:is_shared() return self.spread ~= nil and self.spread.share ~= nil end

--- it:close(): frees memory and thread now rather than when the iterator is collected.
-- Example:
--     local it = mgpu.data.from_tensors({ mgpu.arange(4) }):iter()
--     print(it():item())  --> 0
--     it:close()
--     print(it())  --> nil
function Iterator:close()
  self.ended, self.parts = true, nil
  core.stream_close(self.stream)
end

return Iterator
