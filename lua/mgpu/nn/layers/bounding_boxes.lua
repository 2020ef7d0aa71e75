--- The same number of boxes for each image.
-- RETURNS the class by name.
local core = require "mgpu.core"
local image_parts = require "mgpu.nn.layers.image_parts"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

--- MaxNumBoundingBoxes {max_number, fill_value = -1}: keeps the first max_number boxes of each image, or adds boxes.
-- x: an array {images, boxes {batch, n, 4}, labels {batch, n}} -> the same with max_number in place of n, in training
-- and at inference; boxes and labels that are added hold fill_value. The images are not changed, and may be alone; one
-- image and its boxes without the batch, too. Arrays stand for Keras's dictionaries {images =, bounding_boxes = {boxes
-- =, labels =}}; the other layers of images take no boxes.
-- Errors: boxes and labels of other shapes.
-- Example:
--     local images, boxes = mgpu.rand { 1, 8, 8, 3 }, mgpu.tensor { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 } } }
--     local y = L.MaxNumBoundingBoxes { 3 } { images, boxes, mgpu.tensor { { 0, 1 } } }
--     print(y[3])
--     --> tensor {1, 3} float32 cpu:0
--     --> {{ 0,  1, -1}}
local MaxNumBoundingBoxes = Layer:extend("MaxNumBoundingBoxes", { positional = 1,
  { "max_number", "integer", min = 0, required = true },
  { "fill_value", "integer", default = -1 },
})

MaxNumBoundingBoxes.autocast = false

-- The shapes of the result for those of the input.
local function shapes_after(layer, shapes)
  local image, boxes, labels = unpack(shapes)
  if #shapes ~= 3 then layer:fail("takes images, or an array {images, boxes, labels}, got an array of %d", #shapes) end
  image_parts.need_images(layer, image)
  local axis = #image - 2 -- of the boxes
  local fits = #boxes == axis + 1 and #labels == axis and boxes[axis + 1] == 4
  for i = 1, axis do fits = fits and boxes[i] == labels[i] and (i == axis or boxes[i] == image[i]) end
  if not fits then
    layer:fail("boxes must be {batch, n, 4}, labels {batch, n}, with a row for each image, got %s and %s for images %s",
      layer.shape_text(boxes), layer.shape_text(labels), layer.shape_text(image))
  end
  boxes, labels = { unpack(boxes) }, { unpack(labels) }
  boxes[axis], labels[axis] = layer.max_number, layer.max_number
  return { image, boxes, labels }
end

function MaxNumBoundingBoxes:output_shape(shape)
  if type(shape[1]) == "table" then return shapes_after(self, shape) end
  return image_parts.same_shape(self, shape)
end

-- t with max_number entries along the axis.
local function resized(layer, t, axis)
  local start, stop, rest = {}, t:shape(), {}
  local missing = math.max(layer.max_number - stop[axis], 0)
  for i = 1, #stop do start[i], rest[i] = 0, i == axis and missing or 0 end
  if missing > 0 then return ops.pad(t, { before = start, after = rest, value = layer.fill_value }) end
  stop[axis] = layer.max_number
  return ops.slice(t, { start = start, stop = stop })
end

function MaxNumBoundingBoxes:call(x)
  if type(x) ~= "table" then
    image_parts.need_images(self, x:shape())
    return x
  end
  local shapes = {}
  for i, t in ipairs(x) do shapes[i] = t:shape() end
  shapes_after(self, shapes)
  local axis = #shapes[1] - 2
  return { x[1], resized(self, x[2], axis), resized(self, x[3], axis) }
end

return { MaxNumBoundingBoxes = MaxNumBoundingBoxes }
