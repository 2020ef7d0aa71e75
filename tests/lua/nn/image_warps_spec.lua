-- RandomGaussianBlur, RandomPerspective and RandomElasticTransform: against Keras, and what they draw.
local check = require "check"
local comparing = require "golden.comparing"
local golden = require "golden.load" "image_layers"
local hash = require "golden.hash"
local mgpu = require "mgpu"

local L = mgpu.layers
local test = check.test
local fixtures = require "fixtures"
local with = fixtures.with
local largest_difference = comparing.largest_difference
local TRAINING = { training = true }
local NEAR = 5e-4 -- float32 against float32 in another order: some roundings of 2^-24 times 255

local function pixels(shape) return comparing.pixels(shape, golden.salt) end

test("RandomPerspective gives Keras's values for the same corners", function()
  for i, case in ipairs(golden.tilted) do
    local y = L.RandomPerspective(with(case.options)):transform(pixels(case.size), mgpu.ones { 3 }:gt(0),
      mgpu.tensor(golden.tilts))
    -- as in RandomShear
    check.near(largest_difference(y, mgpu.tensor(case.output):reshape(case.size)), 0, 1e-3, "case " .. i)
  end
end)

test("RandomElasticTransform gives Keras's values for the same noise in each fill mode", function()
  local noise = golden.noise
  noise = mgpu.tensor(hash.array(check.count(noise.shape), noise.salt)):reshape(noise.shape) * noise.scale
  for i, case in ipairs(golden.bent) do
    local y = L.RandomElasticTransform(with(case.options)):transform(pixels(case.size), mgpu.ones { 2 }:gt(0),
      mgpu.tensor { golden.bend }, noise)
    -- places of up to 22 are rounded in float32 before they are weights: some roundings of 22 * 2^-24, times 255
    check.near(largest_difference(y, mgpu.tensor(case.output):reshape(case.size)), 0, 3e-3, "case " .. i)
  end
end)

test("layers with a probability change the share of images that it says", function()
  mgpu.seed(1)
  local n = 400
  for name, options in pairs { RandomGaussianBlur = { sigma = { 0.5, 1 } }, RandomPerspective = { scale = 0.9 },
    RandomElasticTransform = { scale = { 0.9, 0.9 } } } do
    local x = pixels { 1, 10, 9, 1 }:broadcast_to { n, 10, 9, 1 }
    for factor, share in pairs { [0.5] = 0.25, [1] = 0.5 } do
      local y = L[name](with(options, { factor = factor }))(x, TRAINING)
      local changed = (y - x):abs():max { 2, 3, 4 }:gt(1e-3):to "float32":mean():item()
      check.near(changed, share, 5 * math.sqrt(share * (1 - share) / n), name) -- 5 standard deviations
    end
    local some = L[name](with(options, { factor = { 1, 1 } }))(x, TRAINING)
    check.truthy(largest_difference(some, x) > 1, name)
  end
end)

test("RandomGaussianBlur draws a deviation for each direction, and its kernel may be longer in one", function()
  mgpu.seed(1)
  local layer, seen = L.RandomGaussianBlur { sigma = { 0.2, 0.6 } }, {}
  layer:ensure_built { 1, 3, 3, 1 }
  for i = 1, 200 do
    local _, sigmas = layer:draw(1)
    seen[i] = sigmas:reshape { 1, 2 }
  end
  local all = mgpu.concat(seen, { axis = 1 })
  check.truthy(all:min():item() >= 0.2 and all:max():item() <= 0.6001, "the range")
  check.near(all:mean(1):totable(), { 0.4, 0.4 }, 5 * 0.4 / math.sqrt(12 * 200)) -- 5 standard deviations
  check.truthy((all:slice { {}, { 1, 1 } } - all:slice { {}, { 2, 2 } }):abs():min():item() > 0, "one for both")
  local x, sigmas = pixels { 2, 6, 7, 3 }, mgpu.tensor { 0.5, 0.9 }
  local function blurred(t, size)
    return L.RandomGaussianBlur { kernel_size = size }:transform(t, mgpu.ones { t:shape()[1] }:gt(0), sigmas)
  end
  local both = blurred(x, { 5, 3 })
  check.near(largest_difference(both, blurred(blurred(x, { 1, 3 }), { 5, 1 })), 0, NEAR)
  check.truthy(largest_difference(both, blurred(x, { 3, 5 })) > 1, "width and height")
  local row = blurred(mgpu.tensor { 0, 0, 100, 0, 0 }:reshape { 1, 1, 5, 1 }, { 3, 1 }):reshape { 5 }
  local side = math.exp(-0.5 / 0.5 ^ 2) -- with the first deviation
  local most = 100 / (1 + 2 * side)
  check.near(row:totable(), { 0, side * most, most, side * most, 0 }, 1e-3)
end)

test("RandomPerspective draws factors around 1 for the corners, and moves images to them", function()
  mgpu.seed(1)
  local n = 400
  local layer = L.RandomPerspective { scale = 0.4 }
  layer:ensure_built { n, 5, 5, 1 }
  local _, factors = layer:draw(n, { n, 5, 5, 1 })
  check.equal(factors:shape(), { n, 4, 2 })
  check.truthy(factors:min():item() >= 0.8 and factors:max():item() <= 1.2, "the range")
  check.near(factors:mean(1):reshape { 8 }:totable(), { 1, 1, 1, 1, 1, 1, 1, 1 }, 5 * 0.4 / math.sqrt(12 * n))
  -- the second corner comes to the middle of the first row, the others stay
  local x, squeeze = mgpu.arange(25):reshape { 1, 5, 5, 1 }, mgpu.ones { 1, 4, 2 }:totable()
  squeeze[1][2][1] = 0.5
  local y = layer:transform(x, mgpu.ones { 1 }:gt(0), mgpu.tensor(squeeze)):reshape { 5, 5 }
  check.near(y[1]:totable(), { 0, 2, 4, 0, 0 }, 1e-4) -- float32 weights of values up to 24
  check.near(y[5]:totable(), { 20, 21, 22, 23, 24 }, 1e-4)
  check.raises(function() L.RandomPerspective {} (mgpu.ones { 2, 1, 5, 3 }, TRAINING) end,
    "images must have at least two rows and columns, got shape {2, 1, 5, 3}", "usage")
end)

test("RandomElasticTransform draws a scale for the batch and noise for each image", function()
  mgpu.seed(1)
  local layer, scales = L.RandomElasticTransform { scale = { 0.2, 0.6 } }, {}
  layer:ensure_built { 1, 3, 3, 1 }
  for i = 1, 200 do
    local _, scale = layer:draw(2, { 2, 3, 4, 1 })
    scales[i] = scale:item()
  end
  local all = mgpu.tensor(scales)
  check.truthy(all:min():item() >= 0.2 and all:max():item() <= 0.6, "the range")
  check.near(all:mean():item(), 0.4, 5 * 0.4 / math.sqrt(12 * 200)) -- 5 standard deviations
  local _, _, noise = layer:draw(20, { 20, 30, 40, 1 })
  check.equal(noise:shape(), { 20, 30, 40 })
  check.near({ noise:mean():item(), noise:square():mean():item() }, { 0, 1 }, 5 * math.sqrt(2 / 24000))
  -- shifts that are all the same move an image: a noise of ones, whose blur is one far from the edges
  local x, ones = pixels { 1, 40, 40, 1 }, mgpu.ones { 1, 40, 40 }
  local y = layer:transform(x, mgpu.ones { 1 }:gt(0), mgpu.tensor { 0.5 }, ones) -- 1 times 0.1 * 0.5 * 40
  local moved = x:slice { {}, { 13, 32 }, { 13, 32 } }
  check.near(largest_difference(y:slice { {}, { 11, 30 }, { 11, 30 } }, moved), 0, 0.01)
  check.equal(layer(x, TRAINING):max():item() <= 255, true)
end)

test("layers with warps and blurs work in fit on several devices and learn alike", function()
  local function layers()
    return { L.Input { 8, 9, 2 }, L.RandomPerspective {}, L.RandomElasticTransform {}, L.RandomGaussianBlur {},
      L.Rescaling { 1 / 255 } }
  end
  fixtures.learns_alike(layers, pixels { 6, 8, 9, 2 }, 0.01, 2, 1e-4) -- two steps of float32 sums over 144 weights
end)

test("options outside of their ranges are refused", function()
  check.raises(function() L.RandomGaussianBlur { kernel_size = { 3, 4 } } end,
    'option "kernel_size" must be odd, got 4', "usage")
  check.raises(function() L.RandomGaussianBlur { sigma = 2 } end, 'option "sigma" must be from 0 to 1, got 2', "usage")
  check.raises(function() L.RandomElasticTransform { scale = { 0, 3 } } end,
    'option "scale" must be from 0 to 1, got 3', "usage")
  check.raises(function() L.RandomPerspective { scale = 2 } end, 'option "scale" must be', "usage")
end)
