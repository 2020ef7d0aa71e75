-- Draws random cases in the form of tests/ops/rows.lua, for devices.lua: odd sizes, axes of one element, batches of
-- one, channels that do not fill a vector. A case may have besides
--     salt     shifts the numbers of the inputs
--     scale    results are compared relative to at least this number
local check = require "check"
local draw_loop = require "fuzz.random_loops".draw
local draw_network = require "fuzz.random_networks".draw
local rows = dofile "tests/ops/rows.lua"

local random, floor, max = math.random, math.floor, math.max
local function pick(list) return list[random(#list)] end

local ALL = { "float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool" }
local SIZES = { 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 20, 24, 31, 32, 33, 47, 63, 64, 65, 100, 127, 130,
  257, 1000, 4099 }
local CHANNELS = { 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 48, 65 }
local LARGEST = 40000 -- elements of an input or a result

-- A shape of that rank with few enough elements.
local function shape_of(rank, largest)
  local shape
  repeat
    shape = {}
    for i = 1, rank do shape[i] = pick(SIZES) end
  until check.count(shape) <= (largest or LARGEST)
  return shape
end

local function copy(t)
  local c = {}
  for k, v in pairs(t) do c[k] = type(v) == "table" and copy(v) or v end
  return c
end

-- A sum of n products of numbers in [-1, 1) is mostly about this.
local function scale_of(n) return 0.3 * math.sqrt(n) end

-- ---- rows of the op table with other sizes ------------------------------------------------------

-- Attributes of these ops depend on the sizes, or their results are too large.
local OWN = { conv2d = 1, conv2d_grad_input = 1, conv2d_grad_weight = 1, max_pool2d = 1, avg_pool2d = 1,
  max_pool2d_grad = 1, avg_pool2d_grad = 1, max_pool2d_pick = 1, slice = 1, reshape = 1, matmul = 1, sum = 1, prod = 1,
  max = 1, min = 1, all = 1, any = 1, image_resize = 1, image_resize_grad = 1, affine_transform = 1,
  affine_transform_grad = 1, argsort = 1, take_along_axis = 1, scatter_along_axis = 1 }
local resizable = {}
for _, row in ipairs(rows) do
  if not OWN[row[1]] and not row.error then resizable[#resizable + 1] = row end
end

-- The row with other sizes; sizes that were equal are equal again.
local function resize(row)
  local case, new = copy(row), { [0] = 0, [1] = 1 }
  local product, largest = 1, 0
  local function change(shape)
    for i, old in ipairs(shape) do
      if not new[old] then
        new[old] = pick(SIZES)
        product = product * new[old]
      end
      shape[i] = new[old]
    end
    largest = max(largest, check.count(shape))
  end
  for i = 2, #case do change(case[i][1]) end
  if case.shape then change(case.shape) end
  if product <= 10 * LARGEST and largest <= LARGEST then return case end
end

local function resized()
  local row = pick(resizable)
  for _ = 1, 200 do
    local case = resize(row)
    if case then
      if case[1]:find "norm" then case.scale = 1 end -- gradients of short rows nearly cancel
      return case
    end
  end
  return copy(row)
end

-- ---- reductions and movement --------------------------------------------------------------------

-- Some of the axes 1 .. rank, at least one.
local function some_axes(rank)
  local axes = {}
  for i = 1, rank do if random(2) == 1 then axes[#axes + 1] = i end end
  return #axes > 0 and axes or { random(rank) }
end

-- Integers up to the ends of their dtypes, which sums and products leave.
local INTEGERS = { bool = { 0, 1 }, uint8 = { 0, 1, 7, 255 }, int32 = { -2 ^ 31, 2 ^ 31 - 1, 3, -1 },
  int64 = { -2 ^ 53, 2 ^ 53 - 1, 3, -1 } }
local INTEGER_DTYPES = { "bool", "uint8", "int32", "int64" }

local function reduction_of_integers()
  local name, shape = pick { "sum", "prod", "max", "min", "cumsum", "argmax", "argmin" }, shape_of(random(4))
  local dtype = pick(INTEGER_DTYPES)
  local case = { name, { shape, choose = INTEGERS[dtype] }, dtypes = { dtype }, grad = false }
  local one = name:find "^arg" or name == "cumsum"
  case.axis = one and random(#shape) or some_axes(#shape)
  if not one then case.keepdims = random(2) == 1 end
  return case
end

local function reduction()
  if random(3) == 1 then return reduction_of_integers() end
  local name, shape = pick { "sum", "sum", "max", "min", "prod", "all", "any" }, shape_of(random(5))
  local case = { name, { shape, 0.5, 1.5 }, axis = some_axes(#shape), keepdims = random(2) == 1,
    tol = 1e-5 }
  if name == "prod" then
    case[2], case.tol = { shape, choose = { 0.5, 1, 1, 1, 2 } }, 1e-4
    case.dtypes = { "float32", "float64" }
  elseif name == "all" or name == "any" or random(4) == 1 then
    case[2], case.dtypes = { shape, choose = { 0, 1, 1, 2 } }, ALL
  end
  return case
end

local function permutation()
  local shape, order = shape_of(random(6)), {}
  for i = 1, #shape do table.insert(order, random(i), i) end
  return { "permute", { shape, -3, 300 }, order = order, dtypes = ALL }
end

local function slice()
  local shape = shape_of(random(4))
  local case = { "slice", { shape, -3, 300 }, start = {}, stop = {}, step = {}, dtypes = ALL }
  for i, size in ipairs(shape) do
    local first, last = random(0, size), random(0, size)
    if random(3) > 1 then
      case.start[i], case.stop[i], case.step[i] = math.min(first, last), max(first, last), pick { 1, 1, 2, 3, 7 }
    else
      first, last = math.min(first, size - 1), math.min(last, size - 1)
      case.start[i], case.stop[i], case.step[i] = max(first, last), math.min(first, last) - 1, -pick { 1, 1, 2, 3 }
    end
  end
  return case
end

local function reshape()
  local shape = shape_of(random(4))
  return { "reshape", { shape, -3, 300 }, shape = { pick(shape), -1 }, dtypes = ALL }
end

-- ---- matrix products ----------------------------------------------------------------------------

local function matmul()
  local m, n, k
  repeat m, n, k = pick(SIZES), pick(SIZES), pick(SIZES) until m * n * k <= 2e6 and max(m * n, m * k, n * k) <= LARGEST
  local ta, tb = random(2) == 1, random(2) == 1
  local a, b = ta and { k, m } or { m, k }, tb and { n, k } or { k, n }
  local batch = random(6)
  if batch <= 2 and m * n * k <= 50000 then
    table.insert(a, 1, pick { 1, 2, 3, 5 })
    if batch == 2 then table.insert(b, 1, a[1]) end
  elseif batch == 3 then
    a, ta = { k }, nil
  end
  return { "matmul", { a, -1, 1 }, { b, -1, 1 }, transpose_a = ta, transpose_b = tb, tol = 1e-5, scale = scale_of(k) }
end

-- ---- convolutions and pools ---------------------------------------------------------------------

local function window(side, size, stride, dilation, before, after)
  return floor((side + before + after - dilation * (size - 1) - 1) / stride) + 1
end

-- Kernel sizes, strides and dilations: often 3x3 or 1x1, which have special kernels.
local function geometry()
  local kind = random(6)
  local function two(list) return { pick(list), pick(list) } end
  local g = { size = { 3, 3 }, strides = { 1, 1 }, dilations = { 1, 1 }, pads = { 0, 0, 0, 0 } }
  if kind == 3 then
    g.size, g.strides = { 1, 1 }, two { 1, 2, 3 }
  elseif kind > 3 then
    g.size, g.strides, g.dilations = two { 1, 2, 3, 4, 5, 7 }, two { 1, 1, 2, 3 }, two { 1, 1, 1, 2, 3 }
  end
  for i = 1, 4 do g.pads[i] = pick { 0, 0, 1, 1, 2 } end
  return g
end

-- The largest of many such sums is mostly about this. The numbers of an input are spread evenly, so sums of many of
-- them may be smaller; the rounding errors of the sums within a Winograd convolution are not.
local function largest_of(n) return 4 * scale_of(n) end

-- The shapes of a convolution's input, kernel and output, and its attributes; nil if the output is empty or large.
local function convolution_shapes()
  local g, groups = geometry(), pick { 1, 1, 1, 1, 2, 3, "depthwise" }
  local from, to = pick(CHANNELS), pick(CHANNELS)
  if groups == "depthwise" then
    groups, to = from, from * pick { 1, 1, 2 }
  else
    from, to = from * groups, to * groups
  end
  local n, h, w = pick { 1, 1, 2, 3, 5 }, random(24), random(24)
  local oh = window(h, g.size[1], g.strides[1], g.dilations[1], g.pads[1], g.pads[2])
  local ow = window(w, g.size[2], g.strides[2], g.dilations[2], g.pads[3], g.pads[4])
  local x, kernel, y = { n, h, w, from }, { g.size[1], g.size[2], from / groups, to }, { n, oh, ow, to }
  if oh < 1 or ow < 1 or max(check.count(x), check.count(kernel), check.count(y)) > LARGEST then return end
  if check.count(y) * check.count(kernel) / to > 8e6 then return end
  return x, kernel, y, { strides = g.strides, pads = g.pads, dilations = g.dilations, groups = groups, tol = 2e-5 }
end

local function convolution()
  local x, kernel, y, case
  repeat x, kernel, y, case = convolution_shapes() until x
  case[1] = pick { "conv2d", "conv2d_grad_input", "conv2d_grad_weight" }
  if case[1] == "conv2d" then
    case[2], case[3] = { x, -1, 1 }, { kernel, -1, 1 }
    case.scale = largest_of(check.count(kernel) / kernel[4])
  elseif case[1] == "conv2d_grad_input" then
    case[2], case[3], case.input_shape = { y, -1, 1 }, { kernel, -1, 1 }, x
    case.scale = largest_of(check.count(kernel) / kernel[3])
  else
    case[2], case[3], case.kernel_shape = { x, -1, 1 }, { y, -1, 1 }, kernel
    case.scale = largest_of(y[1] * y[2] * y[3])
  end
  return case
end

local function pool_shapes()
  local size = { random(4), random(4) }
  local o = { size = size, strides = { random(4), random(4) }, pads = {} }
  for i = 1, 4 do o.pads[i] = random(0, math.min(2, size[i <= 2 and 1 or 2] - 1)) end
  local x = { pick { 1, 1, 2, 3 }, random(20), random(20), pick(CHANNELS) }
  local y = { x[1], window(x[2], size[1], o.strides[1], 1, o.pads[1], o.pads[2]),
    window(x[3], size[2], o.strides[2], 1, o.pads[3], o.pads[4]), x[4] }
  if y[2] >= 1 and y[3] >= 1 and check.count(x) <= LARGEST then return x, y, o end
end

local function pool()
  local x, y, case
  repeat x, y, case = pool_shapes() until x
  local name = pick { "max_pool2d", "avg_pool2d", "max_pool2d_grad", "avg_pool2d_grad", "max_pool2d_pick" }
  case[1], case[2] = name, { x, -1, 1 }
  if name == "avg_pool2d_grad" then
    case[2], case.input_shape = { y, -1, 1 }, x
  elseif name ~= "max_pool2d" and name ~= "avg_pool2d" then
    case[3] = { y, pooled = 1 }
    case[4] = { name == "max_pool2d_grad" and y or x, -1, 1 }
  end
  return case
end

-- ---- resized and transformed images -------------------------------------------------------------

local function resized_image()
  local n, c = pick { 1, 1, 2, 3 }, pick(CHANNELS)
  local x = { n, random(24), random(24), c }
  local size = { random(40), random(40) }
  local case = { "image_resize", { x, -1, 1 }, size = size, antialias = random(3) == 1,
    interpolation = pick { "nearest", "bilinear", "bilinear", "bicubic", "area", "lanczos3", "lanczos5" }, tol = 1e-5 }
  if random(3) == 1 then
    case[1], case[2], case.size = "image_resize_grad", { { n, size[1], size[2], c }, -1, 1 }, { x[2], x[3] }
    case.scale = 1
  end
  return case
end

-- With numbers like these no point lies exactly between two pixels.
local function transformed_image()
  local n, c, numbers = pick { 1, 1, 2, 3 }, pick(CHANNELS), pick { 6, 8 }
  local x, size = { n, random(24), random(24), c }, { random(24), random(24) }
  local transforms = { pick { { numbers }, { 1, numbers }, { n, numbers } }, -1.4142, 1.7321,
    dtype = pick { "float32", "float64" } }
  local case = { "affine_transform", { x, -1, 1 }, transforms, size = size, fill_value = 0.5,
    interpolation = pick { "nearest", "bilinear" }, fill_mode = pick { "constant", "nearest", "reflect", "wrap" },
    tol = 1e-5 }
  if random(3) == 1 then
    case[1], case[2], case.size = "affine_transform_grad", { { n, size[1], size[2], c }, -1, 1 }, { x[2], x[3] }
    case.fill_value, case.scale = nil, 1
  end
  return case
end

-- ---- along an axis ------------------------------------------------------------------------------

local function along_axis()
  local shape = shape_of(random(4))
  local axis, ids = random(#shape), {}
  local name = pick { "argsort", "argsort", "take_along_axis", "scatter_along_axis" }
  if name == "argsort" then
    local case = { name, { shape, -3, 300 }, axis = axis, descending = random(2) == 1, dtypes = ALL }
    if random(2) == 1 then case[2] = { shape, choose = { 0, 0 / 0, 1, 1, -2, 1 / 0, -1 / 0 } } end
    if case[2].choose then case.dtypes = { "float32", "float64", "float16", "bfloat16" } end
    if random(2) == 1 then case.count = random(0, shape[axis]) end
    return case
  end
  local whole, ones = shape[axis], random(2) == 1
  for i, size in ipairs(shape) do ids[i] = i > axis and ones and 1 or size end
  ids[axis] = math.min(pick(SIZES), max(1, floor(LARGEST * shape[axis] / check.count(shape))))
  local case = { name, { shape, -1, 1 }, { ids, ints = whole, dtype = pick { "int32", "int64" } }, axis = axis }
  if name == "scatter_along_axis" then
    shape[axis], case.size, case.tol, case.scale = ids[axis], whole, 1e-5, 3
  end
  return case
end

-- ---- the draw -----------------------------------------------------------------------------------

local KINDS = { resized, resized, resized, resized, reduction, permutation, slice, reshape, matmul, matmul, convolution,
  convolution, convolution, pool, draw_network, draw_loop, draw_loop, resized_image, transformed_image, along_axis }

--- The case that belongs to a seed, and the dtype to run it with.
return function(seed, dtypes_of)
  math.randomseed(seed)
  local case = pick(KINDS)()
  case.salt = random(1000)
  return case, pick(dtypes_of(case))
end
