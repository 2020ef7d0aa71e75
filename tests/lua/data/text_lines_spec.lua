-- mgpu.data.text_lines; tests/c/test_text_lines.c has the details.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local lines = mgpu.data.text_lines

local function file(text, name)
  local path = check.path(name or "t.txt")
  check.write(path, text)
  return path
end

local function all(ds)
  local list = {}
  for line in ds:iter() do list[#list + 1] = line end
  return list
end

test("a row is a line as a string", function()
  check.equal(all(lines(file "one\r\n\ntwo \0 bytes\nend")), { "one", "", "two \0 bytes", "end" })
  local ds = lines { file "a\nb\n", file("c\nd\n", "u.txt") }
  check.equal({ ds:length(), all(ds) }, { 4, { "a", "b", "c", "d" } })
  check.equal(all(lines({ file "a\nb\n", file("c\nd\n", "u.txt") }, { skip = 1 })), { "b", "d" })
end)

test("lines can be shuffled, batched and read by threads", function()
  local text, expected = {}, {}
  for i = 1, 1000 do
    text[i] = ("x"):rep(i % 50) .. i
    expected[i] = text[i]
  end
  local ds, found = lines(file(table.concat(text, "\n"))):shuffle(1000, 3):batch(64):prefetch(3, { threads = 3 }), {}
  for batch in ds:iter() do
    check.equal(type(batch), "table")
    for _, line in ipairs(batch) do found[#found + 1] = line end
  end
  check.truthy(found[1] ~= expected[1] or found[2] ~= expected[2])
  table.sort(found)
  table.sort(expected)
  check.equal(found, expected)
end)

test("wrong options and files are refused", function()
  check.raises(function() lines(5) end, "text_lines: the first argument is a number, not a path", "usage")
  check.raises(function() lines(file "a", { skp = 1 }) end, 'unknown option "skp" %(did you mean "skip"%?%)', "usage")
  check.raises(function() lines(file "a", { skip = -1 }) end, 'option "skip" must be at least 0', "usage")
  check.raises(function() lines(check.path "none") end, "cannot open .*/none", "io")
  check.raises(function() lines(file "") end, "text_lines: there are no lines in .*/t%.txt", "data")
  check.raises(function() lines(file "\31\139\8\0rubbish that is not gzip") end, "t%.txt: the gzip data", "data")
  local path = file "a\nb\n"
  local ds = lines(path)
  check.write(path, "")
  check.raises(ds:iter(), "text_lines: .*t%.txt has", "io")
end)
