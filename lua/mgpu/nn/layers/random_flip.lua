--- RandomFlip {mode = "horizontal_and_vertical", seed =, data_format =}: flips images in training, each with
--- probability 1/2.
-- mode: "horizontal", "vertical", or both, which are chosen independently (Keras 3 does both or neither).
-- x {batch, rows, columns, channels} -> the same shape, floating. At inference it does nothing.
-- Example:
--     local images = mgpu.tensor { 0, 1 }:reshape { 1, 1, 2, 1 }:broadcast_to { 1000, 1, 2, 1 }
--     local flipped = L.RandomFlip { "horizontal" } (images, { training = true })
--     -- half of the images are flipped
--     print((flipped:mean(1) * 10):round():reshape { -1 })
--     --> tensor {2} float32 cpu:0
--     --> {5, 5}
local core = require "mgpu.core"
local image_draws = require "mgpu.nn.layers.image_draws"
local images = require "mgpu.nn.layers.images"

local RandomFlip = image_draws.extend("RandomFlip", { positional = 1,
  { "mode", "string", default = "horizontal_and_vertical",
    values = { "horizontal", "vertical", "horizontal_and_vertical" } },
  image_draws.seed, images.data_format,
}, function(layer, n)
  local unit = { 0, 1 }
  return image_draws.uniform(layer, n, unit):lt(0.5), image_draws.uniform(layer, n, unit):lt(0.5)
end)

local function flipped(x, chosen, axis)
  local mask = core.ops.reshape(chosen, { shape = { chosen:shape()[1], 1, 1, 1 } })
  return core.ops.where(mask, core.ops.reverse(x, { axis = axis }), x)
end

--- layer:transform(x, horizontal, vertical) -> x with the images flipped for which the bool {batch} is true.
function RandomFlip:transform(x, horizontal, vertical)
  local rows, columns = image_draws.axes(self)
  if self.mode ~= "vertical" then x = flipped(x, horizontal, columns) end
  if self.mode ~= "horizontal" then x = flipped(x, vertical, rows) end
  return x
end

return RandomFlip
