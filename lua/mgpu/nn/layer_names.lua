--- The names of layers that were given none, and what their random numbers are drawn by.
--
-- Names count from the process's start, so that they stay apart: dense, dense_1, ... Streams of random
-- numbers go by a name, too, but that one counts from the last mgpu.seed: what is made after a seed gets
-- the same weights and masks, however many layers were made before.
local M = {}

local names, streams = {}, {} -- how many of a kind there are

local function numbered(counts, base)
  local n = counts[base]
  counts[base] = (n or 0) + 1
  return n and ("%s_%d"):format(base, n) or base
end

--- The kind of a class's layers: "conv2d" of Conv2D.
function M.kind(class_name)
  return (class_name:gsub("(%l)(%u)", "%1_%2"):gsub("(%u)(%u%l)", "%1_%2"):lower()
    :gsub("conv2_d", "conv2d"):gsub("pooling2_d", "pooling2d"))
end

--- "conv2d", "conv2d_1", ... as Keras numbers them. RETURNS the name, and that of the random stream
function M.new(class_name)
  local kind = M.kind(class_name)
  return numbered(names, kind), numbered(streams, kind)
end

--- Whether a layer of the kind is called so without having been named.
function M.is_automatic(name, kind)
  return name == kind or (name:sub(1, #kind) == kind and name:find("^_%d+$", #kind + 1) ~= nil)
end

--- Names and streams count from the start again. Of what was made before, some may then be called as what
--- is made after: one model cannot have both.
function M.reset() names, streams = {}, {} end

--- After a seed.
function M.restart_streams() streams = {} end

return M
