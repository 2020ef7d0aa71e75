--- Pictures for the page: what mgpu.show draws in the terminal, as PNG or SVG.
local core = require "mgpu.core"
local plot = require "mgpu.plot.history"
local run_tables = require "mgpu.plot.run_tables"

local M = {}

--- model(model) -> the graph as SVG; nil if it is too large.
function M.model(model)
  if not model.layers or #model.layers == 0 or #model.layers > run_tables.MOST_LAYERS then return nil end
  return require "mgpu.plot.model".picture(model, { nested = true })
end

local function shape_text(x) return ("{%s}"):format(table.concat(x:shape(), ", ")) end

-- A tensor {n}.
local function curve(x)
  local values, at = x:to("float64"):to("cpu:0"):totable(), {}
  for i = 1, #values do at[i] = i end
  local panel = { title = shape_text(x), x_label = "index",
    curves = { { label = "value", values = values, epochs = at, color = 1 } } }
  return plot.picture({ panel }, {})
end

--- of(value, chosen) -> what the page shows, its type, and a title for it. chosen: the options of mgpu.show.
function M.of(value, chosen)
  if core.is_variable(value) then value = value:value() end
  if not core.is_tensor(value) then
    if value.is_network then return M.model(value), "image/svg+xml", value.name end
    return plot.picture(plot.panels("show", value, chosen.metrics), { scale = chosen.scale }), "image/svg+xml", "curves"
  elseif value:rank() == 1 then
    return curve(value), "image/svg+xml", "curve " .. shape_text(value)
  end
  return require "mgpu.show.image".png(value, chosen), "image/png", "images " .. shape_text(value)
end

return M
