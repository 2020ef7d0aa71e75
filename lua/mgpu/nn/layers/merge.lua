--- Layers that merge several tensors element by element: Add, Subtract, Multiply, Average, Maximum.
--
-- They are called with an array: L.Add {} { a, b }. Inputs {batch, ...} must broadcast against each other; the
-- result has the broadcast shape and the inputs' common dtype. As in Keras, an input with fewer axes gets axes of
-- size 1 after the batch. Errors: no array, different numbers of samples, shapes that do not broadcast.
-- RETURNS the classes by name, and the checks of inputs that Concatenate and Dot share.
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local masks = require "mgpu.nn.masks"

local ops = core.ops

local M = {}

--- check_inputs(layer, shapes, n): raises unless `shapes` is an array of shapes with equal or unknown batches; n
--- (nil: any number of at least 1) is their number.
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

--- shapes_of(layer, xs, n) -> the shapes of an array of tensors; raises as check_inputs does.
function M.shapes_of(layer, xs, n)
  if type(xs) ~= "table" then layer:fail "takes an array of inputs, as in layer {a, b}" end
  local shapes = {}
  for i, x in ipairs(xs) do shapes[i] = x:shape() end
  M.check_inputs(layer, shapes, n)
  return shapes
end

-- The largest number of axes.
local function max_rank(shapes)
  local rank = 0
  for _, shape in ipairs(shapes) do rank = math.max(rank, #shape) end
  return rank
end

-- The shape with axes of size 1 after the batch, so that it has `rank` axes.
local function with_axes(shape, rank)
  local wide = { shape[1] }
  for _ = 1, rank - #shape do wide[#wide + 1] = 1 end
  for i = 2, #shape do wide[#wide + 1] = shape[i] end
  return wide
end

-- The size that two sizes (-1: unknown) broadcast to; nil if they do not.
local function broadcast_size(a, b)
  if a == b or b == 1 then return a end
  if a == 1 then return b end
  if a == -1 or b == -1 then return math.max(a, b) end
end

-- The shape of the result.
local function merged_shape(layer, shapes)
  local rank = max_rank(shapes)
  local out = with_axes(shapes[1], rank)
  for i = 2, #shapes do
    local other = with_axes(shapes[i], rank)
    for k = 1, rank do
      local size = broadcast_size(out[k], other[k])
      if not size then
        layer:fail("inputs of shapes %s and %s do not broadcast: axis %d has sizes %d and %d",
          layer.shape_text(out), layer.shape_text(shapes[i]), k, out[k], other[k])
      end
      out[k] = size
    end
  end
  return out
end

--- any_mask(layer, xs, given) -> the steps that count in any of the inputs, as in Keras; nil if one has no mask.
function M.any_mask(_, xs, given)
  local out
  for i = 1, given and #xs or 0 do
    if not given[i] then return nil end
    out = out and ops.logical_or(out, given[i]) or given[i]
  end
  return out
end

-- Multiply with masks, as in Keras: a masked step counts as 1, and as 0 where it is masked in all inputs.
local function masked_product(layer, xs, given)
  local y
  for i, x in ipairs(xs) do
    if given[i] then
      local kept = ops.cast(masks.wide(given[i], x), { dtype = "bool" })
      x = ops.where(kept, x, 1)
    end
    y = y and y * x or x
  end
  local all = layer:compute_mask(xs, given)
  return all and y * masks.wide(all, y) or y
end

-- A layer class that folds its inputs with rule(a, b). finish(y, n): applied to the result of n inputs; inputs: how
-- many there must be.
local function define_merge(class_name, rule, finish, inputs)
  local Merge = Layer:extend(class_name)

  function Merge:build(shapes) self:output_shape(shapes) end

  function Merge:output_shape(shapes)
    M.check_inputs(self, shapes, inputs)
    return merged_shape(self, shapes)
  end

  function Merge:call(xs)
    local shapes = M.shapes_of(self, xs, inputs)
    merged_shape(self, shapes)
    local rank, y = max_rank(shapes), nil
    local given = masks.now()
    if rule == ops.mul and given then return masked_product(self, xs, given) end
    for i, x in ipairs(xs) do
      if #shapes[i] < rank then x = ops.reshape(x, { shape = with_axes(shapes[i], rank) }) end
      y = y and rule(y, x) or x
    end
    return finish and finish(y, #xs) or y
  end

  Merge.compute_mask = M.any_mask

  return Merge
end

--- Add {} {a, b, ...}: the sum of the inputs.
-- Example:
--     local a, b = mgpu.tensor { { 1, 2 } }, mgpu.tensor { { 10, 20 } }
--     print(L.Add {} { a, b })
--     --> tensor {1, 2} float32 cpu:0
--     --> {{11, 22}}
--     local x = mgpu.Input { 8 }
--     local residual = mgpu.Model { inputs = x, outputs = L.Add {} { x, L.Dense { 8 } (x) } }
--     print((residual:count_params()))  --> 72
M.Add = define_merge("Add", ops.add)

--- Subtract {} {a, b}: a - b. Errors: other than two inputs.
-- Example:
--     print(L.Subtract {} { mgpu.tensor { { 5, 7 } }, mgpu.tensor { { 1, 2 } } })
--     --> tensor {1, 2} float32 cpu:0
--     --> {{4, 5}}
M.Subtract = define_merge("Subtract", ops.sub, nil, 2)

--- Multiply {} {a, b, ...}: the product of the inputs.
-- Example:
--     local gate, x = mgpu.tensor { { 0, 0.5, 1 } }, mgpu.tensor { { 4, 4, 4 } }
--     print(L.Multiply {} { gate, x })
--     --> tensor {1, 3} float32 cpu:0
--     --> {{0, 2, 4}}
M.Multiply = define_merge("Multiply", ops.mul)

--- Average {} {a, b, ...}: the mean of the inputs.
-- Example:
--     print(L.Average {} { mgpu.tensor { { 1, 2 } }, mgpu.tensor { { 3, 6 } } })
--     --> tensor {1, 2} float32 cpu:0
--     --> {{2, 4}}
M.Average = define_merge("Average", ops.add, function(sum, n) return sum / n end)

--- Maximum {} {a, b, ...}: the largest of the inputs.
-- Example:
--     print(L.Maximum {} { mgpu.tensor { { 1, 6 } }, mgpu.tensor { { 3, 2 } } })
--     --> tensor {1, 2} float32 cpu:0
--     --> {{3, 6}}
M.Maximum = define_merge("Maximum", ops.maximum)

return M
