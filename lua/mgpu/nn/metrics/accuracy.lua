--- How often the predicted class is right.
-- RETURNS the metrics by name.
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"

local ops = core.ops

local M = {}

-- ---- BinaryAccuracy -----------------------------------------------------------------------------

--- BinaryAccuracy {threshold = 0.5, name =}, also binary_accuracy: how often y_pred > threshold agrees with
--- y_true. y_true of 0 and 1 and y_pred of one shape; averaged over all elements.
-- Example:
--     local accuracy = mgpu.metrics.BinaryAccuracy { threshold = 0.4 }
--     accuracy:update(mgpu.tensor { { 1 }, { 1 }, { 0 }, { 0 } }, mgpu.tensor { { 0.9 }, { 0.45 }, { 0.45 }, { 0.1 } })
--     print(accuracy:result())  --> 0.75
M.BinaryAccuracy = Metric.define {
  name = "binary_accuracy",
  class = "BinaryAccuracy",
  direction = "max",
  declared = { { "threshold", "number", default = 0.5 } },
  values = function(self, y_true, y_pred)
    y_true = self:fit(y_true, y_pred)
    local predicted = ops.gt(y_pred, self.options.threshold)
    return ops.eq(ops.cast(y_true, { dtype = "float32" }),
      ops.cast(predicted, { dtype = "float32" }))
  end,
}

-- ---- CategoricalAccuracy ------------------------------------------------------------------------

--- CategoricalAccuracy {name =}, also categorical_accuracy: how often the right class has the largest prediction.
-- y_true {rows, ..., classes} one-hot, y_pred likewise.
-- Example:
--     local accuracy = mgpu.metrics.CategoricalAccuracy {}
--     accuracy:update(mgpu.tensor { { 1, 0 }, { 0, 1 } }, mgpu.tensor { { 0.6, 0.4 }, { 0.7, 0.3 } })
--     print(accuracy:result())  --> 0.5
M.CategoricalAccuracy = Metric.define {
  name = "categorical_accuracy",
  class = "CategoricalAccuracy",
  direction = "max",
  values = function(self, y_true, y_pred)
    y_true = self:fit(y_true, y_pred)
    return ops.eq(ops.argmax(y_true, { axis = -1 }), ops.argmax(y_pred, { axis = -1 }))
  end,
}

-- ---- SparseCategoricalAccuracy ------------------------------------------------------------------

--- SparseCategoricalAccuracy {name =}, also sparse_categorical_accuracy: how often the class of the id has the largest
--- prediction. y_true {rows, ...} or {rows, ..., 1} of ids from 0, y_pred {rows, ..., classes}.
-- Example:
--     local accuracy = mgpu.metrics.SparseCategoricalAccuracy {}
--     accuracy:update(mgpu.tensor { 0, 1 }, mgpu.tensor { { 0.6, 0.4 }, { 0.7, 0.3 } })
--     print(accuracy:result())  --> 0.5
M.SparseCategoricalAccuracy = Metric.define {
  name = "sparse_categorical_accuracy",
  class = "SparseCategoricalAccuracy",
  direction = "max",
  values = function(self, y_true, y_pred)
    y_true = self:fit(y_true, y_pred, true)
    local found = ops.argmax(y_pred, { axis = -1 })
    return ops.eq(ops.cast(y_true, { dtype = found:dtype() }), found)
  end,
}

-- ---- Accuracy -----------------------------------------------------------------------------------

local function kind(y_true, y_pred)
  if y_pred:rank() == 0 then return M.BinaryAccuracy end
  local classes = y_pred:shape()[y_pred:rank()]
  if classes == 1 then return M.BinaryAccuracy end
  if y_true:rank() < y_pred:rank() then return M.SparseCategoricalAccuracy end
  if y_true:shape()[y_true:rank()] == 1 then return M.SparseCategoricalAccuracy end
  return M.CategoricalAccuracy
end

--- Accuracy {exact = false, name =}, also accuracy and acc: the accuracy that fits the shapes, by the rule of Keras 3.
-- BinaryAccuracy if y_pred has one column; SparseCategoricalAccuracy if y_true has no axis of classes or one of size 1;
-- CategoricalAccuracy otherwise, whatever the loss: several labels a row, trained with binary_crossentropy, want
-- "binary_accuracy" by name. (Keras 2 chose by the loss.) exact = true is Keras's class Accuracy: how often y_pred,
-- class ids of the shape of y_true, is equal to y_true.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3, activation = "softmax" } }
--     model:compile { loss = "sparse_categorical_crossentropy", metrics = { "accuracy" } }
--     local logs = model:evaluate(mgpu.zeros { 4, 4 }, mgpu.tensor { 0, 0, 0, 1 }, { verbose = 0 }) -- it answers 0
--     print(("%.2f"):format(logs.accuracy))  --> 0.75
--     local exact = mgpu.metrics.Accuracy { exact = true }
--     exact:update(mgpu.tensor { 1, 2, 3, 4 }, mgpu.tensor { 0, 2, 3, 4 })
--     print(exact:result())  --> 0.75
M.Accuracy = Metric.define {
  name = "accuracy",
  class = "Accuracy",
  direction = "max",
  declared = { { "exact", "boolean", default = false } },
  values = function(self, y_true, y_pred)
    if self.options.exact then return ops.eq(self:fit(y_true, y_pred), y_pred) end
    local chosen = kind(y_true, y_pred)
    local stand_in = { name = self.name, fit = Metric.fit, options = { threshold = 0.5 } }
    return chosen.values(stand_in, y_true, y_pred)
  end,
}

-- ---- SparseTopKCategoricalAccuracy --------------------------------------------------------------

-- For each row, whether fewer than k classes have a higher prediction than the class ids[row].
local function hits(ids, y_pred, k)
  local shape = y_pred:shape()
  local classes = shape[#shape]
  shape[#shape] = 1
  local column = ops.reshape(ops.cast(ids, { dtype = "int32" }), { shape = shape })
  local wide = {}
  for axis = 1, #shape - 1 do wide[axis] = 1 end
  wide[#shape] = classes
  local is_target = ops.eq(column, ops.iota { shape = wide, axis = #shape, dtype = "int32" })
  local own = ops.sum(ops.where(is_target, y_pred, 0), { axis = -1, keepdims = true })
  local higher = ops.sum(ops.cast(ops.gt(y_pred, own), { dtype = "int32" }), { axis = -1 })
  local known = ops.logical_and(ops.any(is_target, { axis = -1 }),
    ops.isfinite(ops.reshape(own, { shape = higher:shape() })))
  return ops.logical_and(ops.lt(higher, k), known)
end

-- For each row, whether the class ids[row] is among the first k of the sorted ids in y_pred.
local function among_first(ids, y_pred, k)
  local stop, start = y_pred:shape(), {}
  for axis = 1, #stop do start[axis] = 0 end
  stop[#stop] = math.min(k, stop[#stop])
  local first, column = ops.slice(y_pred, { start = start, stop = stop }), { unpack(stop) }
  column[#column] = 1
  ids = ops.reshape(ops.cast(ids, { dtype = first:dtype() }), { shape = column })
  return ops.any(ops.eq(first, ids), { axis = -1 })
end

--- SparseTopKCategoricalAccuracy {k = 5, from_sorted_ids = false, name =}, also sparse_top_k_categorical_accuracy: how
--- often the label is among the k largest predictions.
-- y_true {rows, ...} of class ids, y_pred {rows, ..., classes}. Predictions equal to the k-th are among the k. An id
-- out of range, or one whose prediction is not finite, is never among them. from_sorted_ids: y_pred holds class ids
-- instead, the most likely one first, k of them or more.
-- Example:
--     local top = mgpu.metrics.SparseTopKCategoricalAccuracy { k = 2 }
--     top:update(mgpu.tensor { 2, 0 }, mgpu.tensor { { 0.5, 0.2, 0.3 }, { 0.1, 0.4, 0.5 } })
--     print(top:result())  --> 0.5
M.SparseTopKCategoricalAccuracy = Metric.define {
  name = "sparse_top_k_categorical_accuracy",
  class = "SparseTopKCategoricalAccuracy",
  direction = "max",
  declared = { { "k", "integer", default = 5, min = 1 }, { "from_sorted_ids", "boolean", default = false } },
  values = function(self, y_true, y_pred)
    local find = self.options.from_sorted_ids and among_first or hits
    return find(self:fit(y_true, y_pred, true), y_pred, self.options.k)
  end,
}

-- ---- TopKCategoricalAccuracy --------------------------------------------------------------------

--- TopKCategoricalAccuracy {k = 5, name =}, also top_k_categorical_accuracy: how often the class is among the k
--- largest predictions (predictions equal to the k-th count). y_true {rows, ..., classes} one-hot, y_pred likewise.
-- Example:
--     local top = mgpu.metrics.TopKCategoricalAccuracy { k = 2 }
--     top:update(mgpu.tensor { { 0, 0, 1 }, { 1, 0, 0 } }, mgpu.tensor { { 0.5, 0.2, 0.3 }, { 0.1, 0.4, 0.5 } })
--     print(top:result())  --> 0.5
M.TopKCategoricalAccuracy = Metric.define {
  name = "top_k_categorical_accuracy",
  class = "TopKCategoricalAccuracy",
  direction = "max",
  declared = { { "k", "integer", default = 5, min = 1 } },
  values = function(self, y_true, y_pred)
    y_true = ops.argmax(self:fit(y_true, y_pred), { axis = -1 })
    return hits(y_true, y_pred, self.options.k)
  end,
}

-- ---- TopK ---------------------------------------------------------------------------------------

--- TopK {k = 5, name =}, also top_k: top-k accuracy for class ids or for one-hot targets, by the shape of y_true.
-- Example:
--     local scores = mgpu.tensor { { 0.5, 0.2, 0.3 }, { 0.1, 0.4, 0.5 } }
--     local ids, one_hot = mgpu.metrics.TopK { k = 2 }, mgpu.metrics.TopK { k = 2 }
--     ids:update(mgpu.tensor { 2, 0 }, scores)
--     one_hot:update(mgpu.tensor { { 0, 0, 1 }, { 1, 0, 0 } }, scores)
--     print(ids:result(), one_hot:result())  --> 0.5 0.5
M.TopK = Metric.define {
  name = "top_k",
  class = "TopK",
  direction = "max",
  declared = { { "k", "integer", default = 5, min = 1 } },
  values = function(self, y_true, y_pred)
    local shape = y_true:shape()
    local by_class = #shape > 0 and #shape == y_pred:rank() and shape[#shape] > 1
    return (by_class and M.TopKCategoricalAccuracy or M.SparseTopKCategoricalAccuracy).values(self, y_true, y_pred)
  end,
}

return M
