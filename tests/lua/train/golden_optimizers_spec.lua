-- Every optimizer takes the steps of Keras (golden set optimizers): in float64, eagerly and compiled, in
-- float32, and continued from a saved configuration and state.

local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local mgpu = require "mgpu"
local comparing = require "golden.comparing"
local load_golden = require "golden.load"
local golden = load_golden "optimizers"

local test = check.test
local optimizers = mgpu.optimizers

-- The tensors of the set's shapes by the recipes salt, salt + 1 ...
local function tensors(salt, scale, dtype)
  local list = {}
  for k, shape in ipairs(golden.shapes) do
    list[k] = comparing.array(shape, dtype, salt + k - 1, scale)
  end
  return list
end

local function variables_of(dtype)
  local list = {}
  for k, t in ipairs(tensors(golden.value_salt, 1, dtype)) do
    list[k] = mgpu.variable(t, { name = "v" .. k })
  end
  return list
end

local function flat(variables)
  local list = {}
  for k, v in ipairs(variables) do list[k] = v:value():reshape({ -1 }):totable() end
  return list
end

-- Applies the golden gradients of the steps from .. to, counted from 0. step_of, if given, wraps the
-- function that applies a step.
local function steps(opt, variables, dtype, from, to, step_of)
  local function step(...) opt:apply({ ... }, variables) end
  opt:build(variables) -- a slot that starts as its variable cannot be made in a jitted step
  if step_of then step = step_of(step) end
  for s = from, to do
    step(unpack(tensors(golden.gradient_salt + 2 * s, 1 / (1 + s), dtype)))
  end
end

-- The variables after all steps of the case, then after finalize_variable_values, and the optimizer.
local function optimized(case, dtype, step_of)
  local opt, variables = optimizers[case.optimizer](case.args), variables_of(dtype)
  steps(opt, variables, dtype, 0, golden.steps - 1, step_of)
  local final = flat(variables)
  opt:finalize_variable_values(variables)
  return final, flat(variables), opt
end

for i, case in ipairs(golden.cases) do
  local name = ("optimizer %d, %s, "):format(i, comparing.described(case.optimizer, case.args))
  test(name .. "takes Keras's steps", function()
    local final, finalized = optimized(case, "float64")
    check.near(final, case.final, 1e-12)
    check.near(finalized, case.finalized or case.final, 1e-12)
  end)
  test(name .. "takes the same steps compiled, and near ones in float32", function()
    local final, finalized = optimized(case, "float64")
    local traces = {}
    local jitted, jit_finalized = optimized(case, "float64", function(step)
      return mgpu.jit(function(...)
        traces[#traces + 1] = true
        step(...)
      end)
    end)
    check.equal(jitted, final)
    check.equal(jit_finalized, finalized)
    check.equal(#traces, 1)
    check.near(optimized(case, "float32"), case.final, 1e-5)
  end)
end

test("every optimizer has golden numbers", function()
  local seen = {}
  for _, case in ipairs(golden.cases) do seen[case.optimizer] = true end
  for _, name in ipairs(fixtures.optimizer_classes()) do check.truthy(seen[name], name) end
  for _, name in ipairs(optimizers()) do check.truthy(optimizers[name].new, name) end
  check.equal(optimizers.adamw, optimizers.AdamW)
end)

test("an optimizer made from configuration and state continues every golden case", function()
  for i, case in ipairs(golden.cases) do
    local opt, variables = optimizers[case.optimizer](case.args), variables_of "float64"
    steps(opt, variables, "float64", 0, 4)
    local config = core.json_decode(core.json_encode(opt:get_config()))
    local copy, copies = optimizers[case.optimizer](config), variables_of "float64"
    copy:build(copies)
    check.equal(#copy:variables(), #opt:variables())
    for k, v in ipairs(opt:variables()) do copy:variables()[k]:assign(v:value()) end
    for k, v in ipairs(variables) do copies[k]:assign(v:value()) end
    steps(opt, variables, "float64", 5, 9)
    steps(copy, copies, "float64", 5, 9)
    opt:finalize_variable_values(variables)
    copy:finalize_variable_values(copies)
    check.equal({ i, flat(copies) }, { i, flat(variables) })
  end
end)
