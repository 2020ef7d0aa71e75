-- mgpu.ImageDataGenerator: its data sets, statistics and options; apply_transform and standardize are compared with
-- Keras in augmentation_golden_spec.lua.
local check = require "check"
local mgpu = require "mgpu"
local L = mgpu.layers

local test = check.test
local Generator = mgpu.ImageDataGenerator

local function images(n, h, w, c)
  local x = (mgpu.arange(n * h * w * c) % 251):to "uint8":reshape { n, h, w, c }
  mgpu.eval(x)
  return x
end

local function first(ds)
  local x, y, w = ds:iter()()
  return x, y, w
end

test("flow without options gives the images in floating point, in batches", function()
  local x, y = images(10, 4, 4, 3), mgpu.arange(10):to "int32"
  local sizes = {}
  for a, b in Generator {}:flow(x, y, { batch_size = 4, shuffle = false }):iter() do
    check.equal(a:dtype(), "float32")
    check.equal(a, x:gather(b, { axis = 1 }):to "float32")
    sizes[#sizes + 1] = b:shape()[1]
  end
  check.equal(sizes, { 4, 4, 2 })
end)

test("flow shuffles by its seed, and takes images alone or with weights", function()
  local x, y = images(30, 2, 2, 1), mgpu.arange(30)
  local function order(seed)
    local _, b = first(Generator {}:flow(x, y, { batch_size = 30, seed = seed }))
    return b
  end
  check.equal(order(1), order(1))
  check.truthy(order(1):ne(order(2)):any():item())
  check.truthy(order(1):ne(y):any():item())
  check.equal(first(Generator {}:flow(x, { batch_size = 5 })):shape(), { 5, 2, 2, 1 })
  local a, b, w = first(Generator {}:flow(x, y, { batch_size = 30, sample_weight = y * 2 }))
  check.equal(a:shape(), { 30, 2, 2, 1 })
  check.equal(w, b * 2)
end)

test("recipe A of the CIFAR example changes the images, anew in each pass", function()
  local x = images(20, 32, 32, 3)
  local ds = Generator { width_shift_range = 0.1, height_shift_range = 0.1, horizontal_flip = true }
    :flow(x, { batch_size = 20, shuffle = false, seed = 1 })
  local a, b = first(ds), first(ds)
  check.equal(a:shape(), { 20, 32, 32, 3 })
  check.truthy(a:ne(x:to "float32"):to "float32":mean():item() > 0.5)
  check.truthy(a:ne(b):to "float32":mean():item() > 0.5)
end)

test("fit takes the data set of flow", function()
  mgpu.seed(3)
  local x, y = images(64, 8, 8, 3), mgpu.arange(64):to "int32" % 2
  local model = mgpu.Sequential { L.Input { 8, 8, 3 }, L.Flatten {}, L.Dense { 2, activation = "softmax" } }
  model:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy" }
  local generator = Generator { rotation_range = 10, rescale = 1 / 255, validation_split = 0.25 }
  local history = model:fit(generator:flow(x, y, { subset = "training" }), { epochs = 2, verbose = 0,
    validation_data = generator:flow(x, y, { subset = "validation" }) })
  check.equal(#history.history.val_loss, 2)
end)

test("subsets are the first validation_split of the rows and the others", function()
  local x, y = images(10, 2, 2, 1), mgpu.arange(10)
  local generator = Generator { validation_split = 0.35 }
  local function rows(subset)
    local _, b = first(generator:flow(x, y, { subset = subset, shuffle = false }))
    return b:totable()
  end
  check.equal(rows "validation", { 0, 1, 2 })
  check.equal(rows "training", { 3, 4, 5, 6, 7, 8, 9 })
  check.raises(function() Generator {}:flow(x, y, { subset = "validation" }) end,
    "the validation subset is empty: validation_split is 0, and there are 10 images", "usage")
end)

test("feature-wise switches use the statistics of fit, over the data set too", function()
  local x = images(300, 3, 3, 3) -- more than one batch of what fit measures
  local generator = Generator { featurewise_std_normalization = true, rescale = 0.5 }
  check.equal(generator.featurewise_center, true)
  check.raises(function() generator:flow(x) end, "need generator:fit%(x%) first", "usage")
  generator:fit(x)
  local y = first(generator:flow(x, { batch_size = 300 })):to "float64"
  check.near(y:mean { 1, 2, 3 }, mgpu.zeros({ 3 }, { dtype = "float64" }), 1e-6)
  check.near((y * y):mean { 1, 2, 3 }, mgpu.ones({ 3 }, { dtype = "float64" }), 1e-5)
  generator:fit(x, { augment = true, rounds = 2, seed = 1 })
  check.near(generator.mean[1], x:slice { {}, {}, {}, 1 }:to "float32":mean():item() / 2, 1e-4)
end)

test("whitening makes the values of the images uncorrelated", function()
  mgpu.seed(1)
  local x = mgpu.randn { 600, 2, 2, 2 }
  x = x + x:mean({ 2, 3, 4 }, true) * 3
  local generator = Generator { zca_whitening = true }
  generator:fit(x)
  local y = first(generator:flow(x, { batch_size = 600 })):reshape { 600, 8 }
  check.near(y:transpose():matmul(y) / 600, mgpu.eye(8), 1e-4) -- 600 products in float32
  check.raises(function() generator:fit(mgpu.zeros { 2, 32, 32, 3 }) end,
    "zca_whitening of images of 3072 values is not possible, at most 1024", "unsupported")
end)

test("an image of one value is zero after the sample-wise normalization", function()
  local y = Generator { samplewise_std_normalization = true }:standardize(mgpu.full({ 4, 4, 3 }, 7))
  check.equal(y, mgpu.zeros { 4, 4, 3 })
end)

test("preprocessing_function comes after the random steps, before the normalizations", function()
  local x = images(12, 4, 4, 3)
  for _, given in ipairs {
    { rescale = 0.5 }, { samplewise_std_normalization = true }, { featurewise_std_normalization = true, rescale = 2 },
    { zca_whitening = true, zca_epsilon = 1 }, { samplewise_center = true, horizontal_flip = true },
  } do
    local plain = Generator(given)
    plain:fit(x)
    local wanted = first(plain:flow(x, { batch_size = 12, seed = 3 }))
    given.preprocessing_function = function(image) return image * 1 end
    local generator = Generator(given)
    generator:fit(x)
    -- float32 ops in another order, of values up to 500
    check.near(first(generator:flow(x, { batch_size = 12, seed = 3 })), wanted, 2e-4)
    check.near(generator:standardize(x:slice { 2 }), plain:standardize(x:slice { 2 }), 1e-6)
  end
  local doubled = Generator { preprocessing_function = function(image) return image * 2 end, rescale = 0.5 }
  check.equal(first(doubled:flow(x, { batch_size = 12, shuffle = false })), x:to "float32")
end)

test("random_transform is apply_transform of get_random_transform", function()
  local generator = Generator { rotation_range = 40, width_shift_range = 0.2, height_shift_range = 3, shear_range = 10,
    zoom_range = { 0.5, 1.5 }, channel_shift_range = 30, brightness_range = { 0.5, 1.2 }, horizontal_flip = true,
    vertical_flip = true }
  local x = images(1, 9, 7, 3):reshape { 9, 7, 3 }
  for seed = 1, 20 do
    local parameters = generator:get_random_transform({ 9, 7, 3 }, seed)
    check.near(generator:random_transform(x, seed), generator:apply_transform(x, parameters), 1e-5)
  end
  check.equal(Generator {}:get_random_transform({ 9, 7, 3 }, 1), { theta = 0, tx = 0, ty = 0, shear = 0, zx = 1, zy = 1,
    flip_horizontal = false, flip_vertical = false })
end)

test("shifts are fractions, whole pixels below n, or one of a list, with a random sign", function()
  local function seen(given, name)
    local generator, values = Generator(given), {}
    for seed = 1, 300 do values[generator:get_random_transform({ 10, 20, 1 }, seed)[name]] = true end
    local list = {}
    for v in pairs(values) do list[#list + 1] = v end
    table.sort(list)
    return list
  end
  check.equal(seen({ height_shift_range = 3 }, "ty"), { -2, -1, 0, 1, 2 })
  check.equal(seen({ width_shift_range = { 4, 6 } }, "tx"), { -6, -4, 4, 6 })
  check.equal(seen({ width_shift_range = { 0.5 } }, "tx"), { -10, 10 })
  local real = seen({ height_shift_range = 0.5 }, "ty")
  check.truthy(#real > 290 and real[1] >= -5 and real[1] < -4.5 and real[#real] > 4.5)
  real = seen({ height_shift_range = 2.5 }, "ty")
  check.truthy(#real > 290 and real[1] < -2 and real[#real] > 2)
end)

test("channels_first takes and gives channels first", function()
  local x = images(6, 4, 5, 3)
  local given = { rotation_range = 20, featurewise_center = true }
  local last = Generator(given)
  last:fit(x)
  given.data_format = "channels_first"
  local generator = Generator(given)
  local turned = x:transpose { 1, 4, 2, 3 }
  generator:fit(turned)
  check.near(generator.mean, last.mean, 1e-12)
  check.near(first(generator:flow(turned, { batch_size = 6, seed = 1 })):transpose { 1, 3, 4, 2 },
    first(last:flow(x, { batch_size = 6, seed = 1 })), 0)
end)

test("wrong options and images are errors", function()
  local function refused(given, message) check.raises(function() Generator(given) end, message, "usage") end
  refused({ rotatin_range = 3 },
    'ImageDataGenerator: unknown option "rotatin_range" %(did you mean "rotation_range"%?%)')
  refused(3, "the options are a table")
  refused({ rotation_range = -1 }, 'option "rotation_range" must be at least 0')
  refused({ width_shift_range = -1 }, 'option "width_shift_range" must be from 0 to 65500, got %-1')
  refused({ height_shift_range = { "a" } }, 'option "height_shift_range": entry 1 must be a number of pixels, got a')
  refused({ height_shift_range = 300 }, "a list of 1 to 256 shifts, or below 257 pixels, got 300")
  refused({ zoom_range = 1 }, 'option "zoom_range" must be from 0 to below 1')
  refused({ zoom_range = { 1, 0.5 } }, 'option "zoom_range" must be {least, greatest} from 0.001 to 1000')
  refused({ brightness_range = { 1 } }, 'option "brightness_range" must be two numbers')
  refused({ fill_mode = "edge" }, 'option "fill_mode": unknown value "edge"')
  refused({ interpolation_order = 3 }, 'option "interpolation_order": unknown value 3')
  refused({ validation_split = 1 }, 'option "validation_split" must be below 1')
  refused({ preprocessing_function = 3 }, 'option "preprocessing_function" must be a function')
  local x, generator = images(4, 2, 2, 1), Generator {}
  local function fails(fn, message) check.raises(fn, message, "usage") end
  fails(function() generator:flow(x:slice { 1 }) end, "flow: expected a batch of images {n, rows, columns, channels}")
  fails(function() generator:flow(x, mgpu.zeros { 3 }) end, "there are 4 images, but 3 rows of y")
  fails(function() generator:flow(x, { batchsize = 3 }) end,
    'unknown option "batchsize" %(did you mean "batch_size"%?%)')
  fails(function() generator:flow(x, nil, { sample_weight = mgpu.ones { 4 } }) end, "sample_weight needs y")
  fails(function() generator:fit(mgpu.zeros { 0, 2, 2, 1 }) end, "there are no images")
  fails(function() generator:apply_transform(x:slice { 1 }, { angle = 3 }) end, 'unknown parameter "angle"')
  fails(function() generator:apply_transform(x:slice { 1 }, { theta = true }) end,
    '"theta" must be a number, got a boolean')
  fails(function() generator:apply_transform(x:slice { 1 }, { zx = 0 }) end, "zx and zy must be above 0")
  fails(function() generator:get_random_transform { 3, "a", 3 } end, "expected a shape {rows, columns, channels}")
  fails(function() return generator.flows end, 'there is no method or option "flows" %(did you mean "flow"%?%)')
  fails(function() generator:random_transform(x) end, "random_transform: expected an image")
  fails(function() generator:random_transform(x:slice { 1 }, -1) end, "the seed must be a whole number")
end)

-- A folder with two classes: three images of value 10 and two of value 200.
local function folder()
  local path = check.path "pets"
  os.execute(("mkdir -p '%s/cat' '%s/dog'"):format(path, path))
  for i = 1, 5 do
    mgpu.image.save(("%s/%s/%d.png"):format(path, i <= 3 and "cat" or "dog", i),
      mgpu.full({ 6, 8, 3 }, i <= 3 and 10 or 200):to "uint8")
  end
  return path
end

test("flow_from_directory gives images of one size, and labels of each kind", function()
  local path = folder()
  local generator = Generator { rescale = 0.1, horizontal_flip = true }
  local function whole(given)
    given.shuffle = false
    return first(generator:flow_from_directory(path, given))
  end
  local x, y = whole { target_size = 4 }
  check.equal(x:shape(), { 5, 4, 4, 3 })
  check.near(x:mean { 2, 3, 4 }, { 1, 1, 1, 20, 20 }, 1e-6)
  check.equal(y, { { 1, 0 }, { 1, 0 }, { 1, 0 }, { 0, 1 }, { 0, 1 } })
  x, y = whole { color_mode = "grayscale", class_mode = "sparse", interpolation = "bilinear" }
  check.equal(x:shape(), { 5, 256, 256, 1 })
  check.equal(y, { 0, 0, 0, 1, 1 })
  x, y = whole { class_mode = "none", classes = nil, target_size = { 3, 2 } }
  check.equal(x:shape(), { 5, 3, 2, 3 })
  check.equal(y, nil)
  local _, ids = whole { class_mode = "binary", target_size = 2, classes = { "dog", "cat" } }
  check.equal(ids:reshape { -1 }, { 0, 0, 1, 1, 1 })
end)

test("flow_from_directory divides the files into subsets without a common one", function()
  local path, n = folder(), 0
  local generator = Generator { validation_split = 0.4 }
  for i, subset in ipairs { "training", "validation" } do
    for x in generator:flow_from_directory(path, { subset = subset, seed = i, target_size = 2 }):iter() do
      n = n + x:shape()[1]
    end
  end
  check.equal(n, 5)
  check.raises(function() Generator {}:flow_from_directory(path, { subset = "training" }) end,
    "a subset needs validation_split", "usage")
  check.raises(function() Generator { data_format = "channels_first" }:flow_from_directory(path) end,
    "have their channels last", "usage")
  check.raises(function() Generator {}:flow_from_directory(path, { size = 3 }) end, 'unknown option "size"', "usage")
  check.raises(function() Generator {}:flow_from_directory(path .. "/none") end, "none")
end)
