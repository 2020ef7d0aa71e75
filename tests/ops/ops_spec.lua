-- Tests every op with its cases in tests/ops/rows.lua: the value on the default device compared with ref, the
-- gradient in float64 on ref compared with central differences, and the messages about wrong input. Every op
-- must have a case.
local check = require "check"
local core = require "mgpu.core"
local cases = require "ops.cases"
local rows = dofile "tests/ops/rows.lua"
local test = check.test

local fill, tensor, inputs, apply, flat = cases.fill, cases.tensor, cases.inputs, cases.apply, cases.flat
local largest, on_device = cases.largest, cases.on_device

-- ---- value: the default device against ref ------------------------------------------------------

local DEVICE = core.default_device()
local ON_GPU = DEVICE:match "^cuda" ~= nil

local function value_test(case, device)
  for _, dtype in ipairs(cases.dtypes(case)) do
    local expected = on_device(case, dtype, "ref:0")
    local got = on_device(case, dtype, device)
    check.equal(got:shape(), expected:shape())
    check.equal(got:dtype(), expected:dtype())
    cases.compare(case, flat(got), flat(expected), cases.tolerance(case, dtype))
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
