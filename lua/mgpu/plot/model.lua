--- The picture of a model: a box for each use of a layer, with the shape of its output and its parameters.
--
-- A model inside a model is a frame with its own layers. A layer that is used several times has a box for each use; the
-- first one shows the parameters.
local core = require "mgpu.core"
local options = require "mgpu.options"
local summary = require "mgpu.nn.summary"
local svg = require "mgpu.plot.svg"

local M = {}

-- ---- layout: where the boxes go -----------------------------------------------------------------

-- The layout of a directed graph without cycles, from top to bottom.
--
-- Nodes are put into rows: each below all that it needs. An edge over several rows passes through a narrow dummy node
-- in each row between, so that it keeps clear of boxes. Then rows are sorted by the mean position of their neighbours
-- (the barycenter heuristic of Sugiyama), and nodes move towards their neighbours as far as the row allows.

local GAP_X, GAP_Y, DUMMY = 28, 40, 10
local SWEEPS = 8

-- Sets node.row, the longest way from a source.
local function set_rows(nodes, edges)
  for _, node in ipairs(nodes) do node.row, node.above, node.below = 1, {}, {} end
  for _, edge in ipairs(edges) do -- sorted by their targets, which come after their sources
    edge[2].row = math.max(edge[2].row, edge[1].row + 1)
  end
end

-- RETURNS the rows, arrays of nodes; adds to each edge its `way`: source, dummies, target.
local function make_rows(nodes, edges)
  local rows = {}
  local function add(node)
    for row = #rows + 1, node.row do rows[row] = {} end
    table.insert(rows[node.row], node)
  end
  for _, node in ipairs(nodes) do add(node) end
  for _, edge in ipairs(edges) do
    edge.way = { edge[1] }
    for row = edge[1].row + 1, edge[2].row - 1 do
      local dummy = { row = row, width = DUMMY, height = 0, above = {}, below = {}, dummy = true }
      edge.way[#edge.way + 1] = dummy
      add(dummy)
    end
    edge.way[#edge.way + 1] = edge[2]
    for i = 2, #edge.way do
      table.insert(edge.way[i].above, edge.way[i - 1])
      table.insert(edge.way[i - 1].below, edge.way[i])
    end
  end
  return rows
end

local function mean(list, field)
  local sum = 0
  for _, node in ipairs(list) do sum = sum + node[field] end
  return sum / #list
end

-- Sorts each row by the places of its neighbours in the rows before it, downwards and upwards in turn.
local function sort_rows(rows)
  local function number(row)
    for i, node in ipairs(row) do node.place = i - (#row + 1) / 2 end
  end
  for _, row in ipairs(rows) do number(row) end
  for sweep = 1, SWEEPS do
    local down = sweep % 2 == 1
    for k = down and 2 or #rows - 1, down and #rows or 1, down and 1 or -1 do
      for i, node in ipairs(rows[k]) do
        local list = down and node.above or node.below
        node.wish, node.was = #list > 0 and mean(list, "place") or node.place, i
      end
      table.sort(rows[k], function(a, b)
        if a.wish ~= b.wish then return a.wish < b.wish end
        return a.was < b.was
      end)
      number(rows[k])
    end
  end
end

-- Moves the nodes of a row to the means of their neighbours in `field`. Nodes that would overlap form a group, which
-- moves by the mean of the shifts that its nodes want (least squares, by pooling adjacent violators).
local function settle(row, field)
  local clumps, offset = {}, 0
  for i, node in ipairs(row) do
    if i > 1 then offset = offset + (row[i - 1].width + node.width) / 2 + GAP_X end
    node.offset = offset
    local list = #node[field] > 0 and node[field] or { node }
    local clump = { sum = mean(list, "x") - offset, n = 1, first = i }
    while #clumps > 0 and clumps[#clumps].sum / clumps[#clumps].n > clump.sum / clump.n do
      local left = table.remove(clumps)
      clump = { sum = left.sum + clump.sum, n = left.n + clump.n, first = left.first }
    end
    clumps[#clumps + 1] = clump
  end
  for c, clump in ipairs(clumps) do
    local last = clumps[c + 1] and clumps[c + 1].first - 1 or #row
    for i = clump.first, last do row[i].x = row[i].offset + clump.sum / clump.n end
  end
end

local function place(rows)
  local y = 0
  for _, row in ipairs(rows) do
    local x, height = 0, 0
    for _, node in ipairs(row) do
      node.x, x = x + node.width / 2, x + node.width + GAP_X
      height = math.max(height, node.height)
    end
    for _, node in ipairs(row) do
      node.x, node.y, node.row_top, node.row_bottom = node.x - x / 2, y + height / 2, y, y + height
    end
    y = y + height + GAP_Y
  end
  for _ = 1, SWEEPS do
    for k = 2, #rows do settle(rows[k], "above") end
    for k = #rows - 1, 1, -1 do settle(rows[k], "below") end
  end
  return y - GAP_Y
end

--- arrange(nodes, edges) -> width, height of the drawing.
-- ARGS nodes: array of {width =, height =}, in an order in which each comes after those it needs; edges: array
-- of {source, target}. Sets x and y, the centres of the nodes, row_top and row_bottom of their rows, and
-- edge.way, the nodes and dummies that the edge passes.
function M.arrange(nodes, edges)
  local position = {}
  for i, node in ipairs(nodes) do position[node] = i end
  table.sort(edges, function(a, b)
    if a[2] ~= b[2] then return position[a[2]] < position[b[2]] end
    return position[a[1]] < position[b[1]]
  end)
  set_rows(nodes, edges)
  local rows = make_rows(nodes, edges)
  sort_rows(rows)
  local height, left, right = place(rows), math.huge, -math.huge
  for _, row in ipairs(rows) do
    for _, node in ipairs(row) do
      left, right = math.min(left, node.x - node.width / 2), math.max(right, node.x + node.width / 2)
    end
  end
  for _, row in ipairs(rows) do
    for _, node in ipairs(row) do node.x = node.x - left end
  end
  return right - left, height
end

-- ---- the picture --------------------------------------------------------------------------------

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
  local width, height = M.arrange(nodes, edges)
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
  local chosen = svg.check_file("model:plot", path, ".svg", PLOT, given)
  if not model.layers or #model.layers == 0 then core.fail("usage", "model:plot: the model has no layers") end
  svg.write_file(path, M.picture(model, chosen))
end

return M
