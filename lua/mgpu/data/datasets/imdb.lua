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
return require("mgpu.data.datasets.texts").define {
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
