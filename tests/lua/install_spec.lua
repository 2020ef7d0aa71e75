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
  check.run(("MAKEFLAGS= make uninstall PREFIX=/opt/x DESTDIR=%s"):format(root))
  check.equal(check.run(("find %s -type f"):format(root)), "")
end)
