--- Intersection over union of predicted and true classes, from a confusion matrix.
--
-- Of a class: true positives / (true positives + false positives + false negatives). The result is the mean over the
-- classes that occur. y_true and y_pred are class ids of one shape, or have an axis of classes (sparse_y_true = false,
-- sparse_y_pred = false). Ids outside 0 .. num_classes - 1, and targets of ignore_class, do not count.
-- Sample weights are numbers here; Keras cuts them to whole numbers unless the metric has a dtype of floats.
-- RETURNS the metrics by name.
local core = require "mgpu.core"
local Metric = require "mgpu.nn.metrics.metric"
local shapes = require "mgpu.nn.losses.shapes"

local ops = core.ops
local EPSILON = 1e-7

local M = {}

local function fail(self, message, ...) core.fail("usage", ("%s: "):format(self.name) .. message:format(...)) end

-- The class ids in t, one a place.
local function ids_of(self, t, sparse)
  if not sparse then
    t = ops.argmax(t, { axis = shapes.axis(self.name, self.options.axis or -1, t:rank()) })
  end
  return ops.cast(t, { dtype = "int32" })
end

-- The sum of the weights of places with true class i and predicted class j: {num_classes, num_classes}.
local function confusion(self, y_true, y_pred, weight)
  local classes, shape = self.classes, y_pred:shape()
  if shapes.product(y_true:shape()) ~= shapes.product(shape) then
    fail(self, "y has classes of shape %s, but the predictions have classes of shape %s", shapes.show(y_true:shape()),
      shapes.show(shape))
  end
  y_true = shapes.same(y_true:shape(), shape) and y_true or ops.reshape(y_true, { shape = shape })
  local function known(ids) return ops.logical_and(ops.ge(ids, 0), ops.lt(ids, classes)) end
  local counted = ops.logical_and(known(y_true), known(y_pred))
  if self.options.ignore_class then
    counted = ops.logical_and(counted, ops.ne(y_true, self.options.ignore_class))
  end
  weight = shapes.weight(self.name, weight, shape, "float64")
  counted = ops.cast(counted, { dtype = "float64" })
  weight = weight and counted * weight or counted
  local n = shapes.product(shape)
  local function one_hot(ids)
    return ops.cast(ops.eq(ops.reshape(ids, { shape = { n, 1 } }), ops.iota { shape = { 1, classes }, axis = 2,
      dtype = "int32" }), { dtype = "float64" })
  end
  return ops.matmul(one_hot(y_true) * ops.reshape(weight, { shape = { n, 1 } }), one_hot(y_pred),
    { transpose_a = true })
end

-- The mean over the classes of target_class_ids that occur.
local function result(self)
  local matrix = self.total_confusion_matrix:value():totable()
  local sum, valid = 0, 0
  for _, id in ipairs(self.targets) do
    local union = -matrix[id + 1][id + 1]
    for k = 1, self.classes do union = union + matrix[id + 1][k] + matrix[k][id + 1] end
    if union > 1e-9 then
      sum, valid = sum + matrix[id + 1][id + 1] / (union + EPSILON), valid + 1
    end
  end
  return sum / (valid + EPSILON)
end

local function check_ids(self, list)
  if #list == 0 then fail(self, 'option "target_class_ids" is empty') end
  for _, id in ipairs(list) do
    if type(id) ~= "number" or id % 1 ~= 0 or id < 0 or id >= self.classes then
      fail(self, 'option "target_class_ids" has %s, but there are the classes 0 to %d', tostring(id), self.classes - 1)
    end
  end
  return list
end

local CLASSES = { "num_classes", "integer", required = true, min = 1 }
local TARGETS = { "target_class_ids", "table", required = true }
local IGNORE = { "ignore_class", "integer" }
local AXIS = { "axis", "integer", default = -1 }
local SPARSE_TRUE = { "sparse_y_true", "boolean", default = true }
local SPARSE_PRED = { "sparse_y_pred", "boolean", default = true }
local DENSE_PRED = { "sparse_y_pred", "boolean", default = false }

-- fixed: what the options of the class do not say: sparse_y_true, num_classes.
local function define(class, name, declared, fixed)
  fixed = fixed or {}
  return Metric.define {
    name = name,
    class = class,
    direction = "max",
    declared = declared,
    state = { "total_confusion_matrix" },
    init = function(self)
      self.classes = fixed.num_classes or self.options.num_classes
      self.targets = self.options.target_class_ids and check_ids(self, self.options.target_class_ids) or {}
      if self.options.target_class_ids then return end
      for id = 0, self.classes - 1 do self.targets[id + 1] = id end
    end,
    size = function(self) return { self.classes, self.classes } end,
    observe = function(self, y_true, y_pred, weight)
      local chosen, sparse_true = self.options, fixed.sparse_y_true
      if sparse_true == nil then sparse_true = chosen.sparse_y_true end
      if chosen.threshold then
        y_pred = ops.ge(y_pred, chosen.threshold)
      elseif not chosen.sparse_y_pred then
        y_pred = ids_of(self, y_pred, false)
      end
      y_true, y_pred = ids_of(self, y_true, sparse_true), ids_of(self, y_pred, true)
      self:add_to("total_confusion_matrix", confusion(self, y_true, y_pred, weight))
    end,
    result = result,
  }
end

--- IoU {num_classes =, target_class_ids =, ignore_class =, sparse_y_true = true, sparse_y_pred = true, axis = -1,
--- name =}, also io_u: the mean of intersection over union of some classes. See iou.lua.
-- Errors: target_class_ids beyond the classes; targets of another size than the predictions.
-- Example:
--     local iou = mgpu.metrics.IoU { num_classes = 2, target_class_ids = { 0 } }
--     iou:update(mgpu.tensor { 0, 0, 1, 1 }, mgpu.tensor { 0, 1, 0, 1 })
--     print(("%.3f"):format(iou:result()))  --> 0.333
M.IoU = define("IoU", "io_u", { CLASSES, TARGETS, IGNORE, SPARSE_TRUE, SPARSE_PRED, AXIS })

--- BinaryIoU {target_class_ids = {0, 1}, threshold = 0.5, name =}, also binary_io_u: IoU of two classes, where a
--- prediction of at least the threshold is class 1. y_true of 0 and 1, y_pred of the same size.
-- Example:
--     local iou = mgpu.metrics.BinaryIoU { target_class_ids = { 1 }, threshold = 0.3 }
--     iou:update(mgpu.tensor { 0, 1, 0, 1 }, mgpu.tensor { 0.1, 0.2, 0.4, 0.7 })
--     print(("%.3f"):format(iou:result()))  --> 0.333
M.BinaryIoU = define("BinaryIoU", "binary_io_u", { { "target_class_ids", "table", default = { 0, 1 } },
  { "threshold", "number", default = 0.5 } }, { num_classes = 2, sparse_y_true = true })

--- MeanIoU {num_classes =, ignore_class =, sparse_y_true = true, sparse_y_pred = true, axis = -1, name =}, also
--- mean_io_u: the mean of intersection over union of all classes that occur. See iou.lua.
-- Example:
--     local iou = mgpu.metrics.MeanIoU { num_classes = 2 }
--     iou:update(mgpu.tensor { 0, 0, 1, 1 }, mgpu.tensor { 0, 1, 0, 1 })
--     print(("%.3f"):format(iou:result()))  --> 0.333
M.MeanIoU = define("MeanIoU", "mean_io_u", { CLASSES, IGNORE, SPARSE_TRUE, SPARSE_PRED, AXIS })

--- OneHotIoU {num_classes =, target_class_ids =, ignore_class =, sparse_y_pred = false, axis = -1, name =}, also
--- one_hot_io_u: IoU for one-hot targets and, unless sparse_y_pred, one prediction a class.
-- Example:
--     local iou = mgpu.metrics.OneHotIoU { num_classes = 2, target_class_ids = { 1 } }
--     iou:update(mgpu.tensor { { 1, 0 }, { 0, 1 } }, mgpu.tensor { { 0.4, 0.6 }, { 0.1, 0.9 } })
--     print(("%.3f"):format(iou:result()))  --> 0.500
M.OneHotIoU = define("OneHotIoU", "one_hot_io_u", { CLASSES, TARGETS, IGNORE, DENSE_PRED, AXIS },
  { sparse_y_true = false })

--- OneHotMeanIoU {num_classes =, ignore_class =, sparse_y_pred = false, axis = -1, name =}, also one_hot_mean_io_u:
--- MeanIoU for one-hot targets and, unless sparse_y_pred, one prediction a class.
-- Example:
--     local iou = mgpu.metrics.OneHotMeanIoU { num_classes = 2 }
--     iou:update(mgpu.tensor { { 1, 0 }, { 0, 1 } }, mgpu.tensor { { 0.4, 0.6 }, { 0.1, 0.9 } })
--     print(("%.3f"):format(iou:result()))  --> 0.250
M.OneHotMeanIoU = define("OneHotMeanIoU", "one_hot_mean_io_u", { CLASSES, IGNORE, DENSE_PRED, AXIS },
  { sparse_y_true = false })

return M
