--- Training in which each rank has weights of its own, a replica, and computes its share of each batch by itself; a
--- rule (replica_rules.lua) brings the replicas together after every few steps.
--
-- Batch normalization takes its statistics from the rows of the rank, and layers that draw random numbers draw others
-- on each rank. At the end of an epoch all ranks get the rule's weights, and means of what else is kept: moving
-- statistics and the optimizer's state, of which whole numbers are those of rank 0. The sums of the metrics are added
-- up; the progress bar shows those of rank 0 until then.
local core = require "mgpu.core"
local row_share = require "mgpu.train.row_share"
local rules = require "mgpu.parallel.replica_rules"
local shared_weights = require "mgpu.train.shared_weights"
local step_errors = require "mgpu.train.step_errors"
local train_step = require "mgpu.train.train_step"

local values_of = shared_weights.values_of

-- ---- what the trainers of ranks have in common --------------------------------------------------

local Common = {}

-- The seeds of ranks are this far apart, so that ranks draw other numbers.
local SEED_STEP = 0x9e3779b1

--- own_rows(share, batch) -> rows, first, tensors: the part of the batch that this rank trains, as arguments of a step.
function Common.own_rows(share, batch)
  local window, tensors = row_share.window(share, batch.rows), batch.tensors
  if batch.order then
    return window.count, core.tensor(batch.at + window.first, { dtype = "int32" }), tensors
  end
  local own = {}
  for i, t in ipairs(window.count > 0 and tensors or {}) do own[i] = row_share.cut(t, window) end
  return window.count, batch.first, own
end

--- with_own_draws(fn, ...) -> what fn(...) returns, run with a seed of this rank. Its errors reach all ranks.
function Common.with_own_draws(fn, ...)
  local before = core.rng_state()
  core.rng_state { seed = (before.seed + core.world().rank * SEED_STEP) % 2 ^ 32, base = before.base }
  local results = { pcall(row_share.only_here, fn, ...) }
  core.rng_state { seed = before.seed, base = core.rng_state().base }
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2)
end

--- attempt(trainer, fn, ...) -> what fn(...) returns. If a value of a step is not finite, nil: trainer.bad becomes the
--- number of the cause (step_errors.lua), for all ranks to raise together.
function Common.attempt(trainer, fn, ...)
  local ok, result = pcall(fn, ...)
  if ok then return result end
  trainer.bad = step_errors.cause(result) or error(result, 0)
end

--- worst(trainer) -> the cause that some rank has; 0: none. All ranks call it together.
function Common.worst(trainer)
  local worst = 0
  for _, cause in ipairs(core.world_gather(trainer.bad)) do worst = math.max(worst, cause) end
  return worst
end

--- raise(trainer, cause, steps): raises it on all ranks, unless it is 0. steps: see step_errors.raise_cause.
function Common.raise(trainer, cause, steps)
  trainer.bad = 0
  step_errors.raise_cause(cause, steps)
end

--- spread(compiled) -> the devices of this rank, as core.jit takes them; nil for one.
function Common.spread(compiled)
  local names = compiled.devices
  return #names > 1 and { devices = names, weights = compiled.spread.weights, local_norm = compiled.bn == "local" }
    or nil
end

-- ---- sums over the ranks ------------------------------------------------------------------------

--- share_means(variables): they become the means of those of all ranks; whole numbers become those of rank 0.
function Common.share_means(variables)
  local floats, others = {}, {}
  for _, v in ipairs(variables) do
    local list = v:dtype():find "float" and floats or others
    list[#list + 1] = v
  end
  for i, sum in ipairs(core.world_sum(values_of(floats))) do floats[i]:assign(sum / core.world().size) end
  core.world_send_values(others)
end

--- metric_sums(compiled) -> an object that adds up the sums of all metrics since `start` over the ranks.
-- A fit that goes on in the middle of an epoch begins with sums that are those of all ranks already.
function Common.metric_sums(compiled)
  local self = {}
  local function variables()
    local list = {}
    compiled.metrics:each(function(metric)
      for _, v in ipairs(metric:variables()) do list[#list + 1] = v end
    end)
    return list
  end
  function self.start() self.before = self.before or values_of(variables()) end
  function self.finish()
    if not self.before then return end
    local list, grown = variables(), {}
    for i, v in ipairs(list) do grown[i] = v:value() - self.before[i] end
    for i, sum in ipairs(core.world_sum(grown)) do list[i]:assign(self.before[i] + sum) end
    self.before = nil
  end
  return self
end

--- share_draws(): the ranks go on with the random numbers of rank 0, which has trained rows of every batch.
function Common.share_draws()
  local now = core.rng_state()
  core.rng_state { seed = now.seed, base = core.world_gather(now.base)[1] }
end

-- ---- the trainer --------------------------------------------------------------------------------

local Replicas = {}
Replicas.__index = Replicas
Replicas.in_step, Replicas.reports = true, {}

function Replicas:train_batch(take, key)
  local batch = take()
  if not batch then return false end
  if not self.begun then
    self.begun = true
    self.sums.start()
    self.rule.begin()
  end
  local rows, first, tensors = Common.own_rows(self.share, batch)
  if rows > 0 and self.bad == 0 then -- else it waits for the others
    Common.with_own_draws(Common.attempt, self, self.step, 1, rows, batch.layout, key, first, batch.order,
      unpack(tensors))
  end
  self.steps = self.steps + 1
  if self.steps == self.period then Common.raise(self, self:meet()) end
  return true
end

--- meet() -> the cause, if a step of some rank had a value that is not finite, else 0, and the number of steps since
--- the last time: brings the replicas together.
function Replicas:meet()
  local worst, steps = 0, self.steps
  if steps > 0 then
    worst = Common.worst(self)
    self.rule.meet()
    self.steps = 0
  end
  return worst, steps
end

function Replicas:end_epoch()
  if not self.begun then return end
  local worst, steps = self:meet()
  self.rule.settle()
  self.begun = false
  local trained, rest = {}, {}
  for _, v in ipairs(self.model.trainable_variables) do trained[v] = true end
  for _, v in ipairs(shared_weights.variables_of(self.model)) do
    if not trained[v] then rest[#rest + 1] = v end
  end
  Common.share_means(rest)
  self.sums.finish()
  Common.share_draws()
  Common.raise(self, worst, steps)
end

function Replicas:report() end -- luacheck: no self

function Replicas:abandon() end -- luacheck: no self

--- new(compiled, model) -> the trainer of strategy "local_sgd", "elastic" or "adasum".
local function new(compiled, model)
  local chosen = compiled.strategy_options
  return setmetatable({ model = model, share = row_share.of(compiled), sums = Common.metric_sums(compiled), steps = 0,
    bad = 0,
    step = train_step.make(compiled, model, "train", Common.spread(compiled)), period = chosen.period or 1,
    rule = rules[compiled.strategy](model, chosen) }, Replicas)
end

return { new = new, common = Common }
