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
  check.matches(check.read(folder .. "/ops.html"), '<tr id="matmul">')
  check.matches(check.read(folder .. "/tensors.html"), '<h2 id="t:item">')
end)

test("a class without a docstring is a warning", function()
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
  check.matches(output, "bare.lua: no docstring begins with Bare")
  check.equal(status, 1)
end)
