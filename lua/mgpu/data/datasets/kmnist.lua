--- kmnist.load_data {data_dir =} -> train, test: 70,000 cursive Japanese characters in ten classes, 28 x 28 grey.
--
--     local train, test = mgpu.datasets.kmnist.load_data()
--     train.x    -- uint8 {60000, 28, 28}
--     train.y    -- int32 {60000}, class ids 0..9
-- Errors: see images.lua. Source: Clanuwat et al., Deep learning for classical Japanese literature, 2018.
-- Example:
--     for _, part in ipairs { "train", "t10k" } do -- one blank image, in the form of the published files
--       local x, y = io.open(part .. "-images-idx3-ubyte", "wb"), io.open(part .. "-labels-idx1-ubyte", "wb")
--       x:write("\0\0\8\3\0\0\0\1\0\0\0\28\0\0\0\28", ("\0"):rep(28 * 28))
--       y:write "\0\0\8\1\0\0\0\1\7"
--       x:close()
--       y:close()
--     end
--     local train, test = mgpu.datasets.kmnist.load_data { data_dir = "." } -- without data_dir it is downloaded
--     print(table.concat(train.x:shape(), " "), train.class_names[8])  --> 1 28 28 ya
return require("mgpu.data.datasets.images").define {
  name = "kmnist",
  classes = 10,
  class_names = { "o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo" },
  folders = { "kmnist", "KMNIST" },
  url = "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
  sha256 = {
    train_images = "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
    train_labels = "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
    t10k_images = "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
    t10k_labels = "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
  },
  bytes = { train_images = 18165135, train_labels = 29497, t10k_images = 3041136, t10k_labels = 5120 },
}
