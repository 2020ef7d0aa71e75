-- Several processes train the numbers of one: rank_cases.lua, run by several launchers on several numbers of ranks.

local check = require "check"
local ranks = require "world.ranks"
local test = check.test

check.needs "cpu"

local launch, lines_of, only, same_bits = ranks.launch, ranks.lines_of, ranks.only, ranks.same_bits

-- The bounds of the cases by name. float64: some ten steps of sums in another order, whose rounding Adam may enlarge
-- where a gradient is small.
local bounds = ranks.bounds_of "rank_cases"

local function same_to_rounding(text, expected) ranks.same_to_rounding(text, expected, bounds) end

-- Asserts that all values but `said` are those of another run to rounding.
local function same_but_said(text, expected)
  local function without(lines) return (lines:gsub("[^\n]+: said\t[^\n]*\n", "")) end
  same_to_rounding(without(text), without(expected))
end

-- What one process computes on n devices.
local cache = {}
local function alone(n)
  cache[n] = cache[n] or launch("alone", 1, "rank_cases", n == 1 and "cpu:0" or "cpu:0-" .. n - 1)
  return cache[n]
end

-- ---- the same numbers --------------------------------------------------------------------------------

for _, n in ipairs { 2, 3, 4, 8 } do
  test(("%d processes train the bits of %d devices of one process, and one device's numbers to rounding"):format(n, n),
    function()
      if n > 3 then check.slow() end
      local text = launch("np", n, "rank_cases", "cpu:0")
      same_bits(text, alone(n))
      same_to_rounding(text, alone(1))
    end)
end

-- More ranks than send to each other directly, so that they gather in rounds: of a power of two, and of none.
for _, n in ipairs { 11, 16 } do
  test(("%d processes train the bits of %d devices of one process"):format(n, n), function()
    if n > 11 then check.slow() end
    local names = { "dense layers", "weights of megabytes", "a masked mean of words" }
    local text = launch("np", n, "rank_cases", "cpu:0", names)
    same_bits(text, launch("alone", 1, "rank_cases", "cpu:0-" .. n - 1, names))
  end)
end

-- The first number of a line.
local function first_number(text, name) return tonumber(lines_of(text)[name]:match "[-%d.e]+") end

test("acc counts each of 1000 rows once on three ranks", function()
  local text = launch("np", 3, "rank_cases", "cpu:0", { "acc counts each row once" })
  check.near(tonumber(text:match "\t%S+ (%S+)"), 0.637, 1e-15) -- the first is the loss
end)

test("bn = local gives other numbers than one device, since each normalises its own rows", function()
  local name = "batch normalization of each device alone"
  local text = launch("np", 2, "rank_cases", "cpu:0", { name })
  local off = first_number(text, name .. ": evaluated") - first_number(alone(1), name .. ": evaluated")
  check.truthy(math.abs(off) > 1e-3, "the difference")
end)

test("one process of a launcher trains the bits of one without a launcher", function()
  same_bits(launch("np", 1, "rank_cases", "cpu:0"), alone(1))
end)

test("two runs of several processes write the same bytes", function()
  local names = { "dropout and noise", "a shuffled dataset with prefetch", "convolutions and pooling in float32" }
  local first = launch("np", 3, "rank_cases", "cpu:0", names)
  check.equal(launch("np", 3, "rank_cases", "cpu:0", names), first)
end)

-- Cases in which most can go wrong with another division of rows.
local FEW = { "dropout and noise", "batch normalization", "batches of one row", "metrics of one probability",
  "a step of mgpu.jit", "a masked mean of words", "accumulated gradients", "a shuffled dataset with prefetch",
  "device groups", "weights of megabytes" }

test("ranks may have several devices, and not all as many", function()
  for _, devices in ipairs { "cpu:0-1", "cpu:0-1;cpu:0", "cpu:0;cpu:0-2" } do
    same_to_rounding(launch("np", 2, "rank_cases", devices, FEW), only(alone(1), FEW))
  end
end)

-- Number of ranks, their devices, and the devices of one process that train the same bits.
local WEIGHTED = {
  { 2, "cpu:0=3;cpu:0=1", "cpu:0=3,cpu:1=1" },
  { 2, "cpu:0=3;cpu:0", "cpu:0=3,cpu:1=1" }, -- a rank without weights has 1 for each device
  { 2, "cpu:0=1;cpu:0=50", "cpu:0=1,cpu:1=50" }, -- rank 0 gets no row
  { 3, "cpu:0=5,cpu:1=1;cpu:0=2", "cpu:0=5,cpu:1=1,cpu:2=2,cpu:3=2" },
}

test("ranks that give weights share the rows as the devices of one process do", function()
  local names = {}
  for _, name in ipairs(FEW) do
    if name ~= "device groups" then names[#names + 1] = name end
  end
  for _, case in ipairs(WEIGHTED) do
    local n, devices, together = unpack(case)
    local text = launch("np", n, "rank_cases", devices, names)
    same_bits(text, launch("alone", 1, "rank_cases", together, names), devices)
    same_to_rounding(text, only(alone(1), names))
  end
end)

for _, launcher in ipairs { "openmpi", "mpich" } do
  test(launcher .. " gives the same bits", function()
    for _, n in ipairs { 2, 3 } do
      same_bits(launch(launcher, n, "rank_cases", "cpu:0", FEW), only(alone(n), FEW))
    end
  end)
end

-- ---- ranks that differ ----------------------------------------------------------------------------------

-- Case of wrong_rank_cases.lua -> the error.
local MADE = "the step that rank 1 has made differs from that of rank 0 "
local OTHER = "of rank 1 is not that of rank 0: its "
local SAME = ": give all ranks the same data in the same order, as they share the rows of each batch"
local DIFFERS = {
  nothing = "^nothing$",
  ["variables of a step of its own"] = "the ranks have different values of the variable %S+: load or make",
  rows = "train_on_batch: x " .. OTHER .. "shape or dtype differs" .. SAME,
  ["values of x"] = "fit: x " .. OTHER .. "values differ" .. SAME,
  ["values of the labels"] = "fit: y " .. OTHER .. "values differ" .. SAME,
  ["values of weights"] = "evaluate: sample_weight " .. OTHER .. "values differ" .. SAME,
  ["weights on one rank"] = "fit: rank 1 has not as many tensors as rank 0" .. SAME,
  ["weights of classes"] = "fit: class_weight of rank 1 is not that of rank 0" .. SAME,
  ["validation data"] = "fit: validation_data: y " .. OTHER .. "values differ" .. SAME,
  ["rows in another order"] = "predict: x " .. OTHER .. "values differ" .. SAME,
  ["a fourth batch"] = "train_on_batch: x " .. OTHER .. "values differ" .. SAME,
  ["batch size"] = MADE .. "in the number of rows of the batch: give all",
  ["rows of a last batch"] = "fit: x " .. OTHER .. "shape or dtype differs" .. SAME,
  units = MADE .. "in its operations and shapes: all ranks",
  optimizer = MADE .. "in the number of variables that it changes: all ranks must make the same model and optimizer",
  layers = MADE .. "in the number of its operations: all ranks must run the same script",
  seed = MADE .. "in the random seed: call mgpu.seed with the same number on all ranks",
  draws = MADE .. "in the number of random numbers drawn so far: all ranks must make the same random draws",
  predict = "predict: x " .. OTHER .. "shape or dtype differs" .. SAME,
  ["alone: run_eagerly"] = "compile: run_eagerly works in one process only, but 3 run this script: leave it out",
  ["alone: async"] = 'compile: strategy "async" works in one process only, but 3 run',
  ["alone: set_devices in a callback"] = "set_devices: a callback cannot change the devices of a model that several",
  ["alone: trainable in a callback"] = "a callback cannot change which layers are trainable while several processes",
  ["another step"] = "has come to another step than rank 0: all ranks must make the same steps in the same order",
  ["a step that rank 0 does not make"] = "rank 1 has come to a call of fit, evaluate or predict, but rank 0 to the end",
  ["draws between two steps"] = "the random numbers of rank 1 are not those of rank 0: all ranks must have the same",
  ["a seed between two steps"] = "the random numbers of rank 1 are not those of rank 0",
  ["a callback that one rank lacks"] = "rank 1 has come to the end of an epoch, but rank 0 to a callback",
}

for _, method in ipairs { "fit", "evaluate", "predict", "validate with" } do
  DIFFERS["batches to " .. method] = "rank 1 has come to the end of its data or a barrier, but rank 0 to a step: all "
    .. "ranks must make the same steps, so their data must have equally many batches"
end

local function check_differing(text)
  local lines = lines_of(text)
  for name, expected in pairs(DIFFERS) do
    local said = lines[name .. ": said"] or "no such case"
    check.matches(said, expected)
  end
  same_but_said(text, launch("alone", 1, "wrong_rank_cases", "-"))
end

for _, launcher in ipairs { "np", "openmpi", "mpich" } do
  test(launcher .. ": a rank whose step is another one is named on all ranks, which can go on with equal steps",
    function() check_differing(launch(launcher, 3, "wrong_rank_cases", "-")) end)
end

test("work of rank 0 alone may take longer than the deadline", function()
  local path = check.path "slow.lua"
  check.write(path, [[
    local mgpu = require "mgpu"
    local model = mgpu.Sequential { mgpu.layers.Input { 2 }, mgpu.layers.Dense { 1 } }
    model:compile { loss = "mse" }
    local function work() os.execute "sleep 2" end
    model:fit(mgpu.ones { 4, 2 }, mgpu.ones { 4, 1 }, { verbose = 0, callbacks = { { on_epoch_end = work } } })
    if mgpu.world().rank == 0 then work() end
    mgpu.world():barrier()
    print(mgpu.world().size)]])
  local text = check.run(("MGPU_DEADLINE=1 %s --np 2 --output all %s 2>&1 </dev/null"):format(check.program, path))
  check.equal(text, "2\n2\n")
end)

test("an error that one rank alone raises ends all, with its reason", function()
  local path = check.path "alone.lua"
  check.write(path, [[
    local mgpu = require "mgpu"
    local model = mgpu.Sequential { mgpu.layers.Input { 2 }, mgpu.layers.Dense { 1 } }
    model:compile { loss = "mse" }
    local i = 0
    local data = mgpu.data.generator(function()
      return function()
        i = i + 1
        if i == 30 and mgpu.world().rank == 1 then error "no such file" end
        return mgpu.ones { 2 }, mgpu.ones { 1 }
      end
    end)
    model:fit(data:batch(4), { steps_per_epoch = 100, verbose = 0 })]])
  local text, status = check.run(("timeout 60 %s --np 3 --output all %s 2>&1 </dev/null"):format(check.program, path))
  check.equal(status, 1)
  check.matches(text, "no such file %(generator: the function at %S+, element 30%)")
  local _, told = text:gsub("fit: epoch 1, step %d+: rank 1 %(host %S+, pid %d+%) failed: [^\n]*no such file", "")
  if told ~= 2 then check.fail(("%d ranks were told: %s"):format(told, text)) end
end)

test("a training that goes on with fewer ranks keeps the factor of the learning rate", function()
  local path = check.path "scaled.lua"
  check.write(path, [[
    local mgpu = require "mgpu"
    mgpu.seed(1)
    local x = mgpu.rand({ 23, 3 }, { dtype = "float64" })
    local y = x:sum { axis = 2, keepdims = true }
    mgpu.set_floatx "float64"
    local model = mgpu.Sequential { mgpu.layers.Input { 3 }, mgpu.layers.Dense { 1 } }
    model:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { mgpu.schedules.ExponentialDecay { 0.02, 2, 0.5 } },
      lr_scale = "linear" }
    model:fit(x, y, { batch_size = 8, epochs = tonumber(arg[2]), verbose = 2, resume = arg[1] })
    print(("%.10g %.10g"):format(model:get_weights()[1]:sum():item(), model.optimizer.learning_rate))]])
  local function run(n, folder, epochs)
    return check.run(("timeout 100 %s --np %d %s %s %d 2>&1 </dev/null"):format(check.program, n, path,
      check.path(folder), epochs))
  end
  local whole = run(4, "whole", 4)
  check.matches(whole, 'fit: lr_scale = "linear": the learning rate is multiplied by 4, for 4 devices\n')
  run(4, "cut", 2)
  local resumed = run(2, "cut", 4)
  check.matches(resumed, "fit: lr_scale: keeps the factor 4 of the first run; 2 devices would give 2\n")
  check.equal(resumed:match "([^\n]*)\n$", whole:match "([^\n]*)\n$")
end)

-- ---- callbacks --------------------------------------------------------------------------------------------

test("callbacks decide for all ranks, and an error in one is raised on all, which can go on", function()
  local expected, text = launch("alone", 1, "rank_callback_cases", "-"), nil
  for _, n in ipairs { 2, 3 } do
    text = launch("np", n, "rank_callback_cases", "-")
    same_to_rounding(text, expected)
  end
  local lines = lines_of(text)
  check.equal(lines["error: on_epoch_end raises: said"], "no more")
  check.matches(lines["error: a loss that is not finite: said"], "is not finite")
  check.equal(lines["error: a row that is infinite: same"], "true")
  check.equal(lines["error: a loss that is not finite: same"], "true")
  check.equal(lines["stop_training after an epoch: stopped"], "true")
end)
