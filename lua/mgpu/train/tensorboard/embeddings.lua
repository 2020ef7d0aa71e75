--- Files for TensorBoard's projector: the tables of Embedding layers, and the configuration that names them.
--
-- The projector reads <log_dir>/projector_config.pbtxt, and the tables from files of tab-separated numbers. Keras
-- names a checkpoint there instead, which the projector reads with TensorFlow only.
local core = require "mgpu.core"

local M = {}

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

--- check(model, metadata, wanted): raises for metadata, a path or {layer's name = path}, and for an array of wanted
--- names (nil: all) that name layers that are no Embedding layers of the model.
function M.check(model, metadata, wanted)
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
