-- The man page, and what bash and zsh complete.

local check = require "check"
local test = check.test

local SHARE = "runtime/program/share/"

-- The options of --help, of `before` if that is given, as a set.
local function options(before)
  local set = {}
  for line in check.run(("%s %s --help"):format(check.program, before or "")):gmatch "[^\n]+" do
    local names = line:match "^  (%-.-)  " or line:match "^  (%-%S+)"
    for name in (names or ""):gmatch "%-%-?%w[%w_-]*" do set[name] = true end
  end
  return set
end

test("the man page and the completions of bash and zsh know every option, and no other", function()
  local known, of_pack = options(), options "--pack"
  check.truthy(known["-e"] and known["--doctor"] and known["--version"], "the options were found")
  for _, path in ipairs { SHARE .. "mgpulua.1", SHARE .. "mgpulua.bash", SHARE .. "_mgpulua" } do
    local text = check.read(path):gsub("\\%-", "-")
    for name in pairs(known) do
      check.truthy(text:find("%f[%w-]" .. name:gsub("%-", "%%-") .. "%f[^%w-]"), path .. " lacks " .. name)
    end
    for name in text:gmatch "%f[%w-]%-%-%w[%w_-]+" do
      check.truthy(known[name] or of_pack[name], path .. " has " .. name)
    end
  end
end)

test("bash completes options, their values and scripts", function()
  check.needs "/bin/bash"
  local function completed(...)
    local words = { ... }
    local command = ("source " .. SHARE .. "mgpulua.bash; compopt() { :; }; COMP_WORDS=(mgpulua %s); COMP_CWORD=%d; "
      .. "_mgpulua %s; echo \"${COMPREPLY[*]}\""):format(table.concat(words, " "), #words, check.program)
    return (check.run("bash -c '" .. command:gsub("'", "'\\''") .. "'"):gsub("%s+$", ""))
  end
  check.equal(completed "--do", "--doctor")
  check.equal(completed("--verify", "exam"), "examples")
  check.matches(completed("--devices", "re"), "ref:0")
  check.matches(completed "examples/train_mn", "examples/train_mnist.lua")
  check.equal(completed("a.lua", "--do"), "")
  check.equal(completed("--pack", "a.lua", "--mod"), "--model --module")
end)

test("zsh completes options, their values and scripts", function()
  if check.run "command -v zsh" == "" then check.skip "zsh is not installed" end
  local root = check.run("pwd"):gsub("%s+$", "")
  local function completed(line)
    local program = check.program:gsub("^'", ""):gsub("'$", "")
    local output = check.run(("zsh -f tests/lua/complete.zsh %s/%s %s/%s '%s'"):format(root, SHARE, root,
      program:match "^(.*)/", line))
    return (output:gsub("\27%[[%d;?]*%a", ""):gsub("%s+", " "))
  end
  check.matches(completed "mgpulua --do", "mgpulua --doctor ")
  check.matches(completed "mgpulua --verify exam", "mgpulua --verify examples/")
  check.matches(completed "mgpulua --devices ", "ref:0")
  check.matches(completed "mgpulua examples/train_mn", "mgpulua examples/train_mnist.lua ")
  check.matches(completed "mgpulua examples/train_mnist.lua READ", "README.md")
end)

test("the man page is well-formed", function()
  if check.run "command -v groff" == "" then check.skip "groff is not installed" end
  check.equal(check.run ("groff -man -ww -Tutf8 " .. SHARE .. "mgpulua.1 2>&1 >/dev/null"), "")
end)
