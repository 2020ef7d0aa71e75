--- Parameter servers: some ranks keep the weights, the others, the workers, compute gradients.
--
-- The variables are dealt out over the servers by size, each whole, with their slots of the optimizer. A worker
-- computes the gradients of its rows on the weights that it has, sends each server those of the server's variables,
-- and gets the new weights back. Strategy "central" is one server, rank 0, that is a worker too.
--
-- staleness = 0: the workers share the rows of each batch. A server adds up their gradients, weighted by rows, in the
-- order of ranks, and applies the optimizer once: the weights of strategy "mirrored" to rounding, except that batch
-- normalization takes its statistics from the rows of a worker, that layers that draw random numbers draw others on
-- each worker, and that a mean over masked steps is averaged by rows.
-- staleness = n: batch number w of every W, the number of workers, is worker w's. A server applies gradients as they
-- arrive, and a worker begins its step k when all others have finished k - 1 - n. The staleness that is reported is the
-- number of changes that others made to a server's weights between a worker's getting them and its gradients' arrival:
-- with W workers at most (W - 1) (2 n + 1).
--
-- Variables that are not trained (moving statistics) are sent as values: servers keep their mean, weighted by rows, or
-- with staleness the values that arrived last. At the end of an epoch all ranks get the servers' state, and the sums of
-- the metrics are added up; the progress bar shows those of rank 0 until then.
local core = require "mgpu.core"
local ranks = require "mgpu.parallel.replicas".common
local row_share = require "mgpu.train.row_share"
local roles = require "mgpu.parallel.server_roles"
local values_of = require "mgpu.train.shared_weights".values_of
local train_step = require "mgpu.train.train_step"

local ops = core.ops

-- The numbers before the values of a message from a worker, besides one for each variable: whether it has a value.
local PUSHED = 2 -- rows (-1: the worker has no more batches), why a value is not finite (0: all are)
local PULLED = 1 -- why a value is not finite

local function index_of(list, value)
  for i, each in ipairs(list) do
    if each == value then return i end
  end
end

-- ---- the worker -----------------------------------------------------------------------------------

-- The jitted step of a worker: its gradients times its share of the rows, the metrics, and no change of the weights.
-- With loss scaling all servers must skip the same steps, so all gradients are NaN if one is not finite.
local function gradient_step(self)
  local compiled, model = self.compiled, self.model
  local together = compiled.optimizer.skips_steps and #self.servers > 1
  return core.jit(function(rows, share, layout, key, first, order, ...) -- luacheck: no unused
    local batch = train_step.gradients(compiled, model, order, first, rows, layout, { ... })
    compiled.metrics:update(batch)
    local grads, known = compiled.optimizer:unscale(batch.grads), {}
    for _, g in ipairs(grads) do known[#known + 1] = g or nil end
    local bad = 1
    for at = 1, together and #known or 0, 200 do -- a call takes 255 inputs
      bad = ops.where(ops.all_finite { unpack(known, at, math.min(at + 199, #known)) }, bad, 0 / 0)
    end
    for i, v in ipairs(model.trainable_variables) do
      local g = grads[i]
      if g and share ~= 1 then g = g * share end
      if g and together then g = g * ops.cast(bad, { dtype = g:dtype() }) end
      grads[i] = g and (g:dtype() == v:dtype() and g or ops.cast(g, { dtype = v:dtype() }))
    end
    return grads
  end, ranks.spread(compiled))
end

-- What a worker sends of its variables: gradients, and the values of those that are not trained.
local function terms_of(self, grads, share)
  local terms = {}
  for i, v in ipairs(self.model.trainable_variables) do terms[v] = grads[i] end
  for _, v in ipairs(self.model.variables) do
    if terms[v] == nil then
      local value = v:value()
      terms[v] = share ~= 1 and v:dtype():find "float" and value * share or value
    end
  end
  return terms
end

-- Sends each server its part of the terms.
local function push(self, rows, terms)
  for s, rank in ipairs(self.servers) do
    local numbers, values = { rows, self.bad }, {}
    for i, v in ipairs(self.shards[s]) do
      values[i] = terms and terms[v] or false
      numbers[PUSHED + i] = values[i] and 1 or 0
    end
    self.box:send(rank, numbers, self.shards[s], values)
  end
end

local function expect_replies(self)
  for s, rank in ipairs(self.servers) do
    if rank ~= self.rank then self.box:expect(rank, PULLED, self.pulled[s]) end
  end
end

-- Waits for all servers and takes their weights.
local function pull(self)
  for _ = 1, self.is_server and 0 or #self.servers do
    local from, numbers = self.box:next(PULLED)
    local form, from_it = self.pulled[index_of(self.servers, from)], {}
    for i in ipairs(form) do from_it[i] = { from } end
    for i, value in ipairs(self.box:sums(PULLED, form, from_it)) do form[i]:assign(value) end
    self.bad = math.max(self.bad, numbers[1])
  end
end

-- RETURNS the terms of the worker's rows; nil without rows, and if a value is not finite: then self.bad says why.
local function work(self, rows, share, batch, first, tensors, key)
  if rows == 0 then return nil end
  local grads = ranks.with_own_draws(ranks.attempt, self, self.step, rows, share, batch.layout, key, first,
    batch.order, unpack(tensors))
  return grads and terms_of(self, grads, share)
end

-- ---- the server -----------------------------------------------------------------------------------

-- The jitted step of a server.
local function apply_step(self)
  local optimizer = self.compiled.optimizer
  return core.jit(function(grads, key) -- luacheck: no unused
    local known, variables = {}, {}
    for i, v in ipairs(self.trained) do
      if grads[i] then known[#known + 1], variables[#variables + 1] = grads[i], v end
    end
    optimizer:apply_unscaled(known, variables)
  end)
end

-- Applies what the workers (ranks) have sent, whose numbers are given by rank.
local function apply(self, from, numbers, key)
  local form, senders, is_trained = self.shard, {}, self.is_trained
  for i, v in ipairs(form) do
    senders[i] = {}
    for _, rank in ipairs(from) do
      local one = not is_trained[v] and not v:dtype():find "float" and #senders[i] > 0
      if numbers[rank][PUSHED + i] == 1 and not one then table.insert(senders[i], rank) end
    end
  end
  local grads, some, sums = {}, false, self.box:sums(PUSHED + #form, form, senders)
  for i, v in ipairs(form) do
    if is_trained[v] then
      grads[#grads + 1], some = sums[i], some or sums[i]
    elseif sums[i] then
      v:assign(sums[i])
    end
  end
  if not some then return end
  row_share.only_here(ranks.attempt, self, self.apply, grads, key)
end

local function expect_push(self, rank)
  self.box:expect(rank, PUSHED + #self.shard, self.shard)
end

local function reply(self, rank)
  if rank ~= self.rank then self.box:send(rank, { self.bad }, self.own_pulled, values_of(self.own_pulled)) end
end

-- ---- the trainers ---------------------------------------------------------------------------------

local Sync = { in_step = true, reports = {} }
Sync.__index = Sync

function Sync.expect(self)
  for _, rank in ipairs(self.is_server and self.workers or {}) do expect_push(self, rank) end
  if self.is_worker then expect_replies(self) end
end

-- A server's part of a step: the gradients of all workers, once.
function Sync.serve(self, key)
  local numbers, from = {}, {}
  for _ = 1, #self.workers do
    local rank, sent = self.box:next(PUSHED + #self.shard)
    numbers[rank] = sent
    self.bad = math.max(self.bad, sent[2])
  end
  for _, rank in ipairs(self.workers) do
    if numbers[rank][1] > 0 then from[#from + 1] = rank end
  end
  if self.bad == 0 then apply(self, from, numbers, key) end
  for _, rank in ipairs(self.workers) do reply(self, rank) end
end

function Sync:train_batch(take, key)
  core.world_sum {} -- all ranks have come, and know what a signal has asked of one
  self.bad = ranks.worst(self) -- of a server that could not update, the other servers do not know otherwise
  local batch = self.bad == 0 and take() or nil
  if not batch then return false end
  self:start(key)
  Sync.expect(self)
  if self.is_worker then
    local rows, first, tensors = ranks.own_rows(self.share, batch)
    push(self, rows, work(self, rows, rows / batch.rows, batch, first, tensors, key))
  end
  if self.is_server then Sync.serve(self, key) end
  if self.is_worker then pull(self) end
  return true
end

local Async = { in_step = false, takes_all = true, reports = { "staleness_mean", "staleness_max" } }
Async.__index = Async

-- Takes the batches of a round, one for each worker. RETURNS this worker's, or nil if there is none for it.
local function take_round(self, take)
  local own
  for w = 1, #self.workers do
    local batch = take()
    if w == self.number then own = batch end
  end
  return own
end

function Async.work(self, take, key)
  local batch = self.bad == 0 and take_round(self, take)
  if not batch then
    push(self, -1, nil)
    return false
  end
  local first = batch.order and core.tensor(batch.at, { dtype = "int32" }) or batch.first
  local terms = work(self, batch.rows, 1, batch, first, batch.tensors, key)
  expect_replies(self)
  push(self, batch.rows, terms)
  pull(self)
  return true
end

-- Answers the workers that wait and are not too far ahead of the slowest.
local function release(self)
  local slowest = math.huge
  for _, rank in ipairs(self.workers) do slowest = math.min(slowest, self.steps[rank]) end
  for _, rank in ipairs(self.workers) do
    if self.waiting[rank] and self.steps[rank] - slowest <= self.bound then
      self.waiting[rank], self.seen[rank] = false, self.version
      reply(self, rank)
      expect_push(self, rank)
    end
  end
end

-- A server's step: the gradients of the worker that comes next.
function Async.serve(self, take, key)
  while self.working > 0 do
    local rank, numbers = self.box:next(PUSHED + #self.shard)
    if numbers[1] >= 0 then
      local stale, s = self.version - self.seen[rank], self.staleness
      if numbers[2] == 0 then apply(self, { rank }, { [rank] = numbers }, key) end
      self.staleness = { sum = s.sum + stale, n = s.n + 1, max = math.max(s.max, stale) }
      self.version, self.steps[rank], self.waiting[rank] = self.version + 1, self.steps[rank] + 1, true
      release(self)
      take()
      return true
    end
    self.working, self.steps[rank] = self.working - 1, math.huge
    release(self)
  end
  take() -- sees that the data have ended, as the workers have
  return false
end

function Async:train_batch(take, key)
  if not self.begun then
    self:start(key)
    self.steps, self.waiting, self.seen, self.version, self.working = {}, {}, {}, 0, #self.workers
    for _, rank in ipairs(self.workers) do
      self.steps[rank], self.seen[rank] = 0, 0
      if self.is_server then expect_push(self, rank) end
    end
  end
  if self.is_server then return Async.serve(self, take, key) end
  return Async.work(self, take, key)
end

-- ---- what both have -------------------------------------------------------------------------------

local Common = {}

-- Which variables of the shard are trained; key: of the step, which changes with them.
local function note_trained(self, key)
  if self.key == key then return end
  self.key, self.trained, self.is_trained = key, {}, {}
  for _, v in ipairs(self.is_server and self.model.trainable_variables or {}) do
    if index_of(self.shard, v) then
      table.insert(self.trained, v)
      self.is_trained[v] = true
    end
  end
end

function Common:start(key)
  note_trained(self, key)
  if self.begun then return end
  self.begun = true
  self.sums.start()
end

-- All ranks get the variables and slots of each server, and the counters of the first.
local function share_state(self)
  local slots = self.compiled.optimizer.slots
  for s, rank in ipairs(self.servers) do
    local list = { unpack(self.shards[s]) }
    for _, v in ipairs(self.shards[s]) do
      for _, name in ipairs(self.slot_names) do
        if slots[v] and slots[v][name] then list[#list + 1] = slots[v][name] end
      end
    end
    for _, v in ipairs(s == 1 and self.counters or {}) do list[#list + 1] = v end
    core.world_send_values(list, rank)
  end
end

function Common:end_epoch()
  if not self.begun then return end
  self.begun = false
  self.box:settle()
  share_state(self)
  self.sums.finish()
  local base = 0
  for _, each in ipairs(core.world_gather(core.rng_state().base)) do base = math.max(base, each) end
  core.rng_state { seed = core.rng_state().seed, base = base }
  ranks.raise(self, ranks.worst(self))
end

function Common:report(values)
  if not self.bound then return end
  local s = self.staleness
  local sum, n, max = 0, 0, 0
  for _, each in ipairs(core.world_gather(s.sum)) do sum = sum + each end
  for _, each in ipairs(core.world_gather(s.n)) do n = n + each end
  for _, each in ipairs(core.world_gather(s.max)) do max = math.max(max, each) end
  self.staleness = { sum = 0, n = 0, max = 0 }
  values.staleness_mean, values.staleness_max = n > 0 and sum / n or 0, max
end

function Common:abandon() self.box:close() end

for _, class in ipairs { Sync, Async } do
  for name, fn in pairs(Common) do class[name] = fn end
end

local function check(compiled, servers)
  if compiled.spread.weights then
    core.fail("usage", ("fit: strategy %q deals the rows evenly: give the devices without weights")
      :format(compiled.strategy))
  end
  local rule = compiled.optimizer.inner_optimizer or compiled.optimizer
  if #servers > 1 and (rule.options.global_clipnorm or 0) > 0 then
    core.fail("usage", ("fit: strategy %q: global_clipnorm needs the gradients of all variables, but %d servers have "
      .. "a part of them each: give servers = 1, or clipnorm"):format(compiled.strategy, #servers))
  end
end

--- new(compiled, model) -> the trainer of strategy "parameter_server" or "central".
local function new(compiled, model)
  local chosen, rank = compiled.strategy_options, core.world().rank
  local servers, workers = roles.of(compiled.strategy, chosen)
  check(compiled, servers)
  compiled.optimizer:build(model.trainable_variables)
  local bound = chosen.staleness == "unbounded" and math.huge or chosen.staleness or 0
  local self = setmetatable({ compiled = compiled, model = model, rank = rank, servers = servers, workers = workers,
    is_server = index_of(servers, rank) ~= nil, is_worker = index_of(workers, rank) ~= nil,
    number = index_of(workers, rank), bound = bound > 0 and bound or nil, shards = roles.deal(model, #servers),
    pulled = {},
    counters = roles.counters_of(compiled.optimizer), slot_names = roles.slot_names_of(compiled.optimizer), bad = 0,
    staleness = { sum = 0, n = 0, max = 0 }, sums = ranks.metric_sums(compiled), box = core.mailbox() },
    bound > 0 and Async or Sync)
  for s, shard in ipairs(self.shards) do
    self.pulled[s] = { unpack(shard) }
    for _, v in ipairs(s == 1 and self.counters or {}) do table.insert(self.pulled[s], v) end
  end
  local mine = index_of(servers, rank)
  self.shard, self.own_pulled = self.shards[mine], self.pulled[mine]
  self.share = roles.share_of(#compiled.devices, self.is_worker)
  self.step, self.apply = gradient_step(self), apply_step(self)
  return self
end

return { new = new }
