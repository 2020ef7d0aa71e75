-- The gradient of every op that has one, in float64 on ref, compared with central differences, for the cases of
-- rows.lua. Which device, instruction set and number of threads are chosen makes no difference here.
local check = require "check"
local core = require "mgpu.core"
local cases = require "ops.cases"
local rows = dofile "tests/ops/rows.lua"

local apply, fill, flat, inputs, largest, tensor =
  cases.apply, cases.fill, cases.flat, cases.inputs, cases.largest, cases.tensor

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

for number, case in ipairs(rows) do
  if not case.error and #differentiable(case) > 0 then
    check.test(cases.label(case, number) .. " has the gradient of central differences", function()
      gradient_test(case)
    end)
  end
end
