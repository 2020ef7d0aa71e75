--- mgpu.initializers: the first values of weights, by Keras's names, defaults and formulas.
--
--     L.Dense { 10, kernel_initializer = "he_normal" }
--     L.Dense { 10, kernel_initializer = mgpu.initializers.glorot_uniform { seed = 1 } }
-- Both spellings of a name are read ("GlorotUniform", "glorot_uniform"). Those that draw random numbers take a seed.
-- An initializer is called with (shape, dtype, stream) and RETURNS a tensor. Without a seed the numbers come from the
-- program's state (mgpu.seed), from a random stream for each weight; with one they are a function of the seed alone.
-- Errors: an unknown name or option; a shape with too few axes (identity, orthogonal).
local core = require "mgpu.core"
local options = require "mgpu.options"
local stft_kernels = require "mgpu.nn.stft_kernels"
local ops = core.ops

local M = {}

local SEED = { "seed", "integer", min = 0, max = 2147483647 }

-- ---- random numbers -----------------------------------------------------------------------------

-- Draws random numbers. With an own seed the program's random state is saved and restored around the draw.
local function draw(self, shape, dtype, stream, kind, a, b)
  local spec = { shape = shape, kind = kind, a = a, b = b, dtype = dtype, stream = stream or 0 }
  if not self.seed then return ops.random(spec) end
  local state = core.rng_state()
  core.rng_state { seed = self.seed, base = 0 }
  spec.stream = 0
  local t = ops.random(spec)
  core.eval(t)
  core.rng_state(state)
  return t
end

--- fans(shape) -> fan_in, fan_out of a kernel's shape, as Keras's compute_fans.
function M.fans(shape)
  local rank = #shape
  if rank == 0 then return 1, 1 end
  if rank == 1 then return shape[1], shape[1] end
  local field = 1
  for i = 1, rank - 2 do field = field * shape[i] end
  return shape[rank - 1] * field, shape[rank] * field
end

-- The standard deviation of a standard normal distribution that is cut at 2.
local CUT = 0.87962566103423978

local function variance_scaling(self, shape, dtype, stream)
  local fan_in, fan_out = M.fans(shape)
  local n = self.mode == "fan_in" and fan_in or self.mode == "fan_out" and fan_out
    or (fan_in + fan_out) / 2
  local scale = self.scale / math.max(1, n)
  if self.distribution == "uniform" then
    local limit = math.sqrt(3 * scale)
    return draw(self, shape, dtype, stream, "uniform", -limit, limit)
  elseif self.distribution == "untruncated_normal" then
    return draw(self, shape, dtype, stream, "normal", 0, math.sqrt(scale))
  end
  return draw(self, shape, dtype, stream, "truncated_normal", 0, math.sqrt(scale) / CUT)
end

-- ---- orthogonal -----------------------------------------------------------------------------------

-- Gram-Schmidt on the rows in place; each projection is done twice, against rounding errors.
local function orthogonalise(rows)
  for i, row in ipairs(rows) do
    for _ = 1, 2 do
      for k = 1, i - 1 do
        local dot = 0
        for c = 1, #row do dot = dot + row[c] * rows[k][c] end
        for c = 1, #row do row[c] = row[c] - dot * rows[k][c] end
      end
    end
    local norm = 0
    for c = 1, #row do norm = norm + row[c] ^ 2 end
    norm = math.sqrt(norm)
    for c = 1, #row do row[c] = row[c] / norm end
  end
  return rows
end

local function orthogonal(self, shape, dtype, stream)
  if #shape < 2 then core.fail("usage", "orthogonal: the shape needs at least 2 axes") end
  local columns, rows = shape[#shape], 1
  for i = 1, #shape - 1 do rows = rows * shape[i] end
  local tall = rows > columns
  local m, n = math.min(rows, columns), math.max(rows, columns)
  local numbers = draw(self, { m, n }, "float64", stream, "normal", 0, 1):totable()
  local q = core.tensor(orthogonalise(numbers), { dtype = "float64" })
  if tall then q = q:permute { 2, 1 } end
  return ops.cast(ops.reshape(q * self.gain, shape), dtype)
end

-- ---- the table ----------------------------------------------------------------------------------

local VARIANCE = {
  { "scale", "number", default = 1, min = 0 },
  { "mode", "string", default = "fan_in", values = { "fan_in", "fan_out", "fan_avg" } },
  { "distribution", "string", default = "truncated_normal",
    values = { "truncated_normal", "untruncated_normal", "uniform" } },
  SEED,
}

local function scaled(scale, mode, distribution)
  return { options.declare { SEED }, variance_scaling,
    { scale = scale, mode = mode, distribution = distribution } }
end

local rules = { -- name = { declared, function, fixed fields }
  --- zeros {}: all numbers are 0, as biases begin.
  -- Example:
  --     print(mgpu.initializers.zeros {} { 2, 3 })
  --     --> tensor {2, 3} float32 cpu:0
  --     --> {{0, 0, 0},
  --     -->  {0, 0, 0}}
  zeros = { options.declare {}, function(_, shape, dtype) return ops.full(shape, 0, dtype) end },
  --- ones {}: all numbers are 1, as the scales of normalization begin.
  -- Example:
  --     local dense = L.Dense { 1, kernel_initializer = "ones" }
  --     print(dense(mgpu.tensor { { 1, 2, 3 } }):item())  --> 6
  ones = { options.declare {}, function(_, shape, dtype) return ops.full(shape, 1, dtype) end },
  --- constant {value = 0}: all numbers are `value`, or those of a table that is broadcast to the shape.
  -- Example:
  --     local dense = L.Dense { 2, bias_initializer = mgpu.initializers.constant { 0.5 } }
  --     dense:ensure_built { -1, 3 }
  --     print(dense.bias)
  --     --> tensor {2} float32 cpu:0
  --     --> {0.5, 0.5}
  constant = { options.declare { positional = 1, { "value", "number|table", default = 0 } },
    function(self, shape, dtype)
      if type(self.value) == "number" then return ops.full(shape, self.value, dtype) end
      return ops.broadcast_to(core.tensor(self.value, { dtype = dtype }), { shape = shape })
    end },
  --- identity {gain = 1}: a matrix with `gain` on the diagonal and 0 elsewhere. Errors: a shape of other than 2 axes.
  -- Example:
  --     print(mgpu.initializers.identity { 2 } { 2, 3 })
  --     --> tensor {2, 3} float32 cpu:0
  --     --> {{2, 0, 0},
  --     -->  {0, 2, 0}}
  identity = { options.declare { positional = 1, { "gain", "number", default = 1 } },
    function(self, shape, dtype)
      if #shape ~= 2 then core.fail("usage", "identity: the shape must have 2 axes") end
      local row, column = ops.iota(shape, 1, "int32"), ops.iota(shape, 2, "int32")
      return ops.cast(ops.eq(row, column), dtype) * self.gain
    end },
  --- stft {side = "real", window = "hann", scaling = "density", periodic = false}: kernels {length, 1, frequencies} of
  --- convolutions that compute spectra: the window times cosines ("real") or minus sines ("imag").
  -- window: "none", a list of `length` numbers, or one of scipy's: "bartlett", "barthann", "blackman",
  -- "blackmanharris", "bohman", "boxcar", "cosine", "exponential", "flattop", "hamming", "hann", "lanczos", "nuttall",
  -- "parzen", "triang", "tukey"; scaling: "density" (its square sums to 1), "spectrum" (it sums to 1) or "none".
  -- Errors: another shape or length.
  -- Example:
  --     local kernel = mgpu.initializers.stft { window = "none" } { 4, 1, 3 } -- frequencies 0, 1/4 and 1/2
  --     print(kernel:reshape { 4, 3 }:round())
  --     --> tensor {4, 3} float32 cpu:0
  --     --> {{ 1,  1,  1},
  --     -->  { 1,  0, -1},
  --     -->  { 1, -1,  1},
  --     -->  { 1,  0, -1}}
  stft = { options.declare { positional = 2,
    { "side", "string", default = "real", values = { "real", "imag" } },
    { "window", "string|table", default = "hann" },
    { "scaling", "string", default = "density", values = { "density", "spectrum", "none" } },
    { "periodic", "boolean", default = false } },
    function(self, shape, dtype)
      local function fail(message, ...) core.fail("usage", "stft: " .. message:format(...)) end
      if #shape ~= 3 or shape[2] ~= 1 then fail("the shape must be {length, 1, frequencies}") end
      stft_kernels.check(self.window, fail)
      stft_kernels.check_length(self.window, shape[1], fail)
      return stft_kernels.kernel(shape, self.side, self, dtype, fail)
    end },
  --- random_normal {mean = 0, stddev = 0.05, seed =}, also normal: a normal distribution.
  -- Example:
  --     local w = mgpu.initializers.random_normal { mean = 3, stddev = 0.1, seed = 1 } { 10000 }
  --     print(("%.2f %.2f"):format(w:mean():item(), w:std():item()))  --> 3.00 0.10
  random_normal = { options.declare { positional = 2, { "mean", "number", default = 0 },
    { "stddev", "number", default = 0.05, min = 0 }, SEED },
    function(self, shape, dtype, stream)
      return draw(self, shape, dtype, stream, "normal", self.mean, self.stddev)
    end },
  --- random_uniform {minval = -0.05, maxval = 0.05, seed =}, also uniform: all numbers between the two bounds are
  --- equally likely.
  -- Example:
  --     local w = mgpu.initializers.random_uniform { minval = -1, maxval = 1, seed = 1 } { 10000 }
  --     print(w:abs():max():item() <= 1, ("%.1f"):format(w:abs():mean():item()))  --> true 0.5
  random_uniform = { options.declare { positional = 2, { "minval", "number", default = -0.05 },
    { "maxval", "number", default = 0.05 }, SEED },
    function(self, shape, dtype, stream)
      return draw(self, shape, dtype, stream, "uniform", self.minval, self.maxval)
    end },
  --- truncated_normal {mean = 0, stddev = 0.05, seed =}: a normal distribution without what lies farther than two
  --- standard deviations from the mean.
  -- Example:
  --     local w = mgpu.initializers.truncated_normal { stddev = 1, seed = 1 } { 10000 }
  --     print(w:abs():max():item() <= 2)  --> true
  truncated_normal = { options.declare { positional = 2, { "mean", "number", default = 0 },
    { "stddev", "number", default = 0.05, min = 0 }, SEED },
    function(self, shape, dtype, stream)
      return draw(self, shape, dtype, stream, "truncated_normal", self.mean, self.stddev)
    end },
  --- variance_scaling {scale = 1, mode = "fan_in", distribution = "truncated_normal", seed =}: variance scale / n.
  --- mode, n: "fan_in", the inputs of a unit; "fan_out", the units that an input reaches; "fan_avg", their mean.
  --- distribution: also "untruncated_normal" or "uniform".
  -- Example:
  --     local init = mgpu.initializers.variance_scaling { scale = 2, mode = "fan_out", seed = 1 }
  --     print(("%.2f"):format(init { 100, 200 }:std():item()))  --> 0.10
  variance_scaling = { options.declare(VARIANCE), variance_scaling },
  --- glorot_uniform {seed =}: uniform with variance 2 / (fan_in + fan_out), so at most
  --- sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio, 2010). The default of kernels.
  -- Example:
  --     local w = mgpu.initializers.glorot_uniform { seed = 1 } { 300, 300 }
  --     print(("%.2f"):format(w:abs():max():item()))  --> 0.10
  glorot_uniform = scaled(1, "fan_avg", "uniform"),
  --- glorot_normal {seed =}: normal with variance 2 / (fan_in + fan_out), cut at two standard deviations (Glorot &
  --- Bengio, 2010).
  -- Example:
  --     local w = mgpu.initializers.glorot_normal { seed = 1 } { 150, 50 }
  --     print(("%.2f"):format(w:std():item()))  --> 0.10
  glorot_normal = scaled(1, "fan_avg", "truncated_normal"),
  --- he_uniform {seed =}: uniform with variance 2 / fan_in, so at most sqrt(6 / fan_in) (He et al., 2015).
  -- Example:
  --     local w = mgpu.initializers.he_uniform { seed = 1 } { 600, 10 }
  --     print(("%.2f"):format(w:abs():max():item()))  --> 0.10
  he_uniform = scaled(2, "fan_in", "uniform"),
  --- he_normal {seed =}: normal with variance 2 / fan_in, cut at two standard deviations, for layers with relu (He et
  --- al., 2015).
  -- Example:
  --     local w = mgpu.initializers.he_normal { seed = 1 } { 200, 100 }
  --     print(("%.2f"):format(w:std():item()))  --> 0.10
  he_normal = scaled(2, "fan_in", "truncated_normal"),
  --- lecun_uniform {seed =}: uniform with variance 1 / fan_in, so at most sqrt(3 / fan_in) (LeCun et al., 1998).
  -- Example:
  --     local w = mgpu.initializers.lecun_uniform { seed = 1 } { 300, 10 }
  --     print(("%.2f"):format(w:abs():max():item()))  --> 0.10
  lecun_uniform = scaled(1, "fan_in", "uniform"),
  --- lecun_normal {seed =}: normal with variance 1 / fan_in, cut at two standard deviations, for layers with selu
  --- (LeCun et al., 1998).
  -- Example:
  --     local w = mgpu.initializers.lecun_normal { seed = 1 } { 100, 100 }
  --     print(("%.2f"):format(w:std():item()))  --> 0.10
  lecun_normal = scaled(1, "fan_in", "truncated_normal"),
  --- orthogonal {gain = 1, seed =}: the rows of a matrix, or its columns if there are fewer, are orthogonal and have
  --- length `gain` (Saxe et al., 2014). Errors: a shape with fewer than 2 axes.
  -- Example:
  --     local q = mgpu.initializers.orthogonal { seed = 1 } { 2, 5 }
  --     print((q:matmul(q:transpose()) - mgpu.eye(2)):abs():max():item() < 1e-6)  --> true
  orthogonal = { options.declare { positional = 1, { "gain", "number", default = 1 }, SEED },
    orthogonal },
}

local meta = {
  __call = function(self, shape, dtype, stream)
    return rules[self.initializer][2](self, shape, dtype or core.floatx(), stream)
  end,
  __tostring = function(self) return "initializer " .. self.initializer end,
}
meta.__index = {
  get_config = function(self)
    local config = { initializer = self.initializer }
    for _, option in ipairs(rules[self.initializer][1]) do config[option[1]] = self[option[1]] end
    return config
  end,
}

local names = {}
for name in pairs(rules) do names[#names + 1] = name end
table.sort(names)

-- The key in `rules` for a name or class name. "uniform" and "normal" are Keras's short names.
local function canonical(name)
  local short = { uniform = "random_uniform", normal = "random_normal", zero = "zeros", one = "ones" }
  name = name:gsub("(%l)(%u)", "%1_%2"):lower():gsub("_?initializer$", "") -- Keras has a few twice
  return short[name] or name
end

local function make(name, given)
  local key = canonical(name)
  local rule = rules[key]
  if not rule then
    core.fail("usage", ("unknown initializer %q%s"):format(name, core.did_you_mean(key, names)))
  end
  local made = options.check(key, rule[1], given == nil and {} or given)
  for field, value in pairs(rule[3] or {}) do made[field] = value end
  made.initializer = key
  return setmetatable(made, meta)
end

--- get(value) -> an initializer; value: a name, an initializer, a saved configuration, or function(shape, dtype,
--- stream) -> tensor.
function M.get(value)
  if type(value) == "function" then return value end
  if type(value) == "string" then return make(value) end
  if getmetatable(value) == meta then return value end
  if type(value) == "table" and type(value.initializer) == "string" then
    local given = {}
    for key, v in pairs(value) do if key ~= "initializer" then given[key] = v end end
    return make(value.initializer, given)
  end
  core.fail("usage", "an initializer is a name, a function, or made by mgpu.initializers")
end

return setmetatable(M, {
  __index = function(_, name)
    make(name) -- raises for an unknown name
    return function(given) return make(name, given) end
  end,
  __call = function() return names end,
})
