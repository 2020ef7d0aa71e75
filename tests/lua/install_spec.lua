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
  if os.getenv "MGPU_MALLOC" then check.skip "a library built with a sanitizer needs a program built with it" end
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
assert(require "mgpu.data.npz" == require "mgpu".data.npz) -- in a file with others
local ok, message = pcall(require, "mgpu.no_such_module")
assert(not ok and message:find "mgpu.no_such_module' not found")
print "found"
]]

test("short module names are found, before and after require mgpu", function()
  local path = check.path "aliases.lua"
  check.write(path, ALIASES)
  check.equal(check.run(("%s %s"):format(check.program, path)), "found\n")
  check.needs("/usr/bin/luajit")
  if os.getenv "MGPU_MALLOC" then check.skip "a library built with a sanitizer needs a program built with it" end
  check.equal(check.run(("LUA_PATH='lua/?.lua;lua/?/init.lua;;' LUA_CPATH='%s/?.so;;' "
    .. "/usr/bin/luajit -lmgpu %s"):format(build, path)), "found\n")
end)

test("the build tree works from another working directory", function()
  local path, here = train_script(), check.run("pwd"):gsub("\n", "")
  check.equal(check.run(("cd / && %s/%s/mgpulua %s"):format(here, build, path)), "trained\n")
end)

-- Runs make with PREFIX and DESTDIR; the lock keeps it apart from packaging_spec's.
local function make(target, prefix, destdir)
  if build ~= "build" then check.skip "not the release build" end
  local command = "MAKEFLAGS= flock build make %s PREFIX=%s DESTDIR=%s"
  local text, status = check.run(command:format(target, prefix, destdir))
  if status ~= 0 then check.fail(text) end
end

-- The files and links below a folder, one a line.
local function tree(root) return check.run(("cd %s && find . ! -type d | sort"):format(root)) end

test("an installed prefix works and make uninstall removes it, and nothing else", function()
  check.slow()
  local root = check.path "root"
  check.run(("mkdir -p %s/opt/x/lib/pkgconfig %s/opt/x/include"):format(root, root))
  check.write(root .. "/opt/x/lib/pkgconfig/other.pc", "")
  check.write(root .. "/opt/x/include/other.h", "")
  local before = tree(root)
  make("install", "/opt/x", root)
  check.equal(check.run(("cd / && %s/opt/x/bin/mgpulua %s"):format(root, train_script())),
    "trained\n")
  for _, path in ipairs { "man/man1/mgpulua.1", "bash-completion/completions/mgpulua",
    "zsh/site-functions/_mgpulua" } do
    check.truthy(#check.read(("%s/opt/x/share/%s"):format(root, path)) > 0, path)
  end
  check.equal(check.run(("find %s -xtype l"):format(root)), "", "links that lead nowhere")
  check.matches(check.read(root .. "/opt/x/lib/pkgconfig/mgpu.pc"), "^prefix=/opt/x\n")
  make("uninstall", "/opt/x", root)
  check.equal(tree(root), before)
end)

local SAVE = [[
local mgpu = require "mgpu"
local L = mgpu.layers
mgpu.seed(7)
local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 8, activation = "tanh" },
  L.Dense { 2, activation = "softmax" } }
model:save(arg[1])
for _, number in ipairs(model:predict(mgpu.tensor { { 0.5, -1, 2 } }, { verbose = 0 }):totable()[1]) do
  print(("%.9g"):format(number))
end
]]

test("a C program finds the library with pkg-config, and predicts what mgpulua predicts", function()
  check.slow()
  if check.run "command -v pkg-config" == "" then check.skip "pkg-config is not installed" end
  local prefix, example = check.path "prefix", check.path "embed"
  make("install", prefix, "")
  local function pkg_config(arguments)
    return (check.run(("PKG_CONFIG_PATH=%s/lib/pkgconfig pkg-config %s"):format(prefix, arguments)):gsub("%s+$", ""))
  end
  check.equal(pkg_config "--modversion mgpu-lua", require("mgpu").version)
  check.equal(pkg_config "--cflags --libs mgpu", ("-I%s/include -L%s/lib -lmgpu"):format(prefix, prefix))
  local text, status = check.run(("cp -R examples/embed %s && cd %s && MAKEFLAGS= make CFLAGS=-Werror "
    .. "PKG_CONFIG_PATH=%s/lib/pkgconfig"):format(example, example, prefix))
  if status ~= 0 then check.fail(text) end
  local script, model = check.path "save.lua", check.path "model.safetensors"
  check.write(script, SAVE)
  local expected = check.run(("%s %s %s"):format(check.program, script, model))
  check.matches(expected, "^%d%S+\n%d%S+\n$")
  check.equal(check.run(("cd / && %s/predict %s 0.5 -1 2"):format(example, model)), expected)
  text, status = check.run(("%s/predict %s/missing.safetensors 1"):format(example, prefix))
  check.equal(status, 1)
  check.matches(text, "^predict: .*missing%.safetensors")
end)

test("luaopen_mgpu opens the module once, finds the Lua files, and says so when it cannot", function()
  check.needs "/usr/bin/luajit"
  if os.getenv "MGPU_MALLOC" then check.skip "a library built with a sanitizer needs a program built with it" end
  local script, bare = check.path "open.lua", check.path "bare"
  check.write(script, [[
    local open = assert(package.loadlib(arg[1] .. "/mgpu/core.so", "luaopen_mgpu"))
    package.preload.mgpu = open
    local mgpu = require "mgpu"
    local path = package.path
    assert(select("#", open()) == 1 and open() == mgpu and package.loaded.mgpu == mgpu and package.path == path)
    print(mgpu.ones { 2, 3 }:sum():item(), require "mgpu.layers" == mgpu.layers, require "mgpu.core".root)
  ]])
  local function luajit(environment, library)
    return (check.run(("cd / && %s luajit %s %s"):format(environment, script, library)))
  end
  local here = check.run("pwd"):gsub("\n", "")
  check.matches(luajit("", here .. "/" .. build), "^6\ttrue\t")
  check.run(("mkdir -p %s/lib/mgpu && cp %s/libmgpu.so.0 %s/lib && cp %s/mgpu/core.so %s/lib/mgpu")
    :format(bare, build, bare, build, bare))
  check.matches(luajit("", bare .. "/lib"), "luaopen_mgpu: the Lua files of mgpu were not found .* set MGPU_ROOT")
  check.equal(luajit("MGPU_ROOT=" .. here, bare .. "/lib"), "6\ttrue\t" .. here .. "\n")
end)

-- The names that a library exports at a version, sorted.
local function exported(library, version)
  local names = {}
  for name, at in check.run("readelf --dyn-syms -W " .. build .. "/" .. library):gmatch "(%S+)@@([%w_.]+)" do
    if at == version and name ~= version then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

test("libmgpu exports what mgpu.h declares as its interface, and all else as private", function()
  local declared, of_lua = {}, {}
  for name in check.read("runtime/mgpu.h"):gsub("/%*.-%*/", ""):gmatch "[%w_]+%f[(]" do
    if name:find "^mg_" then declared[#declared + 1] = name end
    if name:find "^luaopen_" then of_lua[#of_lua + 1] = name end
  end
  table.sort(declared)
  table.sort(of_lua)
  check.truthy(#declared > 20, "functions were found")
  check.equal(exported("libmgpu.so", "MGPU_0.1"), declared)
  check.equal(exported("libmgpu-lua.so", "MGPU_LUA_0.1"), of_lua)
  for _, name in ipairs(exported("libmgpu.so", "MGPU_PRIVATE")) do check.matches(name, "^mg_") end
  for _, library in ipairs { "libmgpu.so", "libmgpu-lua.so" } do
    local soname = check.run(("readelf -d %s/%s"):format(build, library)):match "soname: %[(.-)%]"
    check.equal(soname, library .. ".0")
    for line in check.run(("readelf --dyn-syms -W %s/%s"):format(build, library)):gmatch "[^\n]+" do
      check.truthy(line:find "UND" or not line:find "FUNC" or line:find "@@MGPU_", line)
    end
  end
end)
