-- ds:cache of elements as values: in memory, and in a file.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test

-- Elements of a generator, one or more values each; `counted` counts how many were made.
local function given(elements, counted)
  return mgpu.data.generator(function()
    local i = 0
    return function()
      i = i + 1
      if not elements[i] then return nil end
      if counted then counted[#counted + 1] = i end
      return unpack(elements[i])
    end
  end)
end

local function numbers(n)
  local list = {}
  for i = 1, n do list[i] = { i } end
  return list
end

local function plain(value)
  if type(value) == "userdata" then return { value:dtype(), value:shape(), value:totable() } end
  if type(value) ~= "table" then return value end
  local made = {}
  for key, v in pairs(value) do made[key] = plain(v) end
  return made
end

-- The elements of the rest of a pass, with the dtypes and shapes of their tensors.
local function listed(it)
  local list = {}
  while true do
    local e = { it() }
    if e[1] == nil then return list end
    list[#list + 1] = plain(e)
  end
end

local function pass(ds, position) return listed(ds:iter(position)) end

local function values(ds)
  local list = {}
  for x in ds:iter() do list[#list + 1] = x:totable() end
  return list
end

-- ---- in memory ----------------------------------------------------------------------------------

test("elements are made once, whatever part of a pass asks for them first", function()
  local counted = {}
  local ds = given(numbers(6), counted):cache()
  local a, b = ds:iter(), ds:iter()
  check.equal({ a():item(), a():item(), b():item() }, { 1, 2, 1 })
  check.equal(#counted, 2)
  a:close() -- b opens the source again, which begins anew
  check.equal({ b():item(), b():item() }, { 2, 3 })
  check.equal(values(ds), { 1, 2, 3, 4, 5, 6 })
  local made = #counted
  check.equal(values(ds:map(function(x) return x * 2 end)), { 2, 4, 6, 8, 10, 12 })
  check.equal(#counted, made)
end)

test("a shuffle before the cache is fixed, one behind it is not", function()
  local ds = mgpu.data.from_tensors { mgpu.arange(20) }:shuffle(20, 1):filter(function(x) return x:ge(0) end)
  local first, fixed = values(ds), ds:cache()
  check.equal({ values(fixed), values(fixed) }, { first, first })
  local again = fixed:shuffle(20, 2)
  check.truthy(table.concat(values(again), " ") ~= table.concat(values(again), " "), "another order in each pass")
  -- a program that resumes in a later pass sees the elements that an uninterrupted one sees
  local resumed = ds:cache()
  check.equal(values(resumed:skip(3)), { unpack(first, 4) })
  local it = ds:cache():iter { pass = 5, element = 4 }
  check.equal(it():item(), first[5])
end)

-- ---- in a file ----------------------------------------------------------------------------------

local kinds = {
  ["tensors of one shape"] = { { mgpu.ones { 2, 3 }, 1 }, { mgpu.zeros { 2, 3 }, 2 } },
  ["tensors of different shapes"] = { { mgpu.arange(6):reshape { 2, 3 } }, { mgpu.ones { 0, 5 } },
    { mgpu.ones { 4, 1 } } },
  ["text"] = { { "one", mgpu.tensor(1) }, { "", mgpu.tensor(2) }, { "a\0\255\n" .. ("x"):rep(9000), mgpu.tensor(3) } },
  ["tables"] = { { { image = mgpu.ones { 2 }, more = { "a", mgpu.tensor(1) } } },
    { { image = mgpu.ones { 1 }, more = { "b", mgpu.tensor(2) } } } },
  ["other dtypes"] = { { true, mgpu.tensor({ 1, 2 }, { dtype = "int64" }), mgpu.tensor(1.5, { dtype = "float64" }) },
    { false, mgpu.tensor({ 3, -4 }, { dtype = "int64" }), mgpu.tensor(-1 / 0, { dtype = "float64" }) } },
  ["no element"] = {},
}
for what, elements in pairs(kinds) do
  test("a file gives back " .. what, function()
    local path, counted = check.path(what:gsub(" ", "_") .. ".cache"), {}
    local expected = pass(given(elements))
    check.equal(pass(given(elements, counted):cache(path)), expected)
    check.equal(#counted, #elements)
    check.equal(pass(given(elements, counted):cache(path)), expected)
    check.equal(pass(given(elements, counted):cache(path), { pass = 3, element = 0 }), expected)
    check.equal(#counted, #elements)
  end)
end

test("a file gives back batches of text, and text of many strings", function()
  local path = check.path "texts.cache"
  local words = {}
  for i = 1, 10 do words[i] = { ("word %d"):format(i), i } end
  local ds = given(words):batch(4)
  local expected = pass(ds)
  check.equal(pass(ds:cache(path)), expected)
  local again = given({}):batch(4):cache(path)
  check.equal(pass(again), expected)
  check.equal(#pass(again:unbatch()), 10)
end)

test("a pass that was left early writes no file", function()
  local path = check.path "early.cache"
  local it = given(numbers(5)):cache(path):iter()
  it()
  it:close()
  check.falsy(core.file_exists(path), "a file")
end)

test("a full disk is an error that names the file, leaves no file, and can be repeated", function()
  local path = check.path "full.cache"
  local it = given(numbers(5)):cache(path):iter()
  for _ = 1, 5 do it() end
  core.file_fault { at = 2, error = "ENOSPC", always = true }
  local ok, message = pcall(it)
  core.file_fault()
  check.falsy(ok, "written")
  check.matches(message, "flow_cache_spec.lua:%d+: .*full.cache")
  check.matches(message, "space")
  check.falsy(core.file_exists(path), "a file")
  check.equal(it(), nil)
  check.equal(values(given({}):cache(path)), { 1, 2, 3, 4, 5 })
end)

test("every failing file call leaves either no file or a whole one", function()
  local path = check.path "faults.cache"
  local n, ended = 0
  repeat
    n = n + 1
    os.remove(path)
    local ds = given(numbers(3)):cache(path)
    core.file_fault { at = n, error = "EIO" }
    local ok = pcall(values, ds)
    ended = not core.file_fault()
    if core.file_exists(path) then check.equal(values(given({}):cache(path)), { 1, 2, 3 }) end
    check.truthy(not ok or core.file_exists(path), "a pass that did not raise wrote the file")
  until ended or n > 200
  check.truthy(n > 3 and n < 200, n .. " calls")
end)

test("elements that differ cannot be cached in a file", function()
  local function refuses(elements, expected)
    local path = check.path "differ.cache"
    check.raises(function() pass(given(elements):cache(path)) end, "flow_cache_spec.lua:%d+: cache: .*differ.cache: "
      .. expected, "data")
    check.falsy(core.file_exists(path), "a file")
    check.equal(#pass(given(elements):cache()), #elements) -- but in memory
  end
  refuses({ { 1 }, { 1, 2 } }, "element 2 has 2 components, element 1 has 1 components")
  refuses({ { 1 }, { "a" } }, "component 1 is text in element 2, but float32 0 in element 1")
  refuses({ { mgpu.ones { 2 } }, { mgpu.ones { 2, 1 } } }, "component 1 is float32 2 in element 2, but float32 1 in")
end)

-- A cache of three numbers, with changes.
local function written(path, change)
  os.remove(path)
  pass(given(numbers(3)):cache(path))
  local tensors, notes = core.store_load(path)
  change(tensors, notes)
  core.store_save(path, tensors, notes, "safetensors")
end

test("a file of another number of elements is refused", function()
  local path = check.path "other.cache"
  local function mapped(n)
    return mgpu.data.from_tensors { mgpu.arange(n) }:map(function(x) return x end):cache(path)
  end
  check.equal(values(mapped(4)), { 0, 1, 2, 3 })
  check.raises(mapped(3):iter(), "cache: .*other.cache has 4 elements, the dataset here has 3: it holds elements of "
    .. "another dataset: give another path, or remove the file to have it written again", "data")
  check.equal(#values(given(numbers(9)):cache(path)), 4) -- of unknown length: the file is believed
end)

test("a file that is not a cache, or is damaged, is refused", function()
  local path = check.path "bad.cache"
  local function refuses(expected)
    check.raises(function() pass(given(numbers(3)):cache(path)) end,
      "flow_cache_spec.lua:%d+: cache: .*bad.cache.*" .. expected)
  end
  check.write(path, "hello, world: this is not a cache")
  refuses ""
  core.store_save(path, { x = mgpu.ones { 3 } }, { format = "pt" }, "safetensors")
  refuses "the file is not a cache of this version: give another path, or delete the file"
  for expected, change in pairs {
    ["it has no structure"] = function(_, notes) notes.structure = "[]" end,
    ['it has no tensor "2"'] = function(_, notes) notes.structure = '["float32","float32"]' end,
    ['the tensor "1" has shape {3}'] = function(_, notes) notes.count = "1000000000000" end,
    ["not a cache of this version"] = function(_, notes) notes.count = "-1" end,
    ["is not a cache of this"] = function(_, notes) notes.count = "2.5" end,
    ['has a wrong shape for element 1'] = function(tensors, _)
      tensors["1"], tensors["1/shapes"] = mgpu.ones { 3, 2 }, mgpu.full({ 3, 1 }, 3, { dtype = "int64" })
    end,
    ['"1/shapes" does not fit "1"'] = function(tensors, _)
      tensors["1"], tensors["1/shapes"] = mgpu.ones { 3, 2 }, mgpu.full({ 3, 2 }, 1, { dtype = "int64" })
    end,
    ['"1/lengths" does not fit the text'] = function(tensors, notes)
      notes.structure = '["text"]'
      tensors["1"] = mgpu.ones({ 5 }, { dtype = "uint8" })
      tensors["1/lengths"] = mgpu.tensor({ 1, 2, 3 }, { dtype = "int64" })
    end,
    ['"1/lengths" has a number below 0'] = function(tensors, notes)
      notes.structure = '["text"]'
      tensors["1"] = mgpu.ones({ 5 }, { dtype = "uint8" })
      tensors["1/lengths"] = mgpu.tensor({ 6, -4, 3 }, { dtype = "int64" })
    end,
  } do
    written(path, change)
    refuses(expected)
  end
  os.remove(path)
  pass(given(numbers(3)):cache(path))
  check.write(path, check.read(path):sub(1, -3))
  refuses ""
end)

test("a file in which any byte has changed, or that was cut off, is refused", function()
  local path = check.path "flipped.cache"
  local function made() return given { { 1, "one" }, { 2, "two" }, { 3, "three" } }:cache(path) end
  local expected = pass(made())
  local bytes = check.read(path)
  local function refused(changed)
    check.write(path, changed)
    check.raises(function() pass(made()) end, "cache: .*flipped%.cache", "data")
  end
  for at = 1, #bytes do
    for _, bit in ipairs { 1, 32 } do
      local byte = string.char(require "bit".bxor(bytes:byte(at), bit))
      refused(bytes:sub(1, at - 1) .. byte .. bytes:sub(at + 1))
    end
  end
  for n = 0, #bytes - 1, 11 do refused(bytes:sub(1, n)) end
  refused(bytes .. "x")
  check.write(path, bytes)
  check.equal(pass(made()), expected)
end)

test("a path that cannot be written is an error that names it", function()
  check.raises(function() pass(given(numbers(3)):cache "/no/such/folder/x.cache") end, "/no/such/folder/x.cache")
end)
