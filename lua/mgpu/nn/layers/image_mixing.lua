--- Mixtures of each image with another one of the batch, and of their labels, in training only.
--
-- x: images {batch, rows, columns, channels}, or an array {images, labels {batch, classes}}; the result is the same.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local image_boxes = require "mgpu.nn.layers.image_boxes"
local image_draws = require "mgpu.nn.layers.image_draws"
local image_parts = require "mgpu.nn.layers.image_parts"
local images = require "mgpu.nn.layers.images"

local ops = core.ops
local M = {}

-- A random order of n images.
local function draw_order(layer, n)
  return ops.argsort(image_parts.uniform(layer, n, { 0, 1 }), { axis = 1, descending = false })
end

-- A class of layers that mix images, and labels as label_weights(layer, x, ...) says, with what draw returns: the order
-- of the other images, and more.
local function extend(class_name, declared, draw, label_weights)
  local class = image_parts.extend(class_name, declared, draw)
  local build, call = class.build, class.call

  function class:build(shape) return build(self, type(shape[1]) == "table" and shape[1] or shape) end

  function class:output_shape(shape)
    image_parts.need_images(self, type(shape[1]) == "table" and shape[1] or shape)
    return shape
  end

  -- Labels are mixed by what the images were.
  local function both(self, x, labels, training)
    image_parts.need_images(self, x:shape())
    if x:rank() == 3 then
      local y = both(self, image_parts.with_batch(x), image_parts.with_batch(labels), training)
      return { image_parts.without_batch(y[1]), image_parts.without_batch(y[2]) }
    end
    local shape = labels:shape()
    if #shape ~= 2 or shape[1] ~= x:shape()[1] then
      self:fail("labels must be {batch, classes} with a row for each image, got %s for %d images",
        self.shape_text(shape), x:shape()[1])
    end
    x = image_parts.in_floats(self, x)
    labels = labels:dtype() == self.compute_dtype and labels or ops.cast(labels, { dtype = self.compute_dtype })
    if not training then return { x, labels } end
    local drawn = { self:draw(shape[1], x:shape()) }
    local weights = label_weights(self, x, unpack(drawn)):reshape { shape[1], 1 }
    weights = ops.cast(weights, { dtype = labels:dtype() })
    local others = ops.gather(labels, drawn[1], { axis = 1 })
    return { self:transform(x, unpack(drawn)), weights * labels + (1 - weights) * others }
  end

  function class:call(x, training)
    if type(x) ~= "table" then return call(self, x, training) end
    if #x ~= 2 then self:fail("takes images, or an array {images, labels}, got an array of %d", #x) end
    return both(self, x[1], x[2], training)
  end

  return class
end

-- ---- MixUp --------------------------------------------------------------------------------------

--- MixUp {alpha = 0.2, data_format =, seed =}: mixes each image of a batch with another one in training (Zhang et al.
--- 2018).
-- w x + (1 - w) x[other], with other images in a random order, and w of each image from the beta distribution with both
-- parameters alpha. Labels are mixed in the same way.
-- x {batch, rows, columns, channels}, or an array {x, labels {batch, classes}} -> the same, floating; one image and its
-- labels without the batch, too. At inference it does nothing.
-- Example:
--     local x, labels = mgpu.rand { 8, 16, 16, 3 }, mgpu.eye(8)
--     local mixed = L.MixUp {} ({ x, labels }, { training = true })
--     print(unpack(mixed[1]:shape()))  --> 8 16 16 3
--     print((mixed[2]:sum(2) - 1):abs():max():item() < 1e-6)  --> true
local MixUp = extend("MixUp", { positional = 1,
  { "alpha", "number", default = 0.2, above = 0 }, images.data_format, image_parts.seed,
}, function(layer, n) return draw_order(layer, n), image_draws.beta(layer, n, layer.alpha) end,
  function(_, _, _, weights) return weights end)

--- layer:transform(x, order, weights) -> x times the weights, plus x in this order times 1 - weights, {batch} each.
function MixUp:transform(x, order, weights) -- luacheck: no self
  weights = image_parts.each(x, weights)
  return weights * x + (1 - weights) * ops.gather(x, order, { axis = 1 })
end

M.MixUp = MixUp

-- ---- CutMix -------------------------------------------------------------------------------------

--- CutMix {factor = 1, seed =, data_format =}: puts a box of another image of the batch into each image in training
--- (Yun et al. 2019).
-- The box is at a random place and is 1 - w of the area, with w of each image from the beta distribution with both
-- parameters a, and a drawn for each batch. Labels are mixed as w y + (1 - w) y[other]. factor: the range of a, {lower,
-- upper} from 0 to 1, or a number v for {0, v}.
-- x {batch, rows, columns, channels}, or an array {x, labels {batch, classes}} -> the same, floating; one image and its
-- labels without the batch, too. At inference it does nothing.
-- Example:
--     local x, labels = mgpu.rand { 8, 16, 16, 3 }, mgpu.eye(8)
--     local mixed = L.CutMix {} ({ x, labels }, { training = true })
--     print(unpack(mixed[1]:shape()))  --> 8 16 16 3
local CutMix = extend("CutMix", { positional = 1,
  { "factor", "number|table", default = 1 }, image_parts.seed, images.data_format,
}, function(layer, n, shape)
  local rows, columns = image_parts.axes(layer)
  local alpha = image_parts.uniform(layer, 1, layer.span) + 1e-6
  local share = (1 - image_draws.beta(layer, n, alpha)):sqrt()
  return draw_order(layer, n), { image_boxes.draw_span(layer, n, shape[columns], share) },
    { image_boxes.draw_span(layer, n, shape[rows], share) }
end, function(layer, x, _, across, down)
  local shape, rows, columns = x:shape(), image_parts.axes(layer)
  return 1 - (across[2] - across[1]) * (down[2] - down[1]) / (shape[rows] * shape[columns])
end)

function CutMix:init() self.span = image_parts.range(self, "factor", 0, 1) end

--- layer:transform(x, order, across, down) -> x, in its boxes x in this order. across, down: {first, last}, in pixels,
--- {batch} each.
function CutMix:transform(x, order, across, down)
  return ops.where(image_boxes.inside_boxes(self, x, across, down), ops.gather(x, order, { axis = 1 }), x)
end

M.CutMix = CutMix

return M
