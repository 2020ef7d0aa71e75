--- Data sets of texts as lists of word numbers: imdb and reuters, from the files that Keras publishes.
--
-- Options of load_data, as in Keras: the words are numbered by frequency, from 1.
--   num_words       words with this number or a higher one are left out (after index_from was added)
--   skip_top = 0    so are words with a lower number than this
--   maxlen          texts of this length or longer are left out (start_char counts)
--   seed = 113      the seed of the order of the texts, which is the same as in Keras
--   start_char = 1  begins each text; oov_char = 2: takes the place of words that are left out; false: none
--   index_from = 3  is added to the number of each word, so that 0 is free for padding
--   length          gives x as a tensor int32 {texts, length} of the last `length` words of each text, after zeros
--   data_dir        see files.lua
-- Without length, x is an array of arrays of numbers. Errors: files that are missing or damaged; no text left.
local core = require "mgpu.core"
local files = require "mgpu.data.datasets.files"
local numpy_shuffle = require "mgpu.data.datasets.numpy_shuffle"
local object_array = require "mgpu.data.datasets.object_array"

local M = {}

local URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"

local OPTIONS = {
  { "num_words", "integer", min = 1 },
  { "skip_top", "integer", default = 0, min = 0 },
  { "maxlen", "integer", min = 1 },
  { "seed", "integer", default = 113, min = 0, max = 2 ^ 32 - 1 },
  { "start_char", "integer|boolean", default = 1, min = 0 },
  { "oov_char", "integer|boolean", default = 2, min = 0 },
  { "index_from", "integer", default = 3, min = 0 },
  { "length", "integer", min = 1 },
}

-- ---- the file -----------------------------------------------------------------------------------

-- The rows and labels of the entries x and y of the archive.
local function read_pair(zip, path, x, y)
  for _, name in ipairs { x, y } do
    if not zip:size(name .. ".npy") then core.fail("data", ("%s: the archive has no %s.npy"):format(path, name)) end
  end
  local rows = object_array.rows(("%s, %s"):format(path, x), zip:read(x .. ".npy"))
  local labels = object_array.numbers(("%s, %s"):format(path, y), zip:read(y .. ".npy"))
  if #rows ~= #labels then
    core.fail("data", ("%s: %s has %d texts, and %s %d labels"):format(path, x, #rows, y, #labels))
  end
  return { rows = rows, labels = labels }
end

-- Array of {rows =, labels =}, one for each pair of names {x, y} in the .npz file.
local function read(path, names)
  local zip, sets = core.zip_read(path), {}
  local ok, message = pcall(function()
    for i, pair in ipairs(names) do sets[i] = read_pair(zip, path, pair[1], pair[2]) end
  end)
  zip:close()
  if not ok then error(message, 0) end
  return sets
end

-- ---- words --------------------------------------------------------------------------------------

-- The set in the order that shuffled(n) gives, with start_char and index_from, without texts that are too long.
local function prepare(set, chosen, shuffled)
  local out = { rows = {}, labels = {} }
  for _, at in ipairs(shuffled(#set.rows)) do
    local row = { chosen.start_char or nil }
    for _, word in ipairs(set.rows[at]) do row[#row + 1] = word + chosen.index_from end
    if not chosen.maxlen or #row < chosen.maxlen then
      out.rows[#out.rows + 1], out.labels[#out.labels + 1] = row, set.labels[at]
    end
  end
  return out
end

-- Replaces or removes the words that are left out, in place.
local function limit_words(sets, chosen)
  local most = chosen.num_words or 0
  for _, set in ipairs(chosen.num_words and {} or sets) do
    for _, row in ipairs(set.rows) do
      for _, word in ipairs(row) do most = math.max(most, word) end
    end
  end
  for _, set in ipairs(sets) do
    for i, row in ipairs(set.rows) do
      local kept = {}
      for _, word in ipairs(row) do
        local known = word >= chosen.skip_top and word < most
        if known or chosen.oov_char then kept[#kept + 1] = known and word or chosen.oov_char end
      end
      set.rows[i] = kept
    end
  end
end

-- The rows as a tensor: their last `length` words, after zeros.
local function padded(rows, length)
  local values = {}
  for _, row in ipairs(rows) do
    for _ = #row + 1, length do values[#values + 1] = 0 end
    for k = math.max(1, #row - length + 1), #row do values[#values + 1] = row[k] end
  end
  return core.tensor(values, { dtype = "int32" }):reshape { #rows, length }
end

local function part(set, chosen, of)
  local x = chosen.length and padded(of.rows, chosen.length) or of.rows
  return files.part(set, x, core.tensor(of.labels, { dtype = "int32" }))
end

-- Rows first to last of a set.
local function rows_of(set, first, last)
  local out = { rows = {}, labels = {} }
  for i = first, last do out.rows[i - first + 1], out.labels[i - first + 1] = set.rows[i], set.labels[i] end
  return out
end

-- The sets for training and testing: a set of all texts is divided.
local function train_and_test(sets, test_split)
  if #sets == 2 then return sets[1], sets[2] end
  local all = sets[1]
  local n = math.floor(#all.rows * (1 - test_split))
  return rows_of(all, 1, n), rows_of(all, n + 1, #all.rows)
end

-- The word index in the file: a table {word = number}, numbers from 1.
local function check_index(set, index)
  local good = type(index) == "table" and index[1] == nil and next(index) ~= nil
  for _, number in pairs(good and index or {}) do good = good and type(number) == "number" and number >= 1 end
  if not good then core.fail("data", ("%s: %s holds no words with their numbers"):format(set.name, set.index_file)) end
  return index
end

-- define(set) -> {load_data = function(options) -> train, test}, also as load, and get_word_index.
-- ARGS
--   set.name, set.classes   copied into the loaded tables
--   set.folders             see files.lua
--   set.file, set.sha256, set.bytes   the published file
--   set.index_file, set.index_md5     the file of its word index, and the MD5 that Keras gives for it
--   set.names               its entries: {{x, y}} of all texts, or one pair for training and one for test
--   set.test_split          the default of this option, for a set that is to be divided
local function define(set)
  local more = { unpack(OPTIONS) }
  if set.test_split then
    more[#more + 1] = { "test_split", "number", default = set.test_split, min = 0, max = 1 }
  end
  local file = { names = { set.file }, kept = set.file, url = URL .. set.file, sha256 = set.sha256,
    bytes = set.bytes }
  --- load_data {num_words =, skip_top = 0, maxlen =, seed = 113, start_char = 1, oov_char = 2, index_from = 3,
  --- length =, data_dir =} -> train, test: tables {x =, y =, classes =, name =}; see the top of texts.lua.
  local function load_data(given)
    local chosen = files.check(set.name, given, more)
    if chosen.start_char == true or chosen.oov_char == true then
      core.fail("usage", set.name .. ": start_char and oov_char are numbers, or false")
    end
    local sets = read(files.obtain(set, file, set.file, chosen.data_dir), set.names)
    local shuffled = numpy_shuffle(chosen.seed)
    for i, each in ipairs(sets) do
      sets[i] = prepare(each, chosen, shuffled)
      if #sets[i].rows == 0 then
        core.fail("usage", ("%s: no text is shorter than maxlen = %d words"):format(set.name, chosen.maxlen or 0))
      end
    end
    limit_words(sets, chosen)
    local train, test = train_and_test(sets, chosen.test_split)
    return part(set, chosen, train), part(set, chosen, test)
  end
  local index_file = { names = { set.index_file }, kept = set.index_file, url = URL .. set.index_file,
    md5 = set.index_md5 }
  --- get_word_index {data_dir =} -> {word = number}, numbers from 1 by frequency. In the texts of load_data each is
  --- index_from (3) higher.
  local function get_word_index(given)
    local chosen = files.check(set.name .. ": get_word_index", given)
    return check_index(set, files.read_json(set, index_file, chosen.data_dir))
  end
  return { load_data = load_data, load = load_data, get_word_index = get_word_index }
end

-- ---- the sets -----------------------------------------------------------------------------------

--- imdb.load_data {num_words =, length =, ...} -> train, test: 50,000 film reviews, good (1) or bad (0), as lists of
--- word numbers.
--
--     local train, test = mgpu.datasets.imdb.load_data { num_words = 10000, length = 200 }
--     train.x    -- int32 {25000, 200}; without length an array of 25000 arrays of numbers
--     train.y    -- int32 {25000}
--     local words = mgpu.datasets.imdb.get_word_index()    -- {the = 1, ...}; in the texts each number is 3 higher
-- Options and errors: see texts.lua. Source: Maas et al., Learning word vectors for sentiment analysis, 2011; Keras.
-- Example:
--     print(pcall(mgpu.datasets.imdb.load_data, { data_dir = "here" })) -- without data_dir it is downloaded
--     --> false ...: imdb: here has no imdb.npz
M.imdb = define {
  name = "imdb",
  classes = 2,
  class_names = { "negative", "positive" },
  folders = { "imdb" },
  file = "imdb.npz",
  sha256 = "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f",
  bytes = 17464789,
  index_file = "imdb_word_index.json",
  index_md5 = "bfafd718b763782e994055a2d397834f",
  names = { { "x_train", "y_train" }, { "x_test", "y_test" } },
}

--- reuters.load_data {num_words =, length =, test_split = 0.2, ...} -> train, test: 11,228 newswires in 46 topics, as
--- lists of word numbers.
--
--     local train, test = mgpu.datasets.reuters.load_data { num_words = 10000, length = 200 }
--     train.x    -- int32 {8982, 200}; without length an array of arrays of numbers
--     train.y    -- int32 {8982}, class ids 0..45
-- get_word_index(): as of imdb.
-- test_split: the share of the texts that is for testing. Options and errors: see texts.lua. Source: the Reuters-21578
-- collection; Keras.
-- Example:
--     print(pcall(mgpu.datasets.reuters.load_data, { data_dir = "here" })) -- without data_dir it is downloaded
--     --> false ...: reuters: here has no reuters.npz
M.reuters = define {
  name = "reuters",
  classes = 46,
  folders = { "reuters" },
  file = "reuters.npz",
  sha256 = "d6586e694ee56d7a4e65172e12b3e987c03096cb01eab99753921ef915959916",
  bytes = 2110848,
  index_file = "reuters_word_index.json",
  index_md5 = "4d44cc38712099c9e383dc6e5f11a921",
  names = { { "x", "y" } },
  test_split = 0.2,
}

return M
