--- Smooth images: Gaussian kernels, and the layer RandomGaussianBlur.
-- RETURNS the classes by name, and what a layer needs to blur images.
local core = require "mgpu.core"
local image_parts = require "mgpu.nn.layers.image_parts"
local images = require "mgpu.nn.layers.images"

local ops = core.ops
local M = {}

--- gaussian(size, sigma, reach) -> {size} weights exp(-(d / sigma)^2 / 2) at distance d from the middle, of sum 1,
--- float32. sigma: {1}, above 0; reach, {1}: weights further from the middle than this are 0; nil: none.
function M.gaussian(size, sigma, reach)
  local d = ops.iota({ size }, 1, "float32") - (size - 1) / 2
  local weights = ((d / sigma):square() * -0.5):exp()
  if reach then weights = ops.where(ops.gt(d:abs(), reach), 0, weights) end
  return weights / weights:sum()
end

--- blurred(t, down, across) -> t {n, rows, columns, channels}, each pixel the mean of those around it with these
--- weights, an odd number each. Outside of an image are zeros.
function M.blurred(t, down, across)
  local function along(x, weights, rows, columns)
    local channels = x:shape()[4]
    local kernel = ops.cast(weights, { dtype = x:dtype() }):reshape { rows, columns, 1, 1 }
    kernel = kernel:broadcast_to { rows, columns, channels, 1 }
    return images.depthwise(x, kernel, { 1, 1 }, { 1, 1 }, "same", { rows, columns })
  end
  return along(along(t, down, down:shape()[1], 1), across, 1, across:shape()[1])
end

-- ---- RandomGaussianBlur -------------------------------------------------------------------------

--- RandomGaussianBlur {factor = 1, kernel_size = 3, sigma = 1, value_range = {0, 255}, data_format =, seed =}
-- Blurs images in training by a Gaussian kernel.
-- factor: the probability, {lower, upper} from 0 to 1, from which each image draws its own, or a number v for {0, v}.
-- kernel_size: an odd number, or {width, height}, in this order as in Keras with JAX. sigma: the standard deviations of
-- the kernel across and down, which each batch draws: {lower, upper} from 0 to 1, or a number v for {0, v}. Outside of
-- an image are zeros. Results are clipped to value_range.
-- x {batch, rows, columns, channels} or one image -> the same shape, floating. At inference it does nothing.
-- Example:
--     local blur = L.RandomGaussianBlur { { 1, 1 }, sigma = { 0.5, 0.5 } } -- always, and the same
--     print(blur(mgpu.tensor { 0, 100, 0 }:reshape { 1, 1, 3, 1 }, { training = true }):round():reshape { 3 })
--     --> tensor {3} float32 cpu:0
--     --> { 8, 62,  8}
local RandomGaussianBlur = image_parts.extend("RandomGaussianBlur", { positional = 3,
  { "factor", "number|table", default = 1 },
  { "kernel_size", "pair", default = { 3, 3 } },
  { "sigma", "number|table", default = 1 },
  image_parts.value_range, images.data_format, image_parts.seed,
}, function(layer, n)
  return image_parts.chosen(layer, n), image_parts.uniform(layer, 2, layer.sigmas) + 1e-6
end)

function RandomGaussianBlur:init()
  self.span, self.sigmas = image_parts.range(self, "factor", 0, 1), image_parts.range(self, "sigma", 0, 1)
  self.values = image_parts.values(self)
  for _, size in ipairs(self.kernel_size) do
    if size % 2 == 0 then self:fail("option \"kernel_size\" must be odd, got %d", size) end
  end
end

--- layer:transform(x, chosen, sigmas) -> x, blurred where the bool {batch} is true by these standard deviations, {2}:
--- across and down.
function RandomGaussianBlur:transform(x, chosen, sigmas)
  local width, height = unpack(self.kernel_size)
  local function weights(size, i) return M.gaussian(size, ops.slice(sigmas, { start = { i - 1 }, stop = { i } })) end
  local y = images.as_last(self, x, function(t) return M.blurred(t, weights(height, 2), weights(width, 1)) end)
  return image_parts.pick(chosen, y, x):clip(self.values[1], self.values[2])
end

M.RandomGaussianBlur = RandomGaussianBlur

return M
