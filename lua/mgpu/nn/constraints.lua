--- mgpu.constraints: what a weight must satisfy after every update, by Keras's names and formulas.
--
--     L.Dense { 10, kernel_constraint = "max_norm" }
--     L.Dense { 10, kernel_constraint = mgpu.constraints.MaxNorm { 3, axis = 1 } }
-- axis: the axis that a norm is taken along, or a list of them. A kernel {inputs, units} has one norm for each unit
-- with axis = 1; a filter {rows, columns, inputs, filters} one for each filter with axis = {1, 2, 3}.
-- A constraint is called with a tensor and RETURNS one of the same shape; a function(tensor) -> tensor is one, too. The
-- optimizer applies it after the update. Errors: an unknown name or option; an axis that the weight lacks.
local core = require "mgpu.core"
local options = require "mgpu.options"

local ops = core.ops
local M = {}

local EPSILON = 1e-7 -- Keras's, in the divisor

-- ---- the rules ----------------------------------------------------------------------------------

local function norms_of(self, w) return ops.sqrt(ops.sum(ops.square(w), { axis = self.axis, keepdims = true })) end

local function within(norms, low, high) return ops.minimum(ops.maximum(norms, low), high) end

local AXIS = { "axis", "integer|integers", default = 1 }

local rules = { -- class = { declared, function(self, w) }
  --- MaxNorm {max_value = 2, axis = 1}, also max_norm: scales down the slices along the axis whose Euclidean norm is
  --- larger than max_value.
  -- Example:
  --     local w = mgpu.tensor { { 3, 0.6 }, { 4, 0.8 } } -- the columns have the norms 5 and 1
  --     print((mgpu.constraints.MaxNorm { 2 } (w) * 10):round())
  --     --> tensor {2, 2} float32 cpu:0
  --     --> {{12, 6},
  --     -->  {16, 8}}
  MaxNorm = { options.declare { positional = 1, { "max_value", "number", default = 2, min = 0 }, AXIS },
    function(self, w)
      local norms = norms_of(self, w)
      return w * (ops.minimum(norms, self.max_value) / (norms + EPSILON))
    end },
  --- UnitNorm {axis = 1}, also unit_norm: scales each slice along the axis to the Euclidean norm 1.
  -- Example:
  --     local unit = mgpu.constraints.UnitNorm {} (mgpu.tensor { { 3, 0 }, { 4, 2 } })
  --     print((unit * 10):round())
  --     --> tensor {2, 2} float32 cpu:0
  --     --> {{ 6,  0},
  --     -->  { 8, 10}}
  UnitNorm = { options.declare { positional = 0, AXIS },
    function(self, w) return w / (norms_of(self, w) + EPSILON) end },
  --- MinMaxNorm {min_value = 0, max_value = 1, rate = 1, axis = 1}, also min_max_norm: scales the slices along the axis
  --- whose Euclidean norm is outside the bounds, by the share `rate` of the way.
  -- Example:
  --     local half_way = mgpu.constraints.MinMaxNorm { 1, 2, rate = 0.5 } (mgpu.tensor { { 0.6, 1.5, 4 } })
  --     print((half_way * 10):round())
  --     --> tensor {1, 3} float32 cpu:0
  --     --> {{ 8, 15, 30}}
  MinMaxNorm = { options.declare { positional = 2, { "min_value", "number", default = 0, min = 0 },
    { "max_value", "number", default = 1, min = 0 }, { "rate", "number", default = 1, min = 0, max = 1 }, AXIS },
    function(self, w)
      local norms = norms_of(self, w)
      local wanted = within(norms, self.min_value, self.max_value) * self.rate + norms * (1 - self.rate)
      return w * (wanted / (norms + EPSILON))
    end },
  --- NonNeg {}, also non_neg: negative numbers become 0.
  -- Example:
  --     print(mgpu.constraints.NonNeg {} (mgpu.tensor { -1, 0, 2 }))
  --     --> tensor {3} float32 cpu:0
  --     --> {0, 0, 2}
  NonNeg = { options.declare {}, function(_, w) return ops.maximum(w, 0) end },
}

local SHORT = { max_norm = "MaxNorm", unit_norm = "UnitNorm", min_max_norm = "MinMaxNorm", non_neg = "NonNeg" }

-- Raises if the bounds of a MinMaxNorm are in the wrong order.
local function check(class, made)
  if class == "MinMaxNorm" and made.min_value > made.max_value then
    core.fail("usage", ("MinMaxNorm: min_value %g exceeds max_value %g"):format(made.min_value, made.max_value))
  end
end

-- ---- the constraints of variables ----------------------------------------------------------------

local constraint_of = setmetatable({}, { __mode = "k" }) -- variable -> constraint

--- set(v, value): the variable is to satisfy the constraint after every update; its value now is left alone.
function M.set(v, value) constraint_of[v] = M.get(value) end

--- apply(variables): makes the variables that have a constraint satisfy it. Errors: a function that does not return a
--- tensor of the variable's shape.
function M.apply(variables)
  for _, v in ipairs(variables) do
    local constraint = constraint_of[v]
    if constraint then
      local value = constraint(v:value())
      if not core.is_tensor(value) then
        core.fail("usage", ("the constraint of %s returned a %s, not a tensor"):format(v.name, type(value)))
      end
      v:assign(value)
    end
  end
end

local function constructor(make, name)
  return function(given) return make(name, given) end
end

return require "mgpu.nn.named_rules".define(M, { kind = "constraint", rules = rules, short = SHORT, check = check,
  constructor = constructor })
