-- The library works from a stock luajit, from an installed prefix, and from another working directory.

local check = require "check"
local test = check.test

local TRAIN = [[
local mgpu = require "mgpu"
local L = mgpu.layers
local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 1 } }
model:compile { optimizer = "sgd", loss = "mean_squared_error" }
local h = model:fit(mgpu.ones { 8, 3 }, mgpu.ones { 8, 1 }, { epochs = 30, verbose = 0 })
assert(h.history.loss[30] < h.history.loss[1])
assert(mgpu.models.mlp)
print "trained"
]]

local function train_script()
  local path = check.path "train.lua"
  check.write(path, TRAIN)
  return path
end

-- The folder of the program, which holds the build under test.
local build = check.program:match "^(%S*)/mgpulua" or "build"

test("a stock luajit requires mgpu and trains", function()
  check.needs("/usr/bin/luajit")
  if os.getenv "MGPU_MALLOC" then check.skip "a sanitizer's library wants its program" end
  check.equal(check.run(("LUA_PATH='lua/?.lua;lua/?/init.lua;;' LUA_CPATH='%s/?.so;;' "
    .. "/usr/bin/luajit %s"):format(build, train_script())), "trained\n")
end)

-- Each module of TRY must be the table that mgpu has, and require alone must find it.
local ALIASES = [[
for _, name in ipairs { "layers", "optimizers", "losses", "metrics", "callbacks", "datasets", "data", "parallel",
  "schedules", "initializers", "regularizers", "activations", "mixed_precision", "explain" } do
  local short = require("mgpu." .. name)
  assert(short == require "mgpu"[name], name)
end
for name, class in pairs { layer = "Layer", model = "Model", sequential = "Sequential" } do
  assert(require("mgpu." .. name) == require "mgpu"[class], name)
end
assert(require "mgpu.layers.conv2d" == require "mgpu".layers.Conv2D)
local ok, message = pcall(require, "mgpu.no_such_module")
assert(not ok and message:find "mgpu.no_such_module' not found")
print "found"
]]

test("short module names are found, before and after require mgpu", function()
  local path = check.path "aliases.lua"
  check.write(path, ALIASES)
  check.equal(check.run(("%s %s"):format(check.program, path)), "found\n")
  check.needs("/usr/bin/luajit")
  if os.getenv "MGPU_MALLOC" then check.skip "a sanitizer's library wants its program" end
  check.equal(check.run(("LUA_PATH='lua/?.lua;lua/?/init.lua;;' LUA_CPATH='%s/?.so;;' "
    .. "/usr/bin/luajit -lmgpu %s"):format(build, path)), "found\n")
end)

test("the build tree works from another working directory", function()
  local path, here = train_script(), check.run("pwd"):gsub("\n", "")
  check.equal(check.run(("cd / && %s/%s/mgpulua %s"):format(here, build, path)), "trained\n")
end)

test("an installed prefix works and make uninstall removes it", function()
  check.slow()
  if build ~= "build" then check.skip "not the release build" end
  local root = check.path "root"
  local text, status = check.run(("MAKEFLAGS= make install PREFIX=/opt/x DESTDIR=%s"):format(root))
  if status ~= 0 then check.fail(text) end
  check.equal(check.run(("cd / && %s/opt/x/bin/mgpulua %s"):format(root, train_script())),
    "trained\n")
  for _, path in ipairs { "man/man1/mgpulua.1", "bash-completion/completions/mgpulua",
    "zsh/site-functions/_mgpulua" } do
    check.truthy(#check.read(("%s/opt/x/share/%s"):format(root, path)) > 0, path)
  end
  check.run(("MAKEFLAGS= make uninstall PREFIX=/opt/x DESTDIR=%s"):format(root))
  check.equal(check.run(("find %s -type f"):format(root)), "")
end)

-- The options of --help, as a set.
local function options()
  local set = {}
  for line in check.run(check.program .. " --help"):gmatch "[^\n]+" do
    local names = line:match "^  (%-.-)  " or line:match "^  (%-%S+)"
    for name in (names or ""):gmatch "%-%-?%w[%w-]*" do set[name] = true end
  end
  return set
end

test("the man page and the completions of bash and zsh know every option, and no other", function()
  local known = options()
  check.truthy(known["-e"] and known["--doctor"] and known["--version"], "the options were found")
  for _, path in ipairs { "share/mgpulua.1", "share/mgpulua.bash", "share/_mgpulua" } do
    local text = check.read(path):gsub("\\%-", "-")
    for name in pairs(known) do
      check.truthy(text:find("%f[%w-]" .. name:gsub("%-", "%%-") .. "%f[^%w-]"), path .. " lacks " .. name)
    end
    for name in text:gmatch "%f[%w-]%-%-%w[%w-]+" do check.truthy(known[name], path .. " has " .. name) end
  end
end)

test("bash completes options, their values and scripts", function()
  check.needs "/bin/bash"
  local function completed(...)
    local words = { ... }
    local command = ("source share/mgpulua.bash; compopt() { :; }; COMP_WORDS=(mgpulua %s); COMP_CWORD=%d; "
      .. "_mgpulua %s; echo \"${COMPREPLY[*]}\""):format(table.concat(words, " "), #words, check.program)
    return (check.run("bash -c '" .. command:gsub("'", "'\\''") .. "'"):gsub("%s+$", ""))
  end
  check.equal(completed "--do", "--doctor")
  check.equal(completed("--verify", "exam"), "examples")
  check.matches(completed("--devices", "re"), "ref:0")
  check.matches(completed "examples/train_mn", "examples/train_mnist.lua")
  check.equal(completed("a.lua", "--do"), "")
end)

test("the man page is well-formed", function()
  if check.run "command -v groff" == "" then check.skip "groff is not installed" end
  check.equal(check.run "groff -man -ww -Tutf8 share/mgpulua.1 2>&1 >/dev/null", "")
end)
