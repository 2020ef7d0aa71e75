--- Gradients against central differences.
local core = require "mgpu.core"
local in_float64 = require "mgpu.testing.float64"
local options = require "mgpu.options"

local ops = core.ops

local function declare(own)
  local list = { { "rtol", "number", default = 1e-5, above = 0 }, { "epsilon", "number", default = 1e-5, above = 0 },
    { "elements", "integer", default = 20, min = 1 } }
  table.insert(list, 1, own)
  return options.declare(list)
end

local GRADIENTS = declare { "variables", "table", default = {} }
local LAYER = declare { "training", "boolean", default = false }

local function fail(who, message, ...) core.fail("usage", who .. ": " .. message:format(...)) end
local function is_float(t) return t:dtype():find "^float" or t:dtype() == "bfloat16" end

-- A tensor or a list of them as a list, with floating point ones in float64.
local function in_list(who, inputs)
  local list = {}
  if core.is_tensor(inputs) then inputs = { inputs } end
  if type(inputs) ~= "table" then fail(who, "inputs are a list of tensors, got a %s", type(inputs)) end
  for i, x in ipairs(inputs) do
    if not core.is_tensor(x) then fail(who, "input %d must be a tensor, got a %s", i, type(x)) end
    list[i] = is_float(x) and ops.cast(x, { dtype = "float64" }) or x
  end
  return list
end

-- The sum of what fn returns, each element times a fixed number of its own: other sums have gradients that hide faults.
local function weighted(who, fn, inputs)
  local y = fn(unpack(inputs))
  if not core.is_tensor(y) then fail(who, "the function must return a tensor, got a %s", type(y)) end
  y = ops.cast(y, { dtype = "float64" })
  local n = ops.iota { shape = { y:count() }, axis = 1, dtype = "float64" }
  return ops.sum(ops.reshape(y, { shape = { -1 } }) * (ops.sin(n * 2.3 + 1) + 1.5))
end

-- Up to `most` positions of n, from 0, spread evenly.
local function positions(n, most)
  local list = {}
  for i = 1, math.min(n, most) do list[i] = math.floor((i - 1) * n / math.min(n, most)) end
  return list
end

-- t with element `at` (from 0) changed by `by`.
local function nudged(t, at, by)
  local flat = ops.reshape(t, { shape = { -1 } })
  local here = ops.eq(ops.iota { shape = { t:count() }, axis = 1, dtype = "int32" }, at)
  return ops.reshape(flat + ops.cast(here, { dtype = "float64" }) * by, { shape = t:shape() })
end

-- One tensor to differentiate by: put(t) gives it another value, loss() computes.
local function compare(who, name, value, gradient, put, loss, given)
  local largest = gradient and ops.max(ops.abs(gradient)):item() or 0
  for _, at in ipairs(positions(value:count(), given.elements)) do
    put(nudged(value, at, given.epsilon))
    local above = loss()
    put(nudged(value, at, -given.epsilon))
    local below = loss()
    put(value)
    local slope = (above - below) / (2 * given.epsilon)
    local got = gradient and ops.reshape(gradient, { shape = { -1 } }):slice { at + 1 }:item() or 0
    -- a difference of two losses is rounded to 1e-16 of them, which the division makes larger
    local allowed = given.rtol * math.max(math.abs(slope), largest)
      + 1e-15 * (math.abs(above) + math.abs(below) + 1) / given.epsilon
    if not (math.abs(got - slope) <= allowed) then
      fail(who, "element %d of the gradient by %s is %.9g, but differences say %.9g (allowed: %.2g apart)", at + 1,
        name, got, slope, allowed)
    end
  end
end

-- values: tensors, of in_list.
local function check(who, fn, values, given)
  local state, variables = core.rng_state(), given.variables
  for i, v in ipairs(variables) do
    if not core.is_variable(v) then fail(who, "variable %d must be a variable, got a %s", i, type(v)) end
    if v:dtype() ~= "float64" then
      fail(who, "variable %d is %s: differences need float64 (mgpu.set_floatx before it is made)", i, v:dtype())
    end
  end
  local function total()
    core.rng_state(state) -- the same random numbers in each call
    return weighted(who, fn, values)
  end
  local list = {}
  for i, x in ipairs(values) do
    if is_float(x) and x:count() > 0 then list[#list + 1] = { "input " .. i, x, i } end
  end
  if #list + #variables == 0 then
    fail(who, "there is nothing to differentiate by: no floating point input, and no variable")
  end
  local watched = {}
  for i, entry in ipairs(list) do watched[i] = entry[2] end
  for _, v in ipairs(variables) do watched[#watched + 1] = v end
  local _, gradients = core.value_and_grad(total, watched)()
  local function loss() return total():item() end
  for i, entry in ipairs(list) do
    compare(who, entry[1], entry[2], gradients[i], function(t) values[entry[3]] = t end, loss, given)
  end
  for i, v in ipairs(variables) do
    compare(who, v.name, v:value(), gradients[#list + i], function(t) v:assign(t) end, loss, given)
  end
end

local M = {}

--- check_gradients(fn, inputs, {variables = {}, rtol = 1e-5, epsilon = 1e-5, elements = 20}): an error unless the
--- gradients of fn(unpack(inputs)) are those of central differences.
-- inputs: tensors; floating point ones become float64, and all of these are differentiated by. variables: what fn reads
-- besides, in float64. Of each tensor, up to `elements` are tried, each moved by epsilon to both sides; a gradient may
-- be off by rtol of the largest one and by rounding. Every call sees the same random numbers. Near a kink, as that of
-- relu at 0, differences say nothing: choose inputs away from it.
-- Example:
--     local x = mgpu.tensor { 0.5, 1, 2 }
--     mgpu.testing.check_gradients(function(t) return t:log() * t end, { x })
--     print(pcall(mgpu.testing.check_gradients, function(t) return t * t:stop_gradient() end, { x }))
--     --> false	... check_gradients: element 1 of the gradient by input 1 is ...
function M.check_gradients(fn, inputs, given)
  if type(fn) ~= "function" and not getmetatable(fn) then
    fail("check_gradients", "expected a function, got a %s", type(fn))
  end
  local values = in_list("check_gradients", inputs)
  check("check_gradients", fn, values, options.check("check_gradients", GRADIENTS, given or {}))
end

--- check_layer(make, inputs, {training = false, rtol, epsilon, elements}): check_gradients for a layer, by its inputs
--- and trainable weights.
-- make() returns the layer; it is called while the policy is "float64", so that the weights are. inputs: a tensor,
-- or a list of those that the layer takes.
-- Example:
--     mgpu.seed(1)
--     mgpu.testing.check_layer(function() return mgpu.layers.Dense { 3, activation = "tanh" } end, mgpu.rand { 2, 4 })
function M.check_layer(make, inputs, given)
  given = options.check("check_layer", LAYER, given or {})
  if type(make) ~= "function" then
    fail("check_layer", "expected a function that makes the layer, got a %s", type(make))
  end
  local list = in_list("check_layer", inputs)
  in_float64(function()
    local layer = make()
    if type(layer) ~= "table" or not layer.ensure_built then
      fail("check_layer", "the function must return a layer, got a %s", type(layer))
    end
    local function call(...)
      local x = select("#", ...) > 1 and { ... } or (...)
      return layer(x, { training = given.training })
    end
    call(unpack(list)) -- makes the weights
    check("check_layer", call, list, { variables = layer.trainable_variables, rtol = given.rtol,
      epsilon = given.epsilon, elements = given.elements })
  end)
end

return M
