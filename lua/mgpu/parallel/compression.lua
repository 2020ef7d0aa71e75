--- Compressed gradients: each rank computes the gradient of its rows, and what ranks tell each other of it is smaller.
--
-- "float16", "bfloat16": each rank's term is rounded to 16 bits, and so is each partial sum. {top_k = f}: each rank
-- sends the fraction f of each gradient that is largest in magnitude, and keeps the rest, which it adds to its next
-- gradient (error feedback; Stich et al.: Sparsified SGD with memory, 2018). The rest is not saved. The weights are
-- equal on all ranks, bit by bit. As in replicas.lua, batch normalization and random layers see the rank's own rows.
local asynchronous = require "mgpu.parallel.asynchronous"
local core = require "mgpu.core"
local ranks = require("mgpu.parallel.replicas").common
local row_share = require "mgpu.train.row_share"
local train_step = require "mgpu.train.train_step"

local ops = core.ops

-- ---- the ways to add up -------------------------------------------------------------------------

-- way(terms) -> their sums over the ranks. terms: float32 or wider, this rank's part of the mean gradient.

local function sum_of_halves(dtype)
  local narrow = core.jit(function(terms)
    local list = {}
    for i, t in ipairs(terms) do list[i] = t:to(dtype) end
    return list
  end)
  return function(terms) return core.world_sum(narrow(terms)) end
end

local function sum_of_largest(fraction)
  local add_rest = core.jit(function(terms, rest)
    local list = {}
    for i, t in ipairs(terms) do list[i] = t:to "float32" + rest[i] end
    return list
  end)
  local rest
  return function(terms)
    local sums
    if not rest then
      rest = {}
      for i, t in ipairs(terms) do rest[i] = ops.full(t:shape(), 0, "float32") end
    end
    sums, rest = core.world_sum_largest(add_rest(terms, rest), fraction)
    return sums
  end
end

-- ---- the trainer --------------------------------------------------------------------------------

local Compression = {}
Compression.__index = Compression
Compression.in_step, Compression.reports = true, {}

-- The jitted step that applies sums of gradients to the connected variables.
local function apply_step(self)
  return core.jit(function(sums, key) -- luacheck: no unused
    local grads, n = {}, 0
    for i, v in ipairs(self.model.trainable_variables) do
      grads[i] = false
      if self.connected[i] then
        n = n + 1
        grads[i] = core.place(sums[n]:to(v:dtype()), v:device())
      end
    end
    if not self.compiled.optimizer.skips_steps then core.guard_finite(sums, self.bad_sum) end
    self.compiled.optimizer:apply_unscaled(grads, self.model.trainable_variables)
  end, self.spread)
end

-- The jitted step that multiplies gradients by this rank's share of the rows of the batch.
local function terms_step()
  return core.jit(function(grads, share)
    local terms = {}
    for _, g in ipairs(grads) do terms[#terms + 1] = g * share:to(g:dtype()) end
    return terms
  end)
end

-- This rank's terms of the gradient of the batch; zeros if it has no rows; nil if a value is not finite. Adds the rows
-- to the metrics.
local function terms_of(self, batch, key)
  local rows, first, tensors = ranks.own_rows(self.share, batch)
  if rows == 0 then
    if not self.connected then
      core.fail("usage", "fit: the first batch has fewer rows than there are ranks: give compression up, or larger "
        .. "batches")
    end
    local zeros = {}
    for i, v in ipairs(self.model.trainable_variables) do
      if self.connected[i] then zeros[#zeros + 1] = ops.full(v:shape(), 0, v:dtype()) end
    end
    return zeros
  end
  local result = ranks.with_own_draws(ranks.attempt, self, self.step, rows, batch.layout, key, first, batch.order,
    unpack(tensors))
  if not result then return nil end
  local grads = {}
  self.connected = {}
  for i, g in ipairs(result.grads) do
    self.connected[i] = g ~= false
    if g then grads[#grads + 1] = g end
  end
  result.grads = nil
  self.count(result, rows, #self.compiled.outputs)
  return self.terms(grads, core.tensor(rows / batch.rows, { dtype = "float64" }))
end

function Compression:train_batch(take, key)
  local batch = take()
  if not batch then return false end
  self.sums.start()
  local terms = row_share.only_here(terms_of, self, batch, key)
  ranks.raise(self, ranks.worst(self))
  self.apply(self.add_up(terms), key)
  return true
end

function Compression:end_epoch()
  ranks.share_means(self.model.non_trainable_variables)
  self.sums.finish()
  ranks.share_draws()
end

function Compression:report() end -- luacheck: no self

function Compression:abandon() end -- luacheck: no self

--- new(compiled, model) -> the trainer of strategy "mirrored" with the option compression, of several ranks.
local function new(compiled, model)
  local how, spread = compiled.strategy_options.compression, ranks.spread(compiled)
  if type(how) == "table" and compiled.optimizer.skips_steps then
    core.fail("usage", "fit: compression {top_k = ...} cannot be combined with loss scaling, whose gradients may be "
      .. 'infinite: take "bfloat16", or the policy mixed_bfloat16')
  end
  local self = setmetatable({ compiled = compiled, model = model, spread = spread, share = row_share.of(compiled),
    sums = ranks.metric_sums(compiled), terms = terms_step(), bad = 0,
    bad_sum = how == "float16" and train_step.BAD_HALF_SUM or train_step.BAD_SUM }, Compression)
  self.step = asynchronous.gradient_step(compiled, model, spread)
  self.add_up = type(how) == "table" and sum_of_largest(how.top_k) or sum_of_halves(how)
  self.apply = apply_step(self)
  self.count = core.jit(function(result, rows, outputs)
    result.rows = rows
    compiled.metrics:update(result)
    return outputs
  end, spread)
  return self
end

return { new = new }
