--- compile's option lr_scale: the learning rate times a factor that depends on how many devices train.
--
-- A batch that grows with the number of devices wants a higher rate. The factor is a variable of the optimizer, chosen
-- before the first step and saved with its state: training that goes on with other devices keeps it, and so does its
-- schedule. optimizer.learning_rate, schedules and callbacks are about the rate before this factor.
local core = require "mgpu.core"
local say = require "mgpu.say"
local server_roles = require "mgpu.parallel.server_roles"
local world = require "mgpu.parallel.world"

local M = {}

local FACTORS = { linear = function(n) return n end, sqrt = math.sqrt }

local function rule_of(compiled) return compiled.optimizer.inner_optimizer or compiled.optimizer end

--- declare(compiled, chosen): gives the optimizer the variable for the factor, or none, as compile's options say.
-- Errors: another value of lr_scale; strategy "async", where a step is that of one device.
function M.declare(compiled, chosen)
  local kind = chosen.lr_scale
  if kind and not FACTORS[kind] then
    core.fail("usage", ('compile: lr_scale must be "linear", "sqrt" or false, got %s'):format(tostring(kind)))
  elseif kind and (compiled.strategy == "async" or (compiled.strategy_options.staleness or 0) ~= 0) then
    core.fail("usage", ("compile: lr_scale cannot be combined with strategy %q%s, whose steps are of one %s each: "
      .. "leave it out"):format(compiled.strategy, compiled.strategy == "async" and "" or " and staleness",
      compiled.strategy == "async" and "device" or "worker"))
  end
  rule_of(compiled):scale_rate(kind and true or false)
end

--- replicas(compiled) -> how many devices, or groups of devices, share a batch, in all processes that share the steps.
--- With several processes all ranks call it together once; then rank 0 may call it alone.
function M.replicas(compiled)
  local spread, own = compiled.spread, compiled.devices and #compiled.devices or 1
  own = own / (spread and spread.stages or 1)
  if not (spread and spread.joint) then return own end
  if world.is_joint() then
    if server_roles.is_only_server(compiled.strategy, compiled.strategy_options) then own = 0 end
    compiled.replicas = 0
    for _, n in ipairs(core.world_gather(own)) do compiled.replicas = compiled.replicas + n end
  end
  return compiled.replicas or own
end

--- factor(compiled) -> the number by which the rate is multiplied; nil without lr_scale.
function M.factor(compiled)
  local scale = rule_of(compiled).rate_scale
  return scale and scale:item() or nil
end

--- begin(compiled, verbose): before the first step: chooses the factor, or keeps that of the steps before, and says so
--- on rank 0. All ranks call it.
function M.begin(compiled, verbose)
  local kind, rule, n = compiled.options.lr_scale, rule_of(compiled), M.replicas(compiled)
  if not kind then return end
  local wanted, kept = FACTORS[kind](n), rule.rate_scale:item()
  if rule:steps_taken() == 0 then
    rule.rate_scale:assign(core.tensor(wanted, { dtype = "float64" }))
    kept = wanted
  end
  if not world.is_first() then return end
  local devices = ("%d device%s"):format(n, n == 1 and "" or "s")
  if kept ~= wanted then
    say("fit: lr_scale: keeps the factor %g of the first run; %s would give %g\n", kept, devices, wanted)
  elseif verbose > 0 and wanted ~= 1 then
    say("fit: lr_scale = %q: the learning rate is multiplied by %g, for %s\n", kind, wanted, devices)
  end
end

--- begin_batches(compiled): the same before the first of several calls for a batch each, in silence.
function M.begin_batches(compiled)
  if not compiled.options.lr_scale or compiled.has_begun then return end
  M.begin(compiled, 0)
  compiled.has_begun = true
end

return M
