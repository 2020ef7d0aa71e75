--- ImageDataGenerator {featurewise_center = false, samplewise_center = false, rotation_range = 0, ...}
-- Keras's generator of augmented images; the work is done in C by ds:augment's transform (augment.lua).
--
--     local generator = mgpu.ImageDataGenerator { width_shift_range = 0.1, horizontal_flip = true }
--     model:fit(generator:flow(x, y, { batch_size = 32 }), { epochs = 10 })
-- Options, with Keras's meanings and defaults: featurewise_center, samplewise_center, featurewise_std_normalization,
-- samplewise_std_normalization, zca_whitening (implies featurewise_center; images of at most 1024 values),
-- zca_epsilon = 1e-6, rotation_range, width_shift_range, height_shift_range (a fraction below 1; a whole number n: 0 to
-- n - 1 pixels either way; other numbers: pixels; a list: one of these), brightness_range = {least, greatest},
-- shear_range, zoom_range = z or {least, greatest}, channel_shift_range, fill_mode = "nearest", cval = 0,
-- horizontal_flip, vertical_flip, rescale, preprocessing_function, data_format, validation_split = 0,
-- interpolation_order = 1 (0: nearest), dtype.
-- Images are {n, rows, columns, channels}, or {n, channels, rows, columns} with data_format = "channels_first".
-- Unlike Keras 3: what a row becomes depends on seed, epoch and row alone; a feature-wise switch without :fit is an
-- error; height_shift_range moves rows (Keras's moves columns); rotation and zoom are about the center of the
-- image, also where it is not square. Errors: unknown options, values out of range, images of another rank.
-- Example:
--     local x, y = mgpu.rand { 4, 8, 8, 1 }, mgpu.arange(4)
--     local generator = mgpu.ImageDataGenerator { rotation_range = 20, horizontal_flip = true, rescale = 1 / 255 }
--     for images, labels in generator:flow(x, y, { batch_size = 2, seed = 1 }):iter() do
--       print(table.concat(images:shape(), " "), labels:count())
--     --> 2 8 8 1 2
--     --> 2 8 8 1 2
--     end
local core = require "mgpu.core"
local options = require "mgpu.options"
local Options = require "mgpu.data.image_data_generator_options"
local Statistics = require "mgpu.data.image_statistics"

local Generator, methods = {}, {}
Generator.__tostring = function() return "ImageDataGenerator" end

local WHO = "ImageDataGenerator"

local function fail(message, ...) core.fail("usage", WHO .. ": " .. message:format(...)) end

-- Fields that may be nil: options, and what fit measures.
local OPTIONAL = { mean = true, std = true, whitening = true, rescale = true, preprocessing_function = true,
  brightness_range = true }

function Generator.__index(_, name)
  if methods[name] or OPTIONAL[name] then return methods[name] end
  local names = {}
  for known in pairs(methods) do names[#names + 1] = known end
  fail("there is no method or option %q%s", tostring(name), core.did_you_mean(tostring(name), names))
end

local function new(given)
  local self = Options.check(given)
  self.random = Options.random_table(self)
  return setmetatable(self, Generator)
end

-- ---- standardization ------------------------------------------------------------------------------

local function check_fitted(self)
  if not self.featurewise_center then return end
  if not self.mean then
    fail("featurewise_center, featurewise_std_normalization and zca_whitening need generator:fit(x) first")
  end
end

-- Adds the steps after the random ones to a table for core.augment.
local function set_standardization(self, flat)
  check_fitted(self)
  flat.rescale = self.rescale
  flat.standardize = self.samplewise_std_normalization and "keras" or self.samplewise_center and "center" or "none"
  if self.featurewise_center then flat.mean = self.mean end
  if self.featurewise_std_normalization then
    flat.std = {}
    for i, v in ipairs(self.std) do flat.std[i] = v + 1e-6 end
  end
  if self.zca_whitening then flat.whitening = self.whitening end
  return flat
end

local function tensor_of(who, x, rank)
  if type(x) == "table" and not getmetatable(x) then x = core.tensor(x) end
  if not core.is_tensor(x) then fail("%s: expected a tensor of images, got a %s", who, type(x)) end
  if x:rank() ~= rank then
    fail("%s: expected %s, got shape {%s}", who, rank == 4 and "a batch of images {n, rows, columns, channels}"
      or "an image {rows, columns, channels}", table.concat(x:shape(), ", "))
  end
  return x
end

local function apply(flat, x, seed)
  flat.seed = seed or 0
  return core.transform_apply(core.augment(flat), x, 0, 0)
end

--- generator:standardize(x) -> one image {rows, columns, channels} after preprocessing_function, rescale and the
--- normalizations.
-- Example:
--     local generator = mgpu.ImageDataGenerator { rescale = 1 / 255 }
--     print(generator:standardize(mgpu.full({ 8, 8, 1 }, 51)):max():item())  --> 0.2000...
function methods:standardize(x)
  x = tensor_of("standardize", x, 3)
  if self.preprocessing_function then x = self.preprocessing_function(x:to(self.dtype)) end
  return apply(set_standardization(self, Options.base_table(self)), x)
end

-- The same for the rows of a dataset, where preprocessing_function is Lua: made of ops, which can be traced.
local function traced_standardization(self)
  local flat = set_standardization(self, {})
  local axis = self.channel_axis - 1
  local function along_channels(list, x)
    local shape = { 1, 1, 1 }
    shape[axis] = #list
    return core.ops.reshape(core.tensor(list), { shape = shape }):to(x:dtype())
  end
  return function(x)
    x = self.preprocessing_function(x)
    if flat.rescale then x = x * flat.rescale end
    if flat.standardize ~= "none" then x = x - x:mean() end
    if flat.standardize == "keras" then x = x / ((x * x):mean():sqrt() + 1e-6) end
    if flat.mean then x = x - along_channels(flat.mean, x) end
    if flat.std then x = x / along_channels(flat.std, x) end
    if not flat.whitening then return x end
    local shape = x:shape()
    local row = core.ops.reshape(x, { shape = { 1, -1 } })
    return core.ops.reshape(row:matmul(flat.whitening:to(x:dtype())), { shape = shape })
  end
end

-- ---- one image ------------------------------------------------------------------------------------

local function check_seed(seed)
  if seed == nil then return core.stream_seed() end
  if type(seed) ~= "number" or seed % 1 ~= 0 or seed < 0 or seed > 2 ^ 53 then
    fail("the seed must be a whole number from 0 to 2^53, got %s", tostring(seed))
  end
  return seed
end

--- generator:get_random_transform(shape, seed) -> {theta =, tx =, ty =, shear =, zx =, zy =, flip_horizontal =,
--- flip_vertical =, channel_shift_intensity =, brightness =} for an image of that shape, as Keras; the last two are nil
--- where they are off.
-- Example:
--     local generator = mgpu.ImageDataGenerator { rotation_range = 20 }
--     local drawn = generator:get_random_transform({ 8, 8, 1 }, 1)
--     print(drawn.theta >= -20 and drawn.theta <= 20, drawn.tx, drawn.zx)  --> true 0 1
function methods:get_random_transform(shape, seed)
  for i = 1, 3 do
    local size = type(shape) == "table" and #shape == 3 and shape[i]
    if type(size) ~= "number" or size % 1 ~= 0 or size < 1 or size > 65500 then
      fail "get_random_transform: expected a shape {rows, columns, channels}"
    end
  end
  self.random.seed = check_seed(seed)
  local first = self.channel_axis == 2 and 2 or 1
  local made = core.augment_choose(core.augment(self.random), 0, 0, shape[first], shape[first + 1])
  if not self.random.channel_shift then made.channel_shift_intensity = nil end
  if not self.random.brightness_factor then made.brightness = nil end
  made.brightness_delta, made.contrast, made.saturation, made.hue = nil, nil, nil, nil
  return made
end

local PARAMETERS = { theta = "number", tx = "number", ty = "number", shear = "number", zx = "number", zy = "number",
  flip_horizontal = "boolean", flip_vertical = "boolean", channel_shift_intensity = "number", brightness = "number" }

local function check_parameters(given)
  if type(given) ~= "table" then fail("apply_transform: the parameters are a table, got a %s", type(given)) end
  local names = {}
  for name in pairs(PARAMETERS) do names[#names + 1] = name end
  for name, value in pairs(given) do
    if not PARAMETERS[name] then
      fail("apply_transform: unknown parameter %q%s", tostring(name), core.did_you_mean(tostring(name), names))
    elseif type(value) ~= PARAMETERS[name] then
      fail("apply_transform: parameter %q must be a %s, got a %s", name, PARAMETERS[name], type(value))
    elseif value ~= value or value == math.huge or value == -math.huge then
      fail("apply_transform: parameter %q must be finite, got %g", name, value)
    end
  end
end

--- generator:apply_transform(x, parameters) -> the image {rows, columns, channels} after the transform that
--- get_random_transform describes, in the generator's dtype. Both zooms must be above 0.
-- Example:
--     local generator = mgpu.ImageDataGenerator {}
--     local x = mgpu.tensor({ { 1, 2 }, { 3, 4 } }):reshape { 2, 2, 1 }
--     print(generator:apply_transform(x, { flip_horizontal = true }):reshape { 2, 2 })
--     --> tensor {2, 2} float32 cpu:0
--     --> {{2, 1},
--     -->  {4, 3}}
function methods:apply_transform(x, given)
  x = tensor_of("apply_transform", x, 3)
  check_parameters(given)
  local flat = Options.base_table(self)
  local zx, zy = given.zx or 1, given.zy or 1
  if not (zx > 0 and zy > 0) then fail("apply_transform: zx and zy must be above 0, got %g and %g", zx, zy) end
  local function fixed(name, value) if value then flat[name] = { value, value } end end
  fixed("rotation", given.theta)
  fixed("shear", given.shear)
  fixed("zoom_rows", zy)
  fixed("zoom_columns", zx)
  fixed("channel_shift", given.channel_shift_intensity)
  fixed("brightness_factor", given.brightness)
  fixed("height_shift", given.ty)
  fixed("width_shift", given.tx)
  flat.height_shift_kind = given.ty and "real" or nil
  flat.width_shift_kind = given.tx and "real" or nil
  flat.horizontal_flip = given.flip_horizontal and 1 or 0
  flat.vertical_flip = given.flip_vertical and 1 or 0
  return apply(flat, x)
end

--- generator:random_transform(x, seed) -> the image after a random transform.
-- Example:
--     local generator = mgpu.ImageDataGenerator { width_shift_range = 0.25 }
--     local x = mgpu.rand { 8, 8, 1 }
--     local a, b = generator:random_transform(x, 1), generator:random_transform(x, 1) -- the same seed
--     print(a:eq(b):all():item())  --> true
function methods:random_transform(x, seed)
  return apply(self.random, tensor_of("random_transform", x, 3), check_seed(seed))
end

-- ---- data sets ------------------------------------------------------------------------------------

local FIT = options.declare { positional = 0, { "augment", "boolean", default = false },
  { "rounds", "integer", default = 1, min = 1, max = 10000 }, { "seed", "integer", min = 0, max = 2 ^ 53 } }

local function transformed(ds, flat)
  return require "mgpu.data.dataset".transformed(ds, WHO, 1, core.augment(flat))
end

--- generator:fit(x, {augment = false, rounds = 1, seed =}): measures the images for the feature-wise switches: the mean
--- and the deviation of each channel, and the whitening matrix, after rescale and, with augment, after `rounds` random
--- transforms of each image. Errors: images of another rank.
-- Example:
--     local generator = mgpu.ImageDataGenerator { featurewise_center = true }
--     generator:fit(mgpu.full({ 10, 8, 8, 1 }, 100)) -- measures the mean
--     print(generator:standardize(mgpu.full({ 8, 8, 1 }, 103)):max():item())  --> 3
function methods:fit(x, given)
  x = tensor_of("fit", x, 4)
  local chosen = options.check(WHO .. ": fit", FIT, given or {})
  if x:shape()[1] == 0 then fail "fit: there are no images" end
  local ds = require "mgpu.data".from_tensors { x }
  local first = Options.base_table(self)
  first.rescale = self.rescale
  ds = transformed(ds, first)
  if chosen.augment then
    self.random.seed = check_seed(chosen.seed)
    ds = transformed(ds, self.random)
  end
  self.mean, self.std, self.whitening = Statistics.measure(ds:batch(256), chosen.augment and chosen.rounds or 1,
    { channel_axis = self.channel_axis, std = self.featurewise_std_normalization,
      whitening = self.zca_whitening and self.zca_epsilon })
end

-- The random steps and the standardization of the rows of a dataset whose first field is the image.
local function augmented(self, ds, seed)
  local flat = {}
  for name, value in pairs(self.random) do flat[name] = value end
  flat.seed = seed
  if not self.preprocessing_function then return transformed(ds, set_standardization(self, flat)) end
  local standardize = traced_standardization(self)
  return transformed(ds, flat):map(function(x, ...) return standardize(x), ... end)
end

local function batches(ds, chosen, seed)
  if chosen.shuffle then ds = ds:shuffle(math.max(1, ds:length()), seed) end
  return ds:batch(chosen.batch_size)
end

local FLOW = options.declare { positional = 0, { "batch_size", "integer", default = 32, min = 1 },
  { "shuffle", "boolean", default = true }, { "seed", "integer", min = 0, max = 2 ^ 53 },
  { "sample_weight", "any" }, { "subset", "string", values = { "training", "validation" } } }

-- The rows of one subset of all tensors: the first validation_split of them are for validation.
local function subset_of(self, tensors, subset)
  local n = tensors[1]:shape()[1]
  local split = math.floor(n * self.validation_split)
  local first, last = split + 1, n
  if subset == "validation" then first, last = 1, split end
  if last < first then
    fail("flow: the %s subset is empty: validation_split is %g, and there are %d images", subset, self.validation_split,
      n)
  end
  local parts = {}
  for i, t in ipairs(tensors) do parts[i] = t:slice { { first, last } } end
  return parts
end

--- generator:flow(x, y, {batch_size = 32, shuffle = true, seed =, sample_weight =, subset =}) -> a dataset of batches
--- of augmented images and their labels. y may be left out.
-- subset: "validation" for the first validation_split of the rows, "training" for the others.
-- Errors: different numbers of rows; an empty subset; a feature-wise switch without fit.
-- Example:
--     local x, y = mgpu.rand { 10, 8, 8, 1 }, mgpu.arange(10)
--     local generator = mgpu.ImageDataGenerator { horizontal_flip = true, validation_split = 0.2 }
--     local train = generator:flow(x, y, { batch_size = 4, subset = "training", seed = 1 })
--     for images, labels in train:iter() do print(table.concat(images:shape(), " "), labels:count()) end
--     --> 4 8 8 1 4
--     --> 4 8 8 1 4
function methods:flow(x, y, given)
  if given == nil and type(y) == "table" and not getmetatable(y) and y[1] == nil then y, given = nil, y end
  local chosen = options.check(WHO .. ": flow", FLOW, given or {})
  if chosen.sample_weight ~= nil and y == nil then fail "flow: sample_weight needs y" end
  local tensors = { tensor_of("flow", x, 4) }
  for _, more in ipairs { y or false, chosen.sample_weight or false } do
    if more then tensors[#tensors + 1] = core.is_tensor(more) and more or core.tensor(more) end
  end
  for i = 2, #tensors do
    local rows, wanted = tensors[i]:shape()[1], tensors[1]:shape()[1]
    if rows ~= wanted then
      fail("flow: there are %d images, but %s rows of %s", wanted, rows, i == 2 and "y" or "sample_weight")
    end
  end
  if chosen.subset then tensors = subset_of(self, tensors, chosen.subset) end
  local seed = check_seed(chosen.seed)
  local ds = augmented(self, require "mgpu.data".from_tensors(tensors), seed)
  return batches(ds, chosen, seed)
end

local DIRECTORY = options.declare { positional = 0, { "target_size", "pair", default = { 256, 256 } },
  { "color_mode", "string", default = "rgb", values = { "grayscale", "rgb", "rgba" } }, { "classes", "table" },
  { "class_mode", "string", default = "categorical", values = { "categorical", "binary", "sparse", "none" } },
  { "batch_size", "integer", default = 32, min = 1 }, { "shuffle", "boolean", default = true },
  { "seed", "integer", min = 0, max = 2 ^ 53 }, { "follow_links", "boolean", default = false },
  { "subset", "string", values = { "training", "validation" } },
  { "interpolation", "string", default = "nearest", values = { "nearest", "bilinear", "area" } } }

local CHANNELS = { grayscale = 1, rgb = 3, rgba = 4 }
local LABELS = { categorical = "categorical", binary = "binary", sparse = "int", none = "none" }
local SPLIT_SEED = 0 -- all generators divide the images into the same subsets

--- generator:flow_from_directory(path, {target_size = {256, 256}, color_mode = "rgb", class_mode = "categorical", ...})
--- -> a dataset of batches of augmented images and labels from a folder with one folder for each class.
-- Further options: classes, batch_size = 32, shuffle = true, seed, follow_links = false, subset = "training" or
-- "validation", interpolation = "nearest". class_mode: "categorical" (one-hot), "binary", "sparse" (ids) or "none". The
-- files are read by mgpu.data.image_folder. Errors: those of image_folder; data_format = "channels_first".
-- Example:
--     os.execute "mkdir -p pets/cat pets/dog"
--     mgpu.image.save("pets/cat/1.png", mgpu.rand { 20, 30, 3 })
--     mgpu.image.save("pets/dog/1.jpg", mgpu.rand { 40, 20, 3 })
--     local generator = mgpu.ImageDataGenerator { rescale = 1 / 255 }
--     for x, y in generator:flow_from_directory("pets", { target_size = { 8, 8 } }):iter() do
--       print(table.concat(x:shape(), " "), table.concat(y:shape(), " ")) -- images and one-hot labels
--     --> 2 8 8 3 2 2
--     end
function methods:flow_from_directory(path, given)
  local chosen = options.check(WHO .. ": flow_from_directory", DIRECTORY, given or {})
  if self.data_format == "channels_first" then
    fail('flow_from_directory: images of files have their channels last: make a generator with '
      .. 'data_format = "channels_last"')
  end
  if chosen.subset and self.validation_split == 0 then fail "flow_from_directory: a subset needs validation_split" end
  local ds = require "mgpu.data".image_folder(path, { size = chosen.target_size, channels = CHANNELS[chosen.color_mode],
    labels = LABELS[chosen.class_mode], classes = chosen.classes, interpolation = chosen.interpolation,
    follow_links = chosen.follow_links, subset = chosen.subset, seed = chosen.subset and SPLIT_SEED,
    validation_split = chosen.subset and self.validation_split })
  local seed = check_seed(chosen.seed)
  return batches(augmented(self, ds, seed), chosen, seed)
end

return new
