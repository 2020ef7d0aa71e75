-- ds:augment: what each option does, random choices, dtypes, masks, errors. The pixels of interpolation and colors are
-- compared with Keras and tf.image in augmentation_golden_spec.lua.
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local options = require "mgpu.data.augment_options"

local test = check.test
local from = mgpu.data.from_tensors

-- uint8 images {n, h, w, c} whose pixels are 0, 1, 2, ... modulo 251.
local function images(n, h, w, c)
  local x = (mgpu.arange(n * h * w * c) % 251):to "uint8":reshape { n, h, w, c }
  mgpu.eval(x)
  return x
end

local function one(x, given, epoch, row)
  local _, image = options.check(given)
  image.seed = image.seed or 5
  return core.transform_apply(core.augment(image), x, epoch or 0, row or 0)
end

-- A gray image of small numbers, as rows.
local GRID = { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 } }
local function grid(given, dtype) return one(mgpu.tensor(GRID, { dtype = dtype or "uint8" }), given):totable() end

-- All rows of one pass, {n, ...}.
local function all(ds, rows, position)
  local x = ds:batch(rows):iter(position)()
  return x
end

test("no option leaves the image as it is", function()
  local x = images(3, 5, 4, 3)
  check.equal(all(from { x }:augment {}, 3), x)
  check.equal(all(from { x }:augment {}, 3):dtype(), "uint8")
end)

test("flips with probability 1 mirror columns and rows", function()
  check.equal(grid { horizontal_flip = 1 }, { { 4, 3, 2, 1 }, { 8, 7, 6, 5 }, { 12, 11, 10, 9 } })
  check.equal(grid { vertical_flip = 1 }, { { 9, 10, 11, 12 }, { 5, 6, 7, 8 }, { 1, 2, 3, 4 } })
  check.equal(grid { horizontal_flip = 1, vertical_flip = 1, resize = { 3, 4 } },
    { { 12, 11, 10, 9 }, { 8, 7, 6, 5 }, { 4, 3, 2, 1 } })
  check.equal(grid { horizontal_flip = false, vertical_flip = 0 }, GRID)
end)

test("a positive shift moves the window to the right and down, and each fill mode fills", function()
  local function shifted(mode) return grid { width_shift = { 3, 3 }, fill_mode = mode, cval = 99 }[1] end
  check.equal(shifted "nearest", { 4, 4, 4, 4 })
  check.equal(shifted "reflect", { 4, 4, 3, 2 })
  check.equal(shifted "wrap", { 4, 2, 3, 1 }) -- the period is 3, as scipy's
  check.equal(shifted "constant", { 4, 99, 99, 99 })
  check.equal(grid { height_shift = { -1, -1 }, fill_mode = "constant" },
    { { 0, 0, 0, 0 }, { 1, 2, 3, 4 }, { 5, 6, 7, 8 } })
end)

test("a shift by a fraction mixes neighbors, or copies the nearest", function()
  check.equal(grid({ width_shift = { 0.125, 0.125 } }, "float32")[1], { 1.5, 2.5, 3.5, 4 })
  check.equal(grid({ width_shift = { 0.2, 0.2 }, interpolation = "nearest" })[1], { 2, 3, 4, 4 })
end)

test("a turn by half a circle is both flips", function()
  check.near(grid({ rotation = { 180, 180 } }, "float32"),
    grid({ horizontal_flip = 1, vertical_flip = 1 }, "float32"), 1e-5) -- float32 weights
end)

test("zoom of 2 shrinks the image about its center", function()
  check.equal(grid({ zoom = { 2, 2 }, fill_mode = "constant" }, "float32"),
    { { 0, 0, 0, 0 }, { 0, 5.5, 7.5, 0 }, { 0, 0, 0, 0 } })
end)

test("crops take the middle, or a random part of the padded image", function()
  check.equal(grid { center_crop = { 1, 2 } }, { { 6, 7 } })
  local seen = {}
  for row = 0, 99 do
    local x = one(mgpu.tensor(GRID, { dtype = "uint8" }), { random_crop = { 3, 4, padding = { 1, 0 } } }, 0, row)
    seen[x:totable()[1][1] + 1] = true
    check.equal(x:shape(), { 3, 4 })
  end
  check.equal(seen, { true, true, [6] = true }) -- rows -1, 0 and 1 come first
  check.equal(grid { random_crop = { 1, 2, padding = 0 } }, grid { random_crop = { 1, 2 } })
  check.equal(grid { random_crop = { 5, 8, padding = { 1, 2 }, fill_mode = "reflect" } }[1], { 2, 1, 1, 2, 3, 4, 4, 3 })
end)

test("random_resized_crop takes windows of the given area and aspect", function()
  local x = (mgpu.arange(40 * 40)):reshape { 40, 40, 1 }
  for row = 0, 49 do
    local y = one(x, { random_resized_crop = { 2, 2, area = { 0.25, 0.25 }, aspect = { 1, 1 }, method = "nearest" } },
      1, row):reshape { 4 }:totable()
    check.equal({ y[2] - y[1], y[3] - y[1] }, { 10, 400 }) -- a window of 20 x 20, at pixels 5 and 15
  end
  local wide = one(x, { random_resized_crop = { 2, 2, area = { 0.25, 0.25 }, aspect = { 4, 4 }, method = "nearest" } })
    :reshape { 4 }:totable()
  check.equal({ wide[2] - wide[1], wide[3] - wide[1] }, { 20, 200 }) -- 10 rows of 40
  local tall = one(x, { random_resized_crop = { 1, 1, area = { 1, 1 }, aspect = { 0.25, 0.25 }, method = "nearest" } })
  check.equal(tall:item(), 20 * 40 + 20) -- impossible: the largest window in the middle, 40 rows of 10
  local whole = one(x, { random_resized_crop = { 40, 40, area = { 1, 1 }, aspect = { 1, 1 } } })
  check.equal(whole, x)
end)

test("resize takes a size, or the length of the shorter side", function()
  check.equal(one(images(1, 6, 9, 3):reshape { 6, 9, 3 }, { resize = 4 }):shape(), { 4, 6, 3 })
  check.equal(one(images(1, 9, 6, 3):reshape { 9, 6, 3 }, { resize = 4, center_crop = 4 }):shape(), { 4, 4, 3 })
  check.equal(one(images(1, 9, 6, 3):reshape { 9, 6, 3 }, { resize = { 2, 3, method = "area" } }):shape(), { 2, 3, 3 })
end)

test("cutout fills a hole, of at most its size", function()
  local holes = {}
  for row = 0, 199 do
    local y = one(mgpu.ones({ 6, 6, 3 }, { dtype = "uint8" }), { cutout = { 2, 3, value = 7 } }, 0, row)
    local n = 0
    for _, v in ipairs(y:reshape { -1 }:totable()) do
      if v == 7 then n = n + 1 end
    end
    holes[n / 3] = true
  end
  check.truthy(holes[6] and holes[2], "whole holes, and some cut off at the border")
  for n in pairs(holes) do check.truthy(n >= 2 and n <= 6, n) end
end)

test("rescale, mean and std act on the values, for each channel", function()
  local x = mgpu.tensor({ { { 10, 20, 30 } } }, { dtype = "uint8" })
  check.near(one(x, { rescale = 0.1 }):totable(), { { { 1, 2, 3 } } })
  check.near(one(x, { mean = { 10, 10, 10 }, std = { 1, 2, 4 } }):totable(), { { { 0, 5, 5 } } })
  check.near(one(x, { rescale = 0.1, mean = 1, std = 2 }):totable(), { { { 0, 0.5, 1 } } })
end)

test("channel_shift stays within the image's values, brightness_factor multiplies", function()
  check.equal(grid { channel_shift = { 2, 2 } }[3], { 11, 12, 12, 12 })
  check.equal(grid { brightness_factor = { 1.5, 1.5 } }[1], { 1, 3, 4, 6 }) -- whole steps
end)

test("alpha keeps its value when colors change", function()
  local x = mgpu.tensor({ { { 10, 200, 30, 77 }, { 90, 20, 30, 78 } } }, { dtype = "uint8" })
  local y = one(x, { brightness = { 5, 5 }, contrast = { 2, 2 }, saturation = { 0.5, 0.5 }, hue = { 0.2, 0.2 },
    brightness_factor = { 0.5, 0.5 } }):totable()[1]
  check.equal({ y[1][4], y[2][4] }, { 77, 78 })
  check.truthy(y[1][1] ~= 10)
end)

-- ---- random choices -------------------------------------------------------------------------------

local RECIPE_A = { width_shift = 0.1, height_shift = 0.1, horizontal_flip = true, seed = 3 }
local RECIPE_B = { horizontal_flip = true, brightness = 63, contrast = { 0.2, 1.8 }, standardize = true, seed = 4 }

test("both recipes of the CIFAR example change the pixels of most rows", function()
  local x = images(40, 32, 32, 3)
  for _, recipe in ipairs { RECIPE_A, RECIPE_B } do
    local y = all(from { x }:augment(recipe), 40)
    check.equal(y:shape(), { 40, 32, 32, 3 })
    check.equal(y:dtype(), recipe == RECIPE_A and "uint8" or "float32")
    local changed = y:to "float32":ne(x:to "float32"):to "float32":mean { 2, 3, 4 }:totable()
    local n = 0
    for _, v in ipairs(changed) do n = n + (v > 0.1 and 1 or 0) end
    check.truthy(n >= 38, n) -- a row that neither flips nor moves half a pixel is rare
  end
  local y = all(from { x }:augment(RECIPE_B), 40)
  check.near(y:mean { 2, 3, 4 }, mgpu.zeros { 40 }, 1e-5) -- standardized; sums of 3072 values of about 1
  check.near((y * y):mean { 2, 3, 4 }, mgpu.ones { 40 }, 1e-4)
end)

test("the pixels of a row depend on seed, epoch and row alone", function()
  local x = images(50, 8, 8, 3)
  local id = mgpu.arange(50):to "int32"
  for _, recipe in ipairs { RECIPE_A, RECIPE_B } do
    local ds = from { x, id }:augment(recipe)
    local wanted = all(ds, 50)
    local second = all(from { x, id }:augment(recipe), 50, { pass = 1, element = 0 })
    check.truthy(wanted:ne(second):any():item(), "another epoch")
    for threads = 1, 4 do
      for _, size in ipairs { 1, 7, 50 } do
        for batch, ids in from { x, id }:augment(recipe):shuffle(50, threads):batch(size)
          :prefetch(3, { threads = threads }):iter() do
          check.equal(batch, wanted:gather(ids, { axis = 1 }))
        end
      end
    end
  end
end)

test("another seed gives other pixels; without a seed they follow mgpu.seed", function()
  local x = images(20, 8, 8, 1)
  local function with(seed)
    return all(from { x }:augment { horizontal_flip = true, width_shift = 3, seed = seed }, 20)
  end
  check.equal(with(1), with(1))
  check.truthy(with(1):ne(with(2)):any():item())
  check.truthy(with(1):ne(with(1 + 2 ^ 40)):any():item())
  mgpu.seed(9)
  local first = with(nil)
  check.truthy(first:ne(with(nil)):any():item())
  mgpu.seed(9)
  check.equal(with(nil), first)
end)

-- The choices of n rows under a name of core.augment_choose.
local function choices(given, name, n)
  local _, image = options.check(given)
  image.seed = 11
  local transform, list = core.augment(image), {}
  for row = 0, n - 1 do list[row + 1] = core.augment_choose(transform, 2, row, 100, 200)[name] end
  return list
end

local function moments(list)
  local sum, squares, lo, hi = 0, 0, math.huge, -math.huge
  for _, v in ipairs(list) do
    v = v == true and 1 or v == false and 0 or v
    sum, squares, lo, hi = sum + v, squares + v * v, math.min(lo, v), math.max(hi, v)
  end
  local mean = sum / #list
  return mean, math.sqrt(squares / #list - mean * mean), lo, hi
end

test("choices are uniform over their ranges", function()
  local n = 4000
  for _, case in ipairs {
    { "theta", { rotation = 30 }, -30, 30 }, { "shear", { shear = { 5, 10 } }, 5, 10 },
    { "zx", { zoom = 0.2 }, 0.8, 1.2 }, { "zy", { zoom = { 0.5, 2 } }, 0.5, 2 },
    { "tx", { width_shift = 0.1 }, -20, 20 }, { "ty", { height_shift = 0.1 }, -10, 10 },
    { "ty", { height_shift = { 1.5, 4 } }, 1.5, 4 }, { "channel_shift_intensity", { channel_shift = 50 }, -50, 50 },
    { "brightness", { brightness_factor = { 0.5, 1.5 } }, 0.5, 1.5 },
    { "brightness_delta", { brightness = 63 }, -63, 63 }, { "contrast", { contrast = { 0.2, 1.8 } }, 0.2, 1.8 },
    { "saturation", { saturation = 0.5 }, 0.5, 1.5 }, { "hue", { hue = 0.1 }, -0.1, 0.1 },
  } do
    local name, given, lo, hi = unpack(case)
    local mean, deviation, least, most = moments(choices(given, name, n))
    local width = hi - lo
    -- four standard errors of the mean of 4000 uniform numbers: 4 / sqrt(12 * 4000) = 0.018 of the width
    check.truthy(math.abs(mean - (lo + hi) / 2) < 0.02 * width, name .. ": mean " .. mean)
    check.truthy(math.abs(deviation - width / math.sqrt(12)) < 0.01 * width, name .. ": deviation " .. deviation)
    check.truthy(least >= lo and most <= hi and least < lo + 0.01 * width and most > hi - 0.01 * width, name)
  end
end)

test("flips have their probability, whole shifts take each value equally often", function()
  local n = 4000
  for _, p in ipairs { 0.5, 0.1 } do
    local mean = moments(choices({ horizontal_flip = p }, "flip_horizontal", n))
    check.truthy(math.abs(mean - p) < 0.032, mean) -- four standard errors: 4 * 0.5 / sqrt(4000)
  end
  local counts = {}
  for _, v in ipairs(choices({ width_shift = 2 }, "tx", n)) do counts[v] = (counts[v] or 0) + 1 end
  for v = -2, 2 do check.truthy(math.abs(counts[v] - n / 5) < 4 * math.sqrt(n * 0.16), v) end
end)

test("different choices of a row are independent, and so are rows and options", function()
  local a, b = choices({ width_shift = 0.1, height_shift = 0.1 }, "tx", 2000),
    choices({ width_shift = 0.1, height_shift = 0.1 }, "ty", 2000)
  local product, next_one = 0, 0
  for i, v in ipairs(a) do
    product = product + v / 20 * b[i] / 10
    next_one = next_one + v / 20 * (a[i + 1] or 0) / 20
  end
  -- products of two independent numbers from -1 to 1: deviation 1/3; four standard errors of 2000
  check.truthy(math.abs(product / 2000) < 0.03 and math.abs(next_one / 2000) < 0.03)
  check.equal(choices({ width_shift = 0.1, rotation = 5, brightness = 3 }, "tx", 50),
    choices({ width_shift = 0.1 }, "tx", 50))
end)

-- ---- dtypes, shapes, masks ------------------------------------------------------------------------

test("every dtype and number of channels goes through every kind of step", function()
  local recipes = { { horizontal_flip = 1 }, { width_shift = { 0.3, 0.3 } }, { rotation = { 20, 20 } },
    { rotation = { 20, 20 }, interpolation = "nearest" }, { resize = { 3, 2 } }, { random_crop = { 1, 1 } },
    { brightness = { 2, 2 }, contrast = { 1.5, 1.5 } }, { cutout = 1 }, { standardize = true },
    { random_resized_crop = { 2, 2 }, zoom = 0.1, vertical_flip = true } }
  for _, c in ipairs { 1, 2, 3, 4, 5 } do
    for _, size in ipairs { { 1, 1 }, { 1, 6 }, { 5, 4 } } do
      local bytes = images(1, size[1], size[2], c):reshape { size[1], size[2], c }
      for _, recipe in ipairs(recipes) do
        local wanted = one(bytes:to "float32", recipe)
        check.equal(wanted:dtype(), "float32")
        check.near(one(bytes:to "float64", recipe), wanted:to "float64", 0) -- computed in float32
        -- 11 and 8 bits of values up to 255, rounded at the end
        check.near(one(bytes:to "float16", recipe), wanted:to "float16", 0)
        check.near(one(bytes:to "bfloat16", recipe), wanted:to "bfloat16", 0)
        local from_bytes = one(bytes, recipe)
        local whole = from_bytes:dtype() == "uint8"
        check.near(from_bytes:to "float32", wanted, whole and 0.51 or 1e-5)
      end
    end
  end
end)

test("results in uint8 are rounded and saturate", function()
  local x = mgpu.tensor({ { 0, 100, 250 } }, { dtype = "uint8" })
  check.equal(one(x, { brightness = { 10.5, 10.5 }, dtype = "uint8" }):totable(), { { 11, 111, 255 } })
  check.equal(one(x, { brightness = { -10.6, -10.6 }, dtype = "uint8" }):totable(), { { 0, 89, 239 } })
end)

test("images without an axis of channels, and with channels first", function()
  local x = images(4, 6, 5, 3)
  local given = { rotation = 40, horizontal_flip = true, brightness = 9, contrast = 0.3, cutout = 2, seed = 1,
    random_crop = { 4, 4 } }
  local last = all(from { x }:augment(given), 4)
  given.data_format = "channels_first"
  check.equal(all(from { x:transpose { 1, 4, 2, 3 } }:augment(given), 4):transpose { 1, 3, 4, 2 }, last)
  given.data_format = nil
  local gray = x:slice { {}, {}, {}, { 1, 1 } }
  check.equal(all(from { gray:reshape { 4, 6, 5 } }:augment(given), 4),
    all(from { gray }:augment(given), 4):reshape { 4, 4, 4 })
end)

test("image and mask get the same geometry, and masks keep their classes", function()
  local x = images(30, 12, 10, 1)
  local mask = x:to "int32":reshape { 30, 12, 10 }
  local ds = from { x, mask }:augment { field = { 1, 2 }, rotation = 20, width_shift = 0.2, zoom = 0.2,
    horizontal_flip = true, random_crop = { 8, 8, padding = 2 }, brightness = 20, interpolation = "nearest", seed = 2 }
  for a, b in ds:batch(30):iter() do
    check.equal(b:dtype(), "int32")
    check.equal(b:shape(), { 30, 8, 8 })
    check.truthy(a:ne(x:slice { {}, { 1, 8 }, { 1, 8 } }):any():item())
  end
  ds = from { x, mask }:augment { field = { 1, 2 }, rotation = 20, height_shift = 2, horizontal_flip = true,
    random_resized_crop = { 8, 8, method = "nearest" }, interpolation = "nearest", seed = 2 }
  for a, b in ds:batch(30):iter() do check.equal(a:to "int32":reshape { 30, 8, 8 }, b) end
  ds = from { mask, x }:augment { field = 2, horizontal_flip = 1 }
  for a, b in ds:batch(30):iter() do
    check.equal(a, mask)
    check.equal(b:slice { {}, {}, { -1, -1 } }, x:slice { {}, {}, { 1, 1 } })
  end
end)

test("augment twice does the steps in that order", function()
  local x = images(5, 4, 4, 1)
  local ds = from { x }:augment { rescale = 0.5 }:augment { brightness = { 1, 1 } }
  check.equal(all(ds, 5), x:to "float32" * 0.5 + 1)
end)

-- ---- errors ---------------------------------------------------------------------------------------

test("wrong options are errors that name the option and its range", function()
  local x = images(2, 4, 4, 3)
  local function refused(given, message) check.raises(function() from { x }:augment(given) end, message, "usage") end
  refused({ rotations = 3 }, 'unknown option "rotations" %(did you mean "rotation"%?%)')
  refused(3, "the options are a table")
  refused({ rotation = "big" }, 'option "rotation" must be a number or {least, greatest}, got "big"')
  refused({ rotation = 400 }, 'option "rotation" must be from 0 to 360, or')
  refused({ rotation = { 3, 1 } }, "the range {3, 1} is empty")
  refused({ rotation = 0 / 0 }, 'option "rotation" must be at least 0, got %-?nan')
  refused({ shear = { -100, 0 } }, 'option "shear" must be from %-90 to 90, got {%-100, 0}')
  refused({ zoom = 1 }, 'option "zoom" must be from 0 to 0.999')
  refused({ zoom = { 0, 1 } }, 'option "zoom" must be from 0.001 to 1000')
  refused({ zoom = { 1, 2, 3 } }, 'option "zoom" must be a number or')
  refused({ width_shift = -1 }, 'option "width_shift" must be a number from 0 on')
  refused({ width_shift = 1.5 }, 'option "width_shift" must be below 1 %(a fraction of the image%) or a whole number')
  refused({ horizontal_flip = 2 }, 'option "horizontal_flip" must be true, false or a probability from 0 to 1, got 2')
  refused({ hue = 0.7 }, 'option "hue" must be from 0 to 0.5')
  refused({ contrast = { -1, 1 } }, 'option "contrast" must be from 0 to 1000')
  refused({ fill_mode = "mirror" }, 'option "fill_mode": unknown value "mirror"')
  refused({ interpolation = "area" }, 'option "interpolation": unknown value "area"')
  refused({ resize = { 0, 3 } }, 'augment: resize: option "height" must be at least 1, got 0')
  refused({ resize = { 3, 3, method = "cubic" } }, 'unknown value "cubic"')
  refused({ resize = {} }, 'option "resize" needs a size')
  refused({ random_crop = { 3, 3, pad = 1 } }, 'augment: random_crop: unknown option "pad"')
  refused({ random_crop = { 3, 3, padding = -1 } }, 'option "padding" must be a whole number of at least 0')
  refused({ random_resized_crop = { 3, 3, area = { 0, 1 } } }, 'random_resized_crop.area" must be from 0.001 to 1')
  refused({ random_resized_crop = 3, resize = 3 }, "cannot be combined")
  refused({ cutout = "x" }, 'option "height" must be a whole number')
  refused({ rescale = 0 }, 'option "rescale" must not be 0')
  refused({ std = { 1, 0, 1 } }, 'option "std": entry 2 must be above 0, got 0')
  refused({ mean = {} }, 'option "mean" must be a number or a list')
  refused({ mean = { 1, "a" } }, 'option "mean": entry 2 must be a finite number, got "a"')
  refused({ dtype = "int32" }, 'option "dtype": unknown value "int32"')
  refused({ seed = -1 }, 'option "seed" must be at least 0')
  refused({ field = 0 }, 'option "field": fields are numbered from 1, got 0')
  refused({ field = { 1, 1 } }, "field 1 is named twice")
  refused({ field = {} }, 'option "field" must be the number of a field')
end)

test("images that an option does not suit are errors", function()
  local x = images(2, 4, 4, 2)
  local function refused(tensor, given, message)
    check.raises(function() from { tensor }:augment(given) end, message)
  end
  refused(x, { field = 2 }, "field")
  refused(mgpu.zeros { 3 }, { horizontal_flip = true }, "a field of shape {} is not an image")
  refused(mgpu.zeros { 2, 1, 2, 3, 4 }, { horizontal_flip = true }, "a field of shape {1, 2, 3, 4} is not an image")
  refused(mgpu.zeros { 2, 0, 3, 1 }, {}, "has no pixels")
  refused(x, { center_crop = { 5, 2 } }, "center_crop wants 5 rows, but the image has 4: give a smaller size")
  refused(x, { random_crop = { 4, 9, padding = 2 } },
    "random_crop wants 9 columns, but the image has 8 with its padding")
  refused(x, { hue = 0.1 }, "hue needs 3 or 4 channels, but the image has 2")
  refused(x, { mean = { 1, 2, 3 } }, "mean has 3 numbers, but the image has 2 channels")
  refused(x:to "int32", { rotation = 3 }, 'pixels of int32 cannot be mixed: give interpolation = "nearest"')
  check.equal(all(from { x:to "int32" }:augment { horizontal_flip = 1 }, 2):dtype(), "int32")
  check.raises(function() from { x }:map(function(t) return t end):augment {} end, "augment: .*before map", "usage")
end)

-- ---- mgpu.image.resize ----------------------------------------------------------------------------

test("mgpu.image.resize resizes one image or a batch, as augment does", function()
  local x = images(3, 6, 5, 2)
  for _, method in ipairs { "bilinear", "nearest", "area", "bicubic", "lanczos3" } do
    local wanted = all(from { x }:augment { resize = { 4, 7, method = method } }, 3)
    check.equal(mgpu.image.resize(x, { 4, 7, method = method }), wanted)
    check.equal(mgpu.image.resize(x:slice { 2 }, { 4, 7, method = method }), wanted:slice { 2 })
  end
  check.equal(mgpu.image.resize(mgpu.tensor(GRID), { 6, 8 }):shape(), { 6, 8 })
  check.equal(mgpu.image.resize(x, { 4, 7, antialias = true, dtype = "float32" }):dtype(), "float32")
  local function refused(image, given, message)
    check.raises(function() mgpu.image.resize(image, given) end, message, "usage")
  end
  refused(x, 3, "the size comes second, as in resize%(x, {32, 32}%); got a number")
  refused(x, { 3 }, 'image.resize: option "width" is missing')
  refused(x, { 0, 3 }, 'option "height" must be at least 1')
  refused(3, { 3, 3 }, "the image must be a tensor")
  refused(mgpu.zeros { 3 }, { 3, 3 }, "a tensor of shape {3} is not an image")
  refused(mgpu.zeros { 0, 3, 3, 1 }, { 3, 3 }, "there are no images")
  refused(x:to "int32", { 3, 3 }, "pixels of int32 cannot be mixed")
end)
