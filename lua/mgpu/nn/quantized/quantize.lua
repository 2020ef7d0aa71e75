--- model:quantize: weights of 8 or 4 bits for prediction.
local calibration = require "mgpu.nn.quantized.calibration"
local core = require "mgpu.core"
local fold = require "mgpu.nn.quantized.fold"
local mixed_precision = require "mgpu.nn.mixed_precision"
local options = require "mgpu.options"
local products = require "mgpu.nn.quantized.products"
local quantized = require "mgpu.nn.quantized.layers"

local M = {}
local methods = {}
M.methods = methods

local QUANTIZE = options.declare { positional = 1,
  { "mode", "string", default = "int8", values = { "int8", "int4" } },
  { "calibration", "any" },
  { "batch_size", "integer", default = 32, min = 1 },
  { "percentile", "number", default = 100, above = 50, max = 100 },
  { "evaluate", "table" },
  { "keep", "table", default = {} },
  { "block_size", "integer", min = -1 },
}

-- ---- which layers --------------------------------------------------------------------------------

-- Why a layer cannot get a static range; nil if it can.
local function refusal(layer)
  local kernel = layer.kernel:shape()
  local depth = 1
  for i = 1, #kernel - 1 do depth = depth * kernel[i] end
  if layer.class_name == "Conv2D" and layer.groups ~= 1 then return "has groups" end
  if depth > products.DEPTH then return "adds up too many products" end
end

-- Raises unless all numbers are finite: rounded to 8 bits, the others would be numbers like any.
local function need_finite(layer, t)
  local ops = core.ops
  if not ops.all(ops.isfinite(ops.cast(t, { dtype = "float32" }))):item() then
    core.fail("nonfinite", ("quantize: %s has weights that are not finite in float32"):format(tostring(layer)))
  end
end

local function need_finite_weights(layer)
  for _, v in ipairs(layer.variables) do need_finite(layer, v:value()) end
end

-- Calls visit(layer) once for each layer of the model and of models inside it.
local function each(network, visit, seen)
  seen = seen or {}
  for _, layer in ipairs(network.layers) do
    if layer.is_network then
      each(layer, visit, seen)
    elseif not seen[layer] then
      seen[layer] = true
      visit(layer)
    end
  end
end

local function kept_names(model, chosen)
  local names = {}
  for _, name in ipairs(chosen.keep) do
    local found
    model:each_layer(function(layer) found = found or layer.name == name end)
    if not found then model:fail("quantize: keep names %q, but the model has no such layer", tostring(name)) end
    names[name] = true
  end
  return names
end

-- The set of layers to be quantized with ranges, and {name, reason} of others that have weights.
local function choose(model, keep)
  local set, kept, any = {}, {}, false
  each(model, function(layer)
    local why
    if keep[layer.name] then
      why = "is among those to keep"
    elseif layer.dtype_policy.quantization then
      why = "is quantized already"
    elseif layer.class_name ~= "Dense" and layer.class_name ~= "Conv2D" or not quantized.kind_of(layer) then
      why = "is no Dense or Conv2D layer"
    else
      why = refusal(layer)
    end
    if not why then
      need_finite_weights(layer)
      set[layer], any = true, true
    end
    if why and #layer.variables > 0 then kept[#kept + 1] = { layer.name, why } end
  end)
  if not any then model:fail "quantize: the model has no Dense or Conv2D layer that could be quantized" end
  return set, kept
end

-- ---- the copy -----------------------------------------------------------------------------------

-- Changes the configuration of a network and of those inside it.
local function change(network, config, plan)
  for i, layer in ipairs(network.layers) do
    local own = config.layers[i].config
    if layer.is_network then
      change(layer, own, plan)
    elseif plan.chosen[layer] then
      own.dtype = "int8/static_from_" .. layer.dtype_policy.name
      own.lora_rank, own.lora_alpha = nil, nil
    end
  end
  fold.fold(network, config, plan)
end

local function fill_quantized(layer, new, plan)
  local kernel, bias = fold.weights(layer, plan.norm[layer])
  if plan.norm[layer] then
    need_finite(plan.norm[layer], kernel)
    need_finite(plan.norm[layer], bias)
  end
  local values = quantized.kind_of(new).values(layer, new.quantization, plan.ranges[layer], kernel)
  values.bias = bias
  quantized.fill(new, values)
end

-- Gives the copy the weights of the model.
local function fill(network, copy, plan)
  for i, layer in ipairs(network.layers) do
    local new = copy.layers[i]
    if layer.is_network then
      fill(layer, new, plan)
    elseif plan.chosen[layer] then
      fill_quantized(layer, new, plan)
    elseif not plan.replaced[layer] then
      local own, values = new.variables, layer.variables
      for k, v in ipairs(own) do v:assign(values[k]:value():to(v:device())) end
    end
  end
end

local function quantized_copy(model, plan)
  local config = model:get_config()
  change(model, config, plan)
  local copy = require "mgpu.nn.model_config".copy(model, config)
  fill(model, copy, plan)
  for _, v in ipairs(copy.variables) do core.eval(v:value()) end
  return copy
end

-- ---- the report ---------------------------------------------------------------------------------

local SIZES = { bool = 1, uint8 = 1, bfloat16 = 2, float16 = 2, int64 = 8, float64 = 8 }

--- bytes_of(model) -> the bytes of its weights.
function M.bytes_of(model)
  local bytes = 0
  for _, v in ipairs(model.variables) do bytes = bytes + v:count() * (SIZES[v:dtype()] or 4) end
  return bytes
end

-- The share of rows whose label the model predicts: y are labels, rows with one 1, or 0 and 1 for one output.
local function accuracy(model, x, y, batch_size)
  local p = model:predict(x, { batch_size = batch_size })
  if not core.is_tensor(p) then model:fail "quantize: evaluate is for models with one output" end
  local shape = p:shape()
  local classes = shape[#shape]
  local flat = y:count() == p:count() / classes and y:reshape { -1 } or y:argmax(-1):reshape { -1 }
  local found = classes > 1 and p:argmax(-1):reshape { -1 } or p:gt(0.5):reshape { -1 }
  if found:count() ~= flat:count() then
    model:fail("quantize: evaluate has %d labels for %d predictions", flat:count(), found:count())
  end
  return found:to "float64":eq(flat:to "float64"):to "float64":mean():item()
end

local function check_evaluate(model, given)
  if not given then return nil end
  local x, y = given.x or given[1], given.y or given[2]
  if type(y) == "table" then y = core.tensor(y) end
  if x == nil or not core.is_tensor(y) then model:fail "quantize: evaluate must be {x, y}, inputs and their labels" end
  return x, y
end

-- ---- the method ---------------------------------------------------------------------------------

-- Keras's way: the layers get weights of fewer bits in place, and round their inputs row by row (8 bits) or not at all.
local function in_place(model, chosen, keep)
  local list, block = {}, chosen.block_size or 128
  if chosen.mode == "int8" and chosen.block_size then model:fail "quantize: block_size is for the mode \"int4\"" end
  if block == 0 then model:fail "quantize: block_size must be -1, for no blocks, or at least 1" end
  model:each_layer(function(layer)
    local kind = quantized.kind_of(layer)
    if not kind or layer.class_name == "Conv2D" or keep[layer.name] or layer.dtype_policy.quantization then return end
    if not layer.built then return end
    need_finite_weights(layer)
    list[#list + 1] = layer
  end)
  if #list == 0 then model:fail "quantize: the model has no layer that could be quantized" end
  local mode = chosen.mode == "int4" and "int4/" .. block or "int8"
  for _, layer in ipairs(list) do
    quantized.convert(layer, mixed_precision.get(("%s_from_%s"):format(mode, layer.dtype_policy.name)))
  end
end

--- model:quantize "int8", model:quantize {"int4", block_size = 128} or
--- model:quantize {calibration = x, evaluate = {x, y}, percentile = 100, batch_size = 32, keep = {}}
---   -> with calibration: a quantized copy and a report.
--
-- "int8" and "int4" are Keras's and change the model in place: Dense, EinsumDense, Embedding and ReversibleEmbedding
-- get weights of 8 bits with a scale for each output, and round each row of their input to 8 bits by its largest
-- magnitude; or weights of 4 bits, with a scale and a zero point for each block of block_size inputs (-1: one scale
-- for each output), which become floats when they are used.
-- With calibration, inputs as for predict, a copy is made in which Dense and Conv2D compute with 8-bit integers. The
-- range of each layer's input comes from these data: its least and its largest number, or with percentile = 99.9 the
-- bounds beyond which 0.1 % of a batch lie on each side. A BatchNormalization and a ReLU that directly follow are
-- joined with the layer. Other layers, and those named in keep, stay as they are.
-- The report: layers and kept, arrays of {name, reason}; bytes and bytes_before of the weights; with evaluate accuracy
-- and accuracy_before, the shares of rows whose label was predicted. A quantized model cannot be trained.
-- Errors: a model that is not built; no layer to quantize; weights that are not finite; data that do not fit.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 16 }, L.Dense { 32, activation = "relu" }, L.Dense { 3 } }
--     local x = mgpu.rand { 64, 16 }
--     local small, report = model:quantize { calibration = x }
--     print(#report.layers, report.bytes < report.bytes_before / 2)  --> 2 true
--     print((small(x) - model(x)):abs():max():item() < 0.05)  --> true
function methods.quantize(model, given)
  local chosen = options.check("quantize", QUANTIZE, given == nil and {} or given)
  if not model.built then model:fail "quantize: the model has no weights yet: give it an Input or call it once" end
  local keep = kept_names(model, chosen)
  if chosen.calibration == nil then
    if chosen.evaluate then model:fail "quantize: evaluate needs calibration, which makes a copy to compare with" end
    return in_place(model, chosen, keep)
  end
  if chosen.mode ~= "int8" then model:fail "quantize: calibration is for the mode \"int8\"" end
  local x, y = check_evaluate(model, chosen.evaluate)
  local set, kept = choose(model, keep)
  local plan = { chosen = set, norm = {}, replaced = {}, ranges = calibration.ranges(model, set, chosen) }
  local copy = quantized_copy(model, plan)
  local report = { layers = {}, kept = {}, bytes = M.bytes_of(copy), bytes_before = M.bytes_of(model) }
  each(model, function(layer)
    if set[layer] then
      table.insert(report.layers, { layer.name, plan.norm[layer] and "with " .. plan.norm[layer].name or "" })
    end
  end)
  for _, entry in ipairs(kept) do
    local replaced
    for layer in pairs(plan.replaced) do replaced = replaced or layer.name == entry[1] end
    if not replaced then table.insert(report.kept, entry) end
  end
  if x ~= nil then
    report.accuracy_before = accuracy(model, x, y, chosen.batch_size)
    report.accuracy = accuracy(copy, x, y, chosen.batch_size)
  end
  return copy, report
end

return M
