--- Layers that turn numbers into categories: CategoryEncoding, Discretization. RETURNS the classes by name.
local core = require "mgpu.core"
local ffi = require "ffi"
local Layer = require "mgpu.nn.layer"
local same = require "mgpu.nn.losses.shapes".same
local values = require "mgpu.nn.layers.categories.values"

local ops = core.ops
local M = {}

--- CategoryEncoding {num_tokens, output_mode = "multi_hot"}: indices from 0 to num_tokens - 1 as vectors of num_tokens.
-- output_mode: "one_hot": a vector for each index; "multi_hot": 1 for each index that a row has; "count": how often.
-- x {batch, n} of any dtype -> {batch, num_tokens}; with "one_hot" {batch, n, num_tokens}, without n if n is 1.
-- With "count", {x, weights}, or the tensor count_weights of the call, says what each index counts, a tensor like x.
-- Source: Keras. Indices outside of the range count nowhere. Errors: weights of another shape or with another mode.
-- Example:
--     print(L.CategoryEncoding { 4, output_mode = "count" } (mgpu.tensor { { 3, 1, 3 } }))
--     --> tensor {1, 4} float32 cpu:0
--     --> {{0, 1, 0, 2}}
--     local layer = L.CategoryEncoding { 4, output_mode = "count" }
--     print(layer(mgpu.tensor { { 3, 1, 3 } }, { count_weights = mgpu.tensor { { 1, 2, 0.5 } } }))
--     --> tensor {1, 4} float32 cpu:0
--     --> {{0,   2,   0,   1.5}}
local CategoryEncoding = Layer:extend("CategoryEncoding", { positional = 1,
  { "num_tokens", "integer", min = 1, required = true },
  { "output_mode", "string", default = "multi_hot", values = { "multi_hot", "one_hot", "count" } },
})
CategoryEncoding.autocast = false

CategoryEncoding.call_tensors = { "inputs", "count_weights" }

function CategoryEncoding:call(x)
  local weights
  if type(x) == "table" then x, weights = x[1], x[2] end
  if weights and self.output_mode ~= "count" then
    self:fail('count_weights go with output_mode = "count", not with %q', self.output_mode)
  elseif weights and not same(x:shape(), weights:shape()) then
    self:fail("count_weights have the shape %s, the inputs %s", self.shape_text(weights:shape()),
      self.shape_text(x:shape()))
  end
  return values.encode(x, self.output_mode, self.num_tokens, self.compute_dtype,
    weights and ops.cast(weights, { dtype = self.compute_dtype }))
end

M.CategoryEncoding = CategoryEncoding

-- ---- quantiles: Keras's summaries, in float32 -----------------------------------------------------

local cell = ffi.new "float[1]"
local function single(v)
  cell[0] = v
  return cell[0]
end

-- numpy.interp: the value at x of the line through the points.
local function interpolated(x, xs, ys)
  if x <= xs[1] then return ys[1] end
  local low, high = 1, #xs
  if x >= xs[high] then return ys[high] end
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if xs[middle] <= x then low = middle else high = middle end
  end
  return (ys[high] - ys[low]) / (xs[high] - xs[low]) * (x - xs[low]) + ys[low]
end

-- A summary {values =, weights =} with about 1 / epsilon entries.
local function compressed(summary, epsilon)
  if #summary.values * epsilon < 1 then return summary end
  local sums, parts, sum = {}, {}, 0
  for i, weight in ipairs(summary.weights) do
    sum = single(sum + weight)
    sums[i] = sum
  end
  for i, s in ipairs(sums) do parts[i] = single(s / sum) end
  local made, before = { values = {}, weights = {} }, 0
  for i = 1, math.ceil(1 / epsilon) do
    local at = epsilon + (i - 1) * epsilon
    local reached = interpolated(at, parts, sums)
    made.values[i] = single(interpolated(at, parts, summary.values))
    made.weights[i], before = single(reached - before), reached
  end
  return made
end

local function summarized(list, epsilon)
  table.sort(list)
  local step, made = math.max(#list * epsilon, 1), { values = {}, weights = {} }
  for i = math.floor(step - 1) + 1, #list, math.floor(step) do
    made.values[#made.values + 1], made.weights[#made.weights + 1] = list[i], single(step)
  end
  return made
end

local function merged(one, other, epsilon)
  local both = {}
  for _, part in ipairs { one, other } do
    for i, v in ipairs(part.values) do both[#both + 1] = { v, part.weights[i], #both } end
  end
  table.sort(both, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return a[3] < b[3]
  end)
  local made = { values = {}, weights = {} }
  for i, entry in ipairs(both) do made.values[i], made.weights[i] = entry[1], entry[2] end
  return compressed(made, epsilon)
end

-- ---- Discretization -------------------------------------------------------------------------------

-- Dtypes whose numbers float32 holds.
local NARROW = { float32 = true, float16 = true, bfloat16 = true, uint8 = true, bool = true }

--- Discretization {bin_boundaries =, num_bins =, epsilon = 0.01, output_mode = "int"}: the bin of each number, from 0.
-- Bin i holds numbers from boundary i on and below boundary i + 1. With num_bins instead, layer:adapt(data) chooses
-- boundaries so that bins hold about equally many numbers; epsilon: the error of these shares.
-- x of any shape -> the same shape, int32; other output modes as in CategoryEncoding, floating. Source: Keras.
-- Example:
--     print(L.Discretization { { 0, 10 } } (mgpu.tensor { -1, 0, 5, 10 }))
--     --> tensor {4} int32 cpu:0
--     --> {0, 1, 1, 2}
local Discretization = Layer:extend("Discretization", { positional = 1,
  { "bin_boundaries", "table" },
  { "num_bins", "integer", min = 1 },
  { "epsilon", "number", default = 0.01, above = 0, below = 1 },
  { "output_mode", "string", default = "int", values = { "int", "one_hot", "multi_hot", "count" } },
})

function Discretization:init()
  for i, v in ipairs(self.bin_boundaries or {}) do
    if type(v) ~= "number" then self:fail("bin_boundaries must hold numbers, entry %d is a %s", i, type(v)) end
  end
  -- adapt leaves both, and so do files
  if self.bin_boundaries and self.num_bins and #self.bin_boundaries + 1 > self.num_bins then
    self:fail("%d bin_boundaries make more than num_bins = %d bins", #self.bin_boundaries, self.num_bins)
  end
end

Discretization.autocast = false -- the numbers decide, not what a half makes of them

function Discretization:output_dtype() return self.output_mode == "int" and "int32" or self.compute_dtype end

--- layer:adapt(data): chooses the boundaries from a tensor, nested numbers or a dataset of batches.
-- Example:
--     local layer = L.Discretization { num_bins = 2 }
--     layer:adapt(mgpu.tensor { 1, 2, 3, 4 })
--     print(unpack(layer.bin_boundaries))  --> 2
function Discretization:adapt(data)
  if not self.num_bins then self:fail "adapt needs the option num_bins" end
  local summary = { values = {}, weights = {} }
  local function add(batch)
    local list = {}
    values.each(values.plain(batch), function(v) list[#list + 1] = single(v) end)
    summary = merged(summarized(list, self.epsilon), summary, self.epsilon)
  end
  values.each_batch("Discretization: adapt", data, add)
  if #summary.values == 0 then self:fail "adapt: there are no data" end
  local list = compressed(summary, 1 / self.num_bins).values
  list[#list] = nil
  self.bin_boundaries = list
end

function Discretization:call(x)
  local list, shape = self.bin_boundaries, x:shape()
  if not list then self:fail "has no boundaries yet: call adapt, or give bin_boundaries" end
  shape[#shape + 1] = 1
  local wide = NARROW[x:dtype()] and "float32" or "float64" -- holds each number of x
  local edges = core.tensor(#list > 0 and list or { math.huge }, { dtype = wide, device = x:device() })
  local below = ops.lt(x:to(wide):reshape(shape), edges) -- a NaN is below none
  return values.encode(#list - ops.sum(ops.cast(below, { dtype = "int32" }), { axis = -1 }), self.output_mode,
    #list + 1, self:output_dtype())
end

M.Discretization = Discretization

return M
