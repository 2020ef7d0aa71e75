-- The check behind `make lint` that public functions have docstrings (tests/docstrings.lua).

local check = require "check"
local docstrings = require "docstrings"
local test = check.test

local planted = 0

-- What the check finds in the table that a Lua file with this text returns.
local function found_in(text)
  planted = planted + 1
  local path, found = check.path(("planted%d.lua"):format(planted)), {}
  check.write(path, text)
  docstrings.check_table(found, "planted", assert(loadfile(path))())
  return found
end

test("a function without a comment, or with a plain one, is found", function()
  local found = found_in("local M = {}\n\nfunction M.bare(x) return x end\n\n-- Not enough.\n"
    .. "function M.plain() end\n\nreturn M\n")
  table.sort(found)
  check.equal(#found, 2)
  check.matches(found[1], "planted1.lua:3: planted.bare has no docstring")
  check.matches(found[2], "planted1.lua:6: planted.plain has no docstring")
end)

test("a docstring of several lines is enough, and what is private needs none", function()
  check.equal(found_in("local M = {}\n--- documented(x) -> x.\n-- More of it.\nfunction M.documented(x) return x end\n"
    .. "function M._private() end\nreturn M\n"), {})
end)

test("a method that overrides a documented one needs no docstring", function()
  check.equal(found_in("local Base = {}\n--- call(x) -> y.\nfunction Base.call() end\n"
    .. "local Class = setmetatable({}, { __index = Base })\nfunction Class.call() end\nreturn Class\n"), {})
end)

test("everything that mgpu offers has a docstring", function()
  check.equal(docstrings.check_all(), {})
end)

test("the layer that lua/README.md shows works, and is saved and loaded", function()
  local mgpu, core = require "mgpu", require "mgpu.core"
  local readme = io.open(core.root .. "/lua/README.md"):read "*a"
  local code = readme:match("\n(    %-%-%- Scale {.-\n    return Scale\n)"):gsub("\n    ", "\n")
  local Scale = assert(loadstring(code))()
  local model = mgpu.Sequential { mgpu.Input { 3 }, Scale { 2 }, mgpu.layers.Dense { 1 } }
  check.equal(model.layers[1](mgpu.ones { 1, 3 }):totable(), { { 2, 2, 2 } })
  model:compile { loss = "mse" }
  model:fit(mgpu.ones { 8, 3 }, mgpu.ones { 8, 1 }, { verbose = 0 })
  local path = check.path "scale.safetensors"
  model:save(path)
  local again = mgpu.load_model(path, { custom = { Scale = Scale } })
  check.equal(again:predict(mgpu.ones { 2, 3 }), model:predict(mgpu.ones { 2, 3 }))
  check.raises(function() model.layers[1](mgpu.ones { 2, 4 }) end, "the layer was built for 3", "usage")
end)
