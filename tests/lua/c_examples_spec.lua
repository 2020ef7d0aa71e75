-- The examples of runtime/mgpu.h: each function has one, it compiles, and it prints what it states behind "-->".
--
-- An example is the code between \code and \endcode. Functions at its beginning stand outside of main. Where it uses
-- the tensor x without making it, it follows the example of mg_tensor_from_host.

local check = require "check"
local expected = require "reference_examples".expected
local pages = require "pages"

local test = check.test

local INCLUDES = "#include <lauxlib.h>\n#include <lualib.h>\n#include <mgpu.h>\n#include <signal.h>\n"
  .. "#include <stdio.h>\n#include <string.h>\n"

-- The functions that the header declares, as {name, comment} in its order.
local function declared(text)
  local list = {}
  for comment, declaration in text:gmatch "/%*(.-)%*/\n([%w_ *]+%b();?)" do
    comment = comment:match ".*/%*(.*)$" or comment
    local name = declaration:match "([%w_]+)%(" or ""
    if declaration:find ";$" and (name:find "^mg_" or name:find "^luaopen_") then
      table.insert(list, { name = name, comment = comment })
    end
  end
  return list
end

-- The code of the comment's example, or nil.
local function code_of(comment)
  local code = comment:match "\n %* \\code\n(.-)\n %* \\endcode"
  return code and (("\n" .. code):gsub("\n %* ?", "\n"):sub(2))
end

-- A function `example_NAME` of C that runs the example, after the code that makes x if it needs that.
local function as_function(name, code, make_x)
  local outside, body = code:match "^(static .-\n}\n)(.*)$"
  if not outside then outside, body = "", code end
  local uses_x = body:find "%f[%w_]x%f[^%w_]" and not body:find "mg_tensor %*x ="
  local makes_x = uses_x or body:find "mg_tensor %*x ="
  if uses_x then body = make_x .. "\n{\n" .. body .. "\n}" end
  return ("%sstatic void example_%s(void) {\n%s\n%s\n}\n"):format(outside, name, body,
    makes_x and "mg_tensor_release(x);" or "")
end

-- The program that runs the example whose name is its argument.
local function program_of(examples)
  local texts, calls = { INCLUDES }, {}
  for _, example in ipairs(examples) do
    table.insert(texts, as_function(example.name, example.code, examples.mg_tensor_from_host))
    table.insert(calls, ("    if (strcmp(argv[1], \"%s\") == 0) example_%s();\n"):format(example.name, example.name))
  end
  table.insert(texts, "int main(int argc, char **argv) {\n    if (argc != 2) return 2;\n" .. table.concat(calls)
    .. "    return 0;\n}\n")
  return table.concat(texts, "\n")
end

local function read_examples()
  local examples = {}
  for _, entry in ipairs(declared(check.read "runtime/mgpu.h")) do
    local code = code_of(entry.comment)
    if not code then check.fail("runtime/mgpu.h: " .. entry.name .. " has no example") end
    examples[entry.name] = code
    table.insert(examples, { name = entry.name, code = code })
  end
  return examples
end

test("each function of mgpu.h has an example that compiles and prints what it states", function()
  check.needs "cpu"
  if os.getenv "MGPU_MALLOC" then check.skip "a library built with a sanitizer needs a program built with it" end
  local compiler = check.run("command -v cc gcc clang | head -n 1"):match "%S+"
  if not compiler then check.skip "there is no C compiler" end
  local lua, found = check.run "pkg-config --cflags --libs luajit"
  if found ~= 0 then check.skip "pkg-config does not find luajit" end
  local examples = read_examples()
  check.truthy(#examples > 25, "the functions are found")
  local path, build = check.path "examples.c", check.program:match "^(.*)/"
  check.write(path, program_of(examples))
  local text, status = check.run(("%s -std=gnu11 -Wall -Werror -Iruntime -o %s.out %s %s -L%s -lmgpu-lua -lmgpu "
    .. "-Wl,-rpath,$(realpath %s) 2>&1"):format(compiler, path, path, lua:gsub("%s+", " "), build, build))
  if status ~= 0 then check.fail(text) end
  for _, example in ipairs(examples) do
    text, status = check.run(("%s.out %s 2>&1"):format(path, example.name))
    check.equal(status, 0, example.name .. " ends")
    local states = expected((example.code:gsub("// %-%->", "-->"))) or ""
    if not pages.fits(text, states) then
      check.fail(("%s: its example states\n%s\nbut prints\n%s"):format(example.name, states, text))
    end
  end
end)
