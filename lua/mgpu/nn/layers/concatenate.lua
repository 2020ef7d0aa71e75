--- Concatenate {axis = -1} {a, b, ...}: the inputs one after another along an axis (1 = batch, -1 = last).
-- Inputs with equal sizes in all other axes -> one tensor whose size along the axis is their sum.
-- Errors: inputs with different numbers of axes or different sizes in another axis.
-- Example:
--     local wide, deep = mgpu.ones { 1, 2 }, mgpu.zeros { 1, 3 }
--     print(L.Concatenate {} { wide, deep })
--     --> tensor {1, 5} float32 cpu:0
--     --> {{1, 1, 0, 0, 0}}
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local masks = require "mgpu.nn.masks"
local merge = require "mgpu.nn.layers.merge"

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
  if type(shapes[1]) ~= "table" then merge.check_inputs(self, shapes) end
  local at = axis_of(self, shapes[1])
  if at ~= 1 then merge.check_inputs(self, shapes) end
  return concatenated(self, shapes, at)
end

-- Joined as in Keras: all steps of an input without a mask count.
function Concatenate:compute_mask(xs, given)
  if not given then return nil end
  local list = {}
  for i, x in ipairs(xs) do
    local ones = core.ops.full(x:shape(), 1, "bool")
    list[i] = given[i] and core.ops.logical_and(masks.wide(given[i], ones), ones) or ones
  end
  return core.ops.any(core.ops.concat(list, { axis = axis_of(self, xs[1]:shape()) }), { axis = -1 })
end

function Concatenate:call(xs)
  local shapes, list = {}, {}
  for i, x in ipairs(type(xs) == "table" and xs or {}) do shapes[i], list[i] = x:shape(), x end
  self:output_shape(shapes)
  if #list == 1 then return list[1] end
  return core.ops.concat(list, { axis = axis_of(self, shapes[1]) })
end

return Concatenate
