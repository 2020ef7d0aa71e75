--- The graph of a model as text: a line for each use of a layer, and to its left the ways of the data.
--
--     ●    input_1 (Input)       (None, 8, 8, 3)
--     ├─╮
--     ● │  conv2d (Conv2D)       (None, 8, 8, 3)   84 parameters
--     ├─╯
--     ●    add (Add)             (None, 8, 8, 3)
-- An edge keeps its column from the layer that made the value to the one that takes it.
local core = require "mgpu.core"
local terminal = require "mgpu.show.terminal"

local M = {}

-- What lines are drawn with: a node; down; first, middle and last column of a fork and of a join; across; a crossing.
local BOX = { node = "●", down = "│", first = "├", fork = "┬", forked = "╮", join = "┴", joined = "╯", across = "─",
  cross = "┼" }
local PLAIN = { node = "*", down = "|", first = "|", fork = "-", forked = "\\", join = "-", joined = "/", across = "-",
  cross = "+" }

-- ways[i] is the node that column i leads to, or false. RETURNS the columns that lead to the node.
local function columns_to(ways, node)
  local list = {}
  for i, target in ipairs(ways) do
    if target == node then list[#list + 1] = i end
  end
  return list
end

-- The first free column.
local function free_column(ways)
  for i, target in ipairs(ways) do
    if not target then return i end
  end
  return #ways + 1
end

-- A line in which the columns of `list` meet in their first one.
local function meeting(ways, list, chars, middle, last)
  local is_met, line = {}, {}
  for _, i in ipairs(list) do is_met[i] = true end
  local from, to = list[1], list[#list]
  for i = 1, math.max(#ways, to) do
    local inside = i > from and i < to
    local char = i == from and chars.first or i == to and last or is_met[i] and middle
      or inside and (ways[i] and chars.cross or chars.across) or ways[i] and chars.down or " "
    line[i] = char .. (i >= from and i < to and chars.across or " ")
  end
  return table.concat(line)
end

local function node_line(ways, column, chars)
  local line = {}
  for i = 1, math.max(#ways, column) do
    line[i] = (i == column and chars.node or ways[i] and chars.down or " ") .. " "
  end
  return table.concat(line)
end

-- Puts the node's edges into columns: the first into its own, the others into free ones. RETURNS these columns.
local function fork(ways, column, targets)
  local list = {}
  ways[column] = targets[1] or false
  for i, target in ipairs(targets) do
    list[i] = i == 1 and column or free_column(ways)
    ways[list[i]] = target
  end
  table.sort(list)
  return list
end

-- RETURNS an array of {ways of the data, node or nil}.
local function lines_of(nodes, edges, chars)
  local targets, lines, ways = {}, {}, {}
  for _, node in ipairs(nodes) do targets[node] = {} end
  for _, edge in ipairs(edges) do table.insert(targets[edge[1]], edge[2]) end
  for _, node in ipairs(nodes) do
    local met = columns_to(ways, node)
    local column = met[1] or free_column(ways)
    if #met > 1 then lines[#lines + 1] = { meeting(ways, met, chars, chars.join, chars.joined) } end
    for i = 2, #met do ways[met[i]] = false end
    lines[#lines + 1] = { node_line(ways, column, chars), node }
    local forked = fork(ways, column, targets[node])
    if #forked > 1 then lines[#lines + 1] = { meeting(ways, forked, chars, chars.fork, chars.forked) } end
    while #ways > 0 and not ways[#ways] do table.remove(ways) end
  end
  return lines
end

-- The number of characters of a text in UTF-8.
local function width_of(text) return #text:gsub("[\128-\191]", "") end

local function padded(text, width) return text .. (" "):rep(width - width_of(text)) end

--- text(model) -> its graph. Errors: a model without layers.
function M.text(model)
  if not model.layers or #model.layers == 0 then core.fail("usage", "show: the model has no layers") end
  local nodes, edges = require "mgpu.plot.model".graph(model)
  local lines = lines_of(nodes, edges, terminal.is_plain() and PLAIN or BOX)
  local widths, out = { 0, 0, 0 }, { core.printable(model.name, true) }
  for _, node in ipairs(nodes) do
    for k, text in ipairs(node.lines) do node.lines[k] = core.printable(text, true) end
  end
  for _, line in ipairs(lines) do
    widths[1] = math.max(widths[1], width_of(line[1]))
    for k = 1, line[2] and 2 or 0 do widths[k + 1] = math.max(widths[k + 1], width_of(line[2].lines[k])) end
  end
  for _, line in ipairs(lines) do
    local text = padded(line[1], widths[1])
    local node = line[2]
    if node then
      text = ("%s  %s   %s   %s"):format(text, padded(node.lines[1], widths[2]), padded(node.lines[2], widths[3]),
        node.lines[3] or "")
    end
    out[#out + 1] = (text:gsub("%s+$", ""))
  end
  return table.concat(out, "\n") .. "\n"
end

return M
