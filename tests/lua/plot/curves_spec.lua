-- history:plot: the curves of a run as SVG.

local plot = require "mgpu.plot.history"
local check = require "check"
local core = require "mgpu.core"
local History = require "mgpu.train.callbacks.history"
local logs = require "mgpu.train.logs"
local mgpu = require "mgpu"
local svg = require "mgpu.plot.svg"
local xml = require "xml"

local test = check.test
local L = mgpu.layers

-- A history with these values; VALUES(i) gives the values of epoch i.
local function history_of(epochs, values)
  local h = History {}
  h:on_train_begin()
  for i = 1, epochs do
    local list = logs.new()
    for _, pair in ipairs(values(i)) do list[pair[1]] = pair[2] end
    h:on_epoch_end(i, list)
  end
  return h
end

local function plotted(h, given)
  local path = check.path "curves.svg"
  h:plot(path, given)
  return xml(check.read(path))
end

local function texts(root, class)
  local list = {}
  for i, element in ipairs(root:all("text", class)) do list[i] = element.text end
  return list
end

-- How many points the path goes through.
local function points(path) return select(2, path.attributes.d:gsub("[ML]", "")) end

-- The curves of a chart, without the lines of the legend.
local function curves(root)
  local list = {}
  for _, path in ipairs(root:all("path", "curve")) do
    if not path.attributes.d:find "h22$" then list[#list + 1] = path end
  end
  return list
end

test("a chart for each value, with training and validation in it", function()
  local root = plotted(history_of(12, function(i)
    return { { "loss", 1 / i }, { "accuracy", i / 20 }, { "val_loss", 2 / i }, { "val_accuracy", i / 30 },
      { "learning_rate", 0.01 } }
  end), { title = "a run" })
  check.equal(root.name, "svg")
  check.equal(root.attributes.xmlns, "http://www.w3.org/2000/svg")
  check.equal(texts(root, "title"), { "a run", "loss", "accuracy", "learning_rate" })
  local list = curves(root)
  check.equal(#list, 5)
  for _, path in ipairs(list) do check.equal(points(path), 12) end
  check.equal(#root:all("circle"), 60)
  check.equal(#root:all("path", "val"), 4) -- two curves, and their lines in the legends
  check.truthy(#root:all("text", "xtick") >= 3 * 5)
  check.matches(root.text, "prefers%-color%-scheme:dark")
end)

test("one epoch is a point, and 10,000 are thinned without losing the extremes", function()
  local root = plotted(history_of(1, function() return { { "loss", 0.5 } } end))
  check.equal(#root:all("circle"), 1)
  check.equal(texts(root, "xtick"), { "1" })
  root = plotted(history_of(2, function(i) return { { "loss", i } } end))
  check.equal(points(curves(root)[1]), 2)
  root = plotted(history_of(100, function(i) return { { "loss", i } } end))
  check.equal(points(curves(root)[1]), 100)
  check.equal(#root:all("circle"), 0)
  root = plotted(history_of(10000, function(i) return { { "loss", i == 5003 and 50 or i % 2 } } end))
  local path = curves(root)[1].attributes.d
  check.truthy(points(curves(root)[1]) <= 4 * 343)
  local top = 1e9
  for y in path:gmatch "[ML][%d.]+ ([%d.]+)" do top = math.min(top, tonumber(y)) end
  check.truthy(top < 70, "the spike is there") -- the chart begins at 56
  check.truthy(#path < 30000)
end)

test("values that are not finite leave gaps", function()
  local odd = { [3] = 0 / 0, [5] = math.huge, [7] = -math.huge }
  local root = plotted(history_of(9, function(i) return { { "loss", odd[i] or i } } end))
  local path = curves(root)[1]
  check.equal(points(path), 6)
  check.equal(select(2, path.attributes.d:gsub("M", "")), 4)
  check.falsy(path.attributes.d:find "nan" or path.attributes.d:find "inf")
  root = plotted(history_of(3, function() return { { "loss", 0 / 0 } } end))
  check.equal(#curves(root), 0)
end)

test("the scale is logarithmic where positive values span decades", function()
  local function ticks(values, given)
    local root = plotted(history_of(#values, function(i) return { { "loss", values[i] } } end), given)
    return texts(root, "ytick"), root.text:find("log scale", 1, true) ~= nil
  end
  local list, log = ticks { 100, 10, 1, 0.1, 0.01 }
  check.truthy(log)
  check.equal(list, { "0.01", "0.1", "1", "10", "100" })
  list, log = ticks { 1, 0.5, 0.2 }
  check.falsy(log)
  check.equal(list, { "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1.0" })
  check.falsy(select(2, ticks { 100, 10, 0 }))
  check.truthy(select(2, ticks({ 5, 1, -1 }, { scale = "log" })))
  check.falsy(select(2, ticks({ 100, 0.01 }, { scale = "linear" })))
end)

test("ticks are round, between the ends, and few", function()
  mgpu.seed(3)
  local random = mgpu.rand { 200, 2 }:totable()
  for _, pair in ipairs(random) do
    local size = 10 ^ (pair[1] * 40 - 20)
    for _, scale in ipairs { "linear", "log" } do
      local a = plot.values({ { size, size * (1 + 30 * pair[2]) } }, scale)
      check.truthy(#a.ticks >= 2 and #a.ticks <= 12, ("%s: %d ticks"):format(scale, #a.ticks))
      local seen = {}
      for i, label in ipairs(a.labels) do
        check.falsy(seen[label], label)
        seen[label] = true
        check.near(tonumber(label), a.ticks[i], 1e-9)
        check.truthy(#label <= 10, label)
      end
    end
  end
  for _, extreme in ipairs { { 0, 0 }, { 7e307, -8e307 }, { 1e-300, 8e307 }, { 1e-320, 0 }, { 7, 7 } } do
    local a = plot.values { extreme }
    for _, x in ipairs(extreme) do
      local place = plot.position(a, x)
      check.truthy(place and place >= -0.01 and place <= 1.01, tostring(x))
    end
  end
end)

test("epochs without validation have no point", function()
  mgpu.seed(1)
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }
  model:compile { loss = "mse" }
  local x, y = mgpu.rand { 8, 2 }, mgpu.rand { 8, 1 }
  local h = model:fit(x, y, { epochs = 5, validation_data = { x, y }, validation_freq = 2, verbose = 0 })
  check.equal(h.epochs_of.val_loss, { 2, 4 })
  check.equal(#h.seconds, 5)
  local list = curves(plotted(h))
  check.equal(points(list[1]), 5)
  check.equal(points(list[2]), 2)
  local first = tonumber(list[1].attributes.d:match "L([%d.]+)") -- epoch 2
  check.near(tonumber(list[2].attributes.d:match "M([%d.]+)"), first, 1e-9)
end)

test("metrics chooses values, and text is escaped", function()
  local h = history_of(3, function(i)
    return { { "loss", i }, { "accuracy", i }, { "val_accuracy", i }, { "<b>&\"'\1\255", i } }
  end)
  check.equal(texts(plotted(h, { metrics = { "accuracy" } }), "title"), { "accuracy" })
  check.equal(#curves(plotted(h, { metrics = "acc" })), 2)
  check.equal(#curves(plotted(h, { metrics = { "val_accuracy" } })), 1)
  check.equal(texts(plotted(h), "title")[3], "<b>&\"'??")
  for most = 8, 9 do check.equal(svg.shortened(("é"):rep(40), most), "éé…") end
  check.equal(svg.escape "été 数 \240\159\152\128", "été 数 \240\159\152\128")
end)

test("wrong calls are refused, and the old file stays", function()
  local h = history_of(2, function(i) return { { "loss", i }, { "list", {} } } end)
  local path = check.path "x.svg"
  local function refused(expected, code, ...)
    local given = { ... }
    check.raises(function() h:plot(unpack(given, 1, 2)) end, expected, code)
  end
  refused("must end in .svg", "usage", check.path "x.png")
  refused("must be text", "usage")
  refused("options are a table", "usage", path, "loss")
  refused('unknown option "metric"', "usage", path, { metric = "loss" })
  refused('no value is called "los" (did you mean "loss"?); there are', "usage", path, { metrics = "los" })
  refused("no value is a number", "usage", path, { metrics = "list" })
  refused("none", "io", check.path "none/x.svg")
  check.raises(function() history_of(0):plot(path) end, "has no epoch", "usage")
  check.falsy(core.file_exists(path))
  check.write(path, "old")
  for _, fault in ipairs { "EIO", "ENOSPC", "short" } do
    for at = 1, 30 do
      core.file_fault { at = at, error = fault }
      local ok = pcall(h.plot, h, path)
      if not core.file_fault() then break end
      if not ok and check.read(path) ~= "old" then xml(check.read(path)) end
    end
  end
  os.remove(path)
end)
