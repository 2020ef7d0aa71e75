--- CTC {reduction =, name =}, also ctc: connectionist temporal classification, minus the log of the probability that
--- the steps of a sequence spell the label, whatever their alignment.
-- y_true {rows, length} of class ids, padded with 0 at the end; y_pred {rows, steps, classes} of logits, where class 0
-- is the blank -> {rows}. A label that needs more steps than there are has a loss of about 1e30.
-- Errors: other numbers of axes or rows. Source: Graves et al., Connectionist temporal classification, 2006; Keras.
-- Example:
--     local logits = mgpu.zeros { 1, 3, 2 } -- each of 3 steps: blank or class 1, with probability 1/2
--     -- 6 of the 8 paths spell one 1: all but 000 and 101
--     print(("%.4f"):format(mgpu.losses.ctc(mgpu.tensor { { 1, 0 } }, logits):item())) -- log(8 / 6)
--     --> 0.2877
local core = require "mgpu.core"
local Loss = require "mgpu.nn.losses.loss"
local scan = require "mgpu.tensor.scan".scan
local shapes = require "mgpu.nn.losses.shapes"

local ops = core.ops

local NEVER = -1e30 -- the logarithm of nothing, finite for the sake of the gradient
local BLANK = 0

local function span(t, axis, first, last) -- elements first .. last of the axis, from 1
  local start, stop = {}, t:shape()
  for i = 1, #stop do start[i] = 0 end
  start[axis], stop[axis] = first - 1, last
  return ops.slice(t, { start = start, stop = stop })
end

-- t {rows, n}, moved by `by` places to the right; `fill` comes in.
local function shifted(t, by, fill)
  local n = t:shape()[2]
  return ops.pad(span(t, 2, 1, n - by), { before = { 0, by }, after = { 0, 0 }, value = fill })
end

-- log(exp(a) + exp(b) + ...), element by element.
local function log_add(list)
  local top = list[1]
  for i = 2, #list do top = ops.maximum(top, list[i]) end
  top = ops.stop_gradient(top)
  local sum
  for _, t in ipairs(list) do
    local part = ops.exp(t - top)
    sum = sum and sum + part or part
  end
  return ops.log(sum) + top
end

-- The states of the recursion: the ids {rows, 2 length + 1} of blank, first label, blank, second label, ..., blank.
local function with_blanks(labels)
  local rows, length = unpack(labels:shape())
  local wide = ops.reshape(labels, { shape = { rows, length, 1 } })
  wide = ops.pad(wide, { before = { 0, 0, 1 }, after = { 0, 0, 0 }, value = BLANK }) -- blank, label
  return ops.pad(ops.reshape(wide, { shape = { rows, 2 * length } }), { before = { 0, 0 }, after = { 0, 1 },
    value = BLANK })
end

local M = {}

M.CTC = Loss.define {
  name = "ctc",
  class = "CTC",
  declared = {},
  target_shape = function(_, prediction) return { prediction[1], prediction[2] } end, -- the longest label
  check_shape = function(self, actual, prediction, what)
    if #prediction == 3 and #actual == 2 and actual[1] == prediction[1] and actual[2] > 0 then return end
    core.fail("usage", ("%s: ctc needs labels {rows, length} and predictions {rows, steps, classes}, but y has shape "
      .. "%s and the predictions %s"):format(what or self.name, shapes.show(actual), shapes.show(prediction)))
  end,
  prepare = function(self, y_true, y_pred)
    self:check_shape(y_true:shape(), y_pred:shape())
    return ops.cast(y_true, { dtype = "int32" })
  end,
  values = function(labels, y_pred)
    local rows, steps, classes = unpack(y_pred:shape())
    local dtype = y_pred:dtype()
    local good = ops.logical_and(ops.ge(labels, 0), ops.lt(labels, classes))
    core.guard(ops.all(good), "data", ("ctc: a label is not in 0 .. %d"):format(classes - 1))
    local ids = with_blanks(labels)
    local states = ids:shape()[2]
    -- log p of the id of each state, in each step
    local log_p = ops.permute(ops.log_softmax(y_pred, { axis = -1 }), { order = { 1, 3, 2 } })
    local wide = ops.reshape(ids, { shape = { rows, states, 1 } })
    wide = ops.broadcast_to(wide, { shape = { rows, states, steps } })
    log_p = ops.permute(ops.take_along_axis(log_p, wide, { axis = 2 }), { order = { 3, 1, 2 } })
    -- a label may follow the one before it directly unless they are equal: then a blank stands between them
    local place = ops.iota { shape = { 1, states }, axis = 2, dtype = "int32" }
    local is_label = ops.eq(ops.mod(place, 2), 1) -- of class 0 too, if it stands within a label, as in Keras
    local skips = ops.logical_and(is_label, ops.ne(ids, shifted(ids, 2, BLANK)))
    local first = ops.reshape(span(log_p, 1, 1, 1), { shape = { rows, states } })
    local alpha = ops.where(ops.lt(place, 2), first, NEVER)
    if steps > 1 then
      alpha = scan(function(before, p)
        local jumped = ops.where(skips, shifted(before, 2, NEVER), NEVER)
        return log_add { before, shifted(before, 1, NEVER), jumped } + p
      end, alpha, span(log_p, 1, 2, steps))
    end
    -- a path ends in the last label or in the blank behind it
    local length = ops.sum(ops.cast(ops.ne(labels, BLANK), { dtype = "int32" }), { axis = 2, keepdims = true })
    local last = ops.ge(place, length * 2 - 1)
    local ends = ops.where(ops.logical_and(last, ops.le(place, length * 2)), alpha, ops.cast(NEVER, { dtype = dtype }))
    return -ends:logsumexp(2)
  end,
}

return M
