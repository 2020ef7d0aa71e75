-- examples/packaging: the rock builds, works in a plain luajit, and is removed without a trace.

local check = require "check"
local test = check.test

local ROCKSPEC = "examples/packaging/mgpulua-0.1.0-1.rockspec"

local function run(command)
  local text, status = check.run(command)
  if status ~= 0 then check.fail(command .. "\n" .. text) end
  return text
end

test("luarocks makes a rock, and luajit finds mgpu in it", function()
  check.slow()
  if check.run "command -v luarocks" == "" then check.skip "luarocks is not installed" end
  check.needs "/usr/bin/luajit"
  if check.program:match "^(%S*)/mgpulua" ~= "build" then check.skip "not the release build" end
  local rocks, script = check.path "rocks", check.path "train.lua"
  -- A home of its own: LuaRocks keeps settings and caches there. MAKEFLAGS: no targets of this run.
  local luarocks = ("HOME=%s MAKEFLAGS= luarocks --lua-version 5.1 --tree %s "):format(check.path "home", rocks)
  run(luarocks .. "make " .. ROCKSPEC)
  check.write(script, [[
    local mgpu = require "mgpu"
    local model = mgpu.Sequential { mgpu.layers.Input { 3 }, mgpu.layers.Dense { 1 } }
    model:compile { optimizer = "sgd", loss = "mean_squared_error" }
    local h = model:fit(mgpu.ones { 8, 3 }, mgpu.ones { 8, 1 }, { epochs = 30, verbose = 0 })
    assert(h.history.loss[30] < h.history.loss[1])
    print(require "mgpu.core".root, mgpu.models.mlp ~= nil)
  ]])
  local printed = run(("cd / && LUA_PATH='%s/share/lua/5.1/?.lua' LUA_CPATH= luajit %s"):format(rocks, script))
  check.equal(printed:sub(1, #rocks), rocks)
  check.matches(printed, "\ttrue\n$")
  if check.run "command -v lua5.1" ~= "" then
    check.matches(check.run(("LUA_PATH='%s/share/lua/5.1/?.lua' lua5.1 %s"):format(rocks, script)), "is for LuaJIT")
  end
  run(luarocks .. "remove mgpulua")
  check.equal(run(("find %s -type f ! -name 'manifest*'"):format(rocks)), "")
end)

test("the rock has the version of the library", function()
  local spec = {}
  setfenv(assert(loadfile(ROCKSPEC)), spec)()
  check.equal(spec.version, require("mgpu").version .. "-1")
  check.truthy(ROCKSPEC:find(spec.package .. "-" .. spec.version .. ".rockspec", 1, true), "named after its version")
end)
