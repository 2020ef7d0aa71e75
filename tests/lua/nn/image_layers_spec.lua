-- Layers that change the colors and parts of images, against Keras with ranges of one point; and what they draw.
local check = require "check"
local comparing = require "golden.comparing"
local golden = require "golden.load" "image_layers"
local mgpu = require "mgpu"

local L = mgpu.layers
local test = check.test
local fixtures = require "fixtures"
local with = fixtures.with
local largest_difference = comparing.largest_difference
local TRAINING = { training = true }

-- float32 against float32 in another order, in units of the width of values: some roundings of 2^-24
local NEAR = 2e-6
-- Layers that change images at inference, too.
local ALWAYS = { AutoContrast = true, ContrastLimitedAdaptiveHistogramEqualization = true }

local function pixels(shape, unit)
  return comparing.pixels(shape, golden.salt) / (unit and 255 or 1)
end

local names, cases_of = {}, {}
for _, case in ipairs(golden.cases) do
  if not cases_of[case.layer] then
    names[#names + 1], cases_of[case.layer] = case.layer, {}
  end
  table.insert(cases_of[case.layer], case)
end

for _, name in ipairs(names) do
  test(name .. " gives Keras's values, also of bytes and after a round trip of its configuration", function()
    for i, case in ipairs(cases_of[name]) do
      local layer, x = L[name](with(case.options)), pixels(case.size, case.unit)
      local wanted = mgpu.tensor(case.output):reshape(case.size)
      local near, what = NEAR * (case.unit and 1 or 255), ("%s, case %d"):format(name, i)
      local function agrees(y, how)
        check.truthy(largest_difference(y, wanted) <= near, ("%s%s: it differs by %g"):format(what, how,
          largest_difference(y, wanted)))
      end
      agrees(layer(x, TRAINING), "")
      if not case.unit then agrees(layer(x:to "uint8", TRAINING), " of bytes") end
      local json = mgpu.Sequential { L.Input { unpack(case.size, 2) }, layer }:to_json()
      agrees(mgpu.model_from_json(json)(x, TRAINING), " from JSON")
      check.equal({ what, largest_difference(layer(x), ALWAYS[name] and wanted or x) <= near }, { what, true })
      check.equal(layer:output_shape(case.size), case.size)
    end
  end)
end

for _, case in ipairs(golden.given) do
  test(case.layer .. " gives Keras's values with the same numbers for each image", function()
    local y = L[case.layer] { 0.5 }:transform(pixels(case.size), mgpu.tensor(case.numbers))
    check.near(largest_difference(y, mgpu.tensor(case.output):reshape(case.size)), 0, NEAR * 255)
  end)
end

-- The lists of numbers as tensors.
local function tensors(lists)
  local made = {}
  for i, list in ipairs(lists) do made[i] = mgpu.tensor(list) end
  return unpack(made)
end

test("RandomErasing fills the pixels that Keras's boxes hold, of the chosen images", function()
  local left, right, top, bottom = tensors(golden.boxes)
  for i, case in ipairs(golden.erased) do
    local x, options = pixels(case.size), with(case.options)
    options.fill_value = 9
    local function erased(chosen)
      return L.RandomErasing(with(options)):transform(x, mgpu.tensor(chosen):gt(0), { left, right }, { top, bottom })
    end
    local wanted = mgpu.tensor(case.output):reshape(case.size)
    check.equal({ i, largest_difference(erased { 1, 1, 1 }, wanted) }, { i, 0 })
    check.equal({ i, largest_difference(erased { 0, 0, 0 }, x) }, { i, 0 })
  end
end)

test("RandomShear gives Keras's values in each fill mode, interpolation and data format", function()
  local across, down = tensors(golden.shears)
  for i, case in ipairs(golden.sheared) do
    local y = L.RandomShear(with(case.options)):transform(pixels(case.size), across, down)
    -- places are rounded in float32 before they are weights: some roundings of 4 * 2^-24, times 255
    check.near(largest_difference(y, mgpu.tensor(case.output):reshape(case.size)), 0, 1e-3, "case " .. i)
  end
end)

test("RandAugment gives Keras's values with the same layers", function()
  for i, case in ipairs(golden.augmented) do
    local layer, x = L.RandAugment { factor = { 0.3, 0.3 } }, pixels(case.size)
    layer:ensure_built(case.size)
    local _, draws = layer:draw(case.size[1], case.size)
    local y = layer:transform(x, mgpu.tensor(case.layers), draws)
    -- places of a rotation are rounded in float32 before they are weights, see RandomShear
    check.near(largest_difference(y, mgpu.tensor(case.output):reshape(case.size)), 0, 1e-3, "case " .. i)
  end
end)

test("MixUp and CutMix mix images and labels as Keras does", function()
  local left, right, top, bottom = tensors(golden.boxes)
  for _, case in ipairs(golden.mixed) do
    local function made()
      local layer = L[case.layer](with(case.options))
      layer.draw = function()
        local order = mgpu.tensor(golden.order):to "int32"
        if case.layer == "MixUp" then return order, mgpu.tensor(golden.weights) end
        return order, { left, right }, { top, bottom }
      end
      return layer
    end
    local layer, x = made(), pixels(case.size)
    local mixed = layer({ x, mgpu.eye(3) }, TRAINING)
    check.near(largest_difference(mixed[1], mgpu.tensor(case.output):reshape(case.size)), 0, NEAR * 255)
    check.near(largest_difference(mixed[2], mgpu.tensor(case.labels):reshape { 3, 3 }), 0, NEAR)
    check.equal(made()(x, TRAINING), mixed[1]:totable())
    local inputs = { mgpu.Input { unpack(case.size, 2) }, mgpu.Input { 3 } }
    local outputs = mgpu.Model { inputs = inputs, outputs = made()(inputs) } ({ x, mgpu.eye(3) }, TRAINING)
    check.equal({ outputs[1]:totable(), outputs[2]:totable() }, { mixed[1]:totable(), mixed[2]:totable() })
    local same = layer { x, mgpu.eye(3) }
    check.equal({ same[1]:totable(), same[2]:totable() }, { x:totable(), mgpu.eye(3):totable() })
  end
end)

test("AutoContrast keeps a channel of one value, and passes no gradient that is not a number", function()
  local x = mgpu.tensor { 7, 0, 7, 9 }:reshape { 1, 1, 2, 2 }
  check.equal(L.AutoContrast {} (x):reshape { 4 }:totable(), { 7, 0, 7, 255 })
  local slope = mgpu.grad(function(t) return L.AutoContrast {} (t):sum() end)(x)
  check.equal(slope:slice { 1, 1, 1, 1 }:item(), 1)
end)

test("Equalization counts the pixels of the whole batch, on several devices, too", function()
  local function layers() return { L.Input { 2, 2, 1 }, L.Equalization { { 0, 1 } } } end
  fixtures.learns_alike(layers, pixels({ 6, 2, 2, 1 }, true), 0.1, 1, 1e-6) -- one step of a few float32 sums
end)

test("Equalization keeps a channel whose pixels are all in one bin", function()
  local x = mgpu.tensor { 7, 0, 7, 100, 7, 200 }:reshape { 1, 1, 3, 2 }
  check.equal(L.Equalization {} (x, TRAINING):reshape { 6 }:totable(), { 7, 0, 7, 128, 7, 255 })
  check.equal(L.Equalization { bins = 1 } (x, TRAINING):totable(), x:totable())
end)

-- ---- one image ----------------------------------------------------------------------------------

-- Every layer of this kind, with options under which it draws the same for the same seed.
local SURE = {
  AugMix = { seed = 1 }, AutoContrast = {}, CenterCrop = { 3, 2 },
  ContrastLimitedAdaptiveHistogramEqualization = {}, CutMix = { seed = 1 }, Equalization = {}, MixUp = { seed = 1 },
  RandAugment = { seed = 1 }, RandomBrightness = { { 0.1, 0.1 } }, RandomColorDegeneration = { { 0.3, 0.3 } },
  RandomColorJitter = { contrast_factor = 0 }, RandomContrast = { { 0, 0 } }, RandomCrop = { 9, 3 },
  RandomElasticTransform = { seed = 1 }, RandomErasing = { { 1, 1 }, { 1, 1 }, fill_value = 3 },
  RandomFlip = { seed = 1 }, RandomGaussianBlur = { seed = 1 }, RandomGrayscale = { 1 },
  RandomHue = { { 0, 0 } }, RandomInvert = { { 1, 1 } }, RandomPerspective = { seed = 1 },
  RandomPosterization = { { 2, 2 } },
  RandomRotation = { { 0.1, 0.1 } }, RandomSaturation = { { 0.3, 0.3 } }, RandomSharpness = { { 0.9, 0.9 } },
  RandomShear = {}, RandomTranslation = { { 0.2, 0.2 }, { 0.1, 0.1 } }, RandomZoom = { { 0.2, 0.2 } },
  Resizing = { 7, 3, interpolation = "lanczos3" }, Solarization = {},
}

test("a batch of no images stays one", function()
  for name, options in pairs(SURE) do
    for _, training in ipairs { true, false } do
      if name ~= "CutMix" and name ~= "MixUp" then
        local y = L[name](with(options, { name = "layer" }))(mgpu.zeros { 0, 8, 8, 3 }, { training = training })
        check.equal({ name, y:shape()[1], y:rank() }, { name, 0, 4 })
      end
    end
  end
end)

test("one image without the batch is treated as a batch of it", function()
  for name, options in pairs(SURE) do
    for _, format in ipairs { "channels_last", "channels_first" } do
      local function layer()
        mgpu.seed(1)
        return L[name](with(options, { data_format = format, name = "layer" }))
      end
      local x = pixels(format == "channels_last" and { 1, 5, 4, 3 } or { 1, 3, 5, 4 })
      local one = x:reshape { unpack(x:shape(), 2) }
      for _, training in ipairs { true, false } do
        local y = layer()(x, { training = training })
        local single = layer()(one, { training = training })
        check.equal({ name, single:shape() }, { name, { unpack(y:shape(), 2) } })
        check.equal({ name, single:reshape { -1 }:totable() }, { name, y:reshape { -1 }:totable() })
        check.equal(layer():output_shape(one:shape()), single:shape())
      end
    end
  end
  local mixed = L.MixUp {} ({ pixels { 5, 4, 3 }, mgpu.tensor { 0, 1 } }, TRAINING)
  check.equal(mixed[1]:totable(), pixels { 5, 4, 3 }:totable()) -- with itself
  check.equal(mixed[2]:totable(), { 0, 1 })
end)

test("images whose channels are missing are no image without a batch", function()
  for name, options in pairs(SURE) do
    check.raises(function() mgpu.Sequential { L.Input { 28, 28 }, L[name](with(options)) } end,
      "the input must have 4 axes (batch, rows, columns, channels), got shape {None, 28, 28}", "usage")
    check.raises(function() L[name](with(options)) (mgpu.zeros { 4, 4 }) end, "the input must have 4 axes", "usage")
  end
end)

-- ---- what is drawn ------------------------------------------------------------------------------

-- The share of images of ones that the layer changes to the value.
local function share(layer, value)
  local y = layer(mgpu.ones { 400, 1, 1, 3 }, TRAINING):mean { 2, 3, 4 }
  return (y - value):abs():lt(1e-3):to "float32":mean():item()
end

test("RandomInvert inverts each image with a probability that is drawn, too", function()
  mgpu.seed(1)
  -- 5 standard deviations of the share of 400 images
  check.near(share(L.RandomInvert {}, 254), 0.5, 0.125)
  check.near(share(L.RandomInvert { 0.2 }, 254), 0.1, 0.075)
  check.near(share(L.RandomInvert { { 0.2, 0.2 } }, 254), 0.2, 0.1)
end)

test("RandomPosterization draws the numbers of bits of its range, without the upper one", function()
  mgpu.seed(1)
  local x = mgpu.full({ 600, 1, 1, 1 }, 255)
  for factor, kept in pairs { [4] = { 128, 192, 224 }, [8] = { 128, 192, 224, 240, 248, 252, 254 } } do
    local y = L.RandomPosterization { factor } (x, TRAINING):reshape { 600 }
    local found = {}
    for _, v in ipairs(y:totable()) do found[v] = (found[v] or 0) + 1 end
    for _, v in ipairs(kept) do
      -- 5 standard deviations of a count of 600 draws
      check.near(found[v] or 0, 600 / #kept, 5 * math.sqrt(600 / #kept), tostring(v))
      found[v] = nil
    end
    check.equal(next(found), nil)
  end
end)

test("factors are drawn for each image from the range that Keras makes of a number", function()
  mgpu.seed(1)
  local n = 400
  for name, range in pairs { RandomColorDegeneration = { -0.5, 0.5 }, RandomSaturation = { -0.5, 0.5 },
    RandomSharpness = { 0, 0.5 }, RandomHue = { -0.25, 0.25 } } do
    local layer = L[name] { 0.5 }
    layer:ensure_built { n, 1, 1, 3 }
    local seen
    layer.transform = function(_, x, numbers)
      seen = numbers
      return x
    end
    layer(mgpu.ones { n, 1, 1, 3 }, TRAINING)
    local width = range[2] - range[1]
    -- the ends of 400 uniform numbers; their mean within 5 standard deviations
    check.near(seen:min():item(), range[1], 0.05 * width, name)
    check.near(seen:max():item(), range[2], 0.05 * width, name)
    check.near(seen:mean():item(), (range[1] + range[2]) / 2, 5 * width / math.sqrt(12 * n), name)
  end
end)

test("RandomErasing draws boxes of its scale at all places, and noise in the range of values", function()
  mgpu.seed(1)
  local n = 200
  local x = mgpu.full({ n, 10, 20, 1 }, -1)
  local layer = L.RandomErasing { { 1, 1 }, { 0.25, 0.25 }, fill_value = 0 }
  local erased = layer(x, TRAINING) + 1 -- half of the rows and columns
  check.near(erased:sum { 2, 3, 4 }:min():item(), 50, 0.5)
  check.near(erased:sum { 2, 3, 4 }:max():item(), 50, 0.5)
  -- each pixel in one of the images, but for the first row and column, before which a box begins with probability 0
  check.equal(erased:max(1):sum():item(), 9 * 19)
  local noise = L.RandomErasing { { 1, 1 }, { 1, 1 } } (x, TRAINING)
  check.equal({ noise:min():item(), noise:max():item() }, { 0, 255 })
  -- half of the numbers are clipped to 0; 40000 draws
  check.near(noise:eq(0):to "float32":mean():item(), 0.5, 0.0125)
  local some = L.RandomErasing { 0.5, { 1, 1 }, fill_value = 1 } (x, TRAINING):eq(1):to "float32":mean():item()
  check.near(some, 0.25, 5 * math.sqrt(0.25 * 0.75 / n))
end)

test("RandomShear draws factors from Keras's ranges, with one sign for both", function()
  mgpu.seed(1)
  local n = 400
  local layer = L.RandomShear { { 0.2, 0.4 }, { 0.1, 0.1 } }
  layer:ensure_built { n, 1, 1, 1 }
  local across, down = layer:draw(n)
  check.equal((across * down):gt(0):all():item(), true)
  check.near(down:gt(0):to "float32":mean():item(), 0.5, 0.125) -- 5 standard deviations
  local size = across:abs()
  check.truthy(size:min():item() >= 0.2 and size:max():item() <= 0.4, "the range")
  layer = L.RandomShear { y_factor = 0.5 }
  layer:ensure_built { n, 1, 1, 1 }
  across, down = layer:draw(n)
  check.equal(across:abs():max():item(), 0)
  check.near(down:min():item(), -0.5, 0.05)
  check.near(down:max():item(), 0.5, 0.05)
end)

test("RandAugment draws all of its layers, num_ops of them for each batch", function()
  mgpu.seed(1)
  local layer, seen = L.RandAugment { num_ops = 300, interpolation = "nearest" }, {}
  layer:ensure_built { 2, 1, 1, 3 }
  for _, k in ipairs((layer:draw(2, { 2, 1, 1, 3 })):totable()) do seen[k] = (seen[k] or 0) + 1 end
  for k = 0, #layer.parts - 1 do
    check.near(seen[k] or 0, 300 / 11, 26, "layer " .. k) -- 5 standard deviations
    seen[k] = nil
  end
  check.equal({ next(seen), #layer.parts, layer.parts[3].interpolation }, { nil, 11, "nearest" })
  local augment, x = L.RandAugment { seed = 4, name = "augment" }, pixels { 2, 4, 4, 3 }
  mgpu.seed(2)
  local first, second = augment(x, TRAINING), augment(x, TRAINING)
  check.truthy(largest_difference(first, second) > 0.1, "drawn twice the same")
  mgpu.seed(2)
  check.equal(L.RandAugment { seed = 4, name = "augment" } (x, TRAINING), first:totable())
  check.equal(augment(x), x:totable())
end)

test("MixUp draws weights of the beta distribution, and orders of all images", function()
  mgpu.seed(1)
  local n = 4000
  for _, alpha in ipairs { 0.2, 0.5, 1, 3 } do
    local layer = L.MixUp { alpha }
    layer:ensure_built { n, 1, 1, 1 }
    local order, w = layer:draw(n)
    check.equal(order:sort():totable(), mgpu.arange(n):totable())
    local far = w - 0.5
    local variance = 1 / (4 * (2 * alpha + 1)) -- and the fourth moment, which is not that of another law
    local fourth = 3 * variance ^ 2 * (2 * alpha + 1) / (2 * alpha + 3)
    -- 5 standard deviations of a mean of numbers whose squares are at most 1/4, and of their squares
    check.near(far:mean():item(), 0, 5 * math.sqrt(variance / n))
    check.near(far:square():mean():item(), variance, 5 * math.sqrt((fourth - variance ^ 2) / n))
    check.near(far:square():square():mean():item(), fourth, 5 * math.sqrt(fourth / 16 / n))
  end
end)

test("CutMix draws boxes inside of the images, whose area has the beta distribution", function()
  mgpu.seed(1)
  local n = 4000
  local layer = L.CutMix { { 1, 1 } } -- uniform
  layer:ensure_built { n, 10, 20, 1 }
  local _, across, down = layer:draw(n, { n, 10, 20, 1 })
  local area = (across[2] - across[1]) * (down[2] - down[1]) / 200
  check.near(area:mean():item(), 0.5, 5 * math.sqrt(1 / 12 / n))
  check.near((area - 0.5):square():mean():item(), 1 / 12, 5 * math.sqrt(1 / 180 / n))
  check.truthy(across[1]:min():item() >= 0 and across[2]:max():item() <= 20.001, "columns")
  check.truthy(down[1]:min():item() >= 0 and down[2]:max():item() <= 10.001, "rows")
  local never = L.CutMix { 0 } (mgpu.rand { 50, 4, 4, 1 }, TRAINING) -- all of an image or nothing
  check.equal(never:isnan():any():item(), false)
end)

test("RandomColorJitter draws new numbers for each of its layers and at each call, which its seed repeats", function()
  local options = { brightness_factor = 0.2, contrast_factor = 0.3, saturation_factor = 0.4, hue_factor = 0.5 }
  local x = pixels { 4, 3, 3, 3 }
  for name in pairs(options) do -- each of them alone changes the images
    local y = L.RandomColorJitter { [name] = options[name] } (x, TRAINING)
    check.truthy(largest_difference(y, x) > 0.1, name)
  end
  local function run()
    mgpu.seed(3)
    local layer = L.RandomColorJitter { seed = 5, name = "jitter", brightness_factor = 0.2, contrast_factor = 0.3,
      saturation_factor = 0.4, hue_factor = 0.5 }
    return layer(x, TRAINING), layer(x, TRAINING)
  end
  local first, second = run()
  check.truthy(largest_difference(first, second) > 0.1, "drawn twice the same")
  check.equal((run()), first:totable())
end)

test("layers of colors check the channels in training, at inference, and in a model before any data", function()
  local need = { RandomSaturation = "images need 3 channels, got 4", RandomHue = "images need 3 channels, got 4",
    RandomColorDegeneration = "images need 1 or 3 channels, got 4", RandomGrayscale = "images need 1 or 3 channels",
    RandAugment = "images need 1 or 3 channels, got 4",
    AugMix = "images need 1 or 3 channels, got 4", RandomColorJitter = "images need 3 channels, got 4",
    RandomErasing = "a fill_value of three numbers needs 3 channels, got 4" }
  local options = { RandAugment = {}, AugMix = {}, RandomColorJitter = { hue_factor = 0.1 },
    RandomErasing = { fill_value = { 1, 2, 3 } } }
  for name, message in pairs(need) do
    local function refused(fn) check.raises(fn, message, "usage") end
    local function layer(format)
      return L[name](with(options[name] or { factor = 0.5 }, { data_format = format }))
    end
    refused(function() layer() (mgpu.zeros { 1, 2, 2, 4 }, TRAINING) end)
    refused(function() layer() (mgpu.zeros { 1, 2, 2, 4 }) end)
    refused(function() layer() (mgpu.zeros { 2, 2, 4 }) end)
    refused(function() mgpu.Sequential { L.Input { 2, 2, 4 }, layer() } end)
    layer "channels_first" (mgpu.zeros { 1, 3, 2, 4 }, TRAINING)
    mgpu.Sequential { L.Input { -1, -1, -1 }, layer() }
  end
end)

test("gray images of one channel stay gray", function()
  local x = pixels { 2, 3, 3, 1 }
  check.equal(L.RandomGrayscale { 1 } (x, TRAINING):totable(), x:totable())
  check.equal(L.RandomColorDegeneration { { 1, 1 } } (x, TRAINING):totable(), x:totable())
end)

test("options outside of their ranges are refused", function()
  check.raises(function() L.RandomPosterization { 9 } end, 'option "factor" must be from 1 to 8, got 9', "usage")
  check.raises(function() L.RandomPosterization { { 1.5, 3 } } end, "it must be whole, got 1.5", "usage")
  check.raises(function() L.RandomInvert { -0.1 } end, 'option "factor" must be from 0 to 1, got -0.1', "usage")
  check.raises(function() L.RandomColorJitter { hue_factor = 2 } end,
    'option "hue_factor" must be from 0 to 1, got 2', "usage")
  check.raises(function() L.RandomErasing { fill_value = { 1, 2 } } end, "a number or a list of three numbers", "usage")
  check.raises(function() L.RandomErasing { fill_value = { 1, 2, 3 } } (mgpu.zeros { 1, 2, 2, 1 }, TRAINING) end,
    "a fill_value of three numbers needs 3 channels, got 1", "usage")
  check.raises(function() L.RandomShear { { -0.1, 0.5 } } end, 'option "x_factor" must be from 0 to 1', "usage")
  for _, name in ipairs { "AutoContrast", "Equalization", "RandomBrightness", "RandomHue", "RandAugment" } do
    local options = { value_range = { 3, 3 } }
    if name:find "Random" then options.factor = 0.5 end
    check.raises(function() L[name](options) end, '"value_range" must have two different ends, got 3 twice', "usage")
  end
  local x = mgpu.zeros { 2, 2, 2, 1 }
  check.raises(function() L.MixUp {} { x, mgpu.zeros { 3, 4 } } end, "a row for each image, got {3, 4} for 2 images",
    "usage")
  check.raises(function() L.CutMix {} { x, x, x } end, "an array {images, labels}, got an array of 3", "usage")
  check.raises(function() L.AutoContrast { value_range = { 1 } } end, 'option "value_range" must be', "usage")
end)

test("layers of colors compute in halves what halves can hold", function()
  for _, policy in ipairs { "mixed_float16", "mixed_bfloat16" } do
    local close = mgpu.tensor { 250, 250.25, 250.5, 250.125 }:reshape { 1, 2, 2, 1 }
    if policy == "mixed_float16" then -- which holds these numbers exactly
      local y = L.AutoContrast { dtype = policy }(close):to "float32"
      check.equal(y:reshape { 4 }:totable(), { 0, 127.5, 255, 63.75 })
    end
    local bytes = mgpu.arange(256):reshape { 1, 16, 16, 1 } -- more bins than a half can count
    local y = L.Equalization { bins = 1024, dtype = policy }(bytes, TRAINING):to "float32"
    check.equal(y:totable(), L.Equalization { bins = 1024 }(bytes, TRAINING):totable())
    local gray = L.RandomSaturation { { 1, 1 }, value_range = { 0, 1 }, dtype = policy }
    check.truthy(gray(mgpu.ones { 2, 3, 3, 3 } * 0.5, TRAINING):all_finite():item(), "gray pixels stay numbers")
  end
end)
