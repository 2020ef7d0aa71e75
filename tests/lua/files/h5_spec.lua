-- HDF5 files by way of mgpu-h5: core.h5_read, h5_write and h5_make. Files of other programs are in tests/golden/keras.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test

local can, problem = pcall(core.h5_read, "tests/golden/keras/mlp_3.h5")
if not can and core.error_code() == "unsupported" then check.skip(problem) end

local function entries()
  return {
    { path = "" },
    { path = "", attribute = "config", text = "héllo" },
    { path = "", attribute = "large", text = ("x"):rep(200000) },
    { path = "", attribute = "names", text = { "abc", "d", "" } },
    { path = "", attribute = "none", text = {} },
    { path = "", attribute = "version", tensor = mgpu.tensor(7, { dtype = "int64" }) },
    { path = "a" }, { path = "a/b" },
    { path = "a/b/0", tensor = mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } } },
    { path = "a/b/0", attribute = "note", text = "on a dataset" },
    { path = "a/b/1", tensor = mgpu.tensor { 1.5 }:cast "float16" },
    { path = "a/b/2", tensor = mgpu.tensor { 1.5 }:cast "bfloat16" },
    { path = "a/b/3", tensor = mgpu.tensor { true, false } },
    { path = "a/b/4", tensor = mgpu.tensor({ 3, 255 }, { dtype = "uint8" }) },
    { path = "a/b/5", tensor = mgpu.zeros { 0, 3 } },
    { path = "a/b/6", tensor = mgpu.tensor(2.5, { dtype = "float64" }) },
  }
end

local function as_table(list)
  local found = {}
  for i, e in ipairs(list) do
    local t = e.tensor
    found[i] = { path = e.path, attribute = e.attribute, text = e.text, dtype = t and t:dtype(),
      shape = t and t:shape(), values = t and t:count() > 0 and t:totable() or nil }
  end
  return found
end

test("a file has the groups, datasets and attributes that were written", function()
  local path = check.path "a.h5"
  core.h5_write(path, entries())
  check.equal(as_table(core.h5_read(path)), as_table(entries()))
end)

test("equal contents give equal files", function()
  local a, b = check.path "a.h5", check.path "b.h5"
  core.h5_write(a, entries())
  core.h5_write(b, entries())
  check.truthy(check.read(a) == check.read(b), "the same bytes")
end)

test("a file is read out of an archive and put into one", function()
  local path = check.path "a.zip"
  local image, file = core.h5_make(entries())
  core.zip_write(path, { { name = "w.h5", file = file, deflate = true } })
  check.truthy(image, "the image is held until here")
  local archive = core.zip_read(path)
  check.equal(as_table(core.h5_read(archive, "w.h5")), as_table(entries()))
  check.raises(function() core.h5_read(archive, "x.h5") end, 'the archive has no "x.h5"', "data")
end)

test("what is not an HDF5 file, or not a whole one, is an error", function()
  local path = check.path "bad.h5"
  check.raises(function() core.h5_read(path) end, "bad.h5: No such file", "io")
  for _, text in ipairs { "", "x", ("\137HDF\r\n\26\n"):rep(100) } do
    check.write(path, text)
    check.raises(function() core.h5_read(path) end, "bad.h5: ", "data")
  end
  check.raises(function() core.h5_read(check.path ".") end, "not a regular file", "io")
end)

-- A generator of numbers below n, the same in every run.
local function numbers(seed)
  return function(n)
    seed = (seed * 16807) % 2147483647
    return seed % n
  end
end

test("a damaged file is read or refused, whatever is wrong with it", function()
  local path, good, below = check.path "damaged.h5", check.read "tests/golden/keras/adam_3.h5", numbers(11)
  for round = 1, 60 do
    local bytes = good
    if round % 4 == 0 then
      bytes = good:sub(1, below(#good))
    else
      for _ = 1, 1 + below(8) do
        local at = 1 + below(round % 2 == 0 and 2048 or #good)
        bytes = bytes:sub(1, at - 1) .. string.char(below(256)) .. bytes:sub(at + 1)
      end
    end
    check.write(path, bytes)
    local ok, message = pcall(core.h5_read, path)
    if not ok then
      check.matches(message, "damaged.h5")
      check.equal(core.error_code(), "data")
    end
  end
end)

test("a file that makes libhdf5 crash is an error like any other", function()
  -- one of the files beside it with some bytes changed, on which libhdf5 1.10 reads outside of its memory
  check.raises(function() core.h5_read "tests/golden/keras/crashing.h5" end, "crashing.h5: ", "data")
  check.equal(#core.h5_read "tests/golden/keras/mlp_3.h5" > 0, true)
end)

test("an attribute or path that HDF5 cannot hold is an error, and no file is left", function()
  local path = check.path "refused.h5"
  local function refused(list, expected, code)
    check.raises(function() core.h5_write(path, list) end, expected, code or "usage")
    check.falsy(core.file_exists(path), "a file")
  end
  for _, wrong in ipairs { "b\0c", 7 } do
    refused({ { path = "" }, { path = "", attribute = "a", text = wrong } },
      'h5_write: the attribute "a" of "" must be a string without zero bytes')
  end
  refused({ { path = "" }, { path = ("x"):rep(5000) } }, "longer than HDF5 files of models allow")
  refused({ { path = "" }, { path = "a/b", tensor = mgpu.ones { 1 } } }, '"a/b" cannot be written', "internal")
  check.raises(function() core.h5_write(check.path "missing/a.h5", { { path = "" } }) end, "missing", "io")
end)

-- What reading a file says in a program whose mgpu-h5 is a file with this text, or is not there.
local function read_with(helper)
  local folder = check.path "plug-ins"
  local here = check.program:match "^(.*)/[^/]*$"
  core.make_folder(folder)
  if helper then check.write(folder .. "/mgpu-h5", helper) end
  return check.run(("%s cp %s/libmgpu.so.0 %s/mgpulua %s && MGPU_ROOT=%s LD_LIBRARY_PATH=/nowhere %s/mgpulua -e "
    .. "'require \"mgpu.core\".h5_read \"tests/golden/keras/mlp_3.h5\"'"):format(
    helper and "chmod +x " .. folder .. "/mgpu-h5 &&" or "", here, here, folder, core.root, folder))
end

test("without mgpu-h5 the error names the package to install", function()
  local advice = ": install the package libhdf5-dev and build again"
  check.matches(read_with(nil), "HDF5 files need the program mgpu-h5, which is not installed" .. advice)
  check.matches(read_with "#!/bin/sh\nexit 127\n", "mgpu-h5, which does not find its libraries" .. advice)
end)

test("an mgpu-h5 that does not start, or is stopped, is an error", function()
  check.matches(read_with "no program\n", "mlp_3.h5: cannot start .*plug%-ins/mgpu%-h5: Exec format error")
  check.matches(read_with "#!/bin/sh\nkill -XCPU $$\n", "the file takes too long to read: it is damaged")
  check.matches(read_with "#!/bin/sh\nkill -XFSZ $$\n", "the file takes too much memory to read: it is damaged")
  check.matches(read_with "#!/bin/sh\nkill -SEGV $$\n", "mgpu%-h5 gave up on the file: it is damaged")
  check.matches(read_with "#!/bin/sh\nkill -INT $PPID\n", "interrupted")
end)

test("mgpu-h5 gets no variable of the environment but the loader's path", function()
  local seen = check.path "seen"
  read_with("#!/bin/sh\ncat /proc/$$/environ >" .. seen .. "\n")
  check.equal(check.read(seen), "LD_LIBRARY_PATH=/nowhere\0")
end)
