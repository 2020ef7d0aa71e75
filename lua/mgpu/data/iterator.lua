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

local concat, ops = require "mgpu.tensor.composite_ops".concat, core.ops

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

--- host_device() -> a device whose memory is the host's.
function Iterator.host_device() return #core.devices "cpu" > 0 and "cpu:0" or "ref:0" end

-- Where the stream puts each field, which must be the host's memory, and the devices to move them to from there.
local function placed(homes)
  local devices, moves = {}, {}
  for k, home in ipairs(homes) do
    home = home or core.default_device()
    local visible = core.device_info(home).host_visible
    devices[k] = visible and home or Iterator.host_device()
    moves[k] = not visible and home
  end
  return devices, moves
end

--- new(dataset, pass, element) -> an iterator that begins at that element (from 0) of that pass (from 0).
function Iterator.new(dataset, pass, element)
  local dense = level_of_first_map(dataset)
  local devices, moves = placed(dataset.homes)
  local stream = core.stream(dataset.source, dataset.stages, { devices = devices, pass = pass, element = element,
    depth = dataset.depth, threads = dataset.threads or nil, dense = dense })
  return setmetatable({ stream = stream, dense = dense, level = dataset.level, maps = dataset.maps,
    moves = moves, pass = pass, element = element, ended = false }, Iterator)
end

-- ---- from parts to an element -------------------------------------------------------------------

-- The result i of a map's function as a tensor.
local function check_result(map, value, i)
  if core.is_tensor(value) then return value end
  if type(value) == "number" or type(value) == "boolean" then return core.tensor(value) end
  core.fail("usage", ("map: %s must return tensors, but its result %d is a %s"):format(map.name, i,
    value == nil and "nil" or type(value)))
end

-- The results of a map's function as an array of tensors.
local function check_results(map, ...)
  local n, list = select("#", ...), {}
  if n == 0 then
    core.fail("usage", ("map: %s returns nothing; it must return tensors, as in `return x, y`"):format(map.name))
  end
  for i = 1, n do list[i] = check_result(map, select(i, ...), i) end
  return list
end

local function mapped(parts, maps)
  for _, map in ipairs(maps or {}) do
    local made = {}
    for i, part in ipairs(parts) do made[i] = check_results(map, map.call(unpack(part))) end
    parts = made
  end
  return parts
end

local function stacked_tensors(rows)
  for i, t in ipairs(rows) do rows[i] = ops.reshape(t, { shape = { 1, unpack(t:shape()) } }) end
  local whole = #rows == 1 and rows[1] or concat(rows, { axis = 1 })
  core.eval(whole)
  return whole
end

-- Parts first .. first + n - 1 stacked along a new first axis.
local function stacked(parts, first, n)
  local whole = {}
  for k = 1, #parts[first] do
    local rows = {}
    for i = 1, n do rows[i] = parts[first + i - 1][k] end
    whole[k] = core.is_tensor(rows[1]) and stacked_tensors(rows) or rows -- an array of strings
  end
  return whole
end

local function batched(parts, n)
  local made = {}
  for first = 1, #parts, n do made[#made + 1] = stacked(parts, first, n) end
  return made
end

-- Moves the tensors to the devices that their batches belong on.
local function move_home(parts, moves)
  for _, part in ipairs(parts) do
    for k, home in ipairs(moves) do
      if home and core.is_tensor(part[k]) then part[k] = core.copy_to(part[k], home) end
    end
  end
end

-- The element made of these parts. outer: the sizes of the batches after the first map, the last one first.
local function assemble(self, parts, outer)
  move_home(parts, self.moves)
  for level = self.dense, self.level do
    parts = mapped(parts, self.maps[level])
    if level < self.level then parts = batched(parts, outer[self.level - level]) end
  end
  return parts[1]
end

-- ---- the iterator -------------------------------------------------------------------------------

function Iterator:__call()
  if not self.parts and not self.ended then
    self.parts, self.outer = core.stream_next(self.stream)
    if not self.parts then self:close() end
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
