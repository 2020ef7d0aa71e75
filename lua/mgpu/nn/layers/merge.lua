--- The layers that make one tensor of several by an element-wise rule.
-- Samples must broadcast and batches be equal; as in Keras an input with fewer axes gets axes of size 1
-- after the batch.
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local M = {}

--- Raises unless `shapes` is an array of shapes, at least one or exactly `n`, whose batches are equal or
--- unknown.
function M.check_inputs(layer, shapes, n)
  if type(shapes[1]) ~= "table" then layer:fail "takes an array of inputs, as in layer {a, b}" end
  if n and #shapes ~= n then layer:fail("takes %d inputs, got %d", n, #shapes) end
  for i, shape in ipairs(shapes) do
    local first, size = shapes[1][1], shape[1]
    if size ~= first and size ~= -1 and first ~= -1 then
      layer:fail("input 1 holds %d samples, input %d holds %d", first, i, size)
    end
  end
end

--- The shapes of an array of tensors; raises as check_inputs does.
function M.shapes_of(layer, xs, n)
  if type(xs) ~= "table" then layer:fail "takes an array of inputs, as in layer {a, b}" end
  local shapes = {}
  for i, x in ipairs(xs) do shapes[i] = x:shape() end
  M.check_inputs(layer, shapes, n)
  return shapes
end

local function widest(shapes)
  local rank = 0
  for _, shape in ipairs(shapes) do rank = math.max(rank, #shape) end
  return rank
end

local function widened(shape, rank)
  local wide = { shape[1] }
  for _ = 1, rank - #shape do wide[#wide + 1] = 1 end
  for i = 2, #shape do wide[#wide + 1] = shape[i] end
  return wide
end

-- The size that two sizes broadcast to, -1 being unknown; nil if they do not.
local function broadcast(a, b)
  if a == b or b == 1 then return a end
  if a == 1 then return b end
  if a == -1 or b == -1 then return math.max(a, b) end
end

local function merged(layer, shapes)
  local rank = widest(shapes)
  local out = widened(shapes[1], rank)
  for i = 2, #shapes do
    local other = widened(shapes[i], rank)
    for k = 1, rank do
      local size = broadcast(out[k], other[k])
      if not size then
        layer:fail("inputs of shapes %s and %s do not go together: axis %d has %d and %d",
          layer.shape_text(out), layer.shape_text(shapes[i]), k, out[k], other[k])
      end
      out[k] = size
    end
  end
  return out
end

--- define(class_name, rule(a, b), {finish = fn(y, n), inputs = n}) -> a layer class
function M.define(class_name, rule, more)
  more = more or {}
  local Merge = Layer:extend(class_name)

  function Merge:build(shapes) self:output_shape(shapes) end

  function Merge:output_shape(shapes)
    M.check_inputs(self, shapes, more.inputs)
    return merged(self, shapes)
  end

  function Merge:call(xs)
    local shapes = M.shapes_of(self, xs, more.inputs)
    merged(self, shapes)
    local rank, y = widest(shapes), nil
    for i, x in ipairs(xs) do
      if #shapes[i] < rank then x = ops.reshape(x, { shape = widened(shapes[i], rank) }) end
      y = y and rule(y, x) or x
    end
    return more.finish and more.finish(y, #xs) or y
  end

  return Merge
end

return M
