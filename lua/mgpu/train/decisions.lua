--- Decisions about a fit that is under way: to stop, another learning rate, one more callback, a checkpoint.
--
-- An attached prompt takes them, between two steps (mgpu.attach.view). In one process they are carried out at once.
-- With several, ranks are not asked at the same step, so rank 0 keeps its decisions until the end of the epoch, where
-- all ranks learn them and carry them out; other ranks take none.
local core = require "mgpu.core"
local say = require "mgpu.say"
local world = require "mgpu.parallel.world"

local M = {}

local carry_out = {}

function carry_out.stop(run) run.stopping = true end

function carry_out.learning_rate(run, decision) run.compiled.optimizer.learning_rate = decision.rate end

-- On ranks that do not call it a callback is a name for each of its methods.
local function stand_in(methods)
  local callback = {}
  for _, name in ipairs(methods) do callback[name] = function() end end
  return callback
end

function carry_out.callback(run, decision, own)
  local callback = own and own.callback or decision.callback or stand_in(decision.methods)
  run.callbacks:add("job.add_callback", callback)
  run.begins_batches = run.callbacks:has "on_train_batch_begin"
  run.ends_batches = run.callbacks:has "on_train_batch_end"
end

-- RETURNS the path of what was saved.
function carry_out.checkpoint(run, decision)
  if not world.is_first() then return nil end
  return require "mgpu.train.checkpoint.backup".save_in(run, decision.folder)
end

--- take(run, decision) -> what carrying it out gives, and whether that will happen only at the end of the epoch.
-- ARGS decision: {kind = "stop"}, {kind = "learning_rate", rate =}, {kind = "callback", callback =} or {kind =
--   "checkpoint", folder =}. Errors: on another rank than 0.
function M.take(run, decision)
  if not run.joint then return carry_out[decision.kind](run, decision), false end
  local rank = core.world().rank
  if rank ~= 0 then
    core.fail("usage", ("rank %d takes no decisions, since all ranks must take them together: attach to rank 0"
      ):format(rank))
  end
  run.decisions = run.decisions or {}
  table.insert(run.decisions, decision)
  return nil, true
end

-- The decisions as the other ranks get them.
local function sent(run)
  local list = {}
  for i, decision in ipairs(run.decisions or {}) do
    list[i] = { kind = decision.kind, rate = decision.rate, folder = decision.folder }
    if decision.callback then list[i].methods = run.callbacks.methods_of(decision.callback) end
  end
  return { list = list }
end

--- settle(run): at the end of an epoch: carries out what waits for that, on all ranks. An error of one is told, and the
--- training goes on.
function M.settle(run)
  if run.joint then
    local own = run.decisions or {}
    for i, decision in ipairs(world.first(function() return sent(run) end, true).list) do
      local ok, message = pcall(carry_out[decision.kind], run, decision, own[i])
      if not ok and world.is_first() then say("attached: %s: %s\n", decision.kind, message) end
    end
    run.decisions = nil
  end
  if run.stopping then run.model.stop_training = true end
end

return M
