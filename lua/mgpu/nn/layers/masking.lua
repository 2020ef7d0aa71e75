--- Masking {mask_value = 0}: steps whose numbers all equal mask_value are masked, and become 0.
-- x {batch, steps, ...} -> the same shape and dtype, with a mask {batch, steps}: see nn/masks.lua.
-- Example:
--     local model = mgpu.Sequential { L.Masking { 0 }, L.GlobalAveragePooling1D {} }
--     -- the mean of the steps that are not 0
--     print(model(mgpu.tensor { { { 4 }, { 6 }, { 0 } } }):item())  --> 5
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local masks = require "mgpu.nn.masks"

local ops = core.ops

local Masking = Layer:extend("Masking", { positional = 1, { "mask_value", "number", default = 0 } })

function Masking:build(shape)
  if #shape < 2 then self:fail("the input must have at least 2 axes, got shape %s", self.shape_text(shape)) end
end

function Masking:output_shape(shape) return shape end -- luacheck: no self

function Masking:compute_mask(x) return ops.any(ops.ne(x, self.mask_value), { axis = -1 }) end

function Masking:call(x) return x * masks.wide(self:compute_mask(x), x) end

return Masking
