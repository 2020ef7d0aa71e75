--- The base of all schedules: a learning rate as a function of the step, by Keras's formulas.
--
--     local s = mgpu.schedules.ExponentialDecay { 0.1, decay_steps = 1000, decay_rate = 0.96 }
--     s(500)                                   -- a Lua number -> a Lua number
--     s(opt.iterations)                        -- a tensor -> a float64 tensor, on its device
--     mgpu.optimizers.SGD { learning_rate = s }
-- Steps count from 0. The options are fields of the schedule and never change, since a jitted step contains them.
--
-- A schedule's file calls define with rate(self, step, m): the formula, written once for numbers and for tensors;
-- m holds the functions (pow, cos, where, ...) for the type of `step`.
local core = require "mgpu.core"
local options = require "mgpu.options"

local ops = core.ops

local Schedule = {}

-- ---- options ------------------------------------------------------------------------------------

--- check(who, declared, given) -> options.check's result, with numbers that are finite and above the declared `above`.
--- Optimizers use it too.
function Schedule.check(who, declared, given)
  local chosen = options.check(who, declared, given)
  for _, option in ipairs(declared) do
    local name, value = option[1], chosen[option[1]]
    if type(value) == "number" then
      if value == math.huge or value == -math.huge then
        core.fail("usage", ("%s: option %q must be a finite number, got %g"):format(who, name, value))
      elseif option.above and value <= option.above then
        core.fail("usage", ("%s: option %q must be above %g, got %g"):format(who, name, option.above,
          value))
      end
    end
  end
  return chosen
end

-- ---- the functions in formulas -------------------------------------------------------------------

local numbers = { pow = math.pow, floor = math.floor, ceil = math.ceil, cos = math.cos, log = math.log,
  minimum = math.min }
function numbers.le(a, b) return a <= b end
function numbers.lt(a, b) return a < b end
function numbers.where(condition, a, b) if condition then return a else return b end end

local tensors = {}
for _, name in ipairs { "pow", "floor", "ceil", "cos", "log", "minimum", "le", "lt" } do
  tensors[name] = ops[name]
end

-- A number as a float64 tensor: beside a bool condition it would become float32.
local function exact(value)
  return type(value) == "number" and core.tensor(value, { dtype = "float64" }) or value
end
function tensors.where(condition, a, b) return ops.where(condition, exact(a), exact(b)) end

local function call(self, step)
  if type(step) == "number" then
    if step ~= step or step < 0 or step == math.huge then
      core.fail("usage", ("%s: the step must be a number of at least 0, got %g"):format(self.name, step))
    end
    return self:rate(step, numbers)
  end
  if not core.is_tensor(step) and not core.is_variable(step) then
    core.fail("usage", ("%s: the step must be a number or a tensor, got %s"):format(self.name,
      type(step)))
  end
  -- A formula that ignores the step returns a number: the sum makes it a tensor.
  return ops.add(self:rate(ops.cast(step, { dtype = "float64" }), tensors),
    core.tensor(0, { dtype = "float64" }))
end

-- ---- making schedules ---------------------------------------------------------------------------

local function copy(value)
  if type(value) ~= "table" then return value end
  local list = {}
  for i, v in ipairs(value) do list[i] = v end
  return list
end

--- schedule:get_config() -> the options, from which an equal schedule can be made.
-- Example:
--     local config = mgpu.schedules.ExponentialDecay { 0.1, decay_steps = 1000, decay_rate = 0.5 }:get_config()
--     print(config.initial_learning_rate, config.decay_rate)  --> 0.1 0.5
function Schedule:get_config()
  local config = {}
  for key, value in pairs(self.options) do config[key] = copy(value) end
  return config
end

--- define(definition) -> a class of schedules, to be called with options.
-- ARGS
--   definition.class     the class's name
--   definition.declared  its options, as mgpu.options declares them
--   definition.rate      see the top
--   definition.validate  (options, fail): further checks, may be nil
function Schedule.define(definition)
  local class = setmetatable({}, {
    __index = Schedule,
    __call = options.construct,
    __tostring = function() return "schedule class " .. definition.class end,
  })
  for key, value in pairs(definition) do class[key] = value end
  class.is_schedule = true
  local declared = { positional = #definition.declared, unpack(definition.declared) }
  declared[#declared + 1] = { "name", "string" }
  class.declared = declared

  local meta = { __call = call }
  function meta.__index(self, key)
    if key == "name" then return rawget(self, "options").name or definition.class end
    local value = rawget(self, "options")[key]
    if value == nil then value = class[key] end
    return value
  end
  function meta.__newindex(self, key)
    core.fail("usage", ("%s: a schedule cannot be changed (%q): make another one"):format(self.name,
      tostring(key)))
  end
  function meta.__tostring(self) return core.printable("schedule " .. self.name, true) end

  --- new(options) -> a schedule of the class; the same as calling the class.
  function class.new(given)
    local chosen = Schedule.check(definition.class, declared, given or {})
    for key, value in pairs(chosen) do chosen[key] = copy(value) end
    if definition.validate then
      definition.validate(chosen, function(message, ...)
        core.fail("usage", definition.class .. ": " .. message:format(...))
      end)
    end
    return setmetatable({ options = chosen }, meta)
  end
  return class
end

-- ---- finding ------------------------------------------------------------------------------------

--- is(value): whether it is a schedule.
function Schedule.is(value)
  return type(value) == "table" and rawget(value, "options") ~= nil and value.is_schedule == true
end

--- get(value) -> a schedule: itself, or made from {class_name =, config =}. Errors: config is not a table.
function Schedule.get(value)
  if Schedule.is(value) then return value end
  if type(value.config) ~= "table" then
    core.fail("usage", ("the schedule %q lacks a table config: give {class_name =, config =}, or one of mgpu.schedules")
      :format(value.class_name))
  end
  return require "mgpu.nn.schedules"[value.class_name](value.config)
end

--- saved(schedule) -> {class_name =, config =}, which JSON can hold.
function Schedule.saved(schedule)
  return { class_name = schedule.class, config = schedule:get_config() }
end

return Schedule
