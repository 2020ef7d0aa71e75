-- Tests every op with its cases in tests/ops/rows.lua: the value on the default device compared with ref, and the
-- messages about wrong input. Every op must have a case. gradients_spec.lua tests the gradients.
local check = require "check"
local core = require "mgpu.core"
local cases = require "ops.cases"
local rows = dofile "tests/ops/rows.lua"
local test = check.test

local flat, label = cases.flat, cases.label
local DEVICE = core.default_device()

local function value_test(case, device)
  for _, dtype in ipairs(cases.dtypes(case)) do
    local expected, got = cases.on_devices(case, dtype, "ref:0", device)
    check.equal(got:shape(), expected:shape())
    check.equal(got:dtype(), expected:dtype())
    cases.compare(case, flat(got), flat(expected), cases.tolerance(case, dtype))
  end
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
        return cases.on_devices(case, "float32", "ref:0"):item()
      end, case.error)
    end)
  else
    test(label(case, number) .. " is the same on ref and " .. DEVICE, function()
      if DEVICE:match "^ref" then check.skip "no cpu plug-in" end
      value_test(case, DEVICE)
    end)
  end
end
