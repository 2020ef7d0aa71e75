-- The reference: every public name is on a page, with its documentation, and its example prints what it states.

local check = require "check"
local examples = require "reference_examples"
local mgpu = require "mgpu"
local names = require "reference_names"

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

-- ---- examples ----

local PROCESSES = 3

-- All examples of the reference, written to a file that returns them.
local function write_examples(path)
  local lines, count = { "return {" }, 0
  for _, page in ipairs((names.collect())) do
    for _, entry in ipairs(page.entries) do
      if entry.example then
        table.insert(lines, ("{ name = %q, code = %q },"):format(page.file .. ": " .. entry.name, entry.example))
        count = count + 1
      end
    end
  end
  table.insert(lines, "}")
  check.write(path, table.concat(lines, "\n"))
  return count
end

-- One thread for each process: the examples are small.
test("every example of the reference runs and prints what it states", function()
  check.needs "cpu"
  local path, folder = check.path "examples.lua", check.path "run"
  check.run("mkdir " .. folder)
  check.truthy(write_examples(path) > 0, "there are examples")
  local commands = { "export OMP_NUM_THREADS=1" }
  for part = 1, PROCESSES do
    table.insert(commands, ("(%s --devices cpu:0-1 tests/reference_examples.lua %s %d/%d %s || touch %s/failed) &")
      :format(check.program, path, part, PROCESSES, folder, folder))
  end
  local output = check.run(table.concat(commands, "\n") .. "\nwait; ls " .. folder .. "/failed 2>/dev/null")
  if output ~= "" then check.fail(output) end
end)

local function fault_of(code) return examples.run({ name = "planted", code = code }, mgpu) end

test("an example that does not print what it states fails", function()
  check.falsy(fault_of "print(1, 2)  --> 1 2\nprint(mgpu.ones { 2 })\n--> tensor {2} ...\n--> {1, 1}")
  check.matches(fault_of "print(1)  --> 2", "planted: its example states\n2\nbut prints\n1")
  check.matches(fault_of "print(1)\nprint(2)  --> 2", "but prints\n1\n2")
  check.matches(fault_of "print(1)  --> 1\n--> 2", "but prints\n1")
end)

test("an example that raises or does not compile fails", function()
  check.matches(fault_of "mgpu.ones { -1 }", "^planted: .*traceback")
  check.matches(fault_of "print(", "planted")
end)

test("an example sees no globals of another one, and its settings end with it", function()
  check.falsy(fault_of "left_over = 1; mgpu.set_floatx 'float64'; mgpu.set_policy 'mixed_bfloat16'")
  check.falsy(fault_of "print(left_over, mgpu.ones({ 1 }):dtype(), mgpu.policy().name)  --> nil float32 float32")
end)
