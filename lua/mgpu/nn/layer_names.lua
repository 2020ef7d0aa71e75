--- Automatic names of layers, and the names of their random streams.
--
-- Names count from the start of the process, so that they differ: dense, dense_1, ... The random numbers of a layer
-- (first weights, dropout masks) depend on the name of its stream, which counts from the last mgpu.seed: layers made
-- after a seed get the same numbers, however many layers were made before.
local M = {}

local names, streams = {}, {} -- how many layers of a kind were named, and made since the last seed

local function numbered(counts, base)
  local n = counts[base]
  counts[base] = (n or 0) + 1
  return n and ("%s_%d"):format(base, n) or base
end

--- kind(class_name) -> the base of automatic names: "conv2d" for Conv2D.
function M.kind(class_name)
  return (class_name:gsub("(%l)(%u)", "%1_%2"):gsub("(%u)(%u%l)", "%1_%2"):lower()
    :gsub("conv2_d", "conv2d"):gsub("pooling2_d", "pooling2d"))
end

--- new(class_name) -> the name of a new layer, "conv2d", "conv2d_1", ... as Keras numbers them, and the name of its
--- random stream.
function M.new(class_name)
  local kind = M.kind(class_name)
  return numbered(names, kind), numbered(streams, kind)
end

--- is_automatic(name, kind): whether a layer of that kind may have got the name automatically.
function M.is_automatic(name, kind)
  return name == kind or (name:sub(1, #kind) == kind and name:find("^_%d+$", #kind + 1) ~= nil)
end

--- reset(): names and streams count from the start again. Layers made before and after may then have the same name, and
--- cannot be in one model.
function M.reset() names, streams = {}, {} end

local seeds = 0

--- restart_streams(): called by mgpu.seed.
function M.restart_streams()
  streams = {}
  M.note_seed()
end

--- note_seed(): the user has set the random state, by mgpu.seed or mgpu.rng_state.
function M.note_seed() seeds = seeds + 1 end

--- seeds() -> how often the user has done so.
function M.seeds() return seeds end

return M
