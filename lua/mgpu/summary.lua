--- The table that model:summary() prints: Keras's columns in plain characters.
local M = {}

local WIDTHS = { 33, 26, 13 }

local function cell(text, width)
  if #text > width - 1 then text = text:sub(1, width - 1) end
  return text .. (" "):rep(width - #text)
end

local function row(...)
  local cells = {}
  for i, text in ipairs { ... } do cells[i] = cell(text, WIDTHS[i]) end
  return (table.concat(cells):gsub("%s+$", ""))
end

local function grouped(n)
  local text = ("%d"):format(n)
  while true do
    local more, count = text:gsub("^(%d+)(%d%d%d)", "%1,%2")
    text = more
    if count == 0 then return text end
  end
end

local function shape_text(shape)
  if not shape then return "?" end
  local parts = {}
  for i, size in ipairs(shape) do parts[i] = size == -1 and "None" or tostring(size) end
  return "(" .. table.concat(parts, ", ") .. ")"
end

--- text(model) -> the table
function M.text(model)
  local line = ("_"):rep(72)
  local lines = { ("Model: %q"):format(model.name), line,
    row("Layer (type)", "Output Shape", "Param #"), ("="):rep(72) }
  for _, layer in ipairs(model.layers) do
    lines[#lines + 1] = row(("%s (%s)"):format(layer.name, layer.class_name),
      shape_text(model.shapes and model.shapes[layer]),
      model.built and grouped((layer:count_params())) or "0 (unbuilt)")
  end
  local total, trainable = model:count_params()
  lines[#lines + 1] = ("="):rep(72)
  lines[#lines + 1] = "Total params: " .. grouped(total)
  lines[#lines + 1] = "Trainable params: " .. grouped(trainable)
  lines[#lines + 1] = "Non-trainable params: " .. grouped(total - trainable)
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

return M
