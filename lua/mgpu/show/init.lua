--- show(value, options): draws it in the terminal: images, curves, the graph of a model.
--
--     mgpu.show(train.x:slice { { 1, 20 } })        -- 20 images as a grid
--     mgpu.show(history)                            -- the curves of a fit
--     mgpu.show(model)                              -- its layers and how they are connected
-- value:
--   a tensor {rows, columns}, {rows, columns, c} or a batch of such, as mgpu.image takes it: an image, or a grid of
--     images. uint8 is shown as it is, floats from 0 to 1 too; other numbers are scaled, the least black, the greatest
--     white. Options: columns (of the grid), padding = 2, width (in columns of the terminal), protocol.
--   a tensor {n}: a curve. Options: width, height.
--   what mgpu.runs returns: a chart for each value, with a curve for each run. Options: those of what fit returns.
--   what fit returns: a chart for each value. Options: metrics, scale = "auto", "linear" or "log", width, height.
--   a model: a line for each use of a layer, with lines for the ways of the data.
-- title: a line above; the caption on the page of a dashboard (mgpu.dashboard), where the picture is shown as well.
-- protocol: how images are drawn: "kitty", "iterm", "sixel", "blocks" (half blocks in color) or "ascii"; by default
-- what the terminal can do, or MGPULUA_GRAPHICS. Errors: a value that is none of these; a tensor that is not an image.
-- Example:
--     mgpu.show(mgpu.tensor { 0, 1, 4, 9, 16 }, { width = 24, height = 4 })
--     --> {5} float32
--     -->    |                  *
--     --> 10 |              ****
--     -->    |       *******
--     -->  0 |*******
--     -->    +--------------------
--     -->     1    2    3   4    5
local core = require "mgpu.core"
local options = require "mgpu.options"
local terminal = require "mgpu.show.terminal"

local WIDTH = { "width", "integer", min = 8, max = 1000 }
local HEIGHT = { "height", "integer", min = 3, max = 200, default = 12 }
local TITLE = { "title", "string" }
local IMAGE = options.declare { { "columns", "integer", min = 1 }, { "padding", "integer", default = 2, min = 0 },
  WIDTH, { "protocol", "string", values = terminal.PROTOCOLS }, TITLE }
local CURVE = options.declare { WIDTH, HEIGHT, TITLE }
local HISTORY = options.declare { { "metrics", "string|table" },
  { "scale", "string", default = "auto", values = { "auto", "linear", "log" } }, WIDTH, HEIGHT, TITLE }
local MODEL = options.declare { TITLE }

local function is_history(value)
  return type(value) == "table" and getmetatable(value) ~= nil and value.class == "History"
end

local function is_runs(value) return type(value) == "table" and getmetatable(value) ~= nil and value.class == "Runs" end

local function is_model(value) return type(value) == "table" and value.is_network == true end

local function check_rank(x)
  if x:rank() > 1 and x:rank() <= 4 then return end
  core.fail("usage", ("show: a tensor of shape {%s} is neither a curve {n} nor an image {rows, columns}, {rows, "
    .. "columns, 1, 3 or 4}, nor a batch of images"):format(table.concat(x:shape(), ", ")))
end

-- RETURNS the text that draws the value, and the checked options.
local function text_of(value, given)
  if core.is_variable(value) then value = value:value() end
  if core.is_tensor(value) and value:rank() == 1 then
    local chosen = options.check("show", CURVE, given)
    return require "mgpu.show.chart".of_numbers(value, chosen), chosen
  elseif core.is_tensor(value) then
    check_rank(value)
    local chosen = options.check("show", IMAGE, given)
    return require "mgpu.show.image".text(value, chosen), chosen
  elseif is_history(value) then
    local chosen = options.check("show", HISTORY, given)
    return require "mgpu.show.chart".of_history(value, chosen), chosen
  elseif is_runs(value) then
    local chosen = options.check("show", HISTORY, given)
    return require "mgpu.runs.pictures".text(value, chosen), chosen
  elseif is_model(value) then
    return require "mgpu.show.model".text(value), options.check("show", MODEL, given)
  end
  core.fail("usage", ("show: draws images (tensors), what fit returns, and models; got %s"):format(
    type(value) == "table" and "a table" or tostring(value)))
end

--- show(value, options): see the top.
return function(value, given)
  if given ~= nil and (type(given) ~= "table" or getmetatable(given)) then
    core.fail("usage", ("show: options are a table, such as {width = 40}, got a %s"):format(type(given)))
  end
  local text, chosen = text_of(value, given or {})
  if chosen.title then text = core.printable(chosen.title, true) .. "\n" .. text end
  local function draw() require "mgpu".output(text) end
  local dashboard = package.loaded["mgpu.dashboard"]
  if dashboard then return dashboard.show(value, chosen, draw) end
  draw()
end
