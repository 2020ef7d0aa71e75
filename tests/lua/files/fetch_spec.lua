-- Downloads (core.fetch, data/fetch.h): sizes and checksums, verified files, redirects, one process at a time.

local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"

local test = check.test

local HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" -- the SHA-256 of "hello"

-- The URL of a new file with these bytes.
local function file_url(bytes)
  local path = check.path "source"
  check.write(path, bytes)
  return "file://" .. path
end

if not pcall(core.fetch, file_url "x", check.path "probe") then check.skip "mgpu-fetch.so is not built" end

test("a file is kept if it has the expected size and checksum, and nothing else is left", function()
  local path = check.path "kept"
  core.fetch(file_url "hello", path, HELLO, 5)
  check.equal(check.read(path), "hello")
  local function refused(bytes, sha256, size, expected)
    local other = check.path "other"
    check.raises(function() core.fetch(file_url(bytes), other, sha256, size) end, expected, "data")
    check.falsy(core.file_exists(other), "a file")
    check.falsy(core.file_exists(other .. ".lock"), "a lock")
  end
  refused("hello, world", HELLO, 5, "it has more than the expected 5 bytes")
  refused("hell", HELLO, 5, "it has 4 bytes, expected 5")
  refused("hallo", HELLO, 5, "it has the SHA-256 d3751d33f9cd5049c4af2b462735457e4d3baf130bcbb87f389e349fbaeb20b9")
  check.raises(function() core.fetch(file_url "hello", path, "abc") end, "64 hexadecimal digits", "usage")
end)

test("a file may be known by its MD5", function()
  local md5 = "5d41402abc4b2a76b9719d911017c592" -- of "hello"
  local path = check.path "md5"
  core.fetch(file_url "hello", path, md5)
  check.equal(check.read(path), "hello")
  check.matches(check.read(path .. ".verified"), "^" .. md5 .. " 5 %d+\n$")
  check.truthy(core.fetch_verify(path, md5))
  check.raises(function() core.fetch(file_url "hallo", check.path "other", md5) end,
    "it has the MD5 598d4c200461b81522a3328565c25f7c, expected 5d41402a", "data")
end)

test("the checksum of a file is computed once, and again after a change", function()
  local path = check.path "verified"
  core.fetch(file_url "hello", path, HELLO, 5)
  local note = check.read(path .. ".verified")
  check.matches(note, "^" .. HELLO .. " 5 %d+\n$")
  check.truthy(core.fetch_verify(path, HELLO), "right")
  check.write(path, "jello")
  check.falsy(core.fetch_verify(path, HELLO), "right")
  -- a note for the changed file is believed: its checksum is not computed
  local size, time = note:match " (%d+) (%d+)"
  os.execute(("touch -d @%d.%09d %s"):format(tonumber(time:sub(1, -10)), tonumber(time:sub(-9)), path))
  check.equal(size, "5")
  check.truthy(core.fetch_verify(path, HELLO), "remembered")
  check.write(path .. ".verified", "")
  check.falsy(core.fetch_verify(path, HELLO), "right")
  -- fetch replaces the wrong file, and leaves a right one alone
  core.fetch(file_url "hello", path, HELLO, 5)
  check.equal(check.read(path), "hello")
  core.fetch("file:///nonexistent", path, HELLO, 5)
end)

test("a cached file of a data set that is damaged is downloaded again", function()
  local folder, web = check.path "cache", check.path "web"
  os.execute(("mkdir -p %s/.cache/mgpulua/tiny %s"):format(folder, web))
  local images, labels = "\0\0\8\3\0\0\0\1\0\0\0\1\0\0\0\1\7", "\0\0\8\1\0\0\0\1\3"
  for _, part in ipairs { "train", "t10k" } do
    check.write(("%s/%s-images-idx3-ubyte.gz"):format(web, part), images)
    check.write(("%s/%s-labels-idx1-ubyte.gz"):format(web, part), labels)
  end
  local function sum(name) return (check.run("sha256sum " .. web .. "/" .. name)):match "^%x+" end
  local script = check.path "tiny.lua"
  check.write(script, ([[
    local set = require "mgpu.data.datasets.mnist".define {
      name = "tiny", classes = 10, folders = { "tiny" }, url = "file://%s/",
      sha256 = { train_images = "%s", train_labels = "%s", t10k_images = "%s", t10k_labels = "%s" },
      bytes = { train_images = 17, train_labels = 9, t10k_images = 17, t10k_labels = 9 },
    }
    print(set.load_data().x:item())
  ]]):format(web, sum "train-images-idx3-ubyte.gz", sum "train-labels-idx1-ubyte.gz",
    sum "t10k-images-idx3-ubyte.gz", sum "t10k-labels-idx1-ubyte.gz"))
  local run = ("MGPU_DATA= HOME='%s' %s %s"):format(folder, check.program, script)
  check.equal((check.run(run)), "7\n")
  local path = folder .. "/.cache/mgpulua/tiny/train-images-idx3-ubyte.gz"
  check.write(path, images:sub(1, -2) .. "\9")
  check.equal((check.run(run)), "7\n")
  check.equal(check.read(path), images)
  -- without the file on the web: one sentence
  check.write(path, "damaged")
  os.execute("rm -r " .. web)
  local out = check.run(run)
  check.matches(out, "tiny: cannot download it %(.*%): put train%-images%-idx3%-ubyte, train%-labels%-idx1%-ubyte, "
    .. "t10k%-images%-idx3%-ubyte, t10k%-labels%-idx1%-ubyte %(or these with %.gz%) into .*/%.cache/mgpulua/tiny")
end)

test("processes that want the same file download it once", function()
  local path, log = check.path "shared", check.path "log"
  local url = file_url(("x"):rep(5000000))
  check.write(check.path "one.lua", ([[
    require "mgpu.core".fetch("%s", "%s", "%s")
  ]]):format(url, path, (check.run("sha256sum " .. url:sub(8))):match "^%x+"))
  local one = ("%s %s >>%s 2>&1 &"):format(check.program, check.path "one.lua", log)
  local out = check.run(("%s %s %s wait; cat %s"):format(one, one, one, log))
  check.equal(out, "")
  check.equal(#check.read(path), 5000000)
end)

local start_server, wait_for = fixtures.start_server, fixtures.wait_for

test("processes that want a file while it arrives wait for it: the server is asked once", function()
  local server, port_file = start_server("slow_port", 1)
  local path, log = check.path "once", check.path "once.log"
  check.write(check.path "once.lua", ([[
    require "mgpu.core".fetch("%s/slow", "%s", "%s", 5)
    print "there"
  ]]):format(server, path, HELLO))
  local one = ("%s %s >>%s 2>&1 &"):format(check.program, check.path "once.lua", log)
  os.execute(one:rep(4, " "))
  wait_for(path .. ".lock")
  check.falsy(core.file_exists(path), "half a file")
  check.write(port_file .. ".go", "")
  while select(2, check.read(log):gsub("\n", "")) < 4 do os.execute "sleep 0.05" end
  check.equal(check.read(log), ("there\n"):rep(4))
  check.equal(check.read(path), "hello")
end)

test("a process that dies while it downloads leaves no file, and the next one downloads it", function()
  local server, port_file = start_server("dying_port", 2)
  local path = check.path "dying"
  check.write(check.path "dying.lua", ('require "mgpu.core".fetch("%s/slow", "%s", "%s", 5)'):format(server, path,
    HELLO))
  local process = io.popen(("%s %s >/dev/null 2>&1 & echo $!"):format(check.program, check.path "dying.lua"))
  local pid = process:read "*n"
  process:close()
  wait_for(path .. ".lock")
  -- a zombie has ended, too: in a container, nobody may be there to collect it
  os.execute(("kill -9 %d; while grep -qs '^State:.[^ZX]' /proc/%d/status; do sleep 0.05; done"):format(pid, pid))
  check.falsy(core.file_exists(path), "half a file")
  check.write(port_file .. ".go", "")
  core.fetch(server .. "/slow", path, HELLO, 5)
  check.equal(check.read(path), "hello")
end)

test("a redirect to plain http is refused, and a body without end is cut off", function()
  local server, path = start_server("port", 3), check.path "downloaded"
  core.fetch(server .. "/body", path, HELLO, 5)
  check.equal(check.read(path), "hello")
  check.raises(function() core.fetch(server .. "/moved", path) end, "cannot download .*/moved: ", "io")
  local endless = check.path "endless"
  check.raises(function() core.fetch(server .. "/endless", endless, HELLO, 1000000) end,
    "more than the expected 1000000 bytes", "data")
  check.falsy(core.file_exists(endless), "a file")
end)
