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
local core = require "mgpu.core"
local host = require "mgpu.data.host"
local stack = require "mgpu.data.flow.stack"
local structure = require "mgpu.data.flow.structure"

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

-- The device for each field: `wanted` (nil: that of the dataset). A map computes where the dataset says.
local function devices_of(dataset, wanted)
  local devices = {}
  for k, home in ipairs(dataset.homes) do
    devices[k] = not next(dataset.maps) and wanted or home or core.default_device()
  end
  return devices
end

--- new(dataset, pass, element, device) -> an iterator that begins at that element (from 0) of that pass (from 0).
--- device: as of dataset:iter.
function Iterator.new(dataset, pass, element, device)
  local dense = level_of_first_map(dataset)
  local stream = core.stream(dataset.source, dataset.stages, { devices = devices_of(dataset, device), host = host(),
    pass = pass, element = element, depth = dataset.depth, threads = dataset.threads or nil, dense = dense })
  return setmetatable({ stream = stream, dense = dense, level = dataset.level, maps = dataset.maps, pass = pass,
    element = element, ended = false }, Iterator)
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

-- number: that of the element in the pass, from 1, for messages.
local function mapped(parts, maps, number)
  for _, map in ipairs(maps or {}) do
    local made = {}
    for i, part in ipairs(parts) do made[i] = map:element(part, number) end
    parts = made
  end
  return parts
end

-- Each n parts as one.
local function batched(parts, n)
  local made = {}
  for first = 1, #parts, n do
    local list = {}
    for k = first, math.min(first + n - 1, #parts) do list[#list + 1] = parts[k] end
    made[#made + 1] = stack.batch("batch", list, function(k) return first + k - 1 end)
  end
  return made
end

-- The element made of these parts. outer: the sizes of the batches after the first map, the last one first.
local function assemble(self, parts, outer)
  for level = self.dense, self.level do
    parts = mapped(parts, self.maps[level], self.element + 1)
    if level < self.level then parts = batched(parts, outer[self.level - level]) end
  end
  return parts[1]
end

-- ---- the iterator -------------------------------------------------------------------------------

function Iterator:__call()
  if not self.parts and not self.ended then
    self.parts, self.outer = core.stream_next(self.stream)
    if self.parts then with_texts(self.parts) else self:close() end
  end
  if self.ended then return nil end
  local element = assemble(self, self.parts, self.outer)
  self.parts, self.element = nil, self.element + 1
  return unpack(element)
end

--- it:position() -> {pass = passes begun before, element = elements taken}, for ds:iter(position).
function Iterator:position() return { pass = self.pass, element = self.element } end

--- it:close(): frees memory and thread now rather than when the iterator is collected.
function Iterator:close()
  self.ended, self.parts = true, nil
  core.stream_close(self.stream)
end

return Iterator
