-- Zip archives in Lua (core.zip_read, core.zip_write); the format itself is tested in tests/c/test_zip.c.

local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"

local test = check.test

test("an archive of strings and files is written and read", function()
  local path, source, copy = check.path "a.zip", check.path "source", check.path "copy"
  local text = ("mgpulua "):rep(100000)
  check.write(source, text)
  core.zip_write(path, { { name = "b.json", bytes = "{}" }, { name = "a/b.h5", file = source },
    { name = "c", file = source, deflate = true } })
  local z = core.zip_read(path)
  check.equal(z:names(), { "a/b.h5", "b.json", "c" })
  check.equal(z:size "c", #text)
  check.equal(z:size "d", nil)
  check.equal(z:read "b.json", "{}")
  check.truthy(z:read "c" == text, "the contents of c")
  z:extract("a/b.h5", copy)
  check.truthy(check.read(copy) == text, "the extracted contents")
  check.raises(function() z:read "d" end, 'the archive has no "d"', "data")
  z:close()
  z:close()
  check.raises(function() z:names() end, "the archive is closed", "usage")
end)

test("a failed zip_write leaves the old archive", function()
  local path = check.path "old.zip"
  core.zip_write(path, { { name = "a", bytes = "old" } })
  local before = check.read(path)
  check.raises(function() core.zip_write(path, { { name = "a", file = check.path "none" } }) end, "none", "io")
  check.raises(function() core.zip_write(path, { { name = "a", byte = "x" } }) end, 'did you mean "bytes"', "usage")
  check.raises(function() core.zip_write(path, { { name = "a" } }) end, "zip_write: file", "usage")
  check.raises(function()
    core.zip_write(path, { { name = "a", bytes = "1" }, { name = "a", bytes = "2" } })
  end, "given twice", "usage")
  check.truthy(check.read(path) == before, "the old archive")
end)

test("a path with a zero byte is refused by every function that takes one", function()
  local bad = check.path "a.safetensors" .. "\0b"
  local model = mgpu.Sequential { mgpu.layers.Input { 2 }, mgpu.layers.Dense { 1 } }
  model:save(check.path "a.safetensors")
  for _, fn in ipairs { function() model:save(bad) end, function() model:save_weights(bad) end,
    function() model:load_weights(bad) end, function() mgpu.load_model(bad) end,
    function() model:save(check.path "a" .. "\0b.safetensors") end,
    function() core.store_save(bad, {}) end, function() core.store_load(bad) end,
    function() core.idx_load(bad) end, function() core.fetch("file:///x", bad) end,
    function() core.zip_read(bad) end, function() core.zip_write(bad, {}) end,
    function() core.file_exists(bad) end, function() core.make_folder(bad) end } do
    check.raises(fn, "zero byte", "usage")
  end
end)
