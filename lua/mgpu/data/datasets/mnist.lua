--- mnist.load_data {data_dir =} -> train, test: 70,000 handwritten digits, 28 x 28 grey.
--
--     local train, test = mgpu.datasets.mnist.load_data()
--     train.x    -- uint8 {60000, 28, 28}
--     train.y    -- int32 {60000}, class ids 0..9
-- Errors: see images.lua. Source: LeCun, Cortes & Burges, The MNIST database, 1998.
-- Example:
--     for _, part in ipairs { "train", "t10k" } do -- one blank image, in the form of the published files
--       local x, y = io.open(part .. "-images-idx3-ubyte", "wb"), io.open(part .. "-labels-idx1-ubyte", "wb")
--       x:write("\0\0\8\3\0\0\0\1\0\0\0\28\0\0\0\28", ("\0"):rep(28 * 28))
--       y:write "\0\0\8\1\0\0\0\1\7"
--       x:close()
--       y:close()
--     end
--     local train, test = mgpu.datasets.mnist.load_data { data_dir = "." } -- without data_dir it is downloaded
--     print(table.concat(train.x:shape(), " "), train.y[1]:item())  --> 1 28 28 7
return require("mgpu.data.datasets.images").define {
  name = "mnist",
  classes = 10,
  folders = { "mnist", "MNIST" },
  url = "https://storage.googleapis.com/cvdf-datasets/mnist/",
  sha256 = {
    train_images = "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    train_labels = "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    t10k_images = "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    t10k_labels = "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
  },
  bytes = { train_images = 9912422, train_labels = 28881, t10k_images = 1648877, t10k_labels = 4542 },
}
