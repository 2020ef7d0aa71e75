-- Parameter servers, and strategy "central" over processes (server_fits.lua).
local check = require "check"
local launched = require "lua.world.launched"
local ranks = require "world.ranks"
local test = check.test

check.needs "cpu"

-- Sums in another order, whose rounding Adam may enlarge where a gradient is small. float64.
local BOUND = 1e-9

-- What the cases of a launch have given, by their names; their texts are equal on all ranks (launch).
local function run(launcher, n, devices)
  local lines, order = ranks.lines_of(ranks.launch(launcher, n, "server_fits", devices))
  for _, name in ipairs(order) do
    local value = lines[name]
    if name:find ": error$" then check.fail(name .. ": " .. value) end
    if name:find ": off$" and not (tonumber(value) <= BOUND) then check.fail(name .. " by " .. value) end
    if name:find ": bounded$" then check.equal(value, "true", name) end
  end
  check.truthy(tonumber(lines["loss scaling: skipped"]) > 0, "a step is skipped")
  check.truthy(tonumber(lines["loss scaling: off in float32"]) < 1e-5, lines["loss scaling: off in float32"])
  for _, staleness in ipairs { 0, 1 } do
    local name = "a loss that is not finite, staleness " .. staleness .. ": "
    check.equal(lines[name .. "ok"], "false")
    check.equal(lines[name .. "message"], "the loss is not finite")
    check.equal(lines[name .. "epochs"], "1")
  end
  for _, name in ipairs { "batch normalization and dropout", "staleness 1", "staleness 4", "staleness of a dataset" } do
    check.equal(lines[name .. ": learned"], "true", name)
  end
  return lines
end

for _, n in ipairs { 2, 3, 4 } do
  test(("%d ranks with servers train the numbers of mirrored ones, and learn with staleness"):format(n), function()
    local lines = run("np", n, "cpu:0")
    check.equal(lines["staleness 1: history"]:find "staleness_max" ~= nil, true)
  end)
end

test("workers may have several devices, and not all as many", function() run("np", 3, "cpu:0;cpu:0-1") end)

for _, launcher in ipairs { "openmpi", "mpich" } do
  test("servers work under " .. launcher, function() run(launcher, 3, "cpu:0") end)
end

-- ---- roles, and ranks that die --------------------------------------------------------------------

local SCRIPT = [[
  local mgpu = require "mgpu"
  local core = require "mgpu.core"
  local rank = mgpu.world().rank
  local strategy = mgpu.parallel.strategy
  local model = mgpu.Sequential { mgpu.layers.Input { 2 }, mgpu.layers.Dense { 1 } }
  local x, y = mgpu.ones { 40, 2 }, mgpu.ones { 40, 1 }
]]

local function run_script(n, code)
  check.needs(check.program:match "^(.*)/" .. "/mgpu-ucx.so")
  local path = check.path "servers.lua"
  check.write(path, SCRIPT .. code)
  return check.run(("timeout -k 5 100 %s --np %d --output all %s 2>&1 </dev/null"):format(check.program, n, path))
end

for who, dying in pairs { ["a server"] = 2, ["a worker"] = 1 } do
  for _, staleness in ipairs { "0", "1", '"unbounded"' } do
    test(("when %s dies, all others end with a sentence naming it, staleness %s"):format(who, staleness), function()
      local output, status = run_script(3, ([[
        local ds = mgpu.data.from_tensors { x, y }:batch(2):map(function(a, b)
          if rank == %d and core.clock() > 1 then os.exit(3) end
          core.sleep(0.05)
          return a, b
        end)
        model:compile { loss = "mse", strategy = strategy("parameter_server", { staleness = %s }) }
        model:fit(ds, { epochs = 1000, verbose = 0 })]]):format(dying, staleness))
      check.matches(output, ("rank %d %%(host %%S+, pid %%d+%%)"):format(dying))
      check.truthy(status ~= 0 and status ~= 124, "the status " .. status)
    end)
  end
end

test("an update that is not finite on one server ends the fit on all ranks", function()
  local output = run_script(4, [[
    local zero = mgpu.Sequential { mgpu.layers.Input { 2 }, mgpu.layers.Dense { 1, kernel_initializer = "zeros" } }
    zero:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { 1e30 },
      strategy = strategy("parameter_server", { servers = 2 }) }
    -- the gradient of the kernel is large, that of the bias is not
    print((select(2, pcall(zero.fit, zero, x * 1e10, y, { batch_size = 10, verbose = 0 }))))]])
  local _, told = output:gsub("%d: fit: epoch 1, step 1: dense_1/kernel is not finite [^\n]+the update overflowed", "")
  if told ~= 4 then check.fail(("%d ranks were told: %s"):format(told, output)) end
end)

test("lr_scale counts the devices that train", function()
  local output = run_script(3, [[
    model:compile { loss = "mse", lr_scale = "linear", strategy = strategy("parameter_server") }
    model:fit(x, y, { verbose = 1 })
    if rank == 0 then print(strategy("parameter_server", {}).num_replicas_in_sync)
    else strategy("parameter_server", {}) end]])
  check.matches(output, "the learning rate is multiplied by 2, for 2 devices")
  check.matches(output, "\n2\n")
end)

local WRONG = {
  { 'strategy("parameter_server", { staleness = -1 })',
    'strategy: option "staleness" must be a whole number of steps from 0 on, or "unbounded", got %-1' },
  { 'strategy("parameter_server", { staleness = "much" })', 'or "unbounded", got much' },
  { 'strategy("parameter_server", { servers = 0 })', 'strategy: option "servers" must be at least 1, got 0' },
  { 'model:compile { loss = "mse", strategy = strategy("parameter_server", { servers = 2 }) } model:fit(x, y)',
    'strategy "parameter_server": 2 of 2 processes would be servers, so none is left to work' },
  { 'model:compile { loss = "mse", strategy = "parameter_server", accumulate = 2 }',
    'compile: accumulate cannot be combined with strategy "parameter_server": leave it out' },
  { 'model:compile { loss = "mse", lr_scale = "linear", strategy = strategy("parameter_server", '
    .. "{ staleness = 1 }) }",
    'compile: lr_scale cannot be combined with strategy "parameter_server" and staleness, whose steps are of one ' },
  { 'model:compile { loss = "mse", strategy = "central", steps_per_execution = 2 }',
    'compile: steps_per_execution cannot be combined with strategy "central": leave it out' },
  { 'model:compile { loss = "mse", strategy = strategy("parameter_server", { staleness = 1 }) } model:fit(x, y, '
    .. "{ verbose = 0, callbacks = { mgpu.callbacks.LambdaCallback { on_train_batch_end = print } } })",
    'fit: with strategy "parameter_server" the ranks do not take their steps together, so no callback can have '
    .. "on_train_batch_end: use on_epoch_end" },
  { 'model:compile { loss = "mse", strategy = "parameter_server" } model:fit(x, y, { verbose = 0, callbacks = { '
    .. 'mgpu.callbacks.BackupAndRestore { "/nowhere", save_freq = 3 } } })',
    'fit: BackupAndRestore: with strategy "parameter_server" there is a common state only at the end of an epoch' },
  { 'model:compile { loss = "mse", strategy = "parameter_server", devices = { ["cpu:0"] = 2 } } '
    .. "model:fit(x, y, { verbose = 0 })", 'fit: strategy "parameter_server" deals the rows evenly' },
}

for _, case in ipairs(WRONG) do
  test("an error says " .. case[2], function()
    check.matches(run_script(2, "print(select(2, pcall(function() " .. case[1] .. " end)))"), case[2])
  end)
end

test("the norm of all gradients needs a single server", function()
  check.matches(run_script(3, [[
    model:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { global_clipnorm = 1 },
      strategy = strategy("parameter_server", { servers = 2 }) }
    print(select(2, pcall(model.fit, model, x, y, { verbose = 0 })))]]),
    'strategy "parameter_server": global_clipnorm needs the gradients of all variables, but 2 servers have a part')
end)

test("tasks of TF_CONFIG whose type is ps are the servers", function()
  check.needs(check.program:match "^(.*)/" .. "/mgpu-ucx.so")
  local path, port, list = check.path "tf.lua", launched.free_port(), {}
  check.write(path, SCRIPT .. [[
    local servers, workers = require("mgpu.parallel.server_roles").of("parameter_server", {})
    local ok, message = pcall(require("mgpu.parallel.server_roles").of, "parameter_server", { servers = 1 })
    if rank == 0 then print(table.concat(servers, " "), table.concat(workers, " "), message) end]])
  for i, task in ipairs { { "worker", 0 }, { "ps", 0 }, { "ps", 1 } } do
    list[i] = ([[TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:%d"], "ps": ["127.0.0.1:1", "127.0.0.1:2"]}, ]]
      .. [["task": {"type": "%s", "index": %d}}' timeout 60 %s %s 2>&1 &]]):format(port, task[1], task[2],
      check.program, path)
  end
  local output = check.run("(" .. table.concat(list, " ") .. " wait) </dev/null")
  check.matches(output, "1 2\t0\t")
  check.matches(output, 'servers = 1, but TF_CONFIG names 2 tasks "ps": leave servers out')
end)
