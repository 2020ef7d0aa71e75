-- Wrong calls of mgpu.data and of datasets: each message begins with the function, and says what was given.

local check = require "check"
local mgpu = require "mgpu"

local test, data = check.test, mgpu.data
local SCHEMA = { { "x", "int64" } }

-- The sources of files, called with a path.
local sources = {
  csv = data.csv, text_lines = data.text_lines, npy = data.npy, npz = data.npz, image_folder = data.image_folder,
  tfrecord = function(path) return data.tfrecord(path, SCHEMA) end,
}

test("a source of files names itself and the file that is missing or of another format", function()
  local folder, damaged = check.path "folder", check.path "damaged.gz"
  os.execute(("mkdir '%s'"):format(folder))
  check.write(damaged, "\31\139\8\0rubbish that is not gzip")
  for name, source in pairs(sources) do
    check.raises(function() source(check.path "none") end, "^[^:]*:%d+: " .. name .. ": cannot .*/none: No such", "io")
    if name == "image_folder" then
      check.raises(function() source(damaged) end, "^[^:]*:%d+: image_folder: cannot look into .*: Not a dir", "io")
    else
      check.raises(function() source(folder) end, "^[^:]*:%d+: " .. name .. ": .*/folder is not a regular file", "io")
      check.raises(function() source(damaged) end, "^[^:]*:%d+: " .. name .. ": .*damaged%.gz", "data")
    end
  end
end)

test("datasets are asked for their length by a method, whose name they suggest", function()
  local ds = data.from_tensors { mgpu.arange(7) }
  check.equal(ds:length(), 7)
  check.raises(function() return ds:len() end, 'there is no method "len": write ds:length%(%)', "usage")
  check.raises(function() return ds:filter(function(x) return x:gt(1) end):len() end, "write ds:length%(%)", "usage")
  check.equal(#ds, 0) -- as the manual says: LuaJIT has no metamethod for the length of a table
end)

test("what cannot be written is an error of the function that writes", function()
  local rows = data.from_tensors { mgpu.arange(3) }
  local function refuses(name, fn)
    check.raises(fn, "^[^:]*:%d+: " .. name .. ": cannot .*/no.*: No such file", "io")
  end
  refuses("write_tfrecord", function() data.write_tfrecord(check.path "no/file", rows, SCHEMA) end)
  refuses("cache", function() rows:cache(check.path "no/file"):iter() end)
  refuses("cache", function()
    local cached = rows:filter(function(x) return x:gt(-1) end):cache(check.path "no/file")
    for _ in cached:iter() do end -- luacheck: ignore 542
  end)
end)

-- Arguments of methods, and what the message says of them; the same for rows and for values.
local wrong = {
  { "batch", { "x" }, 'expected a whole number of at least 1, got "x"' },
  { "batch", {}, "expected a whole number of at least 1, got nil" },
  { "batch", { { 2 } }, "expected a whole number of at least 1, got a table" },
  { "batch", { 2, "x" }, "the options must be a table such as {drop_remainder = ...}, got string" },
  { "batch", { 2, { drop = true } }, 'unknown option "drop"; the only option is drop_remainder' },
  { "batch", { 2, { drop_remainder = 1 } }, 'option "drop_remainder" must be true or false, got 1' },
  { "window", { 2, { shift = 0 } }, 'option "shift" must be at least 1, got 0' },
  { "window", { 2, { stride = "a" } }, 'option "stride" must be a whole number, got "a"' },
  { "window", { 2, { step = 1 } }, 'unknown option "step"' },
  { "prefetch", { 2, { threads = 0 } }, 'option "threads" must be at least 1, got 0' },
  { "prefetch", { 2, { thread = 1 } }, 'unknown option "thread" %(did you mean "threads"%?%)' },
  { "unbatch", { 2 }, "takes no argument, got 1" },
  { "length", { 2 }, "takes no argument, got 1" },
  { "take", { 2, 3 }, "takes one argument, got 2" },
  { "cycle", { 2, {} }, "takes one argument, got 2" },
  { "map", { math.abs, 1 }, "takes one argument, got 2" },
  { "shuffle", { 2, 1, 3 }, "takes at most 2 arguments, got 3" },
  { "shard", { 1 }, "the number of shards: expected a whole number of at least 1, got nil" },
  { "skip", { true }, "expected a whole number of at least 0, got a boolean" },
}

for kind, step in pairs { rows = function(ds) return ds end,
  values = function(ds) return ds:filter(function(x) return x:gt(-1) end) end } do
  test("methods of datasets of " .. kind .. " name themselves and what they were given", function()
    local ds = step(data.from_tensors { mgpu.arange(6) })
    for _, case in ipairs(wrong) do
      local name, arguments, message = unpack(case)
      check.raises(function() ds[name](ds, unpack(arguments)) end, "^[^:]*:%d+: " .. name .. ": " .. message, "usage")
    end
  end)
end
