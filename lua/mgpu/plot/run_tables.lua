--- Tables about a run, for reports and the dashboard: the layers of the model, what it was compiled and fitted with,
--- devices and versions.
--
-- Each is an array of rows, which are arrays of texts; `heads`, if there is one, names the columns.
local core = require "mgpu.core"
local summary = require "mgpu.nn.summary"

local M = {}

--- The most layers of a model whose graph is drawn on a page.
M.MOST_LAYERS = 300

local MOST_DEPTH = 5 -- of tables within a setting

-- A setting in words: simple values, and tables of them.
local function words(value, depth)
  depth = depth or 0
  if type(value) == "number" then return ("%.10g"):format(value) end
  if type(value) == "userdata" or type(value) == "function" then return type(value) end
  if type(value) ~= "table" then return tostring(value) end
  if getmetatable(value) and getmetatable(value).__tostring then return tostring(value) end
  local keys, list = {}, {}
  for key in pairs(value) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for i, key in ipairs(keys) do
    local text = depth < MOST_DEPTH and words(value[key], depth + 1) or "…"
    list[i] = type(key) == "number" and text or ("%s = %s"):format(tostring(key), text)
  end
  local text = table.concat(list, ", ")
  return depth > 0 and "{" .. text .. "}" or text
end

-- Rows of names and values, sorted by name. ARGS left_out: names that have a row elsewhere.
local function rows_of(values, left_out)
  local rows = {}
  for name, value in pairs(values) do
    if not left_out[name] then rows[#rows + 1] = { tostring(name), words(value) } end
  end
  table.sort(rows, function(a, b) return a[1] < b[1] end)
  return rows
end

--- model(model) -> a row for each layer and one for all; two columns of text, then the shape, then numbers.
function M.model(model)
  local rows = { heads = { "layer", "class", "output", "parameters", "trainable" } }
  for i, layer in ipairs(model.layers) do
    local shape = model.shapes and model.shapes[layer] or (layer.nodes and layer.nodes[1].outputs[1]:shape())
    local total, trainable = layer:count_params()
    rows[i] = { layer.name, layer.class_name, summary.shape_text(shape), summary.grouped(total),
      summary.grouped(trainable) }
  end
  local total, trainable = model:count_params()
  rows[#rows + 1] = { "all layers", "", "", summary.grouped(total), summary.grouped(trainable) }
  return rows
end

--- compiled(compiled) -> what compile was given, in words.
function M.compiled(compiled)
  local losses = {}
  for i, output in ipairs(compiled.outputs) do
    local loss = output.loss and (output.loss.custom and "function" or output.loss.class) or "none"
    losses[i] = #compiled.outputs > 1 and ("%s: %s"):format(output.name, loss) or loss
  end
  local optimizer = compiled.optimizer
  local rows = { { "optimizer", optimizer.class or optimizer.name },
    { "optimizer's options", words(optimizer:get_config()) }, { "loss", table.concat(losses, ", ") },
    { "values", table.concat(compiled.metrics:names(), ", ") },
    { "devices", table.concat(compiled.devices or { core.default_device() }, ", ") } }
  for _, row in ipairs(rows_of(compiled.options, { optimizer = true, loss = true, metrics = true, devices = true,
    weighted_metrics = true })) do
    rows[#rows + 1] = row
  end
  return rows
end

--- fitted(history) -> the options of fit, and how much data there were.
function M.fitted(history)
  local rows = rows_of(history.settings or {}, {})
  local params = history.params or {}
  if params.samples then rows[#rows + 1] = { "training samples", summary.grouped(params.samples) } end
  if params.steps then rows[#rows + 1] = { "steps of an epoch", summary.grouped(params.steps) } end
  return rows
end

--- machine(compiled) -> the devices of a compiled model, or the default device, and versions.
function M.machine(compiled)
  local rows = {}
  for _, name in ipairs(compiled and compiled.devices or { core.default_device() }) do
    local ok, info = pcall(core.device_info, name)
    rows[#rows + 1] = { name, ok and info.text or "not there any more" }
  end
  rows[#rows + 1] = { "mgpulua", core.version }
  rows[#rows + 1] = { "LuaJIT", ("%s, %s %s"):format(jit.version, jit.os, jit.arch) }
  return rows
end

return M
