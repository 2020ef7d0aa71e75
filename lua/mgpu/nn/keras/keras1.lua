--- Keras 1's configurations and weights as Keras 2 has them: other names of classes and options, Merge, kernels whose
--- axes have another order.
--
-- Keras 2 translated the same names when it loaded such files. What it dropped is dropped here: the dropout of
-- Embedding, the mode of BatchNormalization unless it changes the numbers. `at`: see objects.lua.
local objects = require "mgpu.nn.keras.objects"
local say = require "mgpu.say"

local M = {}

local given = objects.given

-- ---- options --------------------------------------------------------------------------------------

-- Keras 1's class -> Keras 2's, where they differ.
local CLASSES = { AtrousConvolution1D = "Conv1D", AtrousConvolution2D = "Conv2D", Convolution1D = "Conv1D",
  Convolution2D = "Conv2D", Deconvolution2D = "Conv2DTranspose", SeparableConvolution2D = "SeparableConv2D",
  TimeDistributedDense = "Dense" }

local WEIGHTS = { init = "kernel_initializer", bias = "use_bias", W_regularizer = "kernel_regularizer",
  b_regularizer = "bias_regularizer", W_constraint = "kernel_constraint", b_constraint = "bias_constraint" }
local WINDOWS = { border_mode = "padding", nb_filter = "filters", filter_length = "kernel_size",
  subsample = "strides", subsample_length = "strides", atrous_rate = "dilation_rate" }
local POOLS = { border_mode = "padding", pool_length = "pool_size", stride = "strides" }

local function joined(...)
  local all = {}
  for _, names in ipairs { ... } do
    for old, new in pairs(names) do all[old] = new end
  end
  return all
end

local CONV = joined(WEIGHTS, WINDOWS)

-- Keras 2's class -> Keras 1's option -> Keras 2's. dim_ordering is an option of many classes.
local OPTIONS = {
  BatchNormalization = { gamma_init = "gamma_initializer", beta_init = "beta_initializer" },
  Conv1D = CONV, Conv2D = CONV, Conv2DTranspose = CONV, LocallyConnected1D = CONV, LocallyConnected2D = CONV,
  Dense = joined(WEIGHTS, { output_dim = "units" }),
  Dropout = { p = "rate" }, SpatialDropout2D = { p = "rate" },
  Embedding = { init = "embeddings_initializer", W_regularizer = "embeddings_regularizer",
    W_constraint = "embeddings_constraint" },
  GaussianNoise = { sigma = "stddev" },
  InputLayer = { input_dtype = "dtype" },
  MaxPooling1D = POOLS, MaxPooling2D = POOLS, AveragePooling1D = POOLS, AveragePooling2D = POOLS,
  PReLU = { init = "alpha_initializer" },
  SeparableConv2D = CONV,
}
local ORDERINGS = { tf = "channels_last", th = "channels_first" }

-- Options that say nothing beside the others: the shape of the input is in batch_input_shape.
local UNUSED = { input_dtype = true, input_length = true }

-- {name = "L1L2Regularizer", l1 =, l2 =} -> {class_name = "L1L2", config = {l1 =, l2 =}}, and constraints likewise.
local NESTED = { L1L2Regularizer = "L1L2", WeightRegularizer = "L1L2", ActivityRegularizer = "L1L2" }
local NESTED_OPTIONS = { m = "max_value", low = "min_value", high = "max_value" }

local function nested_from(value)
  if type(value) ~= "table" or type(value.name) ~= "string" or value.class_name then return value end
  local config = {}
  for key, item in pairs(value) do
    if key ~= "name" then config[NESTED_OPTIONS[key] or key] = item end
  end
  return { class_name = NESTED[value.name] or value.name, config = config }
end

-- ---- single layers ----------------------------------------------------------------------------------

-- The output padding that makes a transposed convolution give `size` pixels; nil where Keras 2 does so without.
local function output_padding(size, kernel, stride, padding)
  if padding == "same" then
    local input = math.ceil(size / stride)
    return size ~= input * stride and size - ((input - 1) * stride + kernel - 2 * math.floor(kernel / 2)) or nil
  end
  local input = math.ceil((size - kernel + 1) / stride)
  return size ~= input * stride + math.max(kernel - stride, 0) and size - (input - 1) * stride - kernel or nil
end

local function needs(value) return type(value) == "number" and value > 0 end

-- What renaming does not do, by Keras 2's class: function(config, at, who), which changes the configuration.
local SPECIAL = {}

function SPECIAL.BatchNormalization(config, at, who)
  if needs(config.mode) then
    objects.fail(at, "%s: mode = %g of Keras 1 is not supported, as in Keras 2", who, config.mode)
  end
  config.mode = nil
end

function SPECIAL.Conv2DTranspose(config, at, who)
  local shape, axes = given(config.output_shape), config.data_format == "channels_first" and { 3, 4 } or { 2, 3 }
  config.output_shape = nil
  if type(shape) ~= "table" then return end
  local kernel, strides, more = config.kernel_size, given(config.strides) or { 1, 1 }, nil
  for i, axis in ipairs(axes) do
    local size = shape[axis]
    if type(kernel) ~= "table" or type(kernel[i]) ~= "number" or type(strides) ~= "table"
        or type(strides[i]) ~= "number" then
      objects.damaged(at, "%s lacks the size of its kernel or its steps", who)
    end
    local extra = type(size) == "number" and output_padding(size, kernel[i], strides[i], config.padding)
    if extra then
      more = more or {}
      more[i] = extra
    end
  end
  if more and not (more[1] and more[2] and more[1] >= 0 and more[2] >= 0) then
    objects.fail(at, "%s: there is no output_padding that gives its output_shape", who)
  end
  config.output_padding = more
end

function SPECIAL.Embedding(config, at, who)
  if needs(config.dropout) then
    say("load_model: %s: %s: dropout = %g of Keras 1 is left out, as in Keras 2\n", at.path, who, config.dropout)
  end
  config.dropout = nil
end

function SPECIAL.SeparableConv2D(config)
  config.depthwise_initializer, config.pointwise_initializer = config.kernel_initializer, config.kernel_initializer
  config.kernel_initializer = nil
end

function SPECIAL.ZeroPadding2D(config)
  local pads = config.padding
  if type(pads) ~= "table" then return end
  if #pads == 4 then config.padding = { { pads[1], pads[2] }, { pads[3], pads[4] } } end
  if pads.top_pad or pads.bottom_pad or pads.left_pad or pads.right_pad then
    config.padding = { { pads.top_pad or 0, pads.bottom_pad or 0 }, { pads.left_pad or 0, pads.right_pad or 0 } }
  end
end

-- The layer's configuration with Keras 2's names.
local function options_from(class, config, at)
  local names, out = OPTIONS[class] or {}, {}
  for key, value in pairs(config) do
    if key == "dim_ordering" then
      out.data_format = ORDERINGS[value]
    elseif names[key] or not UNUSED[key] then
      out[names[key] or key] = nested_from(value)
    end
  end
  if config.nb_row then out.kernel_size, out.nb_row, out.nb_col = { config.nb_row, config.nb_col }, nil, nil end
  if class == "Dense" or class:find "^Conv1D" or class == "LocallyConnected1D" then out.input_dim = nil end
  if SPECIAL[class] then SPECIAL[class](out, at, ("%s %q"):format(class, tostring(config.name))) end
  return out
end

-- ---- Merge ------------------------------------------------------------------------------------------

-- Keras 1's mode -> the class, and its option with the option of Merge that it takes.
local MODES = { sum = { "Add" }, mul = { "Multiply" }, ave = { "Average" }, max = { "Maximum" },
  concat = { "Concatenate", "axis", "concat_axis" }, dot = { "Dot", "axes", "dot_axes" } }

local function merge_from(config, at)
  local row = MODES[config.mode]
  if not row or given(config.mode_type) ~= nil and config.mode_type ~= "raw" then
    objects.fail(at, "Merge %q: the mode %s is not supported: write it as a layer", tostring(config.name),
      row and config.mode_type or tostring(config.mode))
  end
  local out = { name = config.name, trainable = config.trainable }
  if row[2] then out[row[2]] = config[row[3]] end
  return row[1], out
end

-- ---- a Sequential of several models -----------------------------------------------------------------

local to_keras2

local function is_branched(list)
  local first = type(list) == "table" and list[1]
  return type(first) == "table" and first.class_name == "Merge" and type(first.config) == "table"
    and type(first.config.layers) == "table"
end

-- Adds an input for a Sequential that begins with this layer, or with a Sequential that does. RETURNS its place: {name,
-- use, output}.
local function add_input(graph, entry)
  local config = entry.config
  while type(config[1]) == "table" and type(config[1].config) == "table" do config = config[1].config end
  local name = tostring(config.name) .. (entry.class_name == "InputLayer" and "" or "_input")
  graph.inputs[#graph.inputs + 1] = { name, 0, 0 }
  graph.layers[#graph.layers + 1] = { class_name = "InputLayer", name = name, inbound_nodes = {}, config =
    { name = name, batch_input_shape = config.batch_input_shape, dtype = config.input_dtype } }
  return graph.inputs[#graph.inputs]
end

local add_chain

-- Adds the models that a Merge joins. RETURNS the places of their outputs.
local function add_branches(graph, config, at)
  local places = {}
  for i, branch in ipairs(config.layers) do
    if type(branch) ~= "table" or branch.class_name ~= "Sequential" or type(branch.config) ~= "table" then
      objects.fail(at, "Merge %q: only Sequential models can be merged", tostring(config.name))
    end
    places[i] = add_chain(graph, branch.config, at)
  end
  return places
end

-- Adds the layers of a Sequential, one after the other. RETURNS the place of its output.
function add_chain(graph, list, at)
  local place
  for i, entry in ipairs(list) do
    if type(entry) ~= "table" or type(entry.config) ~= "table" then objects.damaged(at, "a layer has no config") end
    local sources = i == 1 and is_branched(list) and add_branches(graph, entry.config, at)
      or { i == 1 and add_input(graph, entry) or place }
    if i > 1 or entry.class_name ~= "InputLayer" then
      local name = entry.config.name or ("layer_%d"):format(#graph.layers + 1)
      local made = to_keras2({ class_name = entry.class_name, config = entry.config }, at, true)
      if not entry.config[1] then made.config.batch_input_shape = nil end
      graph.layers[#graph.layers + 1] = { class_name = made.class_name, config = made.config, name = name,
        inbound_nodes = { sources } }
      place = { name, 0, 0 }
    else
      place = sources[1]
    end
  end
  return place or objects.damaged(at, "a model has no layers")
end

local function branched_from(list, at)
  local graph = { layers = {}, inputs = {} }
  local output = add_chain(graph, list, at)
  return { class_name = "Model", config = { layers = graph.layers, input_layers = graph.inputs,
    output_layers = { output } } }
end

-- ---- the whole --------------------------------------------------------------------------------------

-- The list of layers in a model's configuration, or nil.
local function layers_of(entry)
  local config = type(entry) == "table" and given(entry.config)
  if type(config) ~= "table" then return nil end
  if entry.class_name == "Sequential" and config[1] then return config end
  return (entry.class_name == "Sequential" or entry.class_name == "Model") and type(config.layers) == "table"
    and config.layers or nil
end

-- An entry of a layer or model with Keras 2's names. `inner`: a model inside another.
function to_keras2(entry, at, inner)
  if type(entry) ~= "table" or type(given(entry.config)) ~= "table" then return entry end
  if at.custom[entry.class_name] then return entry end
  local list, out = layers_of(entry), {}
  for key, value in pairs(entry) do out[key] = value end
  if entry.class_name == "Sequential" and is_branched(list) then
    if inner then objects.fail(at, "a Sequential that begins with Merge cannot be inside another model") end
    return branched_from(list, at)
  elseif list then
    local layers = {}
    for i, each in ipairs(list) do layers[i] = to_keras2(each, at, true) end
    out.config = entry.config[1] and { name = given(entry.name) } or {}
    for key, value in pairs(entry.config[1] and {} or entry.config) do out.config[key] = value end
    out.config.layers = layers
  elseif entry.class_name == "Merge" then
    out.class_name, out.config = merge_from(entry.config, at)
  else
    out.class_name = CLASSES[entry.class_name] or entry.class_name
    out.config = options_from(out.class_name, entry.config, at)
  end
  return out
end

-- Names that Keras 1 alone has in every configuration of the class that has them.
local TELLTALE = { border_mode = true, dim_ordering = true, W_regularizer = true, mode_type = true, input_dtype = true }

-- Whether a layer of the entry has options of Keras 1.
local function has_old_names(entry)
  local list = layers_of(entry)
  for _, each in ipairs(list or {}) do
    if has_old_names(each) then return true end
  end
  local config = not list and type(entry) == "table" and given(entry.config)
  for key in pairs(type(config) == "table" and config or {}) do
    if TELLTALE[key] then return true end
  end
  return false
end

--- translated(entry, at) -> the entry with Keras 2's names if Keras 1 wrote it (then says so in `at`), or the entry.
-- The names tell it: the first files have no keras_version. Keras 3 names the module of each class.
function M.translated(entry, at)
  if type(entry) ~= "table" or entry.module ~= nil or not has_old_names(entry) then return entry end
  at.keras2, at.before_tensorflow = true, true
  return to_keras2(entry, at)
end

-- ---- weights ----------------------------------------------------------------------------------------

-- The axes of Keras 1's kernels in Keras 2's order, by class and data_format.
local AXES = {
  Conv2D = { channels_first = { 3, 4, 2, 1 } },
  Conv2DTranspose = { channels_last = { 1, 2, 4, 3 }, channels_first = { 3, 4, 1, 2 } },
  SeparableConv2D = { channels_first = { 3, 4, 2, 1 } },
}

--- kernel(layer, t) -> a weight of the layer in Keras 2's form, from Keras 1's.
function M.kernel(layer, t)
  if t:rank() ~= 4 then return t end
  local shape, axes = t:shape(), (AXES[layer.class_name] or {})[layer.data_format]
  if axes then return t:permute(axes) end
  if layer.class_name ~= "Conv1D" then return t end
  -- {steps, 1, channels, filters}, in Keras 1.0 {filters, channels, steps, 1}
  if shape[2] ~= 1 or shape[1] ~= layer.kernel_size then t = t:permute { 3, 4, 2, 1 } end
  shape = t:shape()
  return t:reshape { shape[1] * shape[2], shape[3], shape[4] }
end

return M
