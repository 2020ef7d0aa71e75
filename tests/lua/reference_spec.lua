-- The reference: every public name is on a page, with its documentation.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test

test("the reference is written without warnings and has every class", function()
  local folder = check.path "reference"
  check.run("mkdir " .. folder)
  local output, status = check.run(("%s tests/reference.lua %s"):format(check.program, folder))
  check.equal(output, "")
  check.equal(status, 0)
  for _, name in ipairs { "layers", "losses", "metrics", "optimizers", "schedules", "callbacks", "datasets", "data" } do
    local page = check.read(("%s/%s.html"):format(folder, name))
    for class in pairs(getmetatable(mgpu[name]).files) do
      check.truthy(page:find('<h2 id="[^"]*%f[%w_]' .. class .. "%f[^%w_]"), name .. "." .. class)
    end
  end
  check.matches(check.read(folder .. "/layers.html"), "pool_size")
  check.matches(check.read(folder .. "/ops.html"), '<h2 id="matmul">')
  check.matches(check.read(folder .. "/tensors.html"), '<h2 id="t:item">')
end)

test("a docstring is found by each name that it explains, and its example is its last paragraph", function()
  local docstrings = require "mgpu.prompt.docstrings"
  local path = check.path "named.lua"
  check.write(path, "--- Base: the base.\n-- More.\n-- Example:\n--     f(1)  --> 2\n--\n--     g()\n\n"
    .. "--- Error {name =}, also error_rate,\n--- wrong and bad: e.\nx = 1\n--- file.read(path) -> it.\n")
  local lines = docstrings.lines_of(path)
  local code, before = docstrings.example(docstrings.named(lines, "Base"))
  check.equal({ code, before }, { "f(1)  --> 2\n\ng()", "Base: the base.\nMore." })
  check.equal(docstrings.named(lines, "base"), docstrings.named(lines, "Base"))
  for _, name in ipairs { "Error", "error_rate", "wrong", "bad" } do
    check.matches(docstrings.named(lines, name), "^Error")
  end
  check.equal(docstrings.named(lines, "e"), nil)
  check.matches(docstrings.named(lines, "file"), "^file.read")
  check.equal(docstrings.example "Text.\nExample:\n    f()\nMore.", nil)
end)

test("a class without a docstring, and a name without an example, is a warning", function()
  local folder = check.path "undocumented"
  check.run("mkdir " .. folder)
  check.write(folder .. "/bare.lua", "return {}\n")
  check.write(folder .. "/run.lua", ([[
    package.path = %q .. package.path
    arg = { [0] = "tests/reference.lua", %q }
    getmetatable(require "mgpu".schedules).files.Bare = "bare"
    package.preload["mgpu.nn.schedules.bare"] = function() return {} end
    local path = package.searchpath
    function package.searchpath(name, ...)
      return name:find "bare$" and %q or path(name, ...)
    end
    dofile "tests/reference.lua"]]):format(folder .. "/?.lua;", folder, folder .. "/bare.lua"))
  local output, status = check.run(("%s %s/run.lua"):format(check.program, folder))
  check.matches(output, "bare.lua: no docstring begins with Bare or says")
  check.matches(output, "mgpu.schedules: Bare has no example")
  check.equal(status, 1)
end)
