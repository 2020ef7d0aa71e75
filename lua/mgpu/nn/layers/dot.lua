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
local core = require "mgpu.core"
local is_half = require "mgpu.nn.mixed_precision".is_half
local Layer = require "mgpu.nn.layer"
local merge = require "mgpu.nn.layers.merge"

local ops = core.ops

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
  merge.check_inputs(self, shapes, 2)
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
  local shapes = merge.shapes_of(self, xs, 2)
  local axes, parts = axes_of(self, shapes), {}
  for i = 1, 2 do parts[i] = as_matrices(self.normalize and unit(xs[i], axes[i]) or xs[i], axes[i]) end
  local y = ops.matmul(parts[1], parts[2], { transpose_b = true })
  return ops.reshape(y, { shape = self:output_shape(shapes) })
end

return Dot
