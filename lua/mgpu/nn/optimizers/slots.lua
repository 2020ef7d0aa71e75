--- Slots: the variables that an optimizer keeps for each variable it trains, such as Adam's momentum.
local accumulation = require "mgpu.nn.optimizers.accumulation"
local averages = require "mgpu.nn.optimizers.averages"
local core = require "mgpu.core"

local ops = core.ops
local M = {}

-- A tensor of that shape with `value` everywhere, in the dtype and on the device of v. It is not part of a trace: a
-- slot may be made while a step is being traced, and must outlive it.
local function filled_like(v, shape, value)
  if not core.tracing() then
    local full = core.place(ops.full { shape = shape, value = value, dtype = v:dtype() }, v:device())
    core.eval(full)
    return full
  end
  local function nested(axis)
    local rows = {}
    for i = 1, shape[axis] do rows[i] = axis == #shape and value or nested(axis + 1) end
    return rows
  end
  return core.tensor(#shape == 0 and value or nested(1),
    { dtype = v:dtype(), device = v:device() })
end

-- What a slot of v starts with: of the rule, or one that every optimizer may have.
local function start_of(self, v, name, is_common)
  if is_common then return filled_like(v, v:shape(), 0) end
  local value = self:slot_start(name)
  if value ~= "variable" then return filled_like(v, self.slot_shape(name, v:shape()), value) end
  if core.tracing() then
    core.fail("usage", ("%s: the slot %q of %s starts as the variable: call opt:build(variables) before the first "
      .. "jitted step"):format(self.name, name, v.name))
  end
  return v:value()
end

--- make(optimizer, v): makes the slots of a variable: those of the rule, its average with use_ema, and the sum of its
--- gradients with gradient_accumulation_steps.
function M.make(self, v)
  local own, names = {}, self:slot_names(v)
  local n_of_rule = #names
  if self.options.use_ema then names[#names + 1] = averages.SLOT end
  if self.options.gradient_accumulation_steps then names[#names + 1] = accumulation.SLOT end
  for i, name in ipairs(names) do
    own[name] = core.variable(start_of(self, v, name, i > n_of_rule), {
      name = ("%s/%s"):format(v.name, name), trainable = false })
    self.state[#self.state + 1] = own[name]
  end
  self.slots[v] = own
  self.built[#self.built + 1] = v
end

return M
