--- Ops made of other ops. Each is a function of `mgpu` and a method of tensors.
--
-- Axes count from 1 or, negative, from the end. Options come by position or in one table by name, as for the ops in
-- C: t:mean(2, true) = t:mean {axis = 2, keepdims = true}.
-- Errors: an unknown option, an axis out of range.
local core = require "mgpu.core"
local arguments = require "mgpu.tensor.arguments"

local M, ops = {}, core.ops
local as_tensor, fail, options_by_name, read_options = arguments.as_tensor, arguments.fail, arguments.options_by_name,
  arguments.read_options

for _, subject in ipairs { "reductions", "movement", "matrices", "indexing", "sorting", "images", "spectra" } do
  for name, fn in pairs(require("mgpu.tensor." .. subject)) do M[name] = fn end
end

-- ---- element-wise -------------------------------------------------------------------------------

--- clip(t, low, high) -> t with smaller elements replaced by low, larger ones by high; nil leaves an end open. At a
--- bound the gradient is 1, as in Keras.
-- Example:
--     local t = mgpu.tensor { -5, 0.5, 5 }
--     print(t:clip(-1, 1))
--     --> tensor {3} float32 cpu:0
--     --> {-1,    0.5,  1}
--     print(t:clip { low = 0 }) -- no upper end
--     --> tensor {3} float32 cpu:0
--     --> {0,   0.5, 5}
function M.clip(t, ...)
  local low, high = read_options("clip", { "low", "high" }, ...)
  t = as_tensor("clip", t)
  if low ~= nil then t = ops.where(ops.lt(t, low), low, t) end
  if high ~= nil then t = ops.where(ops.gt(t, high), high, t) end
  return t
end

--- one_hot(ids, classes, dtype = floatx), also to_categorical -> ids {...} (from 0) as {..., classes} of 0 and 1.
--- dtype: a name or {dtype =}. An id outside 0 .. classes - 1 gives zeros.
-- Example:
--     local labels = mgpu.tensor({ 2, 0 }, { dtype = "int32" })
--     print(labels:one_hot(3))
--     --> tensor {2, 3} float32 cpu:0
--     --> {{0, 0, 1},
--     -->  {1, 0, 0}}
function M.one_hot(ids, ...)
  local classes, dtype = read_options("one_hot", { "classes", "dtype" }, ...)
  if type(dtype) == "table" then dtype = options_by_name("one_hot", { "dtype" }, dtype) end
  core.check_dtype("one_hot", dtype)
  if type(classes) ~= "number" or classes < 1 or classes % 1 ~= 0 then
    fail("one_hot: the number of classes must be at least 1, got %s",
      type(classes) == "number" and classes or type(classes))
  end
  local shape = as_tensor("one_hot", ids):shape()
  shape[#shape + 1] = 1
  local column = ops.cast(ops.reshape(as_tensor("one_hot", ids), { shape = shape }), "int32")
  local hot = ops.eq(column, ops.iota({ classes }, 1, "int32"))
  return ops.cast(hot, dtype or core.floatx())
end

return M
