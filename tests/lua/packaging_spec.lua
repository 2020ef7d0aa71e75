-- examples/packaging: the rock builds, works in a plain luajit, and is removed without a trace. examples/docker: what
-- the image runs, runs.

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
  local home, rocks, script = check.path "home", check.path "rocks", check.path "train.lua"
  -- A home of its own: LuaRocks keeps settings and caches there. The lock keeps its make apart from install_spec's.
  local luarocks = ("HOME=%s MAKEFLAGS= flock build luarocks --lua-version 5.1 --tree %s "):format(home, rocks)
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

-- ---- the Dockerfile -------------------------------------------------------------------------------

-- The instructions of a Dockerfile: an array of { word =, rest = }, lines that continue joined.
local function dockerfile(path)
  local text, found = check.read(path or "examples/docker/Dockerfile"):gsub("\\\n", " "), {}
  for line in text:gmatch "[^\n]+" do
    local word, rest = line:match "^(%u+)%s+(.*)$"
    if word then found[#found + 1] = { word = word, rest = rest } end
  end
  return found
end

-- Path -> how many packages it names; the other libraries are computed.
for path, count in pairs { ["examples/docker/Dockerfile"] = 5, ["examples/cluster/Dockerfile"] = 8,
  ["examples/cluster/Dockerfile.cuda"] = 8 } do
  test("the packages that " .. path .. " names are Debian's", function()
    if check.run "apt-cache show make 2>/dev/null" == "" then check.skip "apt has no lists of packages" end
    local n = 0
    for _, step in ipairs(dockerfile(path)) do
      local names = step.rest:match "apt%-get install ([^&]*)"
      for name in (names or ""):gsub("%$%b()", ""):gmatch "%f[%S][%w][%w.+-]*" do
        n = n + 1
        local _, status = check.run("apt-cache show " .. name)
        check.equal(status, 0, name)
      end
    end
    check.equal(n, count)
  end)
end

-- The steps as a shell script, whose $1 is an empty folder. This machine's files, under an overlay that keeps them as
-- they are, stand for the base images. Steps with apt-get, which need a network, are left out.
local function script_of(steps)
  local lines = { "set -e", "mount -t tmpfs tmpfs $1", "mkdir $1/upper $1/work $1/src_upper $1/src_work $1/root",
    "mount -t overlay overlay -o lowerdir=/,upperdir=$1/upper,workdir=$1/work $1/root", "cd_to=/",
    "mount -t proc proc $1/root/proc", "mount --rbind /dev $1/root/dev", "rm -rf $1/root/src" }
  local function add(line) lines[#lines + 1] = line end
  for _, step in ipairs(steps) do
    if step.word == "WORKDIR" then
      add(("cd_to=%s; mkdir -p $1/root/$cd_to"):format(step.rest))
    elseif step.word == "COPY" and step.rest == ". ." then
      add "mount -t overlay overlay -o lowerdir=$PWD,upperdir=$1/src_upper,workdir=$1/src_work $1/root/$cd_to"
    elseif step.word == "COPY" then
      add(("cp -R $1/root%s/. $1/root%s"):format(step.rest:match "^%-%-from=build (%S+) (%S+)$"))
      add "cd_to=/"
    elseif step.word == "RUN" and not step.rest:find "apt%-get" then
      add(("chroot $1/root sh -ec 'cd \"$0\"; '%s $cd_to"):format("'" .. step.rest:gsub("'", "'\\''") .. "'"))
    end
  end
  add "echo packages: $(cat $1/root/usr/local/share/mgpulua/packages)"
  add "chroot $1/root mgpulua -e 'print(\"sum\", require \"mgpu\".ones { 2, 3 }:sum():item())'"
  return table.concat(lines, "\n") .. "\n"
end

test("the steps of the Dockerfile build and install, on this machine's files", function()
  check.slow()
  if check.program:match "^(%S*)/mgpulua" ~= "build" then check.skip "not the release build" end
  local folder, script = check.path "image", check.path "steps.sh"
  check.run("mkdir " .. folder)
  local _, status = check.run(("unshare -m sh -c 'mount -t tmpfs tmpfs DIR && cd DIR && mkdir u w r && "
    .. "mount -t overlay overlay -o lowerdir=/,upperdir=u,workdir=w r'"):gsub("DIR", folder))
  if status ~= 0 then check.skip "mounting an overlay wants root and a kernel that allows it" end
  local packages = check.read "Makefile":gsub("\\\n", " "):match "\nPACKAGES = ([^\n]*)"
  _, status = check.run("dpkg-query -W " .. packages)
  if status ~= 0 then check.skip "`make deps` would install packages" end
  check.write(script, script_of(dockerfile()))
  local text = run(("MAKEFLAGS= unshare -m sh %s %s 2>&1"):format(script, folder))
  check.matches(text, "deps: everything is there")
  check.matches(text, "installed to /out/usr/local")
  for _, name in ipairs { "libc6", "libjansson4", "libluajit%-5.1%-2", "zlib1g" } do
    check.matches(text, "packages:[^\n]* " .. name .. "[ \n]")
  end
  check.matches(text, "\ncpu:0")
  check.matches(text, "sum\t6\n$")
end)
