--- The layout of a directed graph without cycles, from top to bottom.
--
-- Nodes are put into rows: each below all that it needs. An edge over several rows passes through a narrow dummy node
-- in each row between, so that it keeps clear of boxes. Then rows are sorted by the mean position of their neighbours
-- (the barycenter heuristic of Sugiyama), and nodes move towards their neighbours as far as the row allows.
local M = {}

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

return M
