--- Resizing in ONNX; see ops/init.lua.
--
-- Each axis is interpolated by itself: an element of the result is a sum of a few elements of the axis, its taps, which
-- are gathered, or, where they are many, a product with a matrix of weights. Source: the formulas of Resize in ONNX's
-- operator documentation.
local core = require "mgpu.core"
local values = require "mgpu.nn.onnx.values"

local ops, axis_at = core.ops, values.axis_at

local M = {}

local function fail(message, ...) core.fail("data", message:format(...)) end

-- The number in float32: scales are, and so 12 elements times 7 / 12 are 7, not 6.
local function single(x)
  local fraction, exponent = math.frexp(x)
  local bits = fraction * 2 ^ 24
  local whole = math.floor(bits + 0.5)
  if whole - bits == 0.5 and whole % 2 == 1 then whole = whole - 1 end
  return math.ldexp(whole, exponent - 24)
end

-- ---- where an element of the result lies --------------------------------------------------------

-- (i, from, to, back, roi) -> the position on the source's axis; back(u) = u / scale, exact where the scale is
-- to / from. align_corners is the documentation's and onnxruntime's; onnx.reference takes from * scale for `to`, which
-- need not be whole.
local COORDINATES = {
  half_pixel = function(i, _, _, back) return back(i + 0.5) - 0.5 end,
  pytorch_half_pixel = function(i, _, to, back) return to > 1 and back(i + 0.5) - 0.5 or 0 end,
  asymmetric = function(i, _, _, back) return back(i) end,
  align_corners = function(i, from, to) return to > 1 and i * (from - 1) / (to - 1) or 0 end,
  half_pixel_symmetric = function(i, from, to, back) return (from - back(to)) / 2 + back(i + 0.5) - 0.5 end,
  tf_half_pixel_for_nn = function(i, _, _, back) return back(i + 0.5) end,
  tf_crop_and_resize = function(i, from, to, _, roi)
    if to == 1 then return 0.5 * (roi[1] + roi[2]) * (from - 1) end
    return roi[1] * (from - 1) + i * (roi[2] - roi[1]) * (from - 1) / (to - 1)
  end,
}

local NEAREST = {
  floor = math.floor,
  ceil = math.ceil,
  round_prefer_floor = function(x) return math.ceil(x - 0.5) end,
  round_prefer_ceil = function(x) return math.floor(x + 0.5) end,
}

-- ---- the weights of the elements around it ------------------------------------------------------

local KERNELS = { -- {reach, function of the distance}
  linear = { 1, function(d) return math.max(0, 1 - d) end },
  cubic = { 2, function(d, a)
    if d <= 1 then return ((a + 2) * d - (a + 3)) * d * d + 1 end
    return d < 2 and ((a * d - 5 * a) * d + 8 * a) * d - 4 * a or 0
  end },
}

-- How far an antialiased kernel is stretched.
local function stretch_of(c, scale) return c.antialias ~= 0 and math.max(1, 1 / scale) or 1 end

-- Taps of an element at x: {position, weight} pairs, positions inside the axis.
local function taps_at(c, x, from, scale)
  local row, list, sum = KERNELS[c.mode], {}, 0
  local stretch = stretch_of(c, scale)
  local reach = row[1] * stretch
  for i = math.floor(x - reach) + 1, math.ceil(x + reach) - 1 do
    local weight = row[2](math.abs(i - x) / stretch, c.cubic_coeff_a)
    local inside = i >= 0 and i < from
    if inside or c.exclude_outside == 0 then
      list[#list + 1] = { math.max(0, math.min(i, from - 1)), weight }
      sum = sum + weight
    end
  end
  for _, tap in ipairs(list) do tap[2] = tap[2] / sum end
  return list
end

-- The taps of each element of the resized axis, and whether it lies outside the source.
local function taps_of(c, from, to, scale, roi)
  local coordinate, list, outside = COORDINATES[c.coordinate_transformation_mode], {}, {}
  local exact = scale == to / from or scale == single(to / from)
  local function back(u) return exact and u * from / to or single(u / scale) end
  for i = 0, to - 1 do
    local x = coordinate(i, from, to, back, roi)
    outside[i + 1] = c.coordinate_transformation_mode == "tf_crop_and_resize" and (x < 0 or x > from - 1)
    if c.mode == "nearest" then
      list[i + 1] = { { math.max(0, math.min(NEAREST[c.nearest_mode](x), from - 1)), 1 } }
    else
      list[i + 1] = taps_at(c, x, from, scale)
    end
  end
  return list, outside
end

local function tensor_of(list, dtype, device) return core.tensor(list, { dtype = dtype, device = device }) end

local MOST_GATHERED = 4 -- taps of an element
local MOST_TAPS = 2 ^ 24 -- of all elements of an axis, and weights of its matrix

-- Raises for an axis with more taps than memory should hold.
local function check_taps(c, from, to, scale)
  if c.mode == "nearest" then return end
  local each = 2 * KERNELS[c.mode][1] * stretch_of(c, scale)
  if to * (each > MOST_GATHERED and math.max(each, from) or each) > MOST_TAPS then
    core.fail("unsupported", ("an axis of %d elements resized to %d with %d weights each"):format(from, to, each))
  end
end

-- t with axis `at` made of the taps.
local function interpolated(t, at, taps)
  local most, from, device = 0, t:shape()[at], t:device()
  for _, list in ipairs(taps) do most = math.max(most, #list) end
  if most > MOST_GATHERED then
    local rows, order, back = {}, {}, {}
    for i, list in ipairs(taps) do
      rows[i] = {}
      for k = 1, from do rows[i][k] = 0 end
      for _, tap in ipairs(list) do rows[i][tap[1] + 1] = rows[i][tap[1] + 1] + tap[2] end
    end
    for i = 1, t:rank() do order[i] = i end
    table.remove(order, at)
    order[#order + 1] = at
    for i, axis in ipairs(order) do back[axis] = i end
    local y = ops.matmul(ops.permute(t, { order = order }), tensor_of(rows, t:dtype(), device), { transpose_b = true })
    return ops.permute(y, { order = back })
  end
  local y
  for k = 1, most do
    local ids, weights, shape, ones = {}, {}, {}, true
    for i, list in ipairs(taps) do
      local tap = list[k] or { 0, 0 }
      ids[i], weights[i], ones = tap[1], tap[2], ones and tap[2] == 1
    end
    for i = 1, t:rank() do shape[i] = i == at and #taps or 1 end
    local part = ops.gather(t, tensor_of(ids, "int32", device), { axis = at })
    if not ones then part = part * ops.reshape(tensor_of(weights, t:dtype(), device), { shape = shape }) end
    y = y and y + part or part
  end
  return y
end

-- ---- the ops ------------------------------------------------------------------------------------

-- The policy for sizes that have another aspect ratio than x.
local function with_policy(c, sizes, old)
  if c.keep_aspect_ratio_policy == "stretch" then return end
  local pick = ({ not_larger = math.min, not_smaller = math.max })[c.keep_aspect_ratio_policy]
  if not pick then core.fail("unsupported", ("keep_aspect_ratio_policy = %q"):format(c.keep_aspect_ratio_policy)) end
  local scale = sizes[1] / old[1]
  for i = 2, #sizes do scale = pick(scale, sizes[i] / old[i]) end
  for i, size in ipairs(old) do sizes[i] = math.floor(size * scale + 0.5) end
  return scale
end

local function check(c)
  local mode, nearest = c.coordinate_transformation_mode, c.nearest_mode
  if not COORDINATES[mode] then core.fail("unsupported", ("coordinate_transformation_mode = %q"):format(mode)) end
  if c.mode ~= "nearest" and not KERNELS[c.mode] then core.fail("unsupported", ("the mode %q"):format(c.mode)) end
  if not NEAREST[nearest] then core.fail("unsupported", ("nearest_mode = %q"):format(nearest)) end
end

local MOST = 2 ^ 20 -- elements of a resized axis

-- sizes: of the axes, or nil; scales: of the result to x, or nil.
local function resize(c, x, axes, sizes, scales, roi)
  local shape, rank, old, ratio = x:shape(), x:rank(), {}, nil
  local t, axis_in, wrap = values.along(x)
  check(c)
  for i, axis in ipairs(axes) do old[i] = shape[axis + 1] end
  if #(sizes or scales) ~= #axes then fail("%d sizes for %d axes", #(sizes or scales), #axes) end
  if sizes then ratio = with_policy(c, sizes, old) end
  for i, axis in ipairs(axes) do
    local to = sizes and sizes[i] or math.floor(single(old[i] * scales[i]))
    local scale = ratio or scales and scales[i] or to / old[i]
    if to < 1 or to > MOST or old[i] < 1 then
      fail("axis %d of %d elements cannot become one of %s", axis, old[i], to)
    end
    if to ~= old[i] or scale ~= 1 or roi then
      local at = axis_in(axis)
      check_taps(c, old[i], to, scale)
      local taps, outside = taps_of(c, old[i], to, scale, roi and { roi[i], roi[#axes + i] })
      t = interpolated(t, at, taps)
      if roi then
        local sizes_of_mask = {}
        for k = 1, rank do sizes_of_mask[k] = k == at and to or 1 end
        local mask = core.tensor(outside, { dtype = "bool", device = t:device() })
        t = ops.where(ops.reshape(mask, { shape = sizes_of_mask }), c.extrapolation_value, t)
      end
    end
  end
  return wrap(t)
end

-- Whether our own op makes the same pixels: images, linear, half_pixel, without antialiasing.
local function is_plain(c, x, axes, scales)
  local mode = c.coordinate_transformation_mode
  if x:rank() ~= 4 or #axes ~= 2 or axes[1] ~= 2 or c.mode ~= "linear" or c.antialias ~= 0 then return false end
  for i, scale in ipairs(scales or {}) do
    local size = x:shape()[axes[i] + 1]
    local to = single(size * scale)
    if to % 1 ~= 0 or scale ~= single(to / size) then return false end
  end
  return (mode == "half_pixel" or mode == "pytorch_half_pixel") and c.keep_aspect_ratio_policy == "stretch"
end

local function resize_images(x, size)
  for _, n in ipairs(size) do if n < 2 then return nil end end
  local dtype, t = x:dtype(), x:last()
  local y = ops.image_resize(t, { size = size, interpolation = "bilinear" })
  return values.last(y:dtype() == dtype and y or ops.cast(y, dtype))
end

-- Axes, sizes and scales without those that change nothing.
local function changed_axes(x, axes, sizes, scales)
  local kept, new_sizes, new_scales = {}, sizes and {}, scales and {}
  for i, axis in ipairs(axes) do
    if sizes and sizes[i] ~= x:shape()[axis + 1] or scales and scales[i] ~= 1 then
      kept[#kept + 1] = axis
      if sizes then new_sizes[#kept] = sizes[i] end
      if scales then new_scales[#kept] = scales[i] end
    end
  end
  return kept, new_sizes, new_scales
end

local function numbers(v, what)
  if not v or v:count() == 0 then return nil end
  return { unpack(v:numbers(what)) }
end

M.Resize = { '1-4 | mode:text="nearest" coordinate_transformation_mode:text="half_pixel" cubic_coeff_a:float=-0.75 '
  .. 'exclude_outside:int=0 extrapolation_value:float=0 nearest_mode:text="round_prefer_floor" antialias:int=0 '
  .. 'axes:ints? keep_aspect_ratio_policy:text="stretch"', function(c, x, roi, scales, sizes)
  if c.opset < 11 then -- the inputs were X, scales
    roi, scales, c.coordinate_transformation_mode, c.nearest_mode = nil, roi, "asymmetric", "floor"
  end
  local axes, size, scale = {}, numbers(sizes, "sizes"), numbers(scales, "scales")
  if not size and not scale then fail "neither scales nor sizes are given" end
  for i = 1, c.axes and #c.axes or x:rank() do axes[i] = c.axes and axis_at(c.axes[i], x:rank()) or i - 1 end
  if c.coordinate_transformation_mode == "tf_crop_and_resize" then
    return resize(c, x, axes, size, scale, numbers(roi, "roi") or fail "roi is missing")
  end
  if c.keep_aspect_ratio_policy == "stretch" then axes, size, scale = changed_axes(x, axes, size, scale) end
  if #axes == 0 then return x end
  if is_plain(c, x, axes, scale) then
    local own = x:shape()
    local y = resize_images(x, size or { single(own[3] * scale[1]), single(own[4] * scale[2]) })
    if y then return y end
  end
  return resize(c, x, axes, size, scale)
end }

-- Resize of opset 9, with scales for all axes.
M.Upsample = { '1-2 | mode:text="nearest" scales:floats?', function(c, x, scales)
  local axes = {}
  for i = 1, x:rank() do axes[i] = i - 1 end
  local how = { mode = c.mode, coordinate_transformation_mode = "asymmetric", nearest_mode = "floor", antialias = 0,
    exclude_outside = 0, keep_aspect_ratio_policy = "stretch" }
  return resize(how, x, axes, nil, numbers(scales, "scales") or c.scales or fail "scales are missing")
end }

return M
