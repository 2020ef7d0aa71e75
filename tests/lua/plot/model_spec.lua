-- model:plot: the graph of a model as SVG.

local check = require "check"
local layout = require "mgpu.plot.model"
local mgpu = require "mgpu"
local xml = require "xml"

local test = check.test
local L = mgpu.layers

local function plotted(model, given)
  local path = check.path "model.svg"
  model:plot(path, given)
  return xml(check.read(path))
end

-- The texts of an SVG in order, without title and style.
local function lines(root)
  local list = {}
  for i, element in ipairs(root:all "text") do list[i] = element.text end
  return list
end

local function has(list, wanted)
  for _, text in ipairs(list) do
    if text == wanted then return true end
  end
  check.fail(("no text %q among %s"):format(wanted, table.concat(list, "; ")))
end

test("a Sequential is a column of boxes with shapes and parameters", function()
  local root = plotted(mgpu.Sequential { name = "net", L.Input { 28, 28, 1 }, L.Conv2D { 8, 3, name = "conv" },
    L.BatchNormalization { name = "norm" }, L.Flatten { name = "flat" }, L.Dense { 10, name = "<out>" } })
  local list = lines(root)
  check.equal(list, { "net", "54,202 parameters, 54,186 trainable", "input", "(None, 28, 28, 1)", "conv (Conv2D)",
    "(None, 26, 26, 8)", "80 parameters", "norm (BatchNormalization)", "(None, 26, 26, 8)",
    "32 parameters, 16 of them trainable", "flat (Flatten)", "(None, 5408)", "<out> (Dense)", "(None, 10)",
    "54,090 parameters" })
  check.equal(#root:all("rect", "box"), 5)
  check.equal(#root:all("path", "edge"), 4)
  check.equal(#root:all("path", "head"), 4)
end)

test("branches, several inputs and outputs, shared and nested models", function()
  local tower = mgpu.Sequential { name = "tower", L.Input { 8 }, L.Dense { 4, name = "inner" } }
  local a, b = mgpu.Input { 8, name = "a" }, mgpu.Input { 8, name = "b" }
  local shared = L.Dense { 4, name = "shared" }
  local joined = L.Concatenate { name = "join" } { shared(tower(a)), shared(tower(b)), a }
  tower.trainable = false
  local model = mgpu.Model { inputs = { a, b }, outputs = { L.Dense { 1, name = "score" } (joined), joined } }
  local root = plotted(model)
  local list = lines(root)
  for _, text in ipairs { "a (Input)", "b (Input)", "tower (Sequential)", "inner (Dense)", "36 parameters, frozen",
    "shared (Dense)", "shared, use 2", "join (Concatenate)", "(None, 16)", "score (Dense)" } do has(list, text) end
  check.equal(#root:all("rect", "group"), 1)
  check.equal(#root:all("rect", "box"), 2 + 2 + 1 + 2 + 1 + 1) -- inputs, in tower, its use 2, shared, join, score
  check.equal(#root:all("path", "edge"), 1 + 2 + 2 + 3 + 1)
  root = plotted(model, { nested = false, title = "flat" })
  check.equal(#root:all("rect", "group"), 0)
  check.equal(lines(root)[1], "flat")
end)

test("boxes do not overlap, and edges over several rows keep clear of them", function()
  mgpu.seed(5)
  local random = mgpu.rand { 40, 60 }:totable()
  for _, numbers in ipairs(random) do
    local nodes, edges = {}, {}
    for i = 1, 20 do
      nodes[i] = { width = 60 + 100 * numbers[i], height = 30 + 60 * numbers[20 + i] }
      if i > 1 then edges[#edges + 1] = { nodes[1 + math.floor(numbers[40 + i] * (i - 1))], nodes[i] } end
      if i > 4 then edges[#edges + 1] = { nodes[1 + math.floor(numbers[i] * (i - 2))], nodes[i] } end
    end
    local width, height = layout.arrange(nodes, edges)
    local boxes = { unpack(nodes) }
    for _, edge in ipairs(edges) do
      check.truthy(edge[1].row_bottom < edge[2].row_top, "edges go down")
      for i = 2, #edge.way - 1 do boxes[#boxes + 1] = edge.way[i] end
    end
    for i, p in ipairs(boxes) do
      check.truthy(p.x - p.width / 2 >= -1e-6 and p.x + p.width / 2 <= width + 1e-6, "within the picture")
      check.truthy(p.y - p.height / 2 >= -1e-6 and p.y + p.height / 2 <= height + 1e-6, "within the picture")
      for k = 1, i - 1 do
        local q = boxes[k]
        check.truthy(p.row ~= q.row or math.abs(p.x - q.x) >= (p.width + q.width) / 2 + 27, "apart")
      end
    end
  end
end)

test("a model between two tensors of another one begins with an input", function()
  local a = mgpu.Input { 3 }
  local b = L.Dense { 4, name = "before" } (a)
  local list = lines(plotted(mgpu.Model { inputs = b, outputs = L.Dense { 1, name = "after" } (b), name = "part" }))
  check.equal(list, { "part", "5 parameters, 5 trainable", "input", "(None, 4)", "after (Dense)", "(None, 1)",
    "5 parameters" })
end)

test("models that are not built, deep ones, and long names", function()
  local list = lines(plotted(mgpu.Sequential { L.Dense { 3, name = "d" } }))
  check.equal(list[2], "not built yet")
  check.equal({ unpack(list, 3) }, { "input", "?", "d (Dense)", "?", "not built yet" })
  local deep = mgpu.Sequential { L.Input { 2 } }
  for i = 1, 150 do deep:add(L.ReLU { name = ("x"):rep(60) .. i }) end
  local root = plotted(deep)
  check.equal(#root:all("rect", "box"), 151)
  check.truthy(tonumber(root.attributes.width) < 420)
end)

test("wrong calls are refused", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }
  check.raises(function() model:plot(check.path "x.pdf") end, "must end in .svg", "usage")
  check.raises(function() model:plot(check.path "x.svg", { nest = true }) end, 'unknown option "nest"', "usage")
  check.raises(function() model.plot(check.path "x.svg") end, "model:plot", "usage")
  check.raises(function() mgpu.Sequential {}:plot(check.path "x.svg") end, "no layers", "usage")
  check.raises(function() model:plot(check.path "none/x.svg") end, "model:plot: cannot write to the folder .*/none",
    "io")
end)
