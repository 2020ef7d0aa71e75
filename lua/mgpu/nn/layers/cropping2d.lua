--- Cropping2D {cropping = 0, data_format =}: removes rows and columns at the edges of images.
-- cropping: a number, {rows, columns}, or {{top, bottom}, {left, right}}.
-- x {batch, rows, columns, channels} -> {batch, rows - top - bottom, columns - left - right, channels}.
-- Errors: a cropping that leaves nothing.
-- Example:
--     print(unpack(L.Cropping2D { { { 1, 0 }, { 2, 2 } } } (mgpu.ones { 1, 10, 10, 3 }):shape()))  --> 1 9 6 3
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local Cropping2D = Layer:extend("Cropping2D", { positional = 1,
  { "cropping", "margins", default = { { 0, 0 }, { 0, 0 } } },
  images.data_format,
})

function Cropping2D:build(shape)
  self:need_rank(shape, 4, "batch, rows, columns, channels")
  self:output_shape(shape)
end

function Cropping2D:output_shape(shape)
  local s, c = images.shape_last(self, shape), self.cropping
  local out = { s[1], s[2], s[3], s[4] }
  for i = 1, 2 do
    if s[i + 1] ~= -1 then
      out[i + 1] = s[i + 1] - c[i][1] - c[i][2]
      if out[i + 1] < 1 then
        self:fail("cropping {{%d, %d}, {%d, %d}} leaves nothing of the input %s", c[1][1], c[1][2],
          c[2][1], c[2][2], self.shape_text(shape))
      end
    end
  end
  return images.shape_back(self, out)
end

function Cropping2D:call(x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  local s, c, at = x:shape(), self.cropping, images.is_first(self) and 3 or 2
  self:output_shape(s)
  local start, stop = { 0, 0, 0, 0 }, { unpack(s) }
  for i = 1, 2 do start[at + i - 1], stop[at + i - 1] = c[i][1], s[at + i - 1] - c[i][2] end
  return core.ops.slice(x, { start = start, stop = stop })
end

return Cropping2D
