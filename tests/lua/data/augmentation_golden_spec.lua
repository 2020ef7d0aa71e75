-- Images after ds:augment's transform, against what Keras's ImageDataGenerator and tf.image compute.
local check = require "check"
local comparing = require "golden.comparing"
local core = require "mgpu.core"
local golden = require "golden.load" "augmentation"
local hash = require "golden.hash"
local mgpu = require "mgpu"
local options = require "mgpu.data.augment_options"

local test = check.test

-- float32 against float64 or float32 in another order, of values up to 255: some roundings of 255 * 2^-24.
local NEAR = 2e-4

local function pixels(shape) return comparing.pixels(shape, golden.salt) end

local function augmented(x, given)
  local _, image = options.check(given)
  image.seed = 0
  return core.transform_apply(core.augment(image), x, 0, 0)
end

local function numbers(t) return t:reshape { -1 }:totable() end

local function differs(name, got, wanted, near)
  check.equal(#got, #wanted, name)
  for i, v in ipairs(wanted) do
    if not (math.abs(got[i] - v) <= near) then
      error(("%s: value %d is %.9g, not %.9g"):format(name, i, got[i], v), 0)
    end
  end
end

local function describe(case)
  local list = {}
  for name, value in pairs(case.parameters) do list[#list + 1] = name .. "=" .. tostring(value) end
  return ("{%s} %s, size %s"):format(table.concat(list, " "), case.fill_mode or "", table.concat(case.size, "x"))
end

test("apply_transform gives the pixels of Keras's", function()
  for _, case in ipairs(golden.transforms) do
    local generator = mgpu.ImageDataGenerator { fill_mode = case.fill_mode, cval = case.cval,
      interpolation_order = case.order }
    local x = pixels(case.size)
    differs(describe(case), numbers(generator:apply_transform(x, case.parameters)), case.output, NEAR)
    -- whole numbers lose nothing as uint8
    differs(describe(case) .. " of uint8", numbers(generator:apply_transform(x:to "uint8", case.parameters)),
      case.output, NEAR)
  end
end)

test("channels_first gives the same pixels", function()
  for _, case in ipairs(golden.transforms) do
    local generator = mgpu.ImageDataGenerator { fill_mode = case.fill_mode, cval = case.cval,
      interpolation_order = case.order, data_format = "channels_first" }
    local y = generator:apply_transform(pixels(case.size):transpose { 3, 1, 2 }, case.parameters)
    differs(describe(case), numbers(y:transpose { 2, 3, 1 }), case.output, NEAR)
  end
end)

test("resize gives the pixels of tf.image.resize", function()
  for _, case in ipairs(golden.resizes) do
    local name = ("%s to %s %s%s"):format(table.concat(case.size, "x"), table.concat(case.to, "x"), case.method,
      case.antialias and " antialias" or "")
    local resize = { case.to[1], case.to[2], method = case.method, antialias = case.antialias }
    local x = pixels(case.size)
    -- TensorFlow rounds the weights of bicubic without antialias to a 1024th
    local near = case.method == "bicubic" and not case.antialias and 255 / 1024 or NEAR
    differs(name, numbers(augmented(x, { resize = resize })), case.output, near)
    differs(name, numbers(augmented(x:to "uint8", { resize = resize, dtype = "float32" })), case.output, near)
    -- rounded, and a value next to a half may round either way
    local bytes = numbers(mgpu.tensor(case.output):clip(0, 255))
    differs(name, numbers(augmented(x:to "uint8", { resize = resize })), bytes, 0.5 + near)
  end
end)

test("brightness, contrast, saturation and hue give the pixels of tf.image", function()
  for _, case in ipairs(golden.colors) do
    local y = augmented(pixels { 6, 5, 3 }:to "uint8", { [case.op] = { case.amount, case.amount } })
    check.equal(y:dtype(), "float32")
    -- TensorFlow's numbers are from 0 to 1 and were multiplied by 255
    differs(("%s %g"):format(case.op, case.amount), numbers(y), case.output, 3 * NEAR)
  end
end)

test("standardize is tf.image.per_image_standardization", function()
  local function like(list, shape) return mgpu.tensor(list):reshape(shape) end
  local flat, dim = {}, {}
  for i = 1, 48 do flat[i] = 7 end
  for i = 1, 25 do dim[i] = math.floor(hash.unit(i - 1, golden.salt) * 256) > 200 and 100.001 or 100 end
  local images = { usual = pixels { 6, 5, 3 }, one = pixels { 1, 1, 1 }, flat = like(flat, { 4, 4, 3 }),
    dim = like(dim, { 5, 5, 1 }) }
  for name, x in pairs(images) do
    -- dim: a deviation of 4e-4 around 100 has 6 bits in float32, and what is left is below 1/sqrt(n)
    local near = name == "dim" and 1e-4 or 2e-6
    differs(name, numbers(augmented(x, { standardize = true })), golden.standardized[name], near)
  end
end)

test("fit and standardize give the numbers of ImageDataGenerator", function()
  local x = pixels { 40, 2, 3, 3 }
  for i, case in ipairs(golden.norms) do
    local generator = mgpu.ImageDataGenerator(case.options)
    generator:fit(x)
    local row = x:slice { 4 }
    -- numbers around 1, or whole images around 100 where only a mean is subtracted
    differs("case " .. i, numbers(generator:standardize(row)), case.output, 1e-4)
  end
end)
