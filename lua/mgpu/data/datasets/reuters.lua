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
return require("mgpu.data.datasets.texts").define {
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
