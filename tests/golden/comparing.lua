-- Shared by the specs that compare layers with golden numbers: tensors from recipes, the comparison with
-- its tolerances, and the dtypes and devices in which every case runs.

local check = require "check"
local core = require "mgpu.core"
local hash = require "golden.hash"
local mgpu = require "mgpu"

local M = {}

local count = check.count

--- A tensor of the hashed numbers scale * centred + offset; scale is 1 and offset 0 by default.
function M.array(shape, dtype, salt, scale, offset)
  return mgpu.tensor(hash.array(count(shape), salt, scale, offset), { dtype = dtype }):reshape(shape)
end

--- The float64 tensor that a recipe stands for.
function M.tensor(recipe, shape)
  return M.array(shape, "float64", recipe.salt, recipe.scale, recipe.offset)
end

--- An int32 tensor of hashed ids from 0 to classes - 1.
function M.ids(shape, salt, classes)
  return mgpu.tensor(hash.labels(count(shape), salt, classes), { dtype = "int32" }):reshape(shape)
end

--- The images of the golden sets, float32: hashed whole numbers from 0 to 255.
function M.pixels(shape, salt) return M.ids(shape, salt, 256):to "float32" end

--- The largest |a - b|.
function M.largest_difference(a, b) return (a - b):abs():max():item() end

--- An axis, or a list of axes, of Keras (counted from 0) as an axis of mgpu (counted from 1). Negative axes
--- count from the end in both.
local function from_one(axis)
  if type(axis) == "number" then return axis >= 0 and axis + 1 or axis end
  local list = {}
  for i, a in ipairs(axis) do list[i] = from_one(a) end
  return list
end
M.from_one = from_one

--- The arguments of a case with Keras's axes converted to those of mgpu.
function M.arguments(case)
  local args = {}
  for key, value in pairs(case.args) do args[key] = value end
  for _, name in ipairs { "axis", "axes", "shared_axes" } do
    if args[name] then args[name] = from_one(args[name]) end
  end
  return args
end

local function show(value)
  if type(value) ~= "table" then return tostring(value) end
  return value.class_name or "{" .. table.concat(value, ", ") .. "}"
end

--- A name with arguments, for the names of tests: "SGD {learning_rate = 0.1, momentum = 0.9}".
function M.described(name, args)
  local parts = {}
  for key, value in pairs(args) do parts[#parts + 1] = key .. " = " .. show(value) end
  table.sort(parts)
  return ("%s {%s}"):format(name, table.concat(parts, ", "))
end

--- Asserts |a - b| <= tolerance * (|b| + r) for each number a of the tensor t, where b is the wanted number
--- and r the root mean square of all wanted numbers: it stands for the size of the terms in a sum, whose
--- rounding errors remain when they cancel. The error names the number that is furthest off.
function M.near(t, wanted, tolerance)
  local got, squares = t:reshape { -1 }:totable(), 0
  check.equal(#got, #wanted)
  for _, b in ipairs(wanted) do squares = squares + b * b end
  local rms = math.sqrt(squares / math.max(1, #wanted))
  local most, at = 0, 0
  for i, b in ipairs(wanted) do
    local off = math.abs(got[i] - b) / (tolerance * (math.abs(b) + rms) + 1e-300)
    if off ~= off then off = math.huge end
    if off > 1 and off > most then most, at = off, i end
  end
  if at > 0 then
    check.fail(("element %d is %.17g, expected %.17g within %g (rms %g)"):format(at, got[at], wanted[at], tolerance,
      rms))
  end
end

-- Every case runs in float64 on ref and on the default device, and in float32 on the default device.
local SETTINGS = {
  { dtype = "float64", device = "ref:0", tolerance = 1e-10 }, -- both sides compute in float64
  { dtype = "float64", tolerance = 1e-10 },
  { dtype = "float32", tolerance = 1e-5 }, -- sums of about 100 terms in float32
}

--- Calls fn(case, setting) in each of these settings: setting.tolerance, and setting.tensor(recipe, shape),
--- which makes a tensor in the dtype and on the device of the setting.
function M.in_all_settings(fn, case)
  for _, given in ipairs(SETTINGS) do
    local setting, before = { tolerance = given.tolerance }, core.default_device()
    function setting.tensor(recipe, shape)
      return M.tensor(recipe, shape):to(given.dtype):to(core.default_device())
    end
    mgpu.set_floatx(given.dtype)
    core.default_device(given.device or before)
    local ok, message = pcall(fn, case, setting)
    core.default_device(before)
    mgpu.set_floatx "float32"
    if not ok then
      error(("%s on %s: %s"):format(given.dtype, given.device or before, message), 0)
    end
  end
end

local function without_batch(shape) return { -1, select(2, unpack(shape)) } end

--- Compares a layer with several inputs in a setting: shapes, output and the gradients of the inputs.
function M.merge(case, setting)
  local layer, inputs, list, shapes = mgpu.layers[case.layer](M.arguments(case)), {}, {}, {}
  for k, recipe in ipairs(case.inputs) do
    inputs[k] = mgpu.variable(setting.tensor(recipe, case.input_shapes[k]))
    shapes[k] = without_batch(case.input_shapes[k])
  end
  local y
  local _, grads = mgpu.value_and_grad(function()
    for k, v in ipairs(inputs) do list[k] = v:value() end
    y = layer(list)
    return (y * setting.tensor(case.upstream, y:shape())):sum()
  end, inputs)()
  check.equal(y:shape(), case.output_shape)
  check.equal(layer:output_shape(shapes), without_batch(case.output_shape))
  M.near(y, case.output, setting.tolerance)
  for k, wanted in ipairs(case.input_gradients) do M.near(grads[k], wanted, setting.tolerance) end
end

--- Compares an Embedding in a setting: shapes, output and the gradient of the table, which its losses contribute to.
function M.embedding(case, setting)
  local layer = mgpu.layers.Embedding(case.args)
  layer:ensure_built(without_batch(case.shape))
  layer:set_weights { setting.tensor(case.weight, case.weight.shape) }
  local ids, y = M.ids(case.shape, case.ids_salt, case.args.input_dim), nil
  local _, grads = mgpu.value_and_grad(function()
    y = layer(ids)
    local sum = (y * setting.tensor(case.upstream, y:shape())):sum()
    for _, loss in ipairs(layer:losses()) do sum = sum + loss end
    return sum
  end, layer.weights)()
  check.equal(y:shape(), case.output_shape)
  check.equal(layer:output_shape(without_batch(case.shape)), without_batch(case.output_shape))
  M.near(y, case.output, setting.tolerance)
  M.near(grads[1], case.weight_gradient, setting.tolerance)
end

--- Makes one test of each case.
function M.tests_of(name, cases, fn)
  for i, case in ipairs(cases) do
    check.test(("%s %d: %s gives Keras's output and gradients"):format(name, i,
      case.layer or "Embedding"), function() M.in_all_settings(fn, case) end)
  end
end

return M
