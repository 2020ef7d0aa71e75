--- mgpu.parallel: models on several devices, by the names that other frameworks use.
--
-- All of them do what `model:compile { devices = ... }` does: the rows of each batch are split over the devices,
-- gradients are reduced before every update, and the weights, their names, `save`, `load_weights` and `summary` are
-- those of the serial model. A model made as a whole in mgpu.with_device("cpu:0", create) leaves that scope's device,
-- but not a `device =` that a layer states.
--
--     parallel.multi_gpu_model(model, { gpus = 8 })                       Keras 2
--     parallel.make_parallel(model, { "cuda:0", "cuda:1" })               keras_experiments, and ModelMGPU
--     parallel.strategy("mirrored", { devices = 2 }):scope(function() ... end)   tf.distribute
local core = require "mgpu.core"
local devices = require "mgpu.parallel.devices"
local options = require "mgpu.options"
local server_roles = require "mgpu.parallel.server_roles"
local strategies = require "mgpu.parallel.strategies"
local view = require "mgpu.parallel.view"
local world = require "mgpu.parallel.world"

local M = {}

local function fail(who, message, ...) core.fail("usage", who .. ": " .. message:format(...)) end

--- get_available_gpus(n = -1) -> the names of the first n GPUs, or of all of them with -1.
-- Without a GPU, several visible devices take their place, such as cpu:0 to cpu:3 with --devices cpu:0-3. Errors: fewer
-- are visible.
-- Example:
--     print(unpack(mgpu.parallel.get_available_gpus(2))) -- mgpulua --devices cpu:0-1, where there is no GPU
--     --> cpu:0 cpu:1
function M.get_available_gpus(n)
  local names = core.devices "gpu"
  if #names == 0 and #core.devices() > 1 then names = core.devices() end
  if n == nil or n == -1 then return names end
  if type(n) ~= "number" or n < 0 or n % 1 ~= 0 then
    fail("get_available_gpus", "the number of GPUs must be a whole number, got %s", tostring(n))
  end
  if n > #names then
    fail("get_available_gpus", "%d GPUs were asked for, but %s", n,
      #names == 0 and "none is visible" or "these are visible: " .. table.concat(names, ", "))
  end
  return { unpack(names, 1, n) }
end

-- ---- a parallel model ---------------------------------------------------------------------------

local MULTI = options.declare { positional = 1,
  { "gpus", "any" },
  { "cpu_merge", "boolean" },
  { "cpu_relocation", "boolean", default = false },
}

-- The option gpus as a list of names: a count, a list of ordinals or names, a text as --devices spells it, or nil (all
-- GPUs).
local function gpu_list(gpus)
  if gpus == nil then return M.get_available_gpus() end
  if type(gpus) == "number" then
    local there = M.get_available_gpus()
    if gpus < 2 or gpus % 1 ~= 0 then
      fail("multi_gpu_model", "gpus must be at least 2 (or a list), got %s; a model on one device needs "
        .. "no wrapper", tostring(gpus))
    end
    if gpus > #there then
      fail("multi_gpu_model", "%d GPUs were asked for, but these are visible: %s", gpus, devices.visible())
    end
    return { unpack(there, 1, gpus) }
  end
  if type(gpus) == "string" then return { gpus } end
  if type(gpus) ~= "table" then fail("multi_gpu_model", "gpus must be a count or a list") end
  local list, there = {}, M.get_available_gpus()
  local by_number = #there > 0 and not there[1]:find "^cuda" and there or {} -- of devices that stand for GPUs
  for i, gpu in pairs(gpus) do
    list[i] = type(gpu) == "number" and (by_number[gpu + 1] or ("cuda:%d"):format(gpu)) or gpu
  end
  return list
end

--- multi_gpu_model(model, {gpus = all, cpu_merge =, cpu_relocation = false}) -> the model on these GPUs, as in Keras 2.
-- gpus: a count of at least 2, or a list of ordinals or device names. cpu_relocation: the weights are kept and updated
-- on the CPU (strategy "central"). cpu_merge has no effect: outputs are never merged before the loss.
-- Errors: fewer than 2 GPUs, or fewer visible than asked for.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     local parallel = mgpu.parallel.multi_gpu_model(model, { gpus = { "cpu:0", "cpu:1" } })
--     parallel:compile { loss = "mse" }
--     parallel:fit(mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }, { verbose = 0 })
--     model:save "serial.safetensors" -- its weights are the trained ones
function M.multi_gpu_model(model, given)
  view.check_model("multi_gpu_model", "the first argument", model)
  local chosen = options.check("multi_gpu_model", MULTI, given or {})
  local list = devices.resolve("multi_gpu_model", gpu_list(chosen.gpus)[1] and gpu_list(chosen.gpus))
  if not list or #list < 2 then
    fail("multi_gpu_model", "at least 2 GPUs are needed, but these are visible: %s", devices.visible())
  end
  if chosen.cpu_merge == false then
    view.tell_once("multi_gpu_model", "cpu_merge", "losses are computed where the rows are; outputs are merged "
      .. "only by predict, on the first device")
  end
  return view.view_of(model, { devices = list, strategy = chosen.cpu_relocation and "central" or "mirrored" })
end

for name, value in pairs(require "mgpu.parallel.keras_experiments") do M[name] = value end
M.optimizers = require "mgpu.parallel.optimizers"

-- ---- strategies ---------------------------------------------------------------------------------

local Strategy = {}
Strategy.__index = Strategy
function Strategy:__tostring() return ("strategy %q on %s"):format(self.name, table.concat(self.devices, ", ")) end

local current

--- current() -> the strategy whose scope is open, or nil.
-- Example:
--     print(mgpu.parallel.current())  --> nil
--     local strategy = mgpu.parallel.strategy("mirrored", { devices = { "cpu:0", "cpu:1" } })
--     strategy:scope(function() print(mgpu.parallel.current() == strategy) end)  --> true
function M.current() return current end

--- strategy:scope(fn) -> what fn() returns: models made or compiled in fn train under the strategy.
-- Example:
--     local model = mgpu.parallel.strategy("mirrored", { devices = { "cpu:0", "cpu:1" } }):scope(function()
--       local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--       model:compile { loss = "mse" }
--       return model
--     end)
--     model:fit(mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }, { verbose = 0 })
function Strategy:scope(fn)
  if type(fn) ~= "function" then fail("scope", "expected a function, got %s", type(fn)) end
  local before = current
  current = self
  local results = { pcall(fn) }
  current = before
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2)
end

-- With several processes, the sum of what each has; those that only serve have none.
local function count_replicas(name, list, chosen)
  if name == "async" or (chosen.staleness or 0) ~= 0 then return 1 end
  if not world.is_joint() then return #list end
  local sum, own = 0, server_roles.is_only_server(name, chosen) and 0 or #list
  for _, n in ipairs(core.world_gather(own)) do sum = sum + n end
  return sum
end

--- strategy(name, {devices = "all", ...}) -> a strategy.
--
--   "mirrored"    all devices have the same weights, and add up their gradients. compression (several processes): how
--                 the gradients are sent: "float16", "bfloat16", or {top_k = 0.01} for the largest hundredth
--   "central"     the weights are kept and updated on the host; with several processes by rank 0
--   "async"       the devices of one process do not wait for each other
--   "local_sgd"   each process trains weights of its own; every `period` (16) steps they become their means
--   "elastic"     likewise, but a center pulls them, and they the center, by `rate` (0.9) over the number of processes
--   "adasum"      the changes of each step are added where they are orthogonal, and averaged where they are parallel
--   "parameter_server"  some processes keep the weights, the others compute gradients. servers (1): the last so many
--                 ranks, or the tasks "ps" of TF_CONFIG. staleness (0): all take a step together; n: each worker takes
--                 batches of its own, and is at most n steps ahead of the slowest; "unbounded": it never waits
-- devices: as in compile. Fields: name, devices, weights, options, num_replicas_in_sync. With several processes, each
-- gives its own devices, all must call this, and the replicas of all are counted. With one process, the last four and
-- compression make no difference. Errors: another name or option; no such device.
-- Example:
--     local strategy = mgpu.parallel.strategy("mirrored", { devices = { "cpu:0", "cpu:1" } })
--     print(strategy, strategy.num_replicas_in_sync)  --> strategy "mirrored" on cpu:0, cpu:1 2
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { loss = "mse", strategy = strategy }
function M.strategy(name, given)
  local chosen = strategies.check(name, given)
  local list, weights = devices.resolve("strategy", chosen.devices)
  return setmetatable({ name = name, devices = list, weights = weights, options = chosen,
    num_replicas_in_sync = count_replicas(name, list, chosen) }, Strategy)
end

-- The devices that the optimizer was made for (optimizers.lua), or nil. Raises if the model has others.
local function optimizer_devices(optimizer, list)
  local own = type(optimizer) == "table" and rawget(optimizer, "gdev_list")
  if not own or not list then return own or nil end
  if table.concat(own, ", ") ~= table.concat(list, ", ") then
    fail("compile", "the optimizer's gdev_list is %s, but the model is on %s", table.concat(own, ", "),
      table.concat(list, ", "))
  end
end

--- resolve(model, chosen) -> {devices, weights, stages, strategy, home} from compile's options, the strategy the model
--- was made under, and the parallel view it may be. Errors: devices for a model that is parallel already; devices
--- that differ from the optimizer's.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     local placed = mgpu.parallel.resolve(model, { devices = "cpu:0-1" })
--     print(placed.devices[2], placed.strategy)  --> cpu:1 mirrored
function M.resolve(model, chosen)
  if type(model) ~= "table" or not model.is_network then
    fail("resolve", "the first argument must be a model, got %s", model == nil and "nothing" or "a " .. type(model))
  elseif type(chosen) ~= "table" then
    fail("resolve", "the second argument must be a table of compile's options, got %s",
      chosen == nil and "nothing" or "a " .. type(chosen))
  end
  local spread = rawget(model, "spread")
  local strategy = chosen.strategy or rawget(model, "strategy") or current
  local list, weights, stages = devices.resolve("compile", chosen.devices)
  if spread then
    if list then fail("compile", "the model is parallel already: leave devices out") end
    optimizer_devices(chosen.optimizer, spread.devices)
    return { devices = spread.devices, strategy = spread.strategy, options = strategies.check(spread.strategy),
      home = spread.home }
  end
  list = optimizer_devices(chosen.optimizer, list) or list
  if type(strategy) == "string" then
    return { devices = list, weights = weights, stages = stages, strategy = strategy,
      options = strategies.check(strategy) }
  elseif getmetatable(strategy) == Strategy then
    return { devices = list or strategy.devices, weights = weights or strategy.weights,
      strategy = strategy.name, options = strategy.options }
  elseif strategy ~= nil then
    fail("compile", "strategy must be a name or made by mgpu.parallel.strategy, got %s", type(strategy))
  end
  return { devices = list, weights = weights, stages = stages, strategy = "mirrored",
    options = strategies.check "mirrored" }
end

return require "mgpu.strict_table" ("mgpu.parallel", M)
