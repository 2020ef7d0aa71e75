--- Layers in Keras's configurations: {class_name =, config =} of Keras <-> that of model_config.lua.
--
-- Options have the same names and values, except: Keras counts axes from 0; initializers and the like have their own
-- form (objects.lua); unknown sizes are null; and what ROWS lists. An option that we do not have must say nothing (null
-- or false, or the value in ROWS), or the layer is refused.
local core = require "mgpu.core"
local objects = require "mgpu.nn.keras.objects"

local M = {}

local given = objects.given

-- class -> axes: the options that are axes; unused: values of Keras's options that change nothing; renamed: Keras
-- 2's name of an option; newer: options that Keras 2 does not have, left out where they have their default; null:
-- what None means for an option; absent: the values of options that configurations of Keras 1 and 2 lack; needed:
-- fields that Keras 2 wants and that may be null; required: fields that Keras 2 and 3 want, null if not given;
-- no_dtype: the dtype is that of the results, and follows from the options; module: where Keras has the class, if not
-- in keras.layers.
local RECURRENT = { newer = { use_cudnn = true }, unused = { implementation = "any", states = "any" } }
local LOOKUP = { no_dtype = true, unused = { vocabulary_dtype = "any", vocabulary_size = "any", encoding = "utf-8" } }
local ROWS = {
  BatchNormalization = { axes = { axis = true },
    newer = { synchronized = true, renorm = true, renorm_momentum = true } },
  Bidirectional = { null = { merge_mode = "none" } },
  Concatenate = { axes = { axis = true } },
  Conv1DTranspose = { unused = { groups = 1 } },
  Conv2DTranspose = { unused = { groups = 1 } },
  Conv3DTranspose = { unused = { groups = 1 } },
  ConvLSTM1D = RECURRENT,
  ConvLSTM2D = RECURRENT,
  ConvLSTM3D = RECURRENT,
  CustomScaleLayer = { module = "keras.src.applications.inception_resnet_v2" },
  DepthwiseConv1D = { unused = { groups = 1 } },
  DepthwiseConv2D = { unused = { groups = 1 } },
  Dot = { axes = { axes = true } },
  Embedding = { unused = { input_length = "any" } },
  GRU = { newer = RECURRENT.newer, unused = RECURRENT.unused, absent = { reset_after = false } },
  GRUCell = { unused = RECURRENT.unused, absent = { reset_after = false } },
  GroupNormalization = { axes = { axis = true } },
  HashedCrossing = { no_dtype = true },
  Hashing = { no_dtype = true },
  IntegerLookup = LOOKUP,
  LSTM = RECURRENT,
  LSTMCell = RECURRENT,
  LayerNormalization = { axes = { axis = true }, newer = { rms_scaling = true } },
  LayerScale = { module = "keras.src.applications.convnext" },
  LeakyReLU = { renamed = { negative_slope = "alpha" } },
  MaxNumBoundingBoxes = { unused = { bounding_box_format = "any", data_format = "any" } },
  MelSpectrogram = { null = { window = "none" } },
  MultiHeadAttention = { axes = { attention_axes = true }, newer = { use_gate = true, flash_attention = true },
    unused = { query_shape = "any", key_shape = "any", value_shape = "any" },
    needed = { "query_shape", "key_shape", "value_shape" } },
  Normalization = { axes = { axis = true } },
  PReLU = { axes = { shared_axes = true } },
  Pipeline = { no_dtype = true },
  RMSNormalization = { axes = { axis = true } },
  RNN = RECURRENT,
  RandomRotation = { unused = { value_range = "any" } },
  STFTSpectrogram = { null = { window = "none", scaling = "none" } },
  SeparableConv1D = { unused = { groups = 1, kernel_initializer = "any" } },
  SeparableConv2D = { unused = { groups = 1, kernel_initializer = "any" } },
  SimpleRNN = RECURRENT,
  SimpleRNNCell = RECURRENT,
  Softmax = { axes = { axis = true } },
  StringLookup = LOOKUP,
  TextVectorization = { no_dtype = true, null = { standardize = "none", split = "none" }, unused = LOOKUP.unused,
    required = { "ngrams" } },
  UnitNormalization = { axes = { axis = true } },
  ZeroPadding1D = { newer = { data_format = true } },
}
local NO_ROW = {}

-- Names of classes in files, where they are not those of ours.
local OTHER_NAMES = { GroupedQueryAttention = "GroupQueryAttention" }

-- Of every layer.
local UNUSED = { name = "any", trainable = "any", dtype = "any", batch_input_shape = "any", batch_shape = "any",
  build_input_shape = "any", autocast = true }

-- What the first type of an option is made of.
local function kind_of(option)
  local kind = option[2]:match "[%w_]+"
  return rawget(objects, "from_" .. kind) and kind or nil
end

-- A copy of a JSON value with -1 for null, and with what Python's objects hold.
local function with_unknown(value)
  if value == core.null then return -1 end
  value = objects.plain(value)
  if type(value) ~= "table" then return value end
  local list = {}
  for key, item in pairs(value) do list[key] = with_unknown(item) end
  return list
end

-- ---- from Keras ---------------------------------------------------------------------------------

--- shape_from(value, at) -> {sizes...} without the batch, -1 for unknown, and the batch size or nil, from [null, 28].
function M.shape_from(value, at)
  local sizes = type(value) == "table" and with_unknown(value) or {}
  for _, size in ipairs(sizes) do
    if type(size) ~= "number" or size % 1 ~= 0 or size < -1 then sizes = {} end
  end
  if #sizes == 0 then objects.damaged(at, "a shape is not a list of sizes") end
  local batch = table.remove(sizes, 1)
  return sizes, batch > 0 and batch or nil
end

--- input_from(config, at) -> the configuration of an Input.
function M.input_from(config, at)
  local shape = given(config.batch_shape) or given(config.batch_input_shape)
  local sizes, batch = M.shape_from(shape, at)
  if given(config.sparse) or given(config.ragged) then
    objects.fail(at, "InputLayer %q: sparse and ragged inputs are not supported", tostring(config.name))
  end
  local dtype = config.dtype == "string" and "string" or given(config.dtype) and objects.from_policy(config.dtype, at)
  return { name = given(config.name), shape = sizes, batch_size = batch,
    dtype = dtype ~= core.floatx() and dtype or nil }
end

-- A layer or model, or an array of layers, that an option holds.
local function inner_layers_from(value, at, where)
  if type(value) ~= "table" then objects.damaged(at, "%s is not a layer", where) end
  local from_keras = require "mgpu.nn.keras.models".from_keras
  if not value[1] then return from_keras(value, at) end
  local list = {}
  for i, entry in ipairs(value) do list[i] = from_keras(entry, at) end
  return list
end

-- The value of an option in our form.
local function option_from(option, value, row, at, where)
  if option[2]:find "layer" then return inner_layers_from(value, at, where) end
  local kind = kind_of(option)
  if kind then return objects["from_" .. kind](value, at, where) end
  if row.axes and row.axes[option[1]] then
    if type(value) ~= "number" and type(value) ~= "table" then objects.damaged(at, "%s is not an axis", where) end
    return objects.moved_axes(value, 1)
  end
  return with_unknown(value)
end

-- Raises if a field of Keras's configuration means something that our class does not have.
local function check_unused(config, known, row, at, who)
  local unused = row.unused or NO_ROW
  for key, value in pairs(config) do
    local harmless = UNUSED[key] or unused[key]
    if not known[key] and given(value) and harmless ~= "any" and harmless ~= value then
      objects.fail(at, "%s: the option %s = %s is not supported", who, tostring(key),
        type(value) == "table" and tostring(value.class_name or "{...}") or tostring(value))
    end
  end
end

--- knows(name) -> whether a class of our layers has the name.
function M.knows(name)
  for _, known in ipairs(require "mgpu.nn.layers"()) do
    if known == name then return true end
  end
  return false
end

-- Whether a quantizer of Keras is the usual one, whose formula we have.
local function is_usual_quantizer(value)
  local class, config = objects.class_and_config(value)
  if class ~= "AbsMaxQuantizer" or type(config) ~= "table" then return false end
  local range = given(config.value_range) or { -127, 127 }
  return type(range) == "table" and range[1] == -127 and range[2] == 127
    and (given(config.epsilon) or 1e-7) == 1e-7 and (given(config.output_dtype) or "int8") == "int8"
end

-- The name of a quantized policy with what quantization_config says about the layer's input: it is rounded or not.
local function with_inputs_rounded(dtype, config, name, at, who)
  local own = dtype and require "mgpu.nn.mixed_precision".get(dtype).quantization
  if not own then return dtype end
  local _, options = objects.class_and_config(given(config) or {})
  local rounded = own.bits == 8 or name == "ReversibleEmbedding" -- without a configuration
  if type(options) == "table" then
    local quantizer = given(options.activation_quantizer)
    rounded = quantizer ~= nil
    if rounded and not is_usual_quantizer(quantizer) then
      objects.fail(at, "%s: quantization_config: the activation_quantizer is not AbsMaxQuantizer with its defaults",
        who)
    end
  end
  if rounded == own.activations then return dtype end
  return (dtype:gsub("_from_", (rounded and "/activations" or "/weights") .. "_from_", 1))
end

-- What Keras's file says for a quantized layer: the policy's name, and quantization_config.
local function quantization_to(layer, style)
  local policy = layer.dtype_policy
  local q = policy.quantization
  if style == "h5" or q.static then
    core.fail("unsupported", ("%s has weights of %d bits%s, which %s: save the model as .safetensors"):format(
      tostring(layer), q.bits, q.static and " and a calibrated range" or "",
      q.static and "Keras's layers cannot have" or ".h5 files cannot hold"))
  end
  local base = policy.mode:gsub("/weights", ""):gsub("/activations", "")
  local quantizer = q.activations and { class_name = "AbsMaxQuantizer", module = "keras.quantizers",
    registered_name = core.null, config = { value_range = { -127, 127 }, epsilon = 1e-7, output_dtype = "int8" } }
  local config = { weight_quantizer = core.null, activation_quantizer = quantizer or core.null }
  if q.bits == 4 then config.block_size = q.block or -1 end
  return base .. "_from_" .. policy.source, { class_name = ("Int%dQuantizationConfig"):format(q.bits),
    module = "keras.quantizers", registered_name = core.null, config = config }
end

local function class_of(name, at)
  if at.custom[name] then return at.custom[name] end
  if name == "Lambda" then
    objects.fail(at, "the model has a Lambda layer, whose Python code cannot be run: write it as a layer")
  end
  if M.knows(name) then return require "mgpu.nn.layers"[name] end
  core.fail("data", ("%s: unknown layer class %q: give it with {custom = {%s = ...}}"):format(at.path, name, name))
end

--- from_layer(entry, at) -> {class_name =, config =} in our form, from Keras's. dtype is the policy's name.
function M.from_layer(entry, at)
  local name, config = objects.class_and_config(entry)
  if not name or type(config) ~= "table" then objects.damaged(at, "a layer has no class_name or config") end
  if name == "InputLayer" then return { class_name = "Input", config = M.input_from(config, at) } end
  name = not at.custom[name] and OTHER_NAMES[name] or name
  local class, row = class_of(name, at), ROWS[name] or NO_ROW
  local who = ("%s %q"):format(name, tostring(config.name))
  local ours = { name = given(config.name), trainable = given(config.trainable),
    dtype = not row.no_dtype and given(config.dtype) and objects.from_policy(config.dtype, at) or nil }
  local known, quantizes = {}, require "mgpu.nn.quantized.layers".kind_of { class_name = name }
  if quantizes and not at.custom[name] then
    ours.dtype = with_inputs_rounded(ours.dtype, config.quantization_config, name, at, who)
    known.quantization_config = true
  end
  for _, option in ipairs(class.own_declared) do
    local key = option[1]
    known[key] = true
    local value = given(config[key])
    local old = row.renamed and row.renamed[key]
    if old then
      known[old] = true
      if value == nil then value = given(config[old]) end
    end
    if value == nil and row.absent and at.keras2 then ours[key] = row.absent[key] end
    if config[key] == core.null and row.null then ours[key] = row.null[key] end
    if value ~= nil then ours[key] = option_from(option, value, row, at, who .. ": " .. key) end
  end
  if at.custom[name] then -- an own class checks the options that it does not declare
    for key, value in pairs(config) do
      if not known[key] and not UNUSED[key] and given(value) ~= nil then ours[key] = with_unknown(value) end
    end
  else
    check_unused(config, known, row, at, who)
  end
  if given(config.batch_input_shape) then ours.input_shape = (M.shape_from(config.batch_input_shape, at)) end
  return { class_name = name, config = ours }
end

-- ---- to Keras -----------------------------------------------------------------------------------

-- A copy with null for -1, in options whose type is a shape.
local function with_null(sizes)
  local list = {}
  for i, size in ipairs(sizes) do list[i] = size == -1 and core.null or size end
  return #list > 0 and list or core.empty_array
end

--- shape_to(sizes) -> [null, sizes...] from sizes without the batch.
function M.shape_to(sizes, batch)
  local list = with_null(sizes)
  if list == core.empty_array then list = {} end
  table.insert(list, 1, batch or core.null)
  return list
end

--- to_input(config, style) -> Keras's InputLayer of our configuration of an Input.
function M.to_input(config, style)
  return { class_name = "InputLayer", module = "keras.layers", registered_name = core.null,
    config = { name = config.name, dtype = config.dtype or core.floatx(), sparse = false,
      [style == "h5" and "batch_input_shape" or "batch_shape"] = M.shape_to(config.shape, config.batch_size) } }
end

-- Keras's form of a layer or model, or an array of layers, that an option holds.
local function inner_layers_to(value, style)
  if value.add_weight then return require "mgpu.nn.keras.models".to_entry(value, style) end
  local list = {}
  for i, layer in ipairs(value) do list[i] = inner_layers_to(layer, style) end
  return list
end

local function option_to(option, value, row, style)
  if row.null and row.null[option[1]] == value then return core.null end
  local kind = kind_of(option)
  if kind then return objects["to_" .. kind](value, style) end
  if row.axes and row.axes[option[1]] then return objects.moved_axes(value, -1) end
  if type(value) ~= "table" then return value end
  return option[2] == "shape" and option[1] ~= "target_shape" and with_null(value) or value
end

--- to_layer(layer, config, style) -> Keras's form of a layer and its configuration.
-- ARGS style: "h5" for what Keras 2 reads too, or "keras".
function M.to_layer(layer, config, style)
  if layer.is_input then return M.to_input(config, style) end
  local name = layer.class_name
  local class = rawget(require "mgpu.nn.layers", name)
  local ours = class and class.own_declared == layer.own_declared
  local row, out = ours and ROWS[name] or NO_ROW, {}
  for key, value in pairs(config) do out[key] = value end
  if row.no_dtype then out.dtype = nil end
  out.device, out.stream_name, out.input_shape = nil, nil, nil
  if layer.dtype_policy.source then out.dtype = layer.dtype_policy.source end
  if rawget(layer, "quantization") then out.dtype, out.quantization_config = quantization_to(layer, style) end
  if out.trainable then out.trainable = nil end -- the default; not all of Keras's layers have the option
  for _, option in ipairs(layer.own_declared) do
    local key, value = option[1], config[option[1]]
    if row.newer and row.newer[key] and value == option.default then
      value, out[key] = nil, nil
    elseif key == "data_format" and value == nil then
      value = require "mgpu.nn.layers.images".default_format
    end
    if value ~= nil and option[2]:find "layer" then
      out[key] = inner_layers_to(rawget(layer, key), style)
    elseif value ~= nil then
      out[key] = nil
      out[style == "h5" and row.renamed and row.renamed[key] or key] = option_to(option, value, row, style)
    elseif kind_of(option) == "activation" then
      out[key] = "linear"
    end
  end
  for _, key in ipairs(style == "h5" and row.needed or NO_ROW) do out[key] = core.null end
  for _, key in ipairs(row.required or NO_ROW) do
    if out[key] == nil then out[key] = core.null end
  end
  if ours and style == "h5" and layer.python_name then name = layer.python_name end
  return { class_name = name, config = out, module = ours and (row.module or "keras.layers") or core.null,
    registered_name = ours and not row.module and core.null or name }
end

return M
