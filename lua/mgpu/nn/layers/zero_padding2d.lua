--- ZeroPadding2D {padding = 1, data_format =}: adds rows and columns of zeros at the edges of images.
-- padding: a number, {rows, columns}, or {{top, bottom}, {left, right}}.
-- x {batch, rows, columns, channels} -> {batch, rows + top + bottom, columns + left + right, channels}.
-- Example:
--     print(L.ZeroPadding2D { 1 } (mgpu.ones { 1, 1, 2, 1 }):reshape { 3, 4 })
--     --> tensor {3, 4} float32 cpu:0
--     --> {{0, 0, 0, 0},
--     -->  {0, 1, 1, 0},
--     -->  {0, 0, 0, 0}}
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local ZeroPadding2D = Layer:extend("ZeroPadding2D", { positional = 1,
  { "padding", "margins", default = { { 1, 1 }, { 1, 1 } } },
  images.data_format,
})

function ZeroPadding2D:build(shape) self:need_rank(shape, 4, "batch, rows, columns, channels") end

function ZeroPadding2D:output_shape(shape)
  local s, p = images.shape_last(self, shape), self.padding
  local function padded(i) return s[i + 1] == -1 and -1 or s[i + 1] + p[i][1] + p[i][2] end
  return images.shape_back(self, { s[1], padded(1), padded(2), s[4] })
end

function ZeroPadding2D:call(x)
  self:need_rank(x:shape(), 4, "batch, rows, columns, channels")
  local p, at = self.padding, images.is_first(self) and 3 or 2
  local before, after = { 0, 0, 0, 0 }, { 0, 0, 0, 0 }
  for i = 1, 2 do before[at + i - 1], after[at + i - 1] = p[i][1], p[i][2] end
  return core.ops.pad(x, { before = before, after = after })
end

return ZeroPadding2D
