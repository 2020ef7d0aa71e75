-- The reference: the example of every public name runs and prints what it states.

local check = require "check"
local examples = require "reference_examples"
local mgpu = require "mgpu"
local names = require "reference_names"

local test = check.test

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

test("an example that prints something else than it states fails", function()
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
