-- Counts of true and false positives and negatives at thresholds, for precision, recall and AUC.
--
-- A prediction counts as positive where it is above the threshold. Options that precision and recall share:
-- thresholds (one number or a list, 0.5), top_k (only the k largest of each row count as positive),
-- class_id (from 0: only this class counts).

local core = require "mgpu.core"

local ops = core.ops
local M = {}

M.declared = {
  { "thresholds", "number|table" },
  { "top_k", "integer", min = 1 },
  { "class_id", "integer", min = 0 },
}

--- The thresholds of the options, checked; -infinity with top_k alone, as in Keras.
function M.thresholds(who, chosen)
  local given = chosen.thresholds
  if given == nil then return { chosen.top_k and -math.huge or 0.5 } end
  local list = type(given) == "table" and given or { given }
  if #list == 0 then core.fail("usage", who .. ": thresholds is empty") end
  for _, t in ipairs(list) do
    if type(t) ~= "number" or not (t >= 0 and t <= 1) then
      core.fail("usage", ("%s: thresholds must lie in 0 to 1, got %s"):format(who, tostring(t)))
    end
  end
  return list
end

-- The k largest of each row; the others become -infinity.
local function only_top(p, k)
  local shape = p:shape()
  local n = shape[#shape]
  if k >= n then return p end
  local rows = p:count() / n
  local flat = ops.reshape(p, { shape = { rows, n } })
  local wide, tall = ops.reshape(flat, { shape = { rows, 1, n } }), ops.reshape(flat, { shape = { rows, n, 1 } })
  local i, j = ops.iota { shape = { n, n }, axis = 1, dtype = "int32" },
    ops.iota { shape = { n, n }, axis = 2, dtype = "int32" }
  -- of equal ones the first wins
  local before = ops.logical_or(ops.gt(wide, tall), ops.logical_and(ops.eq(wide, tall), ops.lt(j, i)))
  local above = ops.sum(ops.cast(before, { dtype = "int32" }), { axis = 3 })
  return ops.reshape(ops.where(ops.lt(above, k), flat, -math.huge), { shape = shape })
end

local function one_class(who, t, id)
  local shape = t:shape()
  if id >= shape[#shape] then
    core.fail("usage", ("%s: class_id is %d, but the predictions have %d classes, from 0"):format(who, id,
      shape[#shape]))
  end
  return ops.gather(t, core.tensor({ id }, { dtype = "int32" }), { axis = -1 })
end

-- y_true, y_pred and weight (or nil) as {n}, in float64.
local function flatten(who, y_true, y_pred, weight, chosen)
  if y_true:count() ~= y_pred:count() then
    core.fail("usage", ("%s: y has shape {%s}, the predictions have {%s}"):format(who,
      table.concat(y_true:shape(), ", "), table.concat(y_pred:shape(), ", ")))
  end
  y_true = ops.reshape(y_true, { shape = y_pred:shape() })
  if chosen.top_k then y_pred = only_top(y_pred, chosen.top_k) end
  if chosen.class_id then
    y_true, y_pred = one_class(who, y_true, chosen.class_id), one_class(who, y_pred, chosen.class_id)
  end
  local shape, n = y_pred:shape(), y_pred:count()
  if weight ~= nil then
    if type(weight) ~= "userdata" then weight = core.tensor(weight) end
    weight = ops.cast(weight, { dtype = "float64" })
    local narrow = weight:shape()
    for axis = #narrow + 1, #shape do narrow[axis] = 1 end
    weight = ops.broadcast_to(ops.reshape(weight, { shape = narrow }), { shape = shape })
    weight = ops.reshape(weight, { shape = { 1, n } })
  end
  local function row(t) return ops.reshape(ops.cast(t, { dtype = "float64" }), { shape = { 1, n } }) end
  return row(y_true), row(y_pred), weight
end

--- The weighted counts {thresholds} of true positives, false positives, false negatives, true negatives.
function M.counts(who, y_true, y_pred, weight, thresholds, chosen)
  local truth, p
  truth, p, weight = flatten(who, y_true, y_pred, weight, chosen)
  local limits = core.tensor(thresholds, { dtype = "float64" }):reshape { #thresholds, 1 }
  local positive, actual = ops.gt(p, limits:to(p:device())), ops.gt(truth, 0.5)
  local function count(where)
    local ones = ops.cast(where, { dtype = "float64" })
    return ops.sum(weight and ones * weight or ones, { axis = 2 })
  end
  local no, never = ops.logical_not(positive), ops.logical_not(actual)
  return count(ops.logical_and(positive, actual)), count(ops.logical_and(positive, never)),
    count(ops.logical_and(no, actual)), count(ops.logical_and(no, never))
end

--- a / (a + b) for each threshold, 0 where nothing was counted: a number, or an array for a list of them.
function M.ratio(chosen, a, b)
  local list, above, below = {}, a:value():totable(), b:value():totable()
  for i, n in ipairs(above) do list[i] = n + below[i] > 0 and n / (n + below[i]) or 0 end
  return type(chosen.thresholds) == "table" and list or list[1]
end

return M
