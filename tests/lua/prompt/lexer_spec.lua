-- The tokens of Lua, and what is made of them: locals that stay, and completion of anything.

local check = require "check"
local complete = require "mgpu.prompt.complete"
local core = require "mgpu.core"
local input = require "mgpu.prompt.input"
local lexer = require "mgpu.prompt.lexer"
local Session = require "mgpu.prompt.session"
local test = check.test

local function kinds(text)
  local list = {}
  for i, token in ipairs(lexer.tokens(text)) do
    list[i] = token.kind:sub(1, 2) .. (token.open and "!" or "") .. ":" .. token.text
  end
  return list
end

test("tokens are Lua's, and say whether they end", function()
  check.equal(kinds "local x=1.5e-3+0x1F ..'a\\'b'", { "ke:local", "na:x", "sy:=", "nu:1.5e-3", "sy:+", "nu:0x1F",
    "sy:..", "st:'a\\'b'" })
  check.equal(kinds "a[ [[x]] ]~=[=[]]]=]--c\nb", { "na:a", "sy:[", "st:[[x]]", "sy:]", "sy:~=", "st:[=[]]]=]",
    "co:--c", "na:b" })
  check.equal(kinds "'abc", { "st!:'abc" })
  check.equal(kinds "x = [==[ ]]", { "na:x", "sy:=", "st!:[==[ ]]" })
  check.equal(kinds "--[[ open", { "co!:--[[ open" })
  check.equal(kinds "'a\nb", { "st:'a", "na:b" })
  check.equal(kinds "a:b() ... :: \195\164", { "na:a", "sy::", "na:b", "sy:(", "sy:)", "sy:...", "sy:::",
    "na:\195\164" })
  check.equal(kinds "\"\\\nx\" 1LL 1i", { "st:\"\\\nx\"", "nu:1LL", "nu:1i" })
end)

-- All Lua files of the front end.
local function sources()
  local list = {}
  for path in check.run(("find '%s/lua/mgpu' -name '*.lua'"):format(core.root)):gmatch "[^\n]+" do
    list[path] = check.read(path)
  end
  return list
end

test("without the keyword local at the outermost level, all files are still Lua, with the same lines", function()
  local n = 0
  for path, text in pairs(sources()) do
    local rewritten, names = input.keep_locals(text)
    check.truthy(load(rewritten, "=" .. path), path)
    check.equal(select(2, rewritten:gsub("\n", "")), select(2, text:gsub("\n", "")), path)
    check.falsy(rewritten:find "^local " or rewritten:find "\nlocal ", path)
    n = n + #names
  end
  check.truthy(n > 500, n)
end)

test("completing at any place of any text raises nothing and runs nothing", function()
  local prompt = { session = Session.new(), terminal = { list = function() return { "file.lua", "folder/" } end } }
  local pieces = { "mgpu", ".", ":", "L", "Conv2D", "{", "}", "(", ")", "[", "]", "\"", "'", "[[", "--", "require", " ",
    "\n", "=", ",", "local", "function", "end", "1e", "0x", "..", "\\", "\255", "?", ":time ", "table", "insert", "%" }
  local state = 1
  local function random(n)
    state = (state * 1103515245 + 12345) % 2147483648
    return math.floor(state / 65536) % n + 1
  end
  for _ = 1, 5000 do
    local parts = {}
    for i = 1, random(12) do parts[i] = pieces[random(#pieces)] end
    local text = table.concat(parts)
    local ok, message = pcall(complete.line, prompt, text, random(#text + 1) - 1)
    check.truthy(ok, ("%q: %s"):format(text, tostring(message)))
    ok, message = pcall(input.compile, text, prompt.session)
    check.truthy(ok, ("%q: %s"):format(text, tostring(message)))
  end
end)
