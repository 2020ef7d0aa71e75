--- The table that model:summary() prints: Keras's columns in plain characters.
local core = require "mgpu.core"
local quoted = require "mgpu.quoted"

local M = {}

local WIDTHS = { 33, 26, 13 } -- layer, output shape, parameters
local WIDE = { 33, 26, 13, 26 } -- and "Connected to", for graphs

-- Names come from files: their control characters become visible. No character is cut in two.
local function cell(text, width)
  text = core.printable(text, true)
  local last = width - 1
  while last < #text and text:find("^[\128-\191]", last + 1) do last = last - 1 end
  text = text:sub(1, last)
  return text .. (" "):rep(width - #text)
end

local function row(widths, ...)
  local cells = {}
  for i, text in ipairs { ... } do
    if not widths[i] then break end
    cells[i] = cell(text, widths[i])
  end
  return (table.concat(cells):gsub("%s+$", ""))
end

--- grouped(n) -> the number with commas: 61706 -> "61,706".
local function grouped(n)
  local text = ("%d"):format(n)
  while true do
    local more, count = text:gsub("^(%d+)(%d%d%d)", "%1,%2")
    text = more
    if count == 0 then return text end
  end
end

--- shape_text(shape) -> "(None, 28, 28)"; "?" for nil.
local function shape_text(shape)
  if not shape then return "?" end
  local parts = {}
  for i, size in ipairs(shape) do parts[i] = size == -1 and "None" or tostring(size) end
  return "(" .. table.concat(parts, ", ") .. ")"
end

-- Each RETURNS function(layer) -> the text of its output's shape, and of the layers it is connected to.
local function of_sequential(model)
  return function(layer)
    return shape_text(model.shapes and model.shapes[layer]), ""
  end
end

local function of_graph(model)
  local shapes, from = {}, {}
  for _, input in ipairs(model.inputs) do shapes[input.node.layer] = shape_text(input:shape()) end
  for _, node in ipairs(model.order) do
    local texts, names = {}, from[node.layer] or {}
    for i, s in ipairs(node.outputs) do texts[i] = shape_text(s:shape()) end
    for _, s in ipairs(node.inputs) do names[#names + 1] = s.node.layer.name end
    shapes[node.layer] = shapes[node.layer] or table.concat(texts, ", ")
    from[node.layer] = names
  end
  return function(layer) return shapes[layer], table.concat(from[layer] or {}, ", ") end
end

-- How many layers of the model have weights of 8 or 4 bits, and the bytes of all its weights.
local function quantized_layers(model)
  local count = 0
  model:each_layer(function(layer)
    if rawget(layer, "quantization") then count = count + 1 end
  end)
  return count, count > 0 and require "mgpu.nn.quantized.quantize".bytes_of(model) or 0
end

--- text(model) -> the table as a string.
function M.text(model)
  local widths = model.order and WIDE or WIDTHS
  local width = model.order and 98 or 72
  local line, double = ("_"):rep(width), ("="):rep(width)
  local lines = { "Model: " .. quoted(model.name), line,
    row(widths, "Layer (type)", "Output Shape", "Param #", "Connected to"), double }
  local describe = (model.order and of_graph or of_sequential)(model)
  for _, layer in ipairs(model.layers) do
    local shape, from = describe(layer)
    local where = rawget(layer, "device") and " @" .. tostring(layer.device) or ""
    if layer.dtype_policy ~= model.dtype_policy and not layer.is_input then
      where = (" %s%s"):format(layer.dtype_policy.mode or layer.dtype_policy.name, where)
    end
    lines[#lines + 1] = row(widths, ("%s (%s)%s"):format(layer.name, layer.class_name, where), shape,
      model.built and grouped((layer:count_params())) or "0 (unbuilt)", from)
  end
  local total, trainable = model:count_params()
  lines[#lines + 1] = double
  lines[#lines + 1] = "Total params: " .. grouped(total)
  lines[#lines + 1] = "Trainable params: " .. grouped(trainable)
  lines[#lines + 1] = "Non-trainable params: " .. grouped(total - trainable)
  local layers, bytes = quantized_layers(model)
  if layers > 0 then
    lines[#lines + 1] = ("Quantized: %s, %s bytes of weights in the model"):format(
      layers == 1 and "1 layer" or layers .. " layers", grouped(bytes))
  end
  local policy = model.dtype_policy
  if policy.compute_dtype ~= policy.variable_dtype then
    lines[#lines + 1] = ("Policy: %s (computes in %s, weights in %s)"):format(policy.name, policy.compute_dtype,
      policy.variable_dtype)
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

M.grouped, M.shape_text = grouped, shape_text

return M
