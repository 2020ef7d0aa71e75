--- Layers that scale numbers: by fixed or learned factors, or by means and variances of the data.
-- RETURNS the classes by name.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local ops = core.ops

local M = {}

-- ---- Rescaling ----------------------------------------------------------------------------------

--- Rescaling {scale, offset = 0}: x * scale + offset, in training and at inference.
-- scale and offset: a number, or a list of one for each channel: along the last axis, in the format channels_first
-- along that before rows and columns. x of any shape and dtype, integers too -> the same shape, floating.
-- Errors: a list whose length is not the number of channels.
-- Example:
--     local pixels = mgpu.tensor({ 0, 51, 255 }, { dtype = "uint8" })
--     print((L.Rescaling { 1 / 255 } (pixels) * 10):round())
--     --> tensor {3} float32 cpu:0
--     --> { 0,  2, 10}
local Rescaling = Layer:extend("Rescaling", { positional = 2,
  { "scale", "number|table", required = true },
  { "offset", "number|table", default = 0 },
})

Rescaling.supports_masking = true

function Rescaling:output_shape(shape) return shape end -- luacheck: no self

local function check_list(self, name)
  local list = self[name]
  if type(list) == "number" then return end
  local fault = #list == 0 and "it is empty" or core.array_fault(list)
  for _, v in ipairs(list) do
    if type(v) ~= "number" then fault = "it must hold numbers" end
  end
  if fault then self:fail("option %q: %s", name, fault) end
end

function Rescaling:init()
  check_list(self, "scale")
  check_list(self, "offset")
end

-- The number, or the list as a tensor along the channels of x.
local function factor(self, name, x)
  local list = self[name]
  if type(list) == "number" then return list end
  local shape = x:shape()
  local at = #shape > 2 and images.channels_axis({}, #shape) or #shape
  if #list ~= shape[at] and #list ~= 1 then
    self:fail("option %q has %d numbers, but the input %s has %d channels", name, #list, self.shape_text(shape),
      shape[at])
  end
  local sizes = {}
  for i = 1, #shape do sizes[i] = i == at and #list or 1 end
  local t = core.tensor(list, { dtype = x:dtype(), device = x:device() })
  return core.ops.reshape(t, { shape = sizes })
end

function Rescaling:call(x)
  x = core.ops.cast(x, { dtype = self.compute_dtype })
  return x * factor(self, "scale", x) + factor(self, "offset", x)
end

M.Rescaling = Rescaling

-- ---- Normalization ------------------------------------------------------------------------------

local EPSILON = 1e-7 -- Keras's backend.epsilon()

--- Normalization {axis = -1, mean =, variance =, invert = false}: (x - mean) / sqrt(variance). layer:adapt(data)
--- measures mean and variance.
-- axis: the axes, from 1 (the batch), that have a mean and a variance for each index; {} for one of all values. The
-- divisor is at least 1e-7. invert: x * sqrt(variance) + mean.
-- x of any shape and dtype, integers too -> the same shape, floating. Weights, unless mean and variance are given as
-- numbers or lists: mean, variance {sizes of the axes}, count {}; not trainable, 0 and 1 before adapt.
-- Errors: an axis that x lacks or whose size is unknown; mean without variance.
-- Example:
--     local norm = L.Normalization {}
--     norm:adapt(mgpu.tensor { { 1, 100 }, { 3, 300 } })
--     print(norm(mgpu.tensor { { 3, 100 }, { 2, 200 } }))
--     --> tensor {2, 2} float32 cpu:0
--     --> {{ 1, -1},
--     -->  { 0,  0}}
local Normalization = Layer:extend("Normalization", { positional = 1,
  { "axis", "integer|integers", default = -1 },
  { "mean", "number|table" },
  { "variance", "number|table" },
  { "invert", "boolean", default = false },
})

Normalization.supports_masking = true

function Normalization:init()
  if (self.mean == nil) ~= (self.variance == nil) then self:fail "mean and variance must be given together" end
end

function Normalization:output_shape(shape) return shape end -- luacheck: no self

-- The kept axes in order, and the others.
local function split_axes(self, shape)
  local kept, reduced, is_kept = {}, {}, {}
  for _, axis in ipairs(type(self.axis) == "number" and { self.axis } or self.axis) do
    local at = axis < 0 and axis + #shape + 1 or axis
    if at < 1 or at > #shape then
      self:fail("axis %d is out of range for the input %s", axis, self.shape_text(shape))
    end
    if shape[at] == -1 then self:fail("axis %d has no fixed size in the input %s", axis, self.shape_text(shape)) end
    is_kept[at] = true
  end
  for i = 1, #shape do table.insert(is_kept[i] and kept or reduced, i) end
  return kept, reduced
end

function Normalization:build(shape)
  self.kept, self.reduced = split_axes(self, shape)
  self.sizes, self.wide = {}, {}
  for i = 1, #shape do self.wide[i] = 1 end
  for i, at in ipairs(self.kept) do self.sizes[i], self.wide[at] = shape[at], shape[at] end
  if self.mean ~= nil then return end
  self.adapt_mean = self:add_weight { name = "mean", shape = self.sizes, initializer = "zeros", trainable = false }
  self.adapt_variance = self:add_weight { name = "variance", shape = self.sizes, initializer = "ones",
    trainable = false }
  self.count = self:add_weight { name = "count", shape = {}, dtype = "int32", initializer = "zeros",
    trainable = false }
end

-- ---- measuring ------------------------------------------------------------------------------------

-- The count, mean and variance of the reduced axes of a batch, in float64.
local function moments(self, x)
  local shape, n = x:shape(), 1
  for i, size in ipairs(shape) do
    if self.wide[i] == nil or self.wide[i] ~= 1 and self.wide[i] ~= size then
      self:fail("adapt: the layer was built for %s, got data of shape %s", self.shape_text(self.built_shape),
        self.shape_text(shape))
    end
  end
  if #shape ~= #self.wide then
    self:fail("adapt: the layer was built for %s, got data of shape %s", self.shape_text(self.built_shape),
      self.shape_text(shape))
  end
  for _, at in ipairs(self.reduced) do n = n * shape[at] end
  x = x:to "float64"
  if #self.reduced == 0 then return 1, x, x * 0 end
  local mean = x:mean(self.reduced, true)
  local difference = x - mean
  local variance = (difference * difference):mean(self.reduced, true)
  local function small(t) return ops.reshape(t, { shape = self.sizes }) end
  return n, small(mean), small(variance)
end

-- Mean and variance of two groups together (Chan et al.).
local function merge(total, n, mean, variance)
  if not total then return { n = n, mean = mean, variance = variance } end
  local all = total.n + n
  local a, b = total.n / all, n / all
  local together = total.mean * a + mean * b
  local function from(m, v) return v + (m - together) * (m - together) end
  local merged = { n = all, mean = together,
    variance = from(total.mean, total.variance) * a + from(mean, variance) * b }
  core.eval(merged.mean, merged.variance)
  return merged
end

-- Calls fn with each batch of the data: a tensor, nested numbers, or a dataset, whose first field counts.
local function each_batch(self, data, fn)
  if type(data) == "table" and getmetatable(data) and data.iter then
    checks.ends("Normalization: adapt", data)
    for x in data:iter() do fn(x) end
    return
  end
  local x = type(data) == "table" and not getmetatable(data) and core.tensor(data) or data
  if not core.is_tensor(x) then self:fail("adapt takes a tensor or a dataset of batches, got a %s", type(data)) end
  fn(x)
end

--- layer:adapt(data): measures mean and variance over a tensor or a dataset of batches, whose first field counts.
--- What was measured before is forgotten. Errors: no data; a dataset without end; another shape than the layer was
--- built for; mean and variance that were given as options.
function Normalization:adapt(data)
  if self.mean ~= nil then self:fail "adapt: mean and variance were given as options" end
  local total
  each_batch(self, data, function(x)
    local shape = x:shape()
    if #shape == 0 then self:fail "adapt: the data have no axis: use a dataset of batches" end
    if shape[1] == 0 then return end
    shape[1] = -1
    self:ensure_built(shape)
    total = merge(total, moments(self, x))
  end)
  if not total then self:fail "adapt: there are no data" end
  self.adapt_mean:assign(total.mean:to(self.adapt_mean:dtype()))
  self.adapt_variance:assign(total.variance:to(self.adapt_variance:dtype()))
  self.count:assign(core.tensor(math.min(total.n, 2 ^ 31 - 1), { dtype = "int32" }))
  core.eval(self.adapt_mean:value(), self.adapt_variance:value(), self.count:value())
end

-- ---- the call -----------------------------------------------------------------------------------

-- A given number or list as a tensor that broadcasts against x.
local function given(self, name, x)
  local value = self[name]
  local t = core.tensor(value, { dtype = x:dtype(), device = x:device() })
  local n = 1
  for _, size in ipairs(self.sizes) do n = n * size end
  local count = 1
  for _, size in ipairs(t:shape()) do count = count * size end
  if count == 1 then return ops.reshape(t, { shape = {} }) end
  if count ~= n then
    self:fail("option %q has %d numbers, but the axes of the input have %d", name, count, n)
  end
  return ops.reshape(t, { shape = self.wide })
end

function Normalization:call(x)
  if #x:shape() ~= #self.wide then self:need_rank(x:shape(), #self.wide, "as when the layer was built") end
  x = ops.cast(x, { dtype = self.compute_dtype })
  local mean, variance
  if self.mean ~= nil then
    mean, variance = given(self, "mean", x), given(self, "variance", x)
  else
    mean = ops.reshape(self.adapt_mean, { shape = self.wide })
    variance = ops.reshape(self.adapt_variance, { shape = self.wide })
  end
  local deviation = variance:sqrt():maximum(EPSILON)
  if self.invert then return x * deviation + mean end
  return (x - mean) / deviation
end

M.Normalization = Normalization

-- ---- LayerScale ---------------------------------------------------------------------------------

--- LayerScale {init_values, projection_dim}: each channel multiplied by a weight that begins small; of ConvNeXt (Liu et
--- al., 2022) in keras.applications.
-- x {batch, ..., projection_dim} -> the same shape. Weight: gamma {projection_dim}, init_values at the start. Errors:
-- another number of channels.
-- Example:
--     print(L.LayerScale { 0.5, 2 } (mgpu.tensor { { 1, 3 } }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{0.5, 1.5}}
local LayerScale = Layer:extend("LayerScale", { positional = 2,
  { "init_values", "number", required = true },
  { "projection_dim", "integer", min = 1, required = true },
})

local function check_channels(self, shape)
  local channels = shape[#shape]
  if channels ~= self.projection_dim and channels ~= -1 then
    self:fail("the input has %d channels, the layer is for %d", channels, self.projection_dim)
  end
end

function LayerScale:build(shape)
  check_channels(self, shape)
  self.gamma = self:add_weight { name = "gamma", shape = { self.projection_dim },
    initializer = require "mgpu.nn.initializers".constant { self.init_values } }
end

function LayerScale:output_shape(shape) return shape end -- luacheck: no self

function LayerScale:call(x)
  check_channels(self, x:shape())
  return x * self.gamma
end

M.LayerScale = LayerScale

return M
