--- The layers that make one tensor of several by an element-wise rule.
-- Shapes must broadcast; as in Keras an input with fewer axes gets axes of size 1 after the batch.
local core = require "mgpu.core"
local Layer = require "mgpu.layer"

local ops = core.ops

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

local function merged(layer, a, b)
  local out = {}
  for i = 1, #a do
    if a[i] ~= b[i] and a[i] ~= 1 and b[i] ~= 1 and a[i] ~= -1 and b[i] ~= -1 then
      layer:fail("inputs of shapes %s and %s do not go together: axis %d", layer.shape_text(a),
        layer.shape_text(b), i)
    end
    out[i] = (a[i] == 1 or a[i] == -1 and b[i] ~= 1) and b[i] or a[i]
  end
  return out
end

--- Raises unless `shapes` is an array of at least two (or exactly `n`) shapes.
local function check_inputs(layer, shapes, n)
  if type(shapes[1]) ~= "table" then layer:fail "takes an array of inputs, as in layer {a, b}" end
  if n and #shapes ~= n or #shapes < 2 then
    layer:fail("takes %s inputs, got %d", n and tostring(n) or "at least 2", #shapes)
  end
end

local M = {}
M.check_inputs = check_inputs

--- define(class_name, rule(a, b), {finish = fn(y, n), inputs = n}) -> a layer class
function M.define(class_name, rule, more)
  more = more or {}
  local Merge = Layer:extend(class_name)

  function Merge:build(shapes)
    check_inputs(self, shapes, more.inputs)
    self:output_shape(shapes)
  end

  function Merge:output_shape(shapes)
    local rank = widest(shapes)
    local out = widened(shapes[1], rank)
    for i = 2, #shapes do out = merged(self, out, widened(shapes[i], rank)) end
    return out
  end

  function Merge:call(xs)
    local shapes = {}
    for i, x in ipairs(type(xs) == "table" and xs or {}) do shapes[i] = x:shape() end
    if #shapes == 0 then self:fail "takes an array of inputs, as in layer {a, b}" end
    self:output_shape(shapes)
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
