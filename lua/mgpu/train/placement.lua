--- Where a compiled model trains: the fields of `compiled` that name devices, and moving its state there.
--
-- Fields that set_devices gives a compiled model:
--   devices   names, or nil: everything stays on the device where it is
--   device    the only device of the list, where data must lie; nil with several
--   home      the device of eager work: the first one, or the one that keeps the weights ("central", "async")
--   strategy  its name, and strategy_options, its options: see parallel/strategies.lua
--   spread    the options of core.jit for several devices, or several processes; else nil
--   share     which devices of all processes are this one's, when that is known: row_share.lua
--   groups    with device groups: the first device of each stage
--   steps, positions   emptied: steps are traced anew for the new devices
-- A plan on several devices keeps the copies on the other devices by itself.
local core = require "mgpu.core"
local devices = require "mgpu.parallel.devices"
local shared_weights = require "mgpu.train.shared_weights"
local strategies = require "mgpu.parallel.strategies"
local world = require "mgpu.parallel.world"

local M = {}

-- ---- choosing devices ---------------------------------------------------------------------------

-- What is meant for the devices of one process.
local function check_alone(compiled, where)
  local alone = compiled.eager and "run_eagerly"
    or strategies.get(where.strategy).alone and ("strategy %q"):format(where.strategy)
  if alone then
    core.fail("usage", ("compile: %s works in one process only, but %d run this script: leave it out"):format(alone,
      world.size()))
  end
end

-- The device of this rank if none is named.
local function own_device()
  local default, gpus = core.default_device(), core.devices "gpu"
  return default == gpus[1] and devices.share_of_rank(gpus)[1] or default
end

-- What each rank does with its own rows, it does batch by batch on devices that all hold the whole model.
local function check_replicas(compiled, where)
  local alone = where.stages and "device groups" or compiled.accumulate > 1 and "accumulate"
    or compiled.steps_per_execution > 1 and "steps_per_execution"
  if alone then
    core.fail("usage", ("compile: %s cannot be combined with strategy %q%s: leave it out"):format(alone, where.strategy,
      where.strategy == "mirrored" and " and compression" or ""))
  end
end

local function check_devices(compiled, where)
  if world.size() > 1 then
    check_alone(compiled, where)
    if where.strategy ~= "mirrored" or where.options.compression then check_replicas(compiled, where) end
  end
  if not where.devices or #where.devices == 1 then return end
  if compiled.eager then
    core.fail("usage", "compile: run_eagerly works on one device only: leave it out")
  end
  if where.strategy ~= "async" then return end
  if where.stages or compiled.accumulate > 1 or compiled.steps_per_execution > 1 then
    core.fail("usage", 'compile: strategy "async" cannot be combined with device groups, accumulate or '
      .. "steps_per_execution")
  elseif where.weights then
    core.fail("usage", 'compile: strategy "async" gives whole batches to idle devices, so it cannot split '
      .. "rows by weight: give a list of devices")
  end
end

-- The first device of each stage: names lists the devices stage by stage.
local function first_of_stages(names, stages)
  local groups = {}
  for s = 1, stages do groups[s] = names[(s - 1) * (#names / stages) + 1] end
  return groups
end

-- The device that keeps the weights of strategy "central" if none is named: the first cpu device that is not lost.
local function central_device()
  local i = 0
  while core.is_lost("cpu:" .. i) do i = i + 1 end
  return "cpu:" .. i
end

local function apply_devices(compiled, where)
  local joint = world.size() > 1
  local names = where.devices or joint and { own_device() } or nil
  local several = names and #names > 1
  compiled.devices, compiled.strategy, compiled.strategy_options = names, where.strategy, where.options
  compiled.steps, compiled.positions = {}, {}
  compiled.device = names and not several and names[1] or nil
  compiled.home = names and names[1]
  compiled.spread, compiled.groups, compiled.share = nil, nil, nil
  if not several and not joint then return end
  local central = not joint and where.strategy == "central" and (where.home or central_device()) or nil
  compiled.spread = { devices = names, weights = where.weights, local_norm = compiled.bn == "local",
    central = central, stages = where.stages, joint = joint }
  compiled.groups = where.stages and first_of_stages(names, where.stages)
  if where.strategy == "async" then compiled.home = where.home or compiled.home end
  compiled.home = central or compiled.home
end

--- set_devices(compiled, where): where = {devices =, weights = shares of the rows, strategy =, options = of the
--- strategy, stages =, home =}, as parallel.resolve returns it. During a fit the change waits for the next epoch: see
--- settle_devices.
function M.set_devices(compiled, where)
  check_devices(compiled, where)
  if compiled.fitting then compiled.next_devices = where else apply_devices(compiled, where) end
end

--- settle_devices(compiled): applies devices that were set during a fit. RETURNS whether there were any.
function M.settle_devices(compiled)
  local where = compiled.next_devices
  if where then apply_devices(compiled, where) end
  compiled.next_devices = nil
  return where ~= nil
end

-- ---- layers that name a device ------------------------------------------------------------------

-- The device of the one mgpu.with_device scope that the whole model was made in; nil if a layer names a device
-- itself or the scopes named several, which is model parallelism.
local function scope_device(model)
  local name
  model:each_layer(function(layer)
    local device = rawget(layer, "device")
    if not device then return end
    local scoped = rawget(layer, "scoped") and (name == nil or name == device)
    name = scoped and device or false
  end)
  return type(name) == "string" and name or nil
end

-- A model made in one scope and compiled for several devices leaves the scope's device: it was a template.
local function leave_scope(model)
  if not scope_device(model) then return end
  model:each_layer(function(layer) layer.device, layer.scoped = nil, nil end)
end

-- RETURNS variable -> array of the devices that may hold it, for the layers that name a device or a stage.
local function devices_of_layers(compiled, model)
  local where, several = {}, compiled.devices and #compiled.devices > 1
  if several then leave_scope(model) end
  model:each_layer(function(layer)
    local device = rawget(layer, "device")
    if not device then return end
    if type(device) == "string" and several then
      layer:fail("device = %q names one device, but the model is compiled for several: give groups, as in "
        .. "devices = {{\"cuda:0\", \"cuda:1\"}, ...}, and device = 2", device)
    elseif type(device) == "number" and not (compiled.groups and compiled.groups[device]) then
      layer:fail("device = %d needs device groups of at least %d in compile, as in devices = "
        .. "{{\"cuda:0\", \"cuda:1\"}}", device, device)
    end
    for _, v in ipairs(layer.weights) do
      where[v] = { type(device) == "string" and device or compiled.groups[device] }
    end
  end)
  return where
end

-- ---- moving state -------------------------------------------------------------------------------

-- Moves each variable to the first of the homes, unless it is on one of them already.
local function move(variables, homes)
  for _, v in ipairs(variables) do
    local there = false
    for _, device in ipairs(homes) do there = there or v:device() == device end
    if not there then v:assign(v:value():to(homes[1])) end
  end
end

-- Moves the optimizer's slots and the sums of gradients to their variables, the rest of both to `homes`.
local function move_optimizer(compiled, where, homes)
  local beside = {}
  for v, own in pairs(compiled.optimizer.slots) do
    for _, slot in pairs(own) do beside[slot] = where[v] or homes end
  end
  for v, sum in pairs(compiled.sums or {}) do beside[sum] = where[v] or homes end
  for kept, there in pairs(beside) do move({ kept }, there) end
  for _, v in ipairs(compiled.optimizer:variables()) do
    if not beside[v] then move({ v }, homes) end
  end
  if compiled.sum_rows then move({ compiled.sum_rows }, homes) end
end

-- Makes the sums of metrics whose size depends on the predictions, unless they are there. A model that is not built has
-- no predictions yet: then the first batch makes them.
local function build_metrics(compiled, model)
  local inputs = rawget(model, "inputs") -- of a functional model
  if compiled.metrics:is_built() or not (inputs or model.built and model.built_shape) then return end
  local shapes = {}
  for i, input in ipairs(inputs or {}) do shapes[i] = input:shape() end
  if not inputs then shapes = { model.built_shape } end
  local out = model:output_shape(#shapes == 1 and not model.listed and shapes[1] or shapes)
  compiled.metrics:build(type(out[1]) == "table" and out or { out }, compiled.home)
end

--- place_state(compiled, model): moves weights, metrics and the optimizer's state to their devices.
function M.place_state(compiled, model)
  build_metrics(compiled, model)
  if not compiled.devices then return end
  local at_home = compiled.spread and compiled.spread.central or compiled.groups or compiled.strategy == "async"
  local homes = at_home and { compiled.home } or compiled.devices
  local where = devices_of_layers(compiled, model)
  for _, v in ipairs(model.variables) do move({ v }, where[v] or homes) end
  move(model:kept_states(), homes)
  move_optimizer(compiled, where, homes)
  compiled.metrics:each(function(metric) move(metric:variables(), homes) end)
end

--- on_device(compiled, model, fn) -> what fn() returns, run with the home device as the default device and all state
--- in place.
function M.on_device(compiled, model, fn)
  if not compiled.devices then return fn() end
  M.place_state(compiled, model)
  local before = core.default_device()
  core.default_device(compiled.home)
  local ok, result = pcall(shared_weights.share, compiled, model, fn)
  pcall(core.default_device, before) -- fails if that device was lost meanwhile: then the new default stays
  if not ok then error(result, 0) end
  return result
end

return M
