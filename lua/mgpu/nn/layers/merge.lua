--- Layers that merge several tensors: element by element (Add, Subtract, Multiply, Average, Maximum, Minimum), one
--- after another (Concatenate), and by products (Dot).
--
-- They are called with an array: L.Add {} { a, b }. Element by element, inputs {batch, ...} must broadcast against each
-- other; the result has the broadcast shape and the inputs' common dtype. As in Keras, an input with fewer axes gets
-- axes of size 1 after the batch. Errors: no array, different numbers of samples, shapes that do not broadcast.
-- RETURNS the classes by name, and the checks of inputs.
local core = require "mgpu.core"
local is_half = require "mgpu.nn.mixed_precision".is_half
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

--- Minimum {} {a, b, ...}: the smallest of the inputs.
-- Example:
--     print(L.Minimum {} { mgpu.tensor { { 1, 6 } }, mgpu.tensor { { 3, 2 } } })
--     --> tensor {1, 2} float32 cpu:0
--     --> {{1, 2}}
M.Minimum = define_merge("Minimum", ops.minimum)

-- ---- Concatenate --------------------------------------------------------------------------------

--- Concatenate {axis = -1} {a, b, ...}: the inputs one after another along an axis (1 = batch, -1 = last).
-- Inputs with equal sizes in all other axes -> one tensor whose size along the axis is their sum.
-- Errors: inputs with different numbers of axes or different sizes in another axis.
-- Example:
--     local wide, deep = mgpu.ones { 1, 2 }, mgpu.zeros { 1, 3 }
--     print(L.Concatenate {} { wide, deep })
--     --> tensor {1, 5} float32 cpu:0
--     --> {{1, 1, 0, 0, 0}}
local Concatenate = Layer:extend("Concatenate", { positional = 1, { "axis", "integer", default = -1 } })

local function axis_of(self, shape)
  local at = self.axis < 0 and self.axis + #shape + 1 or self.axis
  if at < 1 or at > #shape then
    self:fail("axis %d is out of range for the input %s", self.axis, self.shape_text(shape))
  end
  return at
end

local function check_same(self, first, shape, at)
  if #shape ~= #first then
    self:fail("inputs of shapes %s and %s differ in their number of axes", self.shape_text(first),
      self.shape_text(shape))
  end
  for k, size in ipairs(shape) do
    if k ~= at and size ~= first[k] and size ~= -1 and first[k] ~= -1 then
      self:fail("inputs of shapes %s and %s differ in axis %d, which is not the one to concatenate along",
        self.shape_text(first), self.shape_text(shape), k)
    end
  end
end

local function concatenated(self, shapes, at)
  local out = { unpack(shapes[1]) }
  for i = 2, #shapes do
    check_same(self, out, shapes[i], at)
    for k, size in ipairs(shapes[i]) do
      if k == at then
        out[k] = (out[k] == -1 or size == -1) and -1 or out[k] + size
      elseif out[k] == -1 then
        out[k] = size
      end
    end
  end
  return out
end

function Concatenate:build(shapes) self:output_shape(shapes) end

function Concatenate:output_shape(shapes)
  if type(shapes[1]) ~= "table" then M.check_inputs(self, shapes) end
  local at = axis_of(self, shapes[1])
  if at ~= 1 then M.check_inputs(self, shapes) end
  return concatenated(self, shapes, at)
end

-- Joined as in Keras: all steps of an input without a mask count.
function Concatenate:compute_mask(xs, given)
  if not given then return nil end
  local list = {}
  for i, x in ipairs(xs) do
    local ones = ops.full(x:shape(), 1, "bool")
    list[i] = given[i] and ops.logical_and(masks.wide(given[i], ones), ones) or ones
  end
  return ops.any(ops.concat(list, { axis = axis_of(self, xs[1]:shape()) }), { axis = -1 })
end

function Concatenate:call(xs)
  local shapes, list = {}, {}
  for i, x in ipairs(type(xs) == "table" and xs or {}) do shapes[i], list[i] = x:shape(), x end
  self:output_shape(shapes)
  if #list == 1 then return list[1] end
  return ops.concat(list, { axis = axis_of(self, shapes[1]) })
end

M.Concatenate = Concatenate

-- ---- Dot ----------------------------------------------------------------------------------------

--- Dot {axes, normalize = false} {a, b}: dot products between the samples of a and b along one axis of each.
-- axes: one axis for both, or {axis of a, axis of b} (not 1, the batch; -1 = last). The result has the batch, then
-- the other axes of a, then those of b; {batch, 1} if there are none. normalize: scales the slices to length 1
-- first, so that the products are cosines.
-- Errors: other than two inputs; axes out of range or of different sizes.
-- Example:
--     local a, b = mgpu.tensor { { 3, 4 } }, mgpu.tensor { { 4, 3 } }
--     print(L.Dot { -1 } ({ a, b }):item())  --> 24
--     -- the cosine of the angle between them
--     print(("%.2f"):format(L.Dot { -1, normalize = true } ({ a, b }):item()))  --> 0.96
local Dot = Layer:extend("Dot", { positional = 1,
  { "axes", "integer|integers", required = true },
  { "normalize", "boolean", default = false },
})

function Dot:init()
  if type(self.axes) == "table" and #self.axes ~= 2 then
    self:fail("axes must be one axis or two, got %d", #self.axes)
  end
end

local function axes_of(self, shapes)
  local given = type(self.axes) == "table" and self.axes or { self.axes, self.axes }
  local axes = {}
  for i = 1, 2 do
    axes[i] = given[i] < 0 and given[i] + #shapes[i] + 1 or given[i]
    if axes[i] < 2 or axes[i] > #shapes[i] then
      self:fail("axis %d is out of range for the input %s (the batch is 1)", given[i],
        self.shape_text(shapes[i]))
    end
  end
  local a, b = shapes[1][axes[1]], shapes[2][axes[2]]
  if a ~= b and a ~= -1 and b ~= -1 then
    self:fail("axes %d and %d of the inputs %s and %s have different sizes", axes[1], axes[2],
      self.shape_text(shapes[1]), self.shape_text(shapes[2]))
  end
  return axes
end

function Dot:build(shapes) self:output_shape(shapes) end

function Dot:output_shape(shapes)
  M.check_inputs(self, shapes, 2)
  local axes, out = axes_of(self, shapes), { shapes[1][1] }
  for i = 1, 2 do
    for k = 2, #shapes[i] do
      if k ~= axes[i] then out[#out + 1] = shapes[i][k] end
    end
  end
  if #out == 1 then out[2] = 1 end
  return out
end

-- x as {batch, product of the other axes, size of the axis}.
local function as_matrices(x, axis)
  local shape, order, others = x:shape(), { 1 }, 1
  for k = 2, #shape do
    if k ~= axis then
      order[#order + 1] = k
      others = others * shape[k]
    end
  end
  order[#order + 1] = axis
  if axis ~= #shape then x = ops.permute(x, { order = order }) end
  return ops.reshape(x, { shape = { shape[1], others, shape[axis] } })
end

-- x scaled to length 1 along the axis; lengths below 1e-7 count as 1e-7, as in Keras. Their squares need float32.
local function unit(x, axis)
  local dtype = x:dtype()
  if is_half(x) then x = ops.cast(x, { dtype = "float32" }) end
  local squares = ops.sum(ops.square(x), { axis = axis, keepdims = true })
  return ops.cast(x * ops.rsqrt(ops.maximum(squares, 1e-14)), { dtype = dtype })
end

function Dot:call(xs)
  local shapes = M.shapes_of(self, xs, 2)
  local axes, parts = axes_of(self, shapes), {}
  for i = 1, 2 do parts[i] = as_matrices(self.normalize and unit(xs[i], axes[i]) or xs[i], axes[i]) end
  local y = ops.matmul(parts[1], parts[2], { transpose_b = true })
  return ops.reshape(y, { shape = self:output_shape(shapes) })
end

M.Dot = Dot

-- ---- CustomScaleLayer ---------------------------------------------------------------------------

--- CustomScaleLayer {scale} {a, b}: a + scale * b; of InceptionResNetV2 (Szegedy et al., 2016) in keras.applications.
-- The inputs broadcast as those of Add. Errors: other than two inputs.
-- Example:
--     print(L.CustomScaleLayer { 0.1 } { mgpu.tensor { { 1, 2 } }, mgpu.tensor { { 10, 20 } } })
--     --> tensor {1, 2} float32 cpu:0
--     --> {{2, 4}}
local CustomScaleLayer = Layer:extend("CustomScaleLayer", { positional = 1,
  { "scale", "number", required = true },
})

CustomScaleLayer.build, CustomScaleLayer.compute_mask = M.Add.build, M.any_mask

function CustomScaleLayer:output_shape(shapes)
  M.check_inputs(self, shapes, 2)
  return M.Add.output_shape(self, shapes)
end

function CustomScaleLayer:call(xs)
  M.shapes_of(self, xs, 2)
  return M.Add.call(self, { xs[1], xs[2] * self.scale })
end

M.CustomScaleLayer = CustomScaleLayer

return M
