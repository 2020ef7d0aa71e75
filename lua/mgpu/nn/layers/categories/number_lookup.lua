--- Vocabularies of whole numbers as tensor ops, for IntegerLookup inside of models and traced functions.
local core = require "mgpu.core"

local ops = core.ops
local M = {}

local function constant(list, like) return core.tensor(list, { dtype = "int64", device = like:device() }) end

local function entries(list, at) return ops.gather(list, at, { axis = 1 }) end

-- The terms in rising order, and their indices in the vocabulary, from 0: sorted once for a vocabulary.
local function sorted(layer)
  local terms, order, list, places = layer.vocabulary, {}, {}, {}
  if layer.sorted then return unpack(layer.sorted) end
  for i = 1, #terms do order[i] = i end
  table.sort(order, function(a, b) return terms[a] < terms[b] end)
  for i, at in ipairs(order) do list[i], places[i] = terms[at], at - 1 end
  layer.sorted = { list, places }
  return list, places
end

-- How many of the n rising terms are at most x: a binary search in which every element takes the same steps.
local function count_up_to(terms, n, x)
  local count, step = ops.full(x:shape(), 0, "int64"), 1
  while step * 2 <= n do step = step * 2 end
  while step >= 1 do
    local next_count = count + step
    local fits = ops.logical_and(ops.le(next_count, n), ops.le(entries(terms, next_count:minimum(n) - 1), x))
    count, step = ops.where(fits, next_count, count), step / 2
  end
  return count
end

--- indices(layer, first, oov, x) -> the indices int64 of x: those of the vocabulary from `first` on, those of other
--- numbers from `oov` on; -1 for masks that have none.
function M.indices(layer, first, oov, x)
  x = x:to "int64"
  local list, places = sorted(layer)
  local terms = constant(list, x)
  local at = (count_up_to(terms, #list, x) - 1):maximum(0)
  local bins = layer.num_oov_indices
  local other = bins > 1 and x % bins + oov or ops.full(x:shape(), oov, "int64")
  local found = ops.where(ops.eq(entries(terms, at), x), entries(constant(places, x), at) + first, other)
  if layer.mask_token == nil then return found end
  return ops.where(ops.eq(x, layer.mask_token), oov == 1 and 0 or -1, found)
end

--- terms(layer, first, x) -> the terms int64 of the indices x; the token for unknown values for indices of none.
function M.terms(layer, first, x)
  local at, n = x:to "int64" - first, #layer.vocabulary
  local inside = ops.logical_and(ops.ge(at, 0), ops.lt(at, n))
  local found = ops.where(inside, entries(constant(layer.vocabulary, x), at:maximum(0):minimum(n - 1)), layer.oov_token)
  if layer.mask_token == nil then return found end
  return ops.where(ops.eq(at, -first), layer.mask_token, found)
end

return M
