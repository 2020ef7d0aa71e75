--- mgpu.regularizers: a number added to the loss for a weight or an output, by Keras's names.
--
--     L.Dense { 10, kernel_regularizer = "l2" }
--     L.Dense { 10, kernel_regularizer = mgpu.regularizers.L1L2 { l1 = 1e-5, l2 = 1e-4 } }
-- A regularizer is called with a tensor and RETURNS a scalar tensor. Errors: an unknown name; a factor below 0.
local core = require "mgpu.core"
local options = require "mgpu.options"

local ops = core.ops
local M = {}

local function l1(w, factor) return ops.sum(ops.abs(w)) * factor end
local function l2(w, factor) return ops.sum(ops.square(w)) * factor end

local function orthogonal(self, w)
  local shape = w:shape()
  if #shape ~= 2 then
    core.fail("usage", ("OrthogonalRegularizer: the weight must have 2 axes, it has %d"):format(#shape))
  end
  local by_rows = self.mode == "rows"
  local size = by_rows and shape[1] or shape[2]
  local squares = ops.sum(ops.square(w), { axis = by_rows and 2 or 1, keepdims = true })
  local unit = w / ops.sqrt(ops.maximum(squares, 1e-12))
  local cosines = by_rows and ops.matmul(unit, unit, { transpose_b = true })
    or ops.matmul(unit, unit, { transpose_a = true })
  local row, column = ops.iota({ size, size }, 1, "int32"), ops.iota({ size, size }, 2, "int32")
  local others = ops.where(ops.eq(row, column), 0, ops.abs(cosines))
  return ops.sum(others) * (self.factor / math.max(1, size * (size - 1)))
end

local function factor(name, default) return { name, "number", default = default, min = 0 } end

local rules = { -- class = { declared, function(self, w) }
  --- L1 {l1 = 0.01}, also l1: l1 * sum |w|, which drives weights to 0.
  -- Example:
  --     print(mgpu.regularizers.L1 { 0.5 } (mgpu.tensor { 3, -4 }):item())  --> 3.5
  L1 = { options.declare { positional = 1, factor("l1", 0.01) },
    function(self, w) return l1(w, self.l1) end },
  --- L2 {l2 = 0.01}, also l2: l2 * sum w^2, which keeps weights small.
  -- Example:
  --     local dense = L.Dense { 1, kernel_initializer = "ones", kernel_regularizer = mgpu.regularizers.L2 { 0.5 } }
  --     dense(mgpu.ones { 1, 4 })
  --     print(dense:losses()[1]:item())  --> 2
  L2 = { options.declare { positional = 1, factor("l2", 0.01) },
    function(self, w) return l2(w, self.l2) end },
  --- L1L2 {l1 = 0, l2 = 0}, also l1_l2: l1 * sum |w| + l2 * sum w^2. The name "l1_l2" alone has 0.01 for both.
  -- Example:
  --     local w = mgpu.tensor { 3, -4 }
  --     print(mgpu.regularizers.L1L2 { l1 = 1, l2 = 10 } (w):item())  --> 257
  --     print(("%.2f"):format(mgpu.regularizers.l1_l2() (w):item()))  --> 0.32
  L1L2 = { options.declare { positional = 2, factor("l1", 0), factor("l2", 0) },
    function(self, w)
      if self.l1 == 0 then return l2(w, self.l2) end
      return self.l2 == 0 and l1(w, self.l1) or l1(w, self.l1) + l2(w, self.l2)
    end },
  --- OrthogonalRegularizer {factor = 0.01, mode = "rows"}, also orthogonal_regularizer: factor * the mean |cosine| of
  --- the angles between different rows, or columns with mode = "columns". Errors: a weight that is not a matrix.
  -- Example:
  --     local r = mgpu.regularizers.OrthogonalRegularizer { 1 }
  --     print(r(mgpu.tensor { { 1, 0 }, { 0, 2 } }):item(), r(mgpu.tensor { { 1, 0 }, { 2, 0 } }):item())  --> 0 1
  OrthogonalRegularizer = { options.declare { positional = 1, factor("factor", 0.01),
    { "mode", "string", default = "rows", values = { "rows", "columns" } } }, orthogonal },
}

local SHORT = { l1 = "L1", l2 = "L2", l1_l2 = "L1L2",
  orthogonal_regularizer = "OrthogonalRegularizer" }

-- By its short name alone "l1_l2" has other defaults, as in Keras 2.
local SHORT_OPTIONS = { l1_l2 = { l1 = 0.01, l2 = 0.01 } }


local function constructor(make, name)
  return function(given) return make(name, given) end
end

return require "mgpu.nn.named_rules".define(M, { kind = "regularizer", rules = rules, short = SHORT,
  alone = SHORT_OPTIONS, constructor = constructor })
