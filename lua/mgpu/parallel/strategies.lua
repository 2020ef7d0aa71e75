--- The strategies: their options, and what trains in place of the jitted step of all devices.
--
-- A trainer is an object that one fit uses. In place of a step of the devices together it has
--   train_batch(take, key) -> false at the end of the epoch; take() -> the next batch of the cursor (batch_cursor.lua),
--                          or nil; key: train_step.plan_key's
--   end_epoch()            after it, all ranks have the same weights, state of the optimizer and sums of the metrics
--   report(values)         adds to the logs of the epoch what the array `reports` names
--   abandon()              at the end of the fit, after an error too
--   in_step                whether all ranks take every step together
--   takes_all              whether it takes the batches of all ranks on each of them, so that these are the steps
local core = require "mgpu.core"
local options = require "mgpu.options"
local world = require "mgpu.parallel.world"

local M = {}

local DEVICES = { "devices", "any", default = "all" }
local PERIOD = { "period", "integer", default = 16, min = 1 }

local HALVES = { float16 = true, bfloat16 = true }

-- The option compression of "mirrored": the name of a dtype, or {top_k = fraction}.
local function check_compression(given)
  local how = given.compression
  if how == nil or HALVES[how] then return end
  local fraction = type(how) == "table" and how.top_k
  if type(fraction) ~= "number" or not (fraction > 0 and fraction < 1) or next(how, next(how)) ~= nil then
    core.fail("usage", 'strategy: option "compression" must be "float16", "bfloat16" or {top_k = fraction}, as in '
      .. "{top_k = 0.01} for the largest hundredth of each gradient")
  end
end

-- The option staleness of "parameter_server".
local function check_staleness(given)
  local n = given.staleness
  if n == "unbounded" or type(n) == "number" and n >= 0 and n % 1 == 0 and n < math.huge then return end
  core.fail("usage", ('strategy: option "staleness" must be a whole number of steps from 0 on, or "unbounded", got %s')
    :format(tostring(n)))
end

-- These train a replica on each rank; with one process there is nothing to bring together.
local function replicas_trainer(compiled, model)
  return world.is_joint() and require("mgpu.parallel.replicas").new(compiled, model) or nil
end

-- One process is server and worker at once, which is the ordinary step.
local function servers_trainer(compiled, model)
  return world.is_joint() and require("mgpu.parallel.servers").new(compiled, model) or nil
end

-- name, options, check(options) if they need more than options.check says; alone: it works in one process only;
-- whole_batches: with several processes each rank reads all rows of a batch;
-- trainer(compiled, model) -> its trainer, or nil if steps are those of all devices together.
local LIST = {
  { name = "mirrored", options = { DEVICES, { "compression", "any" } }, check = check_compression,
    trainer = function(compiled, model)
      return world.is_joint() and compiled.strategy_options.compression
        and require("mgpu.parallel.compression").new(compiled, model) or nil
    end },
  { name = "central", options = { DEVICES }, whole_batches = true, trainer = servers_trainer },
  { name = "async", options = { DEVICES }, alone = true,
    trainer = function(compiled, model)
      return compiled.spread and require("mgpu.parallel.asynchronous").new(compiled, model) or nil
    end },
  { name = "local_sgd", options = { DEVICES, PERIOD }, trainer = replicas_trainer },
  { name = "elastic", options = { DEVICES, PERIOD, { "rate", "number", default = 0.9, above = 0, max = 1 } },
    trainer = replicas_trainer },
  { name = "adasum", options = { DEVICES }, trainer = replicas_trainer },
  { name = "parameter_server", options = { DEVICES, { "servers", "integer", min = 1 },
    { "staleness", "any", default = 0 } }, check = check_staleness, whole_batches = true, trainer = servers_trainer },
}

local by_name, names = {}, {}
for i, strategy in ipairs(LIST) do
  names[i], by_name[strategy.name] = strategy.name, strategy
  strategy.options = options.declare(strategy.options)
end
M.NAMES = names

--- get(name) -> the entry of the list. Errors: there is none.
function M.get(name)
  if not by_name[name] then
    core.fail("usage", ("strategy: unknown strategy %q%s; there are %s"):format(tostring(name),
      core.did_you_mean(name, names), table.concat(names, ", ")))
  end
  return by_name[name]
end

--- check(name, given) -> the options of the strategy, checked.
function M.check(name, given)
  local strategy = M.get(name)
  local chosen = options.check("strategy", strategy.options, given or {})
  if strategy.check then strategy.check(chosen) end
  return chosen
end

--- trainer(compiled, model) -> a new trainer for the strategy and the devices of the compiled model; nil if its steps
--- are those of all devices together.
function M.trainer(compiled, model)
  local make = by_name[compiled.strategy].trainer
  return make and make(compiled, model) or nil
end

return M
