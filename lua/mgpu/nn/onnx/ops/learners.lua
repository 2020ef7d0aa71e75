--- Ops of the domain ai.onnx.ml: what converters of scikit-learn write for scalers and linear models; see init.lua.
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"
local transformed = require "mgpu.nn.onnx.post_transform"
local values = require "mgpu.nn.onnx.values"

local ops, plain = core.ops, values.plain

local M = {}

local function fail(message, ...) core.fail("data", message:format(...)) end

-- These ops take numbers of any kind and give float32.
local function as_float(x)
  local t = x:tensor()
  return t:dtype() == "float32" and t or ops.cast(t, "float32")
end

local function row(list, t) return core.tensor({ list }, { dtype = "float32", device = t:device() }) end

-- A number for each column of t, or one for all.
local function fitted(list, t, what)
  local columns = t:shape()[t:rank()]
  if #list ~= 1 and #list ~= columns then fail("%d numbers in %s for %d columns", #list, what, columns) end
  return row(list, t)
end

M.Scaler = { "1 | offset:floats? scale:floats?", function(c, x)
  local t = as_float(x)
  if c.offset then t = t - fitted(c.offset, t, "offset") end
  return plain(c.scale and t * fitted(c.scale, t, "scale") or t)
end }

-- Rows divided by their norm; those of norm 0 stay.
M.Normalizer = { '1 | norm:text="MAX"', function(c, x)
  local t, norm = as_float(x), nil
  local how = { axis = t:rank(), keepdims = true }
  if c.norm == "MAX" then
    norm = ops.max(t, how)
  elseif c.norm == "L1" then
    norm = ops.sum(ops.abs(t), how)
  elseif c.norm == "L2" then
    norm = ops.sqrt(ops.sum(ops.square(t), how))
  else
    core.fail("unsupported", ("norm = %q"):format(c.norm))
  end
  return plain(t / ops.where(ops.eq(norm, 0), 1, norm))
end }

M.Binarizer = { "1 | threshold:float=0", function(c, x)
  local t = x:tensor()
  return plain(ops.cast(ops.gt(t, c.threshold), t:dtype()))
end }

-- ---- linear models ------------------------------------------------------------------------------

-- x {rows, columns} W' + b {rows, targets}, from flat lists.
local function scores(t, coefficients, intercepts, targets)
  if t:rank() == 1 then t = ops.reshape(t, { shape = { 1, -1 } }) end
  local columns = #coefficients / targets
  if t:rank() ~= 2 or t:shape()[2] ~= columns then
    fail("%d coefficients for %d rows of results and an input of shape {%s}", #coefficients, targets,
      table.concat(t:shape(), ", "))
  end
  local w = ops.reshape(row(coefficients, t), { shape = { targets, columns } })
  local y = ops.matmul(t, w, { transpose_b = true })
  if not intercepts or #intercepts == 0 then return y end
  if #intercepts ~= targets then fail("%d intercepts for %d results", #intercepts, targets) end
  return y + row(intercepts, t)
end

M.LinearRegressor = { '1 | coefficients:floats intercepts:floats? post_transform:text="NONE" targets:int=1',
  function(c, x)
    return plain(transformed(c.post_transform, scores(as_float(x), c.coefficients, c.intercepts, c.targets)))
  end }

-- The first output is the label, the second one the scores; two classes may have one row of coefficients.
M.LinearClassifier = { "1 | classlabels_ints:ints? classlabels_strings:texts? coefficients:floats intercepts:floats? "
  .. 'multi_class:int=0 post_transform:text="NONE"', function(c, x)
  if c.classlabels_strings then core.fail("unsupported", "classlabels_strings: texts are no tensors: use numbers") end
  local labels = c.classlabels_ints or fail "classlabels_ints are missing"
  local t = as_float(x)
  local given = c.intercepts and #c.intercepts or #labels
  local y = scores(t, c.coefficients, c.intercepts, math.max(given, 1))
  local best
  if given == 1 and #labels == 2 then
    best = ops.reshape(ops.cast(ops.gt(y, 0), "int32"), { shape = { -1 } })
    y = transformed(c.post_transform, ops.concat({ -y, y }, { axis = 2 })) -- a sigmoid of -y is 1 minus that of y
  else
    if given ~= #labels then fail("%d labels for %d rows of coefficients", #labels, given) end
    best = ops.argmax(y, { axis = 2 })
    y = transformed(c.post_transform, y)
  end
  local ids = core.tensor(labels, { dtype = "int64", device = t:device() })
  return plain(ops.gather(ids, best, { axis = 1 })), plain(y)
end }

-- ---- labels -------------------------------------------------------------------------------------

M.ArrayFeatureExtractor = { "2", function(_, x, positions)
  local ids = ops.reshape(positions:tensor(), { shape = { -1 } })
  local t = x:tensor()
  local y = composite.gather(t, ids, { axis = t:rank() })
  return plain(t:rank() == 1 and ops.reshape(y, { shape = { 1, -1 } }) or y)
end }

-- Lua has no maps of ONNX: the result is the tensor of the scores, in the order of the labels.
M.ZipMap = { "1 | classlabels_int64s:ints? classlabels_strings:texts?", function(_, x) return x end }

return M
