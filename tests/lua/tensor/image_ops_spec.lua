-- Tests image_resize and affine_transform against TensorFlow and Keras, and what a user sees of them.
local check = require "check"
local mgpu = require "mgpu"
local hash = require "golden.hash"
local golden = require "golden.load" "image_ops"
local test = check.test

-- TensorFlow computes places and weights in float32: a few roundings of numbers up to 13 (a width of the images).
local TOLERANCE = 3e-6

local function images(shape)
  return mgpu.tensor(hash.array(check.count(shape), golden.salt), { dtype = "float64" }):reshape(shape)
end

test("image_resize makes the images that TensorFlow makes", function()
  for _, c in ipairs(golden.resized) do
    local y = images(c.shape):image_resize { size = c.size, interpolation = c.interpolation, antialias = c.antialias }
    check.equal(y:shape(), { c.shape[1], c.size[1], c.size[2], c.shape[4] })
    check.near(y:reshape { -1 }:totable(), c.value, TOLERANCE)
  end
end)

test("affine_transform makes the images that Keras makes", function()
  for _, c in ipairs(golden.transformed) do
    local transforms = mgpu.tensor(c.transforms, { dtype = "float32" })
    local y = images(c.shape):affine_transform(transforms, c.interpolation, c.fill_mode, c.fill_value)
    check.equal(y:shape(), c.shape)
    check.near(y:reshape { -1 }:totable(), c.value, TOLERANCE)
  end
end)

test("one image has three axes, and integers stay integers with nearest only", function()
  local x = mgpu.arange(12):reshape { 2, 2, 3 }:to "uint8"
  local large, shifted = x:image_resize({ 2, 4 }, "nearest"), mgpu.affine_transform(x, { 1, 0, 1, 0, 1, 0 }, "nearest")
  check.equal(large:dtype(), "uint8")
  check.equal(large[2]:totable(), { { 6, 7, 8 }, { 6, 7, 8 }, { 9, 10, 11 }, { 9, 10, 11 } })
  check.equal(shifted:dtype(), "uint8")
  check.equal(shifted:totable(), { { { 3, 4, 5 }, { 0, 0, 0 } }, { { 9, 10, 11 }, { 0, 0, 0 } } })
  check.equal(x:image_resize { size = 1 }:dtype(), "float32")
  check.equal(x:image_resize { size = 1 }:totable(), { { { 4.5, 5.5, 6.5 } } })
end)

test("a transform of its own for each image", function()
  local x = mgpu.tensor { { { { 1 }, { 2 }, { 3 } } }, { { { 4 }, { 5 }, { 6 } } } }
  local y = x:affine_transform({ { 1, 0, 1, 0, 1, 0 }, { -1, 0, 2, 0, 1, 0 } }, { size = { 1, 2 }, fill_value = 9 })
  check.equal(y:totable(), { { { { 2 }, { 3 } } }, { { { 6 }, { 5 } } } })
end)

test("no gradient flows to the transforms", function()
  local x, t = mgpu.variable(mgpu.rand { 1, 2, 2, 1 }), mgpu.variable(mgpu.tensor { 1, 0, 0, 0, 1, 0 })
  local _, grads = mgpu.value_and_grad(function() return x:affine_transform(t):sum() end, { x, t })()
  check.equal(grads[1]:totable(), { { { { 1 }, { 1 } }, { { 1 }, { 1 } } } })
  check.equal(grads[2], false)
end)

test("mistakes are named", function()
  local x = mgpu.ones { 1, 2, 2, 1 }
  check.raises(function() mgpu.ones { 2, 2 }:image_resize { size = 2 } end,
    "image_resize: images have the axes batch (which may be missing), rows, columns and channels; got shape {2, 2}")
  check.raises(function() x:image_resize {} end, '"size" is missing')
  check.raises(function() x:image_resize { sise = 2 } end, 'did you mean "size"')
  check.raises(function() x:affine_transform { 1, 0, 0 } end, "got {3}")
end)
