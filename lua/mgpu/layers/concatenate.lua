--- Concatenate {axis = -1} {a, b, ...}: the inputs one after another along an axis (1 = batch, -1 = last).
local core = require "mgpu.core"
local Layer = require "mgpu.layer"
local check_inputs = require "mgpu.layers.merge".check_inputs

local Concatenate = Layer:extend("Concatenate", { positional = 1, { "axis", "integer", default = -1 } })

local function axis_of(self, shape)
  local at = self.axis < 0 and self.axis + #shape + 1 or self.axis
  if at < 1 or at > #shape then
    self:fail("axis %d is out of range for the input %s", self.axis, self.shape_text(shape))
  end
  return at
end

function Concatenate:build(shapes)
  check_inputs(self, shapes)
  self:output_shape(shapes)
end

function Concatenate:output_shape(shapes)
  local out = { unpack(shapes[1]) }
  local at = axis_of(self, out)
  for i = 2, #shapes do
    for k = 1, math.max(#out, #shapes[i]) do
      local a, b = out[k], shapes[i][k]
      if k ~= at and a ~= b and a ~= -1 and b ~= -1 or a == nil or b == nil then
        self:fail("inputs of shapes %s and %s differ in axis %d, which is not the one to concatenate along",
          self.shape_text(shapes[1]), self.shape_text(shapes[i]), k)
      end
    end
    out[at] = (out[at] == -1 or shapes[i][at] == -1) and -1 or out[at] + shapes[i][at]
  end
  return out
end

function Concatenate:call(xs)
  local shapes, list = {}, {}
  for i, x in ipairs(xs) do shapes[i], list[i] = x:shape(), x end
  self:output_shape(shapes)
  list[#list + 1] = { axis = axis_of(self, shapes[1]) }
  return core.ops.concat(unpack(list))
end

return Concatenate
