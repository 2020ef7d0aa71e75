-- The manual and the README: every Lua block runs, prints what the page says, and links lead somewhere.

local check = require "check"
local pages = require "pages"

local test = check.test

local PAGES = { "README.md" }
for path in io.popen("ls lua/manual/*.md"):lines() do table.insert(PAGES, path) end

local function has_code(page)
  for _, block in ipairs(page.blocks) do
    if block.kind == "lua" then return true end
  end
end

-- Runs the page's program in a folder of its own. It must succeed and print what the page says.
local function run(page)
  local name = page.path:match "([^/]+)$"
  local folder = check.path(name .. ".run")
  check.run("mkdir " .. folder)
  check.write(folder .. "/" .. name, pages.program(page))
  local output, status = check.run(("root=$PWD; cd %s && $root/%s --devices cpu:0-1,ref:0-1 %s"):format(folder,
    check.program:gsub("^'", ""):gsub("'$", ""), name))
  if status ~= 0 then check.fail(("%s: exit status %d\n%s"):format(page.path, status, output:sub(-2000))) end
  local faults = pages.faults(page, output)
  if faults[1] then check.fail(table.concat(faults, "\n")) end
end

for _, path in ipairs(PAGES) do
  local page = pages.read(path)
  if has_code(page) then
    test("the Lua blocks of " .. path .. " run and print what it says", function()
      check.needs "cpu"
      run(page)
    end)
  end
  test("the links of " .. path .. " lead to files and headings", function()
    check.equal(pages.broken_links(page), {})
  end)
end

test("the session that prompt.md shows is what the prompt prints", function()
  check.needs "cpu"
  local inputs, expected = {}, {}
  for line in check.read("lua/manual/prompt.md"):match "^(.-)\n## ":gmatch "\n    ([^\n]+)" do
    local typed = line:match "^> (.*)"
    if typed and not typed:find "<Tab>" then table.insert(inputs, typed) end
    if not typed then table.insert(expected, line) end
  end
  local path = check.path "inputs.lua"
  check.write(path, table.concat(inputs, "\n") .. "\n")
  local output = check.run(("%s --devices cpu:0 -i <%s"):format(check.program, path))
  check.matches(output, table.concat(expected, "\n"))
  check.equal(#inputs, 3)
end)

test("environment.md names every variable that the code reads", function()
  local page = check.read "lua/manual/environment.md"
  local reads = check.run [[grep -rhoE '(getenv|launch_variable|launch_number)[( ]*"[A-Z_]+"' runtime lua]]
  local count = 0
  for name in reads:gmatch '"([A-Z_]+)"' do
    check.truthy(page:find("`" .. name .. "`", 1, true), name)
    count = count + 1
  end
  check.truthy(count > 40, "the search finds the variables")
end)

test("the pages for other frameworks have every name of foreign_names.lua", function()
  local text = ""
  for _, name in ipairs { "keras", "torch7", "pytorch" } do
    text = text .. check.read(("lua/manual/from_%s.md"):format(name))
  end
  require "mgpu.foreign_names".each(function(_, name, ours)
    check.truthy(text:find(("| `%s` | %s |"):format(name, ours), 1, true), name)
  end)
end)

test("a wrong output, a failing block and a broken link are found", function()
  local path = check.path "wrong.md"
  check.write(path, "[gone](gone.md) [here](#here)\n\n```lua\nprint(1)\n```\n```text\n2\n```\n```lua\n"
    .. "print \"3 and 4\"\n"
    .. "```\n```text\n3 ... 4\n```\n")
  local page = pages.read(path)
  local output = check.run(("printf '%%s' '%s' | %s -"):format(pages.program(page), check.program))
  local faults = pages.faults(page, output)
  check.equal(#faults, 1)
  check.matches(faults[1], "wrong.md:7: expected\n2\nbut the block printed\n1")
  check.equal(#pages.broken_links(page), 2)
end)
