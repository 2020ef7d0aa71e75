-- Tests every op with its cases in tests/ops/rows.lua: the value on the default device compared with ref, the
-- gradient in float64 on ref compared with central differences, and the messages about wrong input. Every op
-- must have a case.
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"
local rows = dofile "tests/ops/rows.lua"
local test = check.test

-- ---- inputs by formula --------------------------------------------------------------------------

local count = check.count

-- Low-discrepancy numbers in [0, 1). No two of a tensor are equal, so that maxima have no ties.
local function unit(i, salt) return (0.5 + i * 0.6180339887498949 + salt * 0.7548776662466927) % 1 end

local function fill(input, salt)
  local values = {}
  for i = 1, count(input[1]) do
    local u = unit(i, salt)
    if input.ints then
      values[i] = math.floor(u * input.ints)
    elseif input.choose then
      values[i] = input.choose[1 + math.floor(u * #input.choose)]
    else
      values[i] = input[2] + u * (input[3] - input[2])
    end
  end
  return values
end

local NOT_ATTRIBUTES = { dtypes = 1, grad = 1, tol = 1, why = 1, error = 1, as = 1 }

local function options(case)
  local o = {}
  for k, v in pairs(case) do
    if type(k) == "string" and not NOT_ATTRIBUTES[k] then o[k] = v end
  end
  return o
end

local function tensor(values, shape, dtype, device)
  if #values == 0 then return mgpu.zeros(shape, { dtype = dtype, device = device }) end
  return mgpu.tensor(values, { dtype = dtype, device = device }):reshape(shape)
end

local function input_dtype(case, input, dtype)
  if input.dtype then return input.dtype end
  if input.ints or input.choose then
    if case.as then return case.as end
    return (input.choose and case.dtypes) and dtype or "int32"
  end
  return dtype
end

local function inputs(case, dtype, device)
  local list = {}
  for i = 2, #case do
    local input = case[i]
    if input.pooled then
      list[#list + 1] = core.ops.max_pool2d(list[input.pooled], { size = case.size,
        strides = case.strides, pads = case.pads })
    else
      list[#list + 1] = tensor(fill(input, i), input[1], input_dtype(case, input, dtype), device)
    end
  end
  return list
end

local function apply(case, list)
  local arguments = {}
  for i, t in ipairs(list) do arguments[i] = t end
  arguments[#arguments + 1] = options(case)
  return core.ops[case[1]](unpack(arguments))
end

local function flat(t)
  local n = t:count()
  if n == 0 then return {} end
  return t:reshape({ n }):to("float64"):totable()
end

-- ---- value: the default device against ref ------------------------------------------------------

local DEVICE = core.default_device()
local ON_GPU = DEVICE:match "^cuda" ~= nil

local FLOATS = { "float32", "float64", "float16", "bfloat16" }

-- Relative to the largest number of the result. float64: another order of the same operations; 16-bit: two
-- roundings to 11 and to 8 bits. float32 has the tolerance of the case.
local TOLERANCE = { float64 = 1e-13, float16 = 2e-3, bfloat16 = 1.6e-2 }

local function largest(values)
  local top = 0
  for _, v in ipairs(values) do
    if v == v and math.abs(v) < 1e300 then top = math.max(top, math.abs(v)) end
  end
  return top
end

local function compare(case, got, expected, tolerance)
  local scale = largest(expected)
  if #got ~= #expected then check.fail(("%d elements, expected %d"):format(#got, #expected)) end
  for i = 1, #got do
    local a, e = got[i], expected[i]
    local same = a == e or (a ~= a and e ~= e) or math.abs(a - e) <= tolerance * scale
    if not same then
      check.fail(("%s: element %d is %.9g, ref says %.9g (scale %g, tolerance %g)"):format(case[1], i,
        a, e, scale, tolerance))
    end
  end
end

local function on_device(case, dtype, device)
  local previous = core.default_device()
  core.default_device(device)
  core.seed(3) -- random ops draw the same numbers on both devices
  local ok, result = pcall(function() return apply(case, inputs(case, dtype, device)) end)
  core.default_device(previous)
  if not ok then error(result, 0) end
  return result
end

local function has_float_input(case)
  for i = 2, #case do
    if not case[i].ints and not (case[i].choose and not case.dtypes) then return true end
  end
  return false
end

local function dtypes(case)
  if case.dtypes then return case.dtypes end
  if not has_float_input(case) then return { "float32" } end
  return FLOATS
end

local function value_test(case, device)
  for _, dtype in ipairs(dtypes(case)) do
    local expected = on_device(case, dtype, "ref:0")
    local got = on_device(case, dtype, device)
    check.equal(got:shape(), expected:shape())
    check.equal(got:dtype(), expected:dtype())
    local tolerance = TOLERANCE[dtype] or case.tol or 2e-6
    if not has_float_input(case) and #case > 1 then tolerance = case.tol or 2e-6 end
    compare(case, flat(got), flat(expected), tolerance)
  end
end

-- ---- gradient: float64 on ref against central differences ---------------------------------------

local STEP = 1e-6 -- a central difference has an error of about STEP^2 (truncation) + 1e-16 / STEP (rounding)
local GRADIENT_TOLERANCE = 2e-7

local function weighted_sum(case, list)
  local y = apply(case, list)
  local weights = tensor(fill({ y:shape(), -1, 1 }, 99), y:shape(), "float64", "ref:0")
  return (y:to "float64" * weights):sum()
end

local function differentiable(case)
  if case.grad == false then return {} end
  if case.grad then return case.grad end
  local list = {}
  for i = 2, #case do
    if not (case[i].ints or case[i].choose) then list[#list + 1] = i - 1 end
  end
  return list
end

local function central_difference(case, which, values, shape, list, element)
  local function at(v)
    local moved = {}
    for i = 1, #values do moved[i] = values[i] end
    moved[element] = v
    local arguments = {}
    for i, t in ipairs(list) do arguments[i] = t end
    arguments[which] = tensor(moved, shape, "float64", "ref:0")
    return weighted_sum(case, arguments):item()
  end
  return (at(values[element] + STEP) - at(values[element] - STEP)) / (2 * STEP)
end

local function gradient_test(case)
  local list = inputs(case, "float64", "ref:0")
  for _, which in ipairs(differentiable(case)) do
    local shape = list[which]:shape()
    local values = flat(list[which])
    local gradient = core.grad(function(x)
      local arguments = {}
      for i, t in ipairs(list) do arguments[i] = t end
      arguments[which] = x
      return weighted_sum(case, arguments)
    end)(list[which])
    local got = gradient and flat(gradient) or {}
    local step = math.max(1, math.floor(#values / 24)) -- about 24 elements of each input
    local scale = math.max(1, largest(got))
    for element = 1, #values, step do
      local expected = central_difference(case, which, values, shape, list, element)
      local off = math.abs((got[element] or 0) - expected)
      if not (off <= GRADIENT_TOLERANCE * scale) then
        check.fail(("%s: gradient by input %d, element %d is %.9g, differences say %.9g"):format(
          case[1], which, element, got[element] or 0, expected))
      end
    end
  end
end

-- ---- the tests ----------------------------------------------------------------------------------

local function label(case, number)
  local parts = {}
  for i = 2, #case do parts[#parts + 1] = "{" .. table.concat(case[i][1], ",") .. "}" end
  return ("%s %s #%d"):format(case[1], table.concat(parts, " "), number)
end

test("every op of the runtime has a case in rows.lua", function()
  local covered = {}
  for _, case in ipairs(rows) do covered[case[1]] = true end
  local missing = {}
  for _, row in ipairs(core.op_rows()) do
    if not covered[row.name] then missing[#missing + 1] = row.name end
  end
  check.equal(missing, {})
end)

test("every op and every attribute has a description", function()
  for _, row in ipairs(core.op_rows()) do
    check.truthy(#row.doc > 0, row.name .. "'s documentation")
    for _, a in ipairs(row.attrs) do check.truthy(#a.doc > 0, row.name .. "." .. a.name) end
  end
end)

for number, case in ipairs(rows) do
  if case.error then
    test(label(case, number) .. " is refused", function()
      check.raises(function()
        local y = on_device(case, "float32", "ref:0")
        return y:item()
      end, case.error)
    end)
  else
    test(label(case, number) .. " is the same on ref and " .. DEVICE, function()
      if DEVICE:match "^ref" then check.skip "no cpu plug-in" end
      value_test(case, DEVICE)
    end)
    if #differentiable(case) > 0 and not ON_GPU then -- computed on ref, whatever the default device is
      test(label(case, number) .. " has the gradient of central differences", function()
        gradient_test(case)
      end)
    end
  end
end
