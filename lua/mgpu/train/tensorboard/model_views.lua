--- What TensorBoard shows of a model: its graph, weights as images, and the tables of Embedding layers.
local core = require "mgpu.core"
local encode_png = require "mgpu.data.image".encode_png
local summaries = require "mgpu.train.tensorboard.events"

local M = {}

-- ---- the graph ----------------------------------------------------------------------------------

local describe -- a layer

-- Keras's way to name an output of a use of a layer: {layer, use from 0, output from 0}.
local function history(symbol)
  local node, use = symbol.node, 0
  for i, other in ipairs(node.layer.nodes or {}) do
    if other == node then use = i - 1 end
  end
  return { node.layer.name, use, symbol.index - 1 }
end

-- The uses of a layer among the nodes, as inbound_nodes.
local function inbound_nodes(nodes, layer)
  local list = {}
  for _, node in ipairs(nodes) do
    if node.layer == layer then
      local args = {}
      for i, s in ipairs(node.inputs) do
        args[i] = { class_name = "__keras_tensor__", config = { keras_history = history(s) } }
      end
      list[#list + 1] = { args = { args } }
    end
  end
  return list
end

local function names_of(symbols)
  local list = {}
  for i, s in ipairs(symbols) do list[i] = s.node.layer.name end
  return list
end

-- The layers of a functional model, the inputs first.
local function functional(model, config)
  config.layers, config.output_layers = {}, {}
  for i, layer in ipairs(model.layers) do
    config.layers[i] = describe(layer)
    config.layers[i].inbound_nodes = layer.is_input and core.empty_array or inbound_nodes(model.order, layer)
  end
  config.input_layers = names_of(model.inputs)
  for i, s in ipairs(model.outputs) do config.output_layers[i] = history(s) end
end

describe = function(layer)
  local config = { name = layer.name, dtype = layer.compute_dtype }
  if layer.is_network and layer.order then
    functional(layer, config)
  elseif layer.is_network then
    config.layers = { layer.sample_shape and { class_name = "InputLayer", config = { name = "input" } } }
    for _, inner in ipairs(layer.layers) do config.layers[#config.layers + 1] = describe(inner) end
  end
  return { class_name = layer.is_network and layer.order and "Functional" or layer.is_input and "InputLayer"
    or layer.class_name, name = layer.name, config = config }
end

--- A model as the JSON from which TensorBoard draws the conceptual graph: the part of Keras 3's configuration that
--- its graph plugin reads: names, classes, dtypes, and which layers feed a layer.
function M.model_json(model) return core.json_encode(describe(model)) end

-- ---- weights as images --------------------------------------------------------------------------

-- Weights as images for TensorBoard, by the rules of Keras's callback.
--
-- Without its axes of size 1, a vector is an image of one column; a matrix is an image, with more columns than rows;
-- three axes are a gray image for each entry of the last; four axes, if the last has 1, 3 or 4 entries, are images in
-- colour. Numbers from 0 to 1 become 0 to 255, others the nearer end. TensorFlow writes the first three images.

local ops = core.ops

local MOST = 3

-- The weight as {images, rows, columns, channels}; nil if there is no such form.
local function as_images(t)
  local shape = {}
  for _, size in ipairs(t:shape()) do
    if size ~= 1 then shape[#shape + 1] = size end
  end
  t = ops.reshape(t, { shape = shape })
  if #shape == 1 then return ops.reshape(t, { shape = { 1, shape[1], 1, 1 } }) end
  if #shape == 2 then
    if shape[1] > shape[2] then t, shape = ops.permute(t, { order = { 2, 1 } }), { shape[2], shape[1] } end
    return ops.reshape(t, { shape = { 1, shape[1], shape[2], 1 } })
  elseif #shape == 3 then
    t = ops.permute(t, { order = { 3, 1, 2 } })
    return ops.reshape(t, { shape = { shape[3], shape[1], shape[2], 1 } })
  end
  local channels = shape[4]
  return #shape == 4 and (channels == 3 or channels == 4) and t or nil
end

-- TensorFlow multiplies by 255.5 and cuts the fraction off. NaN is black.
local function as_bytes(t)
  local scaled = ops.where(ops.eq(t, t), t, 0) * 255.5
  return ops.minimum(ops.maximum(scaled, 0), 255):floor():to "uint8"
end


--- check_images(): raises if PNG files cannot be written here.
function M.check_images() encode_png(ops.full({ 1, 1 }, 0, "uint8")) end

--- image(tag, t) -> the value for a weight, a tensor of floats in host memory; nil if it cannot be shown.
function M.image(tag, t)
  local images = t:count() > 0 and as_images(t)
  if not images then return nil end
  local n, rows, columns, channels = unpack(images:shape())
  local bytes, pngs = as_bytes(images), {}
  for i = 1, math.min(n, MOST) do
    local one = ops.slice(bytes, { start = { i - 1, 0, 0, 0 }, stop = { i, rows, columns, channels } })
    pngs[i] = encode_png(ops.reshape(one, { shape = { rows, columns, channels } }))
  end
  return summaries.images(tag, columns, rows, pngs)
end

-- ---- tables for the projector -------------------------------------------------------------------

-- Files for TensorBoard's projector: the tables of Embedding layers, and the configuration that names them.
--
-- The projector reads <log_dir>/projector_config.pbtxt, and the tables from files of tab-separated numbers. Keras
-- names a checkpoint there instead, which the projector reads with TensorFlow only.

-- The Embedding layers of the model, of inner models too; with an array of names only these.
local function embedding_layers(model, names)
  local list, wanted = {}, {}
  for _, name in ipairs(names or {}) do wanted[name] = true end
  model:each_layer(function(layer)
    if layer.class_name == "Embedding" and (next(wanted) == nil or wanted[layer.name]) then list[#list + 1] = layer end
  end)
  return list
end

-- The name of a layer's file in the log folder: another one for every name.
local function file_name(layer)
  return layer.name:gsub("[^%w_.-]", function(c) return ("%%%02X"):format(c:byte()) end) .. ".tsv"
end

-- A string in protobuf's text format, which reads the digits of an escape as octal.
local function quoted(text)
  return '"' .. text:gsub('[%c"\\]', function(c)
    return c:find "%c" and ("\\%03o"):format(c:byte()) or "\\" .. c
  end) .. '"'
end

-- Raises for a name that is not known.
local function check_name(option, name, known, names)
  if known[name] then return end
  core.fail("usage", ("fit: TensorBoard: %s: there is no Embedding layer %q%s"):format(option, tostring(name),
    core.did_you_mean(tostring(name), names)))
end

--- check_embeddings(model, metadata, wanted): raises for metadata, a path or {layer's name = path}, and
--- for an array of wanted names (nil: all) that name layers that are no Embedding layers of the model.
function M.check_embeddings(model, metadata, wanted)
  local names, known = {}, {}
  for i, layer in ipairs(embedding_layers(model)) do names[i], known[layer.name] = layer.name, true end
  if #names == 0 then
    core.fail("usage", "fit: TensorBoard: embeddings_freq is given, but the model has no Embedding layer")
  end
  for name in pairs(type(metadata) == "table" and metadata or {}) do
    check_name("embeddings_metadata", name, known, names)
  end
  for _, name in ipairs(wanted or {}) do check_name("embeddings_layer_names", name, known, names) end
end

--- write_config(model, folder, metadata, wanted): writes projector_config.pbtxt.
function M.write_config(model, folder, metadata, wanted)
  local lines = {}
  local function add(text, ...) lines[#lines + 1] = text:format(...) end
  for _, layer in ipairs(embedding_layers(model, wanted)) do
    local path = type(metadata) == "table" and metadata[layer.name] or type(metadata) == "string" and metadata
    add("embeddings {\n  tensor_name: %s\n", quoted(layer.embeddings.name))
    add("  tensor_shape: %d\n  tensor_shape: %d\n", layer.input_dim, layer.output_dim)
    add("  tensor_path: %s\n", quoted(file_name(layer)))
    if path then add("  metadata_path: %s\n", quoted(path)) end
    add "}\n"
  end
  core.write_file(folder .. "/projector_config.pbtxt", lines)
end

--- write_tables(model, folder, host_value, wanted): writes the tables as they are now; host_value(v) -> the variable's
--- value as floats in host memory.
function M.write_tables(model, folder, host_value, wanted)
  for _, layer in ipairs(embedding_layers(model, wanted)) do
    local t = host_value(layer.embeddings)
    local p, columns, lines = t:pointer(), layer.output_dim, {}
    for row = 1, layer.input_dim do
      local cells = {}
      for k = 1, columns do cells[k] = ("%.9g"):format(p[(row - 1) * columns + k - 1]) end
      lines[row] = table.concat(cells, "\t") .. "\n"
    end
    core.write_file(folder .. "/" .. file_name(layer), lines)
  end
end

return M
