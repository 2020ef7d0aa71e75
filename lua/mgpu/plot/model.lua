--- The picture of a model: a box for each use of a layer, with the shape of its output and its parameters.
--
-- A model inside a model is a frame with its own layers. A layer that is used several times has a box for each use; the
-- first one shows the parameters.
local core = require "mgpu.core"
local file = require "mgpu.plot.file"
local layout = require "mgpu.plot.layout"
local options = require "mgpu.options"
local summary = require "mgpu.nn.summary"
local svg = require "mgpu.plot.svg"

local M = {}

local PLOT = options.declare { { "nested", "boolean", default = true }, { "title", "string" } }

local LINE, PAD, MARGIN = 16, 12, 20
local NAME_WIDTH, SOFT_WIDTH = 7.6, 6.6 -- of a character of a box's first line, and of the others
local LONGEST = 46

local draw_graph

-- ---- nodes --------------------------------------------------------------------------------------

local function shapes_text(shapes)
  if not shapes then return "?" end
  if type(shapes[1]) ~= "table" then shapes = { shapes } end
  local list = {}
  for i, shape in ipairs(shapes) do list[i] = summary.shape_text(shape) end
  return table.concat(list, ", ")
end

local function parameters_text(layer, built)
  if not built then return "not built yet" end
  local total, trainable = layer:count_params()
  if total == 0 then return nil end
  local text = ("%s parameter%s"):format(summary.grouped(total), total == 1 and "" or "s")
  if trainable == total then return text end
  return trainable == 0 and text .. ", frozen" or ("%s, %s of them trainable"):format(text, summary.grouped(trainable))
end

-- A node for the use of a layer. ARGS drawn: the layers that have a box already, and how often.
local function new_node(layer, shapes, built, drawn, chosen)
  local uses = (drawn[layer] or 0) + 1
  drawn[layer] = uses
  local device = rawget(layer, "device") and " @" .. tostring(layer.device) or ""
  local name = svg.shortened(("%s (%s)%s"):format(layer.name, layer.class_name, device), LONGEST)
  local node = { lines = { name, shapes_text(shapes) } }
  node.lines[3] = uses > 1 and ("shared, use %d"):format(uses) or not layer.is_input and parameters_text(layer, built)
    or nil
  if layer.is_network and layer.built and uses == 1 and chosen.nested and #layer.layers > 0 then
    node.inside = draw_graph(layer, drawn, chosen)
  end
  node.width = NAME_WIDTH * #node.lines[1]
  for i = 2, #node.lines do node.width = math.max(node.width, SOFT_WIDTH * #node.lines[i]) end
  node.width = math.max(110, node.width + 2 * PAD)
  node.height = LINE * #node.lines + 12
  if node.inside then
    node.width = math.max(node.width, node.inside.width + 2 * PAD)
    node.height = node.height + node.inside.height + PAD
  end
  return node
end

-- A node for data given to a model.
local function input_node(shape)
  local node = { lines = { "input", summary.shape_text(shape) }, height = 2 * LINE + 12 }
  node.width = math.max(110, SOFT_WIDTH * #node.lines[2] + 2 * PAD)
  return node
end

-- RETURNS nodes and edges of a Sequential.
local function of_sequential(model, drawn, chosen)
  local shape = model.sample_shape and { -1, unpack(model.sample_shape) } or model.built_shape
  local nodes, edges = { input_node(shape) }, {}
  for i, layer in ipairs(model.layers) do
    nodes[i + 1] = new_node(layer, model.shapes and model.shapes[layer], model.built, drawn, chosen)
    edges[i] = { nodes[i], nodes[i + 1] }
  end
  return nodes, edges
end

-- RETURNS nodes and edges of a functional model.
local function of_graph(model, drawn, chosen)
  local nodes, edges, made = {}, {}, {}
  local function add(use)
    local shapes = {}
    for i, s in ipairs(use.outputs) do shapes[i] = s:shape() end
    nodes[#nodes + 1] = new_node(use.layer, shapes, true, drawn, chosen)
    for _, s in ipairs(use.outputs) do made[s] = made[s] or nodes[#nodes] end
    return nodes[#nodes]
  end
  for _, input in ipairs(model.inputs) do
    if input.node.layer.is_input then
      add(input.node)
    else -- a tensor within another model
      nodes[#nodes + 1] = input_node(input:shape())
      made[input] = nodes[#nodes]
    end
  end
  for _, use in ipairs(model.order) do
    local node, seen = add(use), {}
    for _, s in ipairs(use.inputs) do
      if not seen[made[s]] then edges[#edges + 1] = { made[s], node } end
      seen[made[s]] = true
    end
  end
  return nodes, edges
end

-- ---- drawing ------------------------------------------------------------------------------------

local function draw_node(node, out)
  local left, top = node.x - node.width / 2, node.y - node.height / 2
  out[#out + 1] = svg.element("rect", { class = node.inside and "group" or "box", x = left, y = top,
    width = node.width, height = node.height, rx = 5 })
  for i, line in ipairs(node.lines) do
    out[#out + 1] = svg.text(node.x, top + LINE * i + 1, line, i == 1 and "name" or "soft", "middle")
  end
  if node.inside then
    local x, y = node.x - node.inside.width / 2, top + LINE * #node.lines + 12
    out[#out + 1] = svg.element("g", { transform = ("translate(%s %s)"):format(svg.number(x), svg.number(y)) },
      node.inside.content)
  end
end

-- A line through the dummies of an edge, with its arrow head: straight within a row, so that it keeps clear of the
-- boxes there, and a curve between rows.
local function draw_edge(edge, out)
  local way, n = edge.way, svg.number
  local x, y = way[1].x, way[1].row_bottom
  local path = { ("M%s %sV%s"):format(n(x), n(way[1].y + way[1].height / 2), n(y)) }
  for i = 2, #way do
    local to = way[i]
    local last = to.dummy and to.row_bottom or to.y - to.height / 2 - 5
    local to_y = to.dummy and to.row_top or math.min(to.row_top, last)
    local middle = (y + to_y) / 2
    path[#path + 1] = ("C%s %s %s %s %s %sV%s"):format(n(x), n(middle), n(to.x), n(middle), n(to.x), n(to_y), n(last))
    x, y = to.x, last
  end
  out[#out + 1] = svg.element("path", { class = "edge", d = table.concat(path) })
  out[#out + 1] = svg.element("path", { class = "head", d = ("M%s %sl-4.5 -8h9z"):format(n(x), n(y + 5)) })
end

-- RETURNS {width, height, content} of the model's graph.
function draw_graph(model, drawn, chosen)
  local nodes, edges = (model.order and of_graph or of_sequential)(model, drawn, chosen)
  local width, height = layout.arrange(nodes, edges)
  local out = {}
  for _, edge in ipairs(edges) do draw_edge(edge, out) end
  for _, node in ipairs(nodes) do draw_node(node, out) end
  return { width = width, height = height, content = table.concat(out, "\n") }
end

--- graph(model) -> nodes and edges: nodes in topological order, {lines = {name and class, shape, parameters or nil}},
--- and edges {from, to} between them.
function M.graph(model) return (model.order and of_graph or of_sequential)(model, {}, {}) end

--- picture(model, {nested = true, title =, styled = true}) -> an <svg> element.
function M.picture(model, given)
  local graph = draw_graph(model, {}, given)
  local total, trainable = model:count_params()
  local title = svg.shortened(given.title or model.name, LONGEST)
  local counts = model.built and ("%s parameters, %s trainable"):format(summary.grouped(total),
    summary.grouped(trainable)) or "not built yet"
  local width = math.max(graph.width, NAME_WIDTH * 1.2 * #title, SOFT_WIDTH * #counts) + 2 * MARGIN
  local content = svg.text(MARGIN, 28, title, "title") .. svg.text(MARGIN, 46, counts, "soft")
    .. "\n" .. svg.element("g", { transform = ("translate(%s 64)"):format(svg.number((width - graph.width) / 2)) },
    graph.content)
  return svg.picture(width, graph.height + 64 + MARGIN, content, title, given.styled)
end

--- plot(model, path, given): see model:plot.
function M.plot(model, path, given)
  local chosen = file.check("model:plot", path, ".svg", PLOT, given)
  if not model.layers or #model.layers == 0 then core.fail("usage", "model:plot: the model has no layers") end
  file.write(path, M.picture(model, chosen))
end

return M
