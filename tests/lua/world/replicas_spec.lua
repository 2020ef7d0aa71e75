-- Strategies in which ranks train weights of their own, or send compressed gradients: the numbers are those of the
-- formulas (replica_cases.lua), and equal on all ranks.
local check = require "check"
local ranks = require "world.ranks"
local test = check.test

check.needs "cpu"

local bounds = ranks.bounds_of "replica_cases"

for _, n in ipairs { 2, 3, 4 } do
  test(("%d ranks bring their replicas together by the formulas"):format(n), function()
    ranks.same_to_rounding(ranks.launch("np", n, "replica_cases", "cpu:0"),
      ranks.launch("alone", 1, "replica_cases", tostring(n)), bounds)
  end)
end

for _, devices in ipairs { "cpu:0", "cpu:0;cpu:0-1" } do
  test("replicas with batch normalization and dropout learn, and end equal on all ranks: " .. devices, function()
    local lines = ranks.lines_of(ranks.launch("np", 3, "replica_fits", devices))
    for name, value in pairs(lines) do
      if name:find ": error$" then check.fail(name .. ": " .. value) end
      if name:find ": learned$" then check.equal(value, "true", name) end
    end
    check.equal(lines["resumed: off"], "0")
    for name, message in pairs {
      local_sgd = "step 2: on some rank in the last 2 steps: the loss is not finite (NaN or infinite): the ranks have "
        .. "met since: the weights are what they agreed on",
      mirrored = "step 1: the loss is not finite (NaN or infinite): the weights are those before this step" } do
      local what = name .. ": a loss that is not finite: "
      check.equal(lines[what .. "message"], message)
      check.equal({ lines[what .. "ok"], lines[what .. "epochs"] }, { "false", "1" })
    end
  end)
end

-- ---- what cannot be -----------------------------------------------------------------------------

local function error_of(code)
  local path = check.path "wrong.lua"
  check.write(path, [[
    local mgpu = require "mgpu"
    local model = mgpu.Sequential { mgpu.layers.Input { 2 }, mgpu.layers.Dense { 1 } }
    local strategy, x, y = mgpu.parallel.strategy, mgpu.ones { 1, 2 }, mgpu.ones { 1, 1 }
    local ok, message = pcall(function() ]] .. code .. [[ end)
    print(message)]])
  return check.run(("%s --np 2 %s 2>&1 </dev/null"):format(check.program, path))
end

local WRONG = {
  { 'model:compile { loss = "mse", strategy = "local_sdg" }',
    'strategy: unknown strategy "local_sdg" %(did you mean "local_sgd"%?%); there are mirrored, central, async, ' },
  { 'strategy("mirrored", { compression = "int8" })',
    'strategy: option "compression" must be "float16", "bfloat16" or {top_k = fraction}' },
  { 'strategy("mirrored", { compression = { top_k = 1.5 } })', 'option "compression" must be' },
  { 'strategy("elastic", { period = 0 })', 'strategy: option "period" must be at least 1, got 0' },
  { 'model:compile { loss = "mse", strategy = "adasum", accumulate = 2 }',
    'compile: accumulate cannot be combined with strategy "adasum": leave it out' },
  { 'model:compile { loss = "mse", strategy = strategy("mirrored", { compression = "float16" }), '
    .. "steps_per_execution = 2 }",
    'compile: steps_per_execution cannot be combined with strategy "mirrored" and compression: leave it out' },
  { 'model:compile { loss = "mse", strategy = "adasum", devices = { { "cpu:0" }, { "cpu:1" } } }',
    'compile: device groups cannot be combined with strategy "adasum"' },
  { 'model:compile { loss = "mse", strategy = strategy("mirrored", { compression = "float16" }) } '
    .. "model:fit(x, y, { verbose = 0 })", "the first batch has fewer rows than there are ranks" },
  { 'model:compile { loss = "mse", strategy = strategy("mirrored", { compression = "float16" }) } '
    .. "model:fit(x:broadcast_to { 4, 2 } * 1e5, y:broadcast_to { 4, 1 }, { verbose = 0 })",
    "the sum of a gradient over the ranks is not finite: float16 holds numbers up to 65504" },
  { 'model:compile { loss = "mse", optimizer = mgpu.optimizers.LossScaleOptimizer { "sgd" }, '
    .. 'strategy = strategy("mirrored", { compression = { top_k = 0.1 } }) } model:fit(x, y, { verbose = 0 })',
    "compression {top_k = ...} cannot be combined with loss scaling" },
  { 'model:compile { loss = "mse", strategy = "elastic" } model:fit(x, y, { verbose = 0, callbacks = { '
    .. 'mgpu.callbacks.BackupAndRestore { "/nowhere", save_freq = 3 } } })',
    'fit: BackupAndRestore: with strategy "elastic" there is a common state only at the end of an epoch' },
}

for _, case in ipairs(WRONG) do
  test("an error says " .. case[2], function() check.matches(error_of(case[1]), case[2]) end)
end
