-- imdb and reuters: what Keras loads from the same files (golden/make_texts.py), with all options; padded texts; files
-- that are damaged or want to run code.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local object_array = require "mgpu.data.datasets.object_array"

local test = check.test
local datasets = mgpu.datasets
local expected = dofile "tests/golden/texts/expected.lua"

-- A folder with a golden file under its published name.
local function folder_with(file, name)
  local folder = check.path(file .. "_folder")
  core.make_folder(folder)
  check.write(folder .. "/" .. name, check.read("tests/golden/texts/" .. file))
  return folder
end

local function same(sets, wanted)
  for i, which in ipairs { "train", "test" } do
    check.equal(sets[i].x, wanted[which].x)
    check.equal(sets[i].y, wanted[which].y)
    check.equal({ sets[i].y:dtype(), sets[i][1] == sets[i].x }, { "int32", true })
  end
end

for _, row in ipairs { { "imdb", "imdb_3.npz" }, { "imdb", "imdb_4.npz" }, { "reuters", "reuters.npz" } } do
  local name, file = unpack(row)
  test(("%s of %s has the texts that Keras loads, in their order"):format(name, file), function()
    local folder = folder_with(file, name .. ".npz")
    for _, case in ipairs(expected[name]) do
      local given = { data_dir = folder }
      for key, value in pairs(case.options) do given[key] = value end
      same({ datasets[name].load_data(given) }, case)
    end
    local train = datasets[name].load { data_dir = folder }
    check.equal({ train.classes, train.name }, { name == "imdb" and 2 or 46, name })
  end)
end

test("with a length texts are a tensor, padded and cut at their beginning", function()
  local folder = folder_with("imdb_3.npz", "imdb.npz")
  local rows = datasets.imdb.load_data { data_dir = folder }.x
  local x = datasets.imdb.load_data { data_dir = folder, length = 8 }.x
  check.equal({ x:shape(), x:dtype() }, { { #rows, 8 }, "int32" })
  for i, values in ipairs(x:totable()) do
    for k = 1, 8 do check.equal(values[9 - k], rows[i][#rows[i] + 1 - k] or 0) end
  end
  -- and they can be learnt from
  local L = mgpu.layers
  local model = mgpu.Sequential { L.Input { 8 }, L.Embedding { 100, 4 }, L.GlobalAveragePooling1D {},
    L.Dense { 1, activation = "sigmoid" } }
  model:compile { loss = "binary_crossentropy" }
  local train = datasets.imdb.load_data { data_dir = folder, length = 8, num_words = 100 }
  model:fit(train.x, train.y, { verbose = 0 })
end)

test("wrong options and files are errors", function()
  local folder = folder_with("imdb_3.npz", "imdb.npz")
  local function refused(message, given, code)
    given.data_dir = given.data_dir or folder
    check.raises(function() datasets.imdb.load_data(given) end, message, code or "usage")
  end
  refused("imdb: no text is shorter than maxlen = 1 words", { maxlen = 1 })
  refused("imdb: start_char and oov_char are numbers, or false", { start_char = true })
  refused('did you mean "num_words"', { num_word = 3 })
  refused("imdb: .* has no imdb.npz", { data_dir = check.path "none" }, "io")
  local path = folder .. "/imdb.npz"
  check.write(path, check.read "tests/golden/texts/reuters.npz")
  refused("imdb.npz: the archive has no x_train.npy", {}, "data")
  check.write(path, "no archive")
  refused("imdb.npz", {}, "data")
  -- the labels of another file
  local archive, entries = core.zip_read "tests/golden/texts/imdb_3.npz", {}
  local other = core.zip_read "tests/golden/texts/reuters.npz"
  for i, name in ipairs { "x_train", "y_train", "x_test", "y_test" } do
    local part = i == 2 and other:read "y.npy" or archive:read(name .. ".npy")
    entries[i] = { name = name .. ".npy", bytes = part }
  end
  archive:close()
  other:close()
  core.zip_write(path, entries)
  refused("imdb.npz: x_train has %d+ texts, and y_train %d+ labels", {}, "data")
end)

test("without a home folder a missing data set is not downloaded", function()
  local output = check.run("env -u HOME -u XDG_CACHE_HOME -u MGPU_DATA " .. check.program
    .. " -e 'require \"mgpu\".datasets.imdb.load_data()'")
  check.matches(output, "imdb: cannot download it (HOME is not set): put ")
end)

test("get_word_index reads the numbers of words, as Keras's function of that name", function()
  local folder = check.path "words"
  core.make_folder(folder)
  for _, name in ipairs { "imdb", "reuters" } do
    local path = ("%s/%s_word_index.json"):format(folder, name)
    check.write(path, '{"the": 1, "and": 2, "caf\\u00e9": 88584, "nil": 3}')
    local index = datasets[name].get_word_index { data_dir = folder }
    check.equal(index, { the = 1, ["and"] = 2, ["caf\195\169"] = 88584, ["nil"] = 3 })
    for text, message in pairs { ["{"] = "word_index.json: ", ["[1]"] = "word_index.json holds no words",
      ['{"a": "b"}'] = "holds no words with their numbers", ["{}"] = "holds no words" } do
      check.write(path, text)
      check.raises(function() datasets[name].get_word_index { data_dir = folder } end, name .. ": .*" .. message,
        "data")
    end
    check.raises(function() datasets[name].get_word_index { data_dir = check.path "none" } end,
      name .. ": .* has no " .. name .. "_word_index.json", "io")
    check.raises(function() datasets[name].get_word_index { dir = folder } end, 'get_word_index: unknown option "dir"')
  end
end)

-- ---- pickles --------------------------------------------------------------------------------------

-- The bytes of an .npy file with this pickle.
local function npy(pickle, descr)
  local header = ("{'descr': '%s', 'fortran_order': False, 'shape': (2,), }\n"):format(descr or "|O")
  return "\x93NUMPY\x01\x00" .. string.char(#header, 0) .. header .. pickle
end

local ARRAY = "\x80\x03cnumpy.core.multiarray\n_reconstruct\nq\x00cnumpy\nndarray\nq\x01K\x00\x85q\x02C\x01bq\x03\x87q"
  .. "\x04Rq\x05(K\x01K\x02\x85q\x06cnumpy\ndtype\nq\x07X\x02\x00\x00\x00O8q\x08K\x00K\x01\x87q\x09Rq\x0a(K\x03X\x01"
  .. "\x00\x00\x00|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tq\x0bb\x89]q\x0c"
local ROWS = "(]q\x0d(K\x01M\x00\x01J\x00\x00\x01\x00e]q\x0eK\x07aetq\x0fb."

test("a pickle of lists becomes their numbers", function()
  check.equal(object_array.rows("x", npy(ARRAY .. ROWS)), { { 1, 256, 65536 }, { 7 } })
end)

test("a pickle that wants to call anything else is refused", function()
  local function refused(pickle, message)
    check.raises(function() object_array.rows("x", npy(pickle)) end, message, "data")
  end
  local forbidden = "which is not allowed: the file is damaged or malicious"
  refused("cos\nsystem\nX\x04\x00\x00\x00true\x85R.", "x: byte %d+: the pickle wants to use os.system, " .. forbidden)
  refused("\x80\x04\x8c\x08builtins\x8c\x04eval\x93.", "builtins.eval, " .. forbidden)
  refused("cnumpy.core.multiarray\nscalar\n.", "numpy.core.multiarray.scalar, " .. forbidden)
  refused("\x80\x03X\x01\x00\x00\x00aK\x01\x85R.", "the pickle calls a value that is not a function")
  refused("ios\nsystem\n.", 'the instruction "i" of pickles is not allowed')
  refused("\x80\x09.", "pickle protocol 9 is not supported, only 2 to 5")
  refused("R.", "pops more values than it has pushed")
  refused("e.", "lacks a mark")
  refused("h\x07.", "reads a memo entry that it has not written")
  refused("K\x01.", "the pickle has a number in place of a array")
  refused(("]"):rep(1000001), "the pickle is too large")
  refused(("K\x01"):rep(1000001), "the pickle is too large")
  refused("N" .. ("\x94"):rep(1000001), "the pickle is too large")
  refused("\x8a\x07", "a number has 7 bytes, at most 6 are supported")
  refused("cnumpy.core.multiarray\n_reconstruct\n)R.", "the array has no elements")
  refused(ARRAY .. "(K\x01K\x02etq\x0fb.", "element 1 is not a list")
  refused(ARRAY .. "(]q\x0dX\x01\x00\x00\x00aa]etq\x0fb.", "element 1 holds something other than numbers")
  refused(ARRAY .. "(]etq\x0fb.", "the shape of the array does not fit its elements")
  -- rows repeated by reference must not take more memory than the file has bytes
  local four = ARRAY:gsub("K\x02\x85", "K\x04\x85")
  refused(four .. "(](" .. ("K\x01"):rep(400) .. "eq\x0dh\x0dh\x0dh\x0detq\x0fb.", "more than %d+ numbers in %d+ bytes")
  check.raises(function() object_array.rows("x", npy(ARRAY .. ROWS, "<f8")) end, "x: not an array of lists", "data")
  check.raises(function() object_array.rows("x", "NUMPY") end, "x: not a .npy file, or damaged", "data")
  check.raises(function() object_array.numbers("x", npy("12345678", "<i8")) end, "not a vector of 64%-bit", "data")
end)

test("an array that is cut off or changed anywhere is refused or read, and nothing else happens", function()
  local whole = npy(ARRAY .. ROWS)
  for n = 0, #whole - 1 do check.raises(function() object_array.rows("x", whole:sub(1, n)) end, "^.*x: ", "data") end
  for at = 1, #whole do
    for _, change in ipairs { 1, 8, 128 } do
      local byte = bit.bxor(whole:byte(at), change)
      local ok, message = pcall(object_array.rows, "x", whole:sub(1, at - 1) .. string.char(byte) .. whole:sub(at + 1))
      if not ok and core.error_code() ~= "data" or not ok and not message:find "x: " then
        check.fail(("byte %d xor %d: %s"):format(at, change, tostring(message)))
      end
    end
  end
end)
