-- Text from files and users never carries control characters to a terminal: names of layers and models, of files and
-- columns, in everything that is printed.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local L, test = mgpu.layers, check.test

-- What a terminal could obey: it changes colors, the title, clears the screen (C1 as UTF-8, too), turns text around.
local EVIL = "\27[31mred\27]0;title\7\r\8\127\194\155" .. "2J\226\128\174back"
local SHOWN = "\\27[31mred\\27]0;title\\7\\13\\8\\127\\u{9B}2J\\u{202E}back"

local function printed(fn)
  local kept, output = {}, mgpu.output
  mgpu.output = function(text) kept[#kept + 1] = text end
  local ok, message = pcall(fn)
  mgpu.output = output
  if not ok then error(message, 0) end
  return table.concat(kept)
end

-- Fails unless the text shows the evil name and nothing of it is raw. `allowed`: a pattern of what may be there.
local function check_shown(what, text, allowed)
  if allowed then text = text:gsub(allowed, "") end
  if core.printable(text) ~= text then check.fail(what .. ": raw characters in " .. ("%q"):format(text)) end
  check.truthy(text:find(SHOWN, 1, true), what .. " shows the name, but is " .. text)
end

test("printable text does not change, and is not escaped twice", function()
  check.equal(core.printable "größe\n\t€ \\27", "größe\n\t€ \\27")
  check.equal(core.printable(EVIL), SHOWN)
  check.equal(core.printable(core.printable(EVIL)), SHOWN)
  check.equal(core.printable("a\nb\tc\0", true), "a\\nb\\tc\\0")
  check.equal(core.printable "\255\128x", "\\255\\128x")
end)

-- ---- models -------------------------------------------------------------------------------------

local function evil_model()
  local x = L.Input { 4, name = "in" }
  local y = L.Dense { 3, name = EVIL .. "\nnext line" } (x)
  return mgpu.Model { inputs = x, outputs = L.Dense { 2, name = "out" } (y), name = EVIL }
end

for _, ending in ipairs { "keras", "h5", "safetensors" } do
  test("the names in a ." .. ending .. " file are shown with their control characters visible", function()
    if ending ~= "safetensors" then check.needs "build/mgpu-h5" end
    local path = check.path("evil." .. ending)
    evil_model():save(path)
    local model = mgpu.load_model(path)
    local layer = model.layers[2]
    check.equal(layer.name, EVIL .. "\nnext line") -- the name itself stays
    check_shown("summary", printed(function() model:summary() end))
    check_shown("tostring", tostring(layer) .. tostring(model) .. tostring(model.output))
    check.equal(tostring(layer), 'Dense "' .. SHOWN .. '\\nnext line"')
    check_shown("show", printed(function() mgpu.show(model) end))
    check_shown("an error of the layer", check.raises(function() layer(mgpu.ones { 2, 3 }) end, "Dense"))
    check_shown("get_layer", check.raises(function() model:get_layer "nothing" end, "nothing"))
  end)
end

test("names of metrics and callbacks' sentences in the output of fit", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }
  model:compile { loss = "mse", metrics = { mgpu.metrics.MeanAbsoluteError { name = EVIL } } }
  local x, y = mgpu.rand { 8, 2 }, mgpu.rand { 8, 1 }
  local history
  for _, style in ipairs { "keras3", "keras2" } do
    check_shown("progress " .. style, printed(function()
      history = model:fit(x, y, { verbose = 2, style = style ~= "keras3" and style or nil, validation_data = { x, y },
        callbacks = { mgpu.callbacks.ModelCheckpoint { check.path "best.safetensors", monitor = "val_" .. EVIL,
          mode = "min", verbose = 1, save_best_only = true } } })
    end), "\27%[[%d;]*m")
  end
  check_shown("charts", printed(function() mgpu.show(history, { width = 200 }) end), "\27%[[%d;]*m")
  check_shown("logs", tostring(model:evaluate(x, y, { verbose = 0})))
  check_shown("tostring of a metric", tostring(mgpu.metrics.Mean { name = EVIL }))
  check_shown("explain", tostring(mgpu.explain(model, { batch_size = 4 })) .. SHOWN)
end)

-- ---- error messages -----------------------------------------------------------------------------

local function path_with(bytes, ending)
  local path = check.path("file" .. ending)
  check.write(path, bytes)
  return path
end

-- What is read, and a part of the error.
local ERRORS = {
  { "a CSV header", function()
    mgpu.data.csv(path_with(EVIL:gsub("\r", "") .. ",b\n1,2\n", ".csv"), { label = "c" })
  end },
  { "a key of JSON", function() mgpu.model_from_json(('{"class_name": "%s", "config": {}}'):format(
    (EVIL:gsub("%c", function(c) return ("\\u%04x"):format(c:byte()) end)))) end },
  { "a file's name", function() mgpu.load_model(check.path(EVIL .. ".h5")) end },
  { "an image's name", function() mgpu.image.load(check.path(EVIL .. ".png")) end },
  { "a zip entry", function()
    core.zip_write(check.path "a.zip", { { name = EVIL, bytes = "x" } })
    core.zip_read(check.path "a.zip"):read(EVIL .. EVIL)
  end },
  { "a tensor's name in safetensors", function()
    evil_model():save_weights(check.path "w.safetensors")
    local other = mgpu.Sequential { L.Input { 9 }, L.Dense { 9 } }
    other:load_weights(check.path "w.safetensors")
  end },
  { "a device", function() mgpu.ones({ 1 }, { device = EVIL }) end },
  { "an option", function() L.Dense { 3, activation = EVIL } end },
  { "a field", function() return mgpu[EVIL] end },
}

test("error messages show control characters of names", function()
  for _, row in ipairs(ERRORS) do
    local ok, message = pcall(row[2])
    if ok then check.fail(row[1] .. ": no error") end
    if core.printable(message) ~= message then check.fail(row[1] .. ": raw: " .. ("%q"):format(message)) end
    check.truthy(message:find("27[31mred", 1, true), row[1] .. " names it: " .. message)
  end
end)

-- ---- the program --------------------------------------------------------------------------------

test("what the program prints of an error, a log, --doctor and --verify is printable", function()
  local script = check.path "evil.lua"
  check.write(script, ("local mgpu, evil = require 'mgpu', %q\n"):format(EVIL) .. [[
    if arg[1] == "error" then error("the layer " .. evil) end
    if arg[1] == "table" then error(setmetatable({}, { __tostring = function() return evil end })) end
    local model = mgpu.Sequential { mgpu.layers.Input { 4 }, mgpu.layers.Dense { 3, name = evil } }
    model:compile { loss = "mse" }
    model:fit(mgpu.ones { 4, 4 }, mgpu.ones { 4, 3 }, { verbose = 0 })]])
  for _, words in ipairs { "error", "table" } do
    check_shown(words, (check.run(("%s %s %s"):format(check.program, script, words))))
  end
  check_shown("plans", (check.run(("MGPU_LOG=plan,dispatch %s %s"):format(check.program, script))) .. SHOWN)
  local folder = check.path "folder"
  check.run(("mkdir '%s'"):format(folder .. EVIL))
  check_shown("--verify", (check.run(("%s --verify '%s'"):format(check.program, folder .. EVIL))))
end)

test("the prompt shows values, keys and errors printably", function()
  check.write(check.path "input", ("evil = %q\nevil\n{ [evil] = evil }\nmgpu.layers.Dense { 1, name = evil }\n"
    .. "error(evil)\nmgpu[evil]\nprint(evil)\n"):format(EVIL))
  local text = check.run(("%s -i <%s"):format(check.program, check.path "input"))
  local before, after = text:match("^(.*)(" .. EVIL:gsub("%p", "%%%0") .. "\n)$") -- what print wrote is the user's
  check.truthy(before and after, "print writes the text as it is")
  check_shown("the prompt", before)
  local list = require "mgpu.prompt.listing".new("", true)
  list:add(EVIL .. "a")
  list:add(EVIL .. "b", nil, "")
  check_shown("completion", list:text(80))
end)

-- ---- pictures and pages -------------------------------------------------------------------------

test("names stay text in SVG and HTML", function()
  local MARKUP = "<script>alert(1)</script>]]>\"'&" .. EVIL
  local model = mgpu.Sequential { name = MARKUP, L.Input { 2 }, L.Dense { 1, name = MARKUP .. "d" } }
  model:compile { loss = "mse", metrics = { mgpu.metrics.MeanAbsoluteError { name = MARKUP } } }
  local x, y = mgpu.rand { 8, 2 }, mgpu.rand { 8, 1 }
  local history = model:fit(x, y, { verbose = 0, epochs = 2 })
  history:plot(check.path "h.svg")
  model:plot(check.path "m.svg")
  history:report(check.path "r.html", { title = MARKUP })
  for _, name in ipairs { "h.svg", "m.svg", "r.html" } do
    local text = check.read(check.path(name))
    check.truthy(text:find("&lt;script&gt;", 1, true), name .. " has the name")
    check.falsy(text:find("<script>alert", 1, true), name .. " has no element of the name")
    check.falsy(text:find("]]>", 1, true), name .. " has no end of a section of the name")
    check.falsy(text:find "[%z\1-\8\11\12\14-\31\127]", name .. " has control characters that XML forbids")
  end
end)
