-- Rows that the threads of prefetch hand over in blocks: the same rows, positions and errors as without.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test, data = check.test, mgpu.data
local N = 200

local function numbers() return data.from_tensors { mgpu.arange(N), mgpu.arange(N):to "int32" } end

local function listed(it)
  local list = {}
  for x in it do list[#list + 1] = type(x) == "userdata" and x:totable() or x end
  return list
end

-- How often fn asks C for an element.
local function draws(fn)
  local n, next_element = 0, core.stream_next
  core.stream_next = function(...)
    n = n + 1
    return next_element(...)
  end
  local ok, message = pcall(fn)
  core.stream_next = next_element
  if not ok then error(message, 0) end
  return n
end

local function even(x) return (x % 2):eq(0) end

test("rows before a filter, and rows by themselves, come in blocks", function()
  local batches = numbers():filter(even):batch(16):prefetch(2)
  check.truthy(draws(function() listed(batches:iter()) end) <= N / 32 + 2)
  check.truthy(draws(function() listed(numbers():prefetch(2):iter()) end) <= N / 64 + 2)
  check.equal(draws(function() listed(numbers():iter()) end), N + 1)
  local large = data.from_tensors { mgpu.zeros { 4, 300, 300 } } -- more than a block of bytes each
  check.equal(draws(function() for _ in large:prefetch(2):iter() do end end), 5) -- luacheck: ignore 542
end)

-- Chains of rows, each made with fn(dataset), the prefetching one or not.
local chains = {
  ["a filter"] = function(ds) return ds:filter(even) end,
  ["a shuffle, a shard and a cycle"] = function(ds) return ds:shuffle(50, 3):shard(2, 3):cycle(2):take(110) end,
  ["a map"] = function(ds) return ds:map(function(x) return x * 2 + 1 end):skip(3) end,
  ["a map and a filter"] = function(ds)
    return ds:shuffle(N, 1):map(function(x) return x + 1 end):filter(even):batch(7)
  end,
  ["a window"] = function(ds) return ds:filter(even):window(5, { shift = 2 }) end,
}

for what, chain in pairs(chains) do
  test("the elements and positions after " .. what .. " are those without prefetch", function()
    for _, threads in ipairs { 1, 3 } do
      local plain, ahead = chain(numbers()), chain(numbers():prefetch(100, { threads = threads }))
      for _ = 1, 2 do check.equal(listed(ahead:iter()), listed(plain:iter())) end
      local it = ahead:iter { pass = 1, element = 0 }
      for _ = 1, 9 do it() end
      local here = it:position()
      check.equal(here, { pass = 1, element = 9 })
      local rest = listed(it)
      check.equal(listed(ahead:iter(here)), rest)
      check.equal(listed(plain:iter(here)), rest)
    end
  end)
end

test("text and rows of different sizes come in blocks", function()
  local lines = {}
  for i = 1, N do lines[i] = ("line %d %s"):format(i, ("x"):rep(i % 7)) end
  local path = check.path "lines.txt"
  check.write(path, table.concat(lines, "\n"))
  local ds = data.text_lines(path):prefetch(3, { threads = 2 })
  check.truthy(draws(function() check.equal(listed(ds:iter()), lines) end) < 10)
  check.equal(listed(ds:filter(function(line) return #line > 12 end):iter()),
    listed(data.text_lines(path):filter(function(line) return #line > 12 end):iter()))
end)

test("a row that cannot be read fails where it stands, after the rows before it, and again", function()
  local path, rows, schema = check.path "bad.tfrecord", {}, { { "x", "string" } }
  for i = 1, N do rows[i] = { ("row %03d"):format(i) } end
  data.write_tfrecord(path, rows, schema)
  check.write(path, (check.read(path):gsub("row 100", "row 1x0")))
  local ds = data.tfrecord(path, schema):prefetch(4)
  local it = ds:iter()
  for i = 1, 99 do check.equal(it(), rows[i][1]) end
  for _ = 1, 2 do check.raises(it, "record 100 .*do not match their checksum", "data") end
  check.equal(it:position(), { pass = 0, element = 99 })
  check.equal(ds:iter { pass = 0, element = 100 }(), "row 101")
end)

test("a map that fails is tried again on the same row of a block", function()
  local path, lines, failed = check.path "map.txt", {}, false
  for i = 1, N do lines[i] = "line " .. i end
  check.write(path, table.concat(lines, "\n"))
  local it = data.text_lines(path):map(function(line)
    if line == "line 70" and not failed then
      failed = true
      error "once"
    end
    return line
  end):prefetch(2):iter()
  for i = 1, 69 do check.equal(it(), lines[i]) end
  check.raises(it, "once .*element 70")
  for i = 70, N do check.equal(it(), lines[i]) end
  check.equal(it(), nil)
end)
