--- How replicas on several ranks are brought together (replicas.lua): local SGD, elastic averaging, Adasum.
--
-- rule.begin() is called before the first step of an epoch, when the weights are equal on all ranks; rule.meet() after
-- the steps of a period, on all ranks together; rule.settle(), after a meet, gives all ranks the same weights. They
-- concern the trainable variables. Sums over ranks are in their order, so all get equal bits.
local core = require "mgpu.core"
local values_of = require "mgpu.train.shared_weights".values_of

local ops = core.ops
local M = {}

local function assign(variables, values)
  for i, v in ipairs(variables) do v:assign(values[i]) end
end

-- A jitted function of arrays of tensors that gives the array of fn(a[i], b[i], ...).
local function each(fn)
  return core.jit(function(...)
    local lists, results = { ... }, {}
    for i = 1, #lists[1] do
      local arguments = {}
      for k, list in ipairs(lists) do arguments[k] = list[i] end
      results[i] = fn(unpack(arguments))
    end
    return results
  end)
end

-- ---- local SGD ------------------------------------------------------------------------------------

--- local_sgd(model) -> the weights become their means (Stich: Local SGD converges fast and communicates little, 2019)
function M.local_sgd(model)
  local mean = each(function(sum) return sum / core.world().size end)
  local rule = {}
  function rule.begin() end
  function rule.meet()
    local variables = model.trainable_variables
    assign(variables, mean(core.world_sum(values_of(variables))))
  end
  function rule.settle() end
  return rule
end

-- ---- elastic averaging ----------------------------------------------------------------------------

--- elastic(model, {rate}) -> a center pulls the replicas and is pulled by them: with a = rate / ranks, and d = x -
--- center of each replica, x becomes x - a d and the center center + a (sum of all d) (Zhang, Choromanska, LeCun: Deep
--- learning with elastic averaging SGD, 2015: the synchronous form; rate is its beta).
-- At the end of an epoch the weights are those of the center, and all replicas go on from there.
function M.elastic(model, chosen)
  local a = chosen.rate / core.world().size
  local distance = each(function(x, c) return x - c end)
  local moved = each(function(x, by) return x - by * a end)
  local pulled = each(function(c, sum) return c + sum * a end)
  local rule, center = {}, nil
  function rule.begin() center = values_of(model.trainable_variables) end
  function rule.meet()
    local variables = model.trainable_variables
    local x = values_of(variables)
    local own = distance(x, center)
    assign(variables, moved(x, own))
    center = pulled(center, core.world_sum(own))
  end
  function rule.settle() assign(model.trainable_variables, center) end
  return rule
end

-- ---- Adasum ---------------------------------------------------------------------------------------

-- One of two changes that point the same way, their sum if they are orthogonal, and what lies between.
local function combine(a, b)
  local wide_a, wide_b = a:to "float64", b:to "float64"
  local dot = ops.sum(wide_a * wide_b)
  local function factor(wide)
    local norm = ops.sum(wide * wide)
    return ops.where(norm:gt(0), 1 - dot / (2 * ops.maximum(norm, 1e-300)), 1):to(a:dtype())
  end
  return a * factor(wide_a) + b * factor(wide_b)
end

-- Pairs of ranks combine their changes, then pairs of pairs. Of a number of ranks that is no power of two, those above
-- the last one combine theirs with the first ranks before, and get the result after.
local function combine_all(changes, pair)
  local rank, size, full = core.world().rank, core.world().size, 1
  while full * 2 <= size do full = full * 2 end
  local function meet(partner, then_combine)
    local other = core.world_swap(changes, partner)
    if partner < 0 or not then_combine then return other end
    return rank < partner and pair(changes, other) or pair(other, changes)
  end
  local beyond = rank >= full and rank - full or rank < size - full and rank + full or -1
  if full < size then changes = meet(beyond, rank < full) end
  local bit = 1
  while bit < full do
    local partner = -1
    if rank < full then partner = math.floor(rank / bit) % 2 == 0 and rank + bit or rank - bit end
    changes = meet(partner, true)
    bit = bit * 2
  end
  if full < size then
    local result = core.world_swap(changes, beyond)
    if rank >= full then changes = result end
  end
  return changes
end

--- adasum(model) -> the changes of the weights since the last meeting are combined tensor by tensor: of two changes a
--- and b, (1 - ab / 2aa) a + (1 - ab / 2bb) b, where ab is their inner product (Maleki et al.: Scaling distributed
--- training with adaptive summation, 2021; as Horovod's DistributedOptimizer with op = Adasum).
function M.adasum(model)
  local change = each(function(x, from) return x - from end)
  local added = each(function(from, by) return from + by end)
  local pair = each(combine)
  local rule, start = {}, nil
  function rule.begin() start = values_of(model.trainable_variables) end
  function rule.meet()
    start = added(start, combine_all(change(values_of(model.trainable_variables), start), pair))
    assign(model.trainable_variables, start)
  end
  function rule.settle() end
  return rule
end

return M
