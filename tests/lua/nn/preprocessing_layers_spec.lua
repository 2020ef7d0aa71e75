-- The layers that prepare images, against Keras; random ones with fixed values, and what they draw.
local check = require "check"
local comparing = require "golden.comparing"
local golden = require "golden.load" "preprocessing"
local mgpu = require "mgpu"

local L = mgpu.layers
local test = check.test
local with = require "fixtures".with

local SALT = 70 -- of the set augmentation

local function pixels(shape) return comparing.pixels(shape, SALT) end

local function differs(name, y, wanted, near)
  local got = y:reshape { -1 }:totable()
  check.equal(#got, #wanted, name)
  for i, v in ipairs(wanted) do
    if not (math.abs(got[i] - v) <= near) then
      error(("%s: value %d is %.9g, not %.9g"):format(name, i, got[i], v), 0)
    end
  end
end

local function describe(case)
  local list = { case.layer }
  for key, value in pairs(case.options) do list[#list + 1] = key .. "=" .. tostring(value) end
  return table.concat(list, " ")
end

local function first_axes(x) return x:transpose { 1, 4, 2, 3 } end
local function last_axes(x) return x:transpose { 1, 3, 4, 2 } end

test("layers that draw nothing give Keras's values, with channels first too", function()
  for _, case in ipairs(golden.fixed) do
    local layer, x = L[case.layer](with(case.options)), pixels(case.size)
    local y = layer(x)
    -- float32 of values up to 255; TensorFlow rounds the weights of bicubic to a 1024th
    local near = case.options.interpolation == "bicubic" and 255 / 1024 or 2e-4
    differs(describe(case), y, case.output, near)
    check.equal(layer:output_shape { -1, unpack(case.size, 2) }, { -1, unpack(y:shape(), 2) }, describe(case))
    if case.layer ~= "Rescaling" then
      local options = with(case.options)
      options.data_format = "channels_first"
      differs(describe(case) .. " first", last_axes(L[case.layer](options)(first_axes(x))), case.output, near)
      differs(describe(case) .. " of bytes", layer(x:to "uint8"), case.output, near)
    end
  end
end)

test("Normalization gives Keras's values, and adapts to tensors and to datasets alike", function()
  local x = pixels { 6, 3, 4 }
  for i, case in ipairs(golden.normalizations) do
    local layer = L.Normalization(with(case.options))
    if not case.options.mean then layer:adapt(x) end
    -- float32 statistics of values up to 255; a variance of 0 divides by 1e-7
    for k, v in ipairs(layer(x):reshape { -1 }:totable()) do
      check.near(v, case.output[k], 2e-5, "case " .. i)
    end
    if not case.options.mean and not (case.options.axis and case.options.axis == 1) then
      local other = L.Normalization(with(case.options))
      local batches = mgpu.data.from_tensors { x, x }:batch(4)
      if type(case.options.axis) ~= "table" or #case.options.axis == 0 then
        other:adapt(batches)
        check.near(other(x), layer(x), 1e-5)
        check.equal(other.count:value():item(), layer.count:value():item())
      end
    end
  end
end)

test("random layers change images as Keras's for the same values", function()
  for _, case in ipairs(golden.random) do
    local layer, x, values = L[case.layer](with(case.options)), pixels { 3, 6, 5, 3 }, {}
    for i, list in ipairs(case.values) do values[i] = mgpu.tensor(list) end
    layer:ensure_built { -1, 6, 5, 3 }
    -- Keras computes coordinates in float32, which move a pixel by 1e-6 of the distance to the next, of up to 255
    differs(describe(case), layer:transform(x, unpack(values)), case.output, 2e-3)
    local options = with(case.options)
    options.data_format = "channels_first"
    local turned = L[case.layer](options)
    turned:ensure_built { -1, 3, 6, 5 }
    differs(describe(case) .. " first", last_axes(turned:transform(first_axes(x), unpack(values))), case.output, 2e-3)
  end
end)

local RANDOM = {
  RandomFlip = {}, RandomContrast = { factor = 0.5 }, RandomBrightness = { factor = 0.3 },
  RandomTranslation = { height_factor = 0.3, width_factor = 0.2 }, RandomRotation = { factor = 0.2 },
  RandomZoom = { height_factor = 0.3 }, RandomCrop = { height = 4, width = 3 },
}

test("random layers change images in training only, each in its own way", function()
  local x = pixels { 1, 6, 5, 3 }
  local same = mgpu.concat({ x, x, x, x, x, x, x, x, x, x }, { axis = 1 })
  for name, options in pairs(RANDOM) do
    local layer = L[name](with(options))
    if name ~= "RandomCrop" then check.equal(layer(same), same, name) end
    local y = layer(same, { training = true })
    check.equal(y:shape(), layer:output_shape { 10, 6, 5, 3 }, name)
    local differ = y:slice { { 1, 1 } }:ne(y):any():item()
    check.equal(differ, name ~= "RandomCrop", name .. ": images of a batch")
    local differs_from_next = false
    for _ = 1, 8 do
      differs_from_next = differs_from_next or layer(same, { training = true }):ne(y):any():item()
    end
    check.truthy(differs_from_next, name .. ": from step to step")
    check.equal(layer(same:to "uint8", { training = true }):dtype(), "float32", name)
  end
end)

test("RandomCrop takes each part of the images, and at inference resizes the middle", function()
  local x = mgpu.arange(2 * 5 * 6):reshape { 2, 5, 6, 1 }
  local layer, seen, n = L.RandomCrop { 3, 4 }, {}, 0
  for _ = 1, 200 do
    local y = layer(x, { training = true })
    local first = y:slice { 1, 1, 1, 1 }:item()
    local row, column = math.floor(first / 6), first % 6
    check.equal(y, x:slice { {}, { row + 1, row + 3 }, { column + 1, column + 4 } })
    if not seen[first] then seen[first], n = true, n + 1 end
  end
  check.equal(n, 9) -- 3 x 3 places; one is missed in 200 draws with probability 1e-9
  check.equal(layer(x), L.CenterCrop { 3, 4 }(L.Resizing { 3, 4, crop_to_aspect_ratio = true }(x)))
  check.equal(L.RandomCrop { 8, 4 }(x, { training = true }), L.Resizing { 8, 4, crop_to_aspect_ratio = true }(x))
end)

test("what random layers draw is uniform over its range", function()
  local n = 4000
  local x = mgpu.full({ n, 1, 1, 1 }, 100)
  local y = L.RandomBrightness { { -0.1, 0.3 }, value_range = { 0, 1000 } }(x, { training = true }) - 100
  -- four standard errors of the mean of 4000 numbers over 400
  check.near(y:mean():item(), 100, 8 / 100)
  check.truthy(y:min():item() >= -100 and y:max():item() <= 300 and y:min():item() < -96 and y:max():item() > 296)
  local pair = mgpu.concat({ mgpu.zeros { n, 1, 1, 1 }, mgpu.ones { n, 1, 1, 1 } }, { axis = 3 })
  local flipped = L.RandomFlip "horizontal" (pair, { training = true }):slice { {}, {}, { 1, 1 } }
  check.truthy(math.abs(flipped:mean():item() - 0.5) < 0.032) -- four standard errors
end)

test("random layers work in fit on several devices and learn alike, and are saved", function()
  local function model()
    mgpu.seed(5)
    mgpu.reset_names()
    local m = mgpu.Sequential { L.Input { 6, 6, 3 }, L.Rescaling { 1 / 255 }, L.RandomFlip {}, L.RandomContrast { 0.2 },
      L.RandomRotation { 0.1 }, L.RandomZoom { 0.1 }, L.RandomTranslation { 0.1, 0.1 }, L.Flatten {}, L.Dense { 2 } }
    m:compile { optimizer = "sgd", loss = "mse" }
    return m
  end
  local x, y = pixels { 16, 6, 6, 3 }, mgpu.arange(32):reshape { 16, 2 } / 32
  local one, two = model(), model()
  mgpu.seed(6)
  local a = one:fit(x, y, { batch_size = 8, epochs = 2, verbose = 0, shuffle = false })
  two:set_devices { "ref:0", "ref:1" }
  mgpu.seed(6)
  local b = two:fit(x, y, { batch_size = 8, epochs = 2, verbose = 0, shuffle = false })
  check.near(b.history.loss, a.history.loss, 1e-4) -- float32 sums in another order
  local path = check.path "m.safetensors"
  one:save(path)
  check.near(mgpu.load_model(path):predict(x), one:predict(x), 1e-6)
end)

test("Normalization is saved with what it measured, and Keras's layout keeps it", function()
  local x = pixels { 8, 2, 2, 3 }
  local layer = L.Normalization {}
  layer:adapt(x)
  local m = mgpu.Sequential { L.Input { 2, 2, 3 }, layer, L.Flatten {}, L.Dense { 1 } }
  m:compile { optimizer = "sgd", loss = "mse" }
  for _, ending in ipairs { "safetensors", "keras" } do
    local path = check.path("n." .. ending)
    m:save(path)
    check.near(mgpu.load_model(path):predict(x), m:predict(x), 1e-6)
  end
end)

test("Keras's configurations count the axes of Normalization from 0", function()
  local m = mgpu.Sequential { L.Input { 2, 2, 3 }, L.Normalization { axis = { 2, 4 } }, L.Normalization { axis = {} } }
  check.matches(m:to_json(), '"axis": ?%[1, ?3%]')
  local same = mgpu.model_from_json(m:to_json())
  check.equal(same.layers[#same.layers - 1].axis, { 2, 4 })
  check.equal(same:predict(pixels { 2, 2, 2, 3 }), m:predict(pixels { 2, 2, 2, 3 }))
end)

test("wrong options and inputs are errors that name the layer", function()
  local function refused(fn, message) check.raises(fn, message, "usage") end
  local x = pixels { 2, 4, 4, 3 }
  refused(function() L.RandomBrightness { 2 } end,
    'RandomBrightness "random_brightness.*": option "factor" must be from %-1 to 1, got 2')
  refused(function() L.RandomContrast { { 0.1 } } end, 'option "factor" must be a number or {lower, upper}')
  refused(function() L.RandomContrast { -0.1 } end, 'option "factor" must be from 0 to 1')
  refused(function() L.RandomRotation { { -2, 0 } } end, 'option "factor" must be from %-1 to 1, got %-2')
  refused(function() L.RandomZoom { 1.5 } end, 'option "height_factor" must be from %-1 to 1, got 1.5')
  refused(function() L.RandomFlip "diagonal" end, 'unknown value "diagonal"')
  refused(function() L.Resizing { 3, 3, crop_to_aspect_ratio = true, pad_to_aspect_ratio = true } end,
    "cannot both be true")
  refused(function() L.Resizing { 3 } end, 'option "width" is missing')
  refused(function() L.CenterCrop { 3, 3 }(x:reshape { 8, 12 }) end, "the input must have 4 axes")
  refused(function() L.RandomFlip {}(x:reshape { 8, 12 }) end, "the input must have 4 axes")
  refused(function() L.Rescaling { { 1, 2 } }(x) end,
    'option "scale" has 2 numbers, but the input {2, 4, 4, 3} has 3 channels')
  refused(function() L.Rescaling { {} } end, 'option "scale": it is empty')
  refused(function() L.Normalization { mean = 3 } end, "mean and variance must be given together")
  refused(function() L.Normalization { axis = 1 }(x) end, "axis 1 has no fixed size")
  refused(function() L.Normalization { axis = 7 }(x) end, "axis 7 is out of range")
  refused(function() L.Normalization { mean = 1, variance = 1 }:adapt(x) end, "were given as options")
  refused(function() L.Normalization {}:adapt(3) end, "adapt takes a tensor or a dataset of batches, got a number")
  refused(function() L.Normalization {}:adapt(mgpu.zeros { 0, 3 }) end, "there are no data")
  refused(function() L.Normalization {}:adapt(mgpu.data.from_tensors { x }:batch(2):cycle()) end,
    "adapt: the dataset has no end: use :take%(n%)")
  local layer = L.Normalization {}
  layer:adapt(x)
  refused(function() layer:adapt(x:reshape { 2, 4, 6, 2 }) end,
    "the layer was built for {None, 4, 4, 3}, got data of shape")
end)


test("a list of Rescaling lies along the channels in both formats, of one image too", function()
  local x = pixels { 2, 4, 5, 3 }
  local layer = L.Rescaling { { 1, 2, 3 }, { 0, 1, 2 } }
  local wanted = layer(x)
  check.equal(layer(x[1]):totable(), wanted[1]:totable())
  mgpu.set_image_data_format "channels_first"
  local ok, message = pcall(function()
    check.equal(last_axes(layer(first_axes(x))):totable(), wanted:totable())
    check.equal(layer(first_axes(x)[1]):totable(), first_axes(wanted)[1]:totable())
  end)
  mgpu.set_image_data_format "channels_last"
  if not ok then error(message, 0) end
end)
