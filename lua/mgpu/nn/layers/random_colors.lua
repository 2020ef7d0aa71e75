--- Random changes of the colors of images, each image by its own numbers (image_parts.lua), in training only.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local image_parts = require "mgpu.nn.layers.image_parts"
local images = require "mgpu.nn.layers.images"

local ops = core.ops
local M = {}

-- ---- RandomGrayscale ----------------------------------------------------------------------------

--- RandomGrayscale {factor = 0.5, data_format =, seed =}: makes images gray in training, each with probability factor.
-- x {batch, rows, columns, 3} -> the same shape, floating; all channels of a gray image are 0.2989 red + 0.587 green +
-- 0.114 blue. At inference it does nothing.
-- Example:
--     local gray = L.RandomGrayscale { 1 } (mgpu.tensor { 1, 0, 0 }:reshape { 1, 1, 1, 3 }, { training = true })
--     print(gray:reshape { 3 })
--     --> tensor {3} float32 cpu:0
--     --> {0.2989..., 0.2989..., 0.2989...}
local RandomGrayscale = image_parts.extend("RandomGrayscale", { positional = 1,
  { "factor", "number", default = 0.5, min = 0, max = 1 },
  images.data_format, image_parts.seed,
}, function(layer, n) return image_parts.uniform(layer, n, { 0, 1 }):lt(layer.factor) end)

--- layer:transform(x, chosen) -> x, gray where the bool {batch} is true.
function RandomGrayscale:transform(x, chosen)
  local first = images.is_first(self)
  local channels = x:shape()[first and 2 or 4]
  if channels ~= 3 then self:fail("images need 3 channels, got %d", channels) end
  local weights = core.tensor({ 0.2989, 0.5870, 0.1140 }, { dtype = x:dtype(), device = x:device() })
  if first then weights = ops.reshape(weights, { shape = { 3, 1, 1 } }) end
  local gray = ops.sum(x * weights, { axis = first and 2 or 4, keepdims = true })
  return ops.where(ops.reshape(chosen, { shape = { x:shape()[1], 1, 1, 1 } }), gray, x)
end

M.RandomGrayscale = RandomGrayscale

-- ---- Solarization -------------------------------------------------------------------------------

--- Solarization {addition_factor = 0, threshold_factor = 0, value_range = {0, 255}, seed =, data_format =}
-- Adds a number to all pixels of an image and inverts those that are not below a threshold, in training.
-- Of the width of value_range: addition_factor and threshold_factor, {lower, upper} from 0 to 1, or a number v for
-- {0, v}; each image has its own numbers. As in Keras, only the upper end is a share of the width: the lower one is
-- divided by 255, too. Sums are clipped to value_range.
-- x {batch, rows, columns, channels} -> the same shape, floating. At inference it does nothing.
-- Example:
--     local x = mgpu.tensor { 0, 100, 200, 255 }:reshape { 1, 2, 2, 1 }
--     print(L.Solarization { 0, 0 } (x, { training = true }):reshape { 4 })
--     --> tensor {4} float32 cpu:0
--     --> {255, 155,  55,   0}
local Solarization = image_parts.extend("Solarization", { positional = 2,
  { "addition_factor", "number|table", default = 0 },
  { "threshold_factor", "number|table", default = 0 },
  { "value_range", "table", default = { 0, 255 } },
  image_parts.seed, images.data_format,
}, function(layer, n)
  return image_parts.uniform(layer, n, layer.additions), image_parts.uniform(layer, n, layer.thresholds)
end)

function Solarization:init()
  local range = image_parts.range(self, "value_range", -math.huge, math.huge)
  self.low, self.high = range[1], range[2]
  for name, span in pairs { addition_factor = "additions", threshold_factor = "thresholds" } do
    if type(self[name]) == "number" then self[name] = { 0, self[name] } end
    local given = image_parts.range(self, name, 0, 1)
    self[span] = { given[1] / 255 * (range[2] - range[1]), given[2] * (range[2] - range[1]) }
  end
end

--- layer:transform(x, additions, thresholds) -> x, solarized by these numbers of each image, {batch} each.
function Solarization:transform(x, additions, thresholds)
  local sum = (x + image_parts.each(x, additions)):clip(self.low, self.high)
  local low = image_parts.each(x, thresholds) + self.low
  return ops.where(ops.lt(sum, low), sum, self.low + self.high - sum)
end

M.Solarization = Solarization

return M
