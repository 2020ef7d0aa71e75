--- fashion_mnist.load_data {data_dir =} -> train, test: 70,000 pictures of clothes in ten classes, 28 x 28 grey.
--
--     local train, test = mgpu.datasets.fashion_mnist.load_data()
--     train.x    -- uint8 {60000, 28, 28}
--     train.y    -- int32 {60000}, class ids 0..9
-- Debian's package dataset-fashion-mnist contains the files. Errors: see images.lua.
-- Source: Xiao, Rasul & Vollgraf, Fashion-MNIST, 2017.
-- Example:
--     for _, part in ipairs { "train", "t10k" } do -- one blank image, in the form of the published files
--       local x, y = io.open(part .. "-images-idx3-ubyte", "wb"), io.open(part .. "-labels-idx1-ubyte", "wb")
--       x:write("\0\0\8\3\0\0\0\1\0\0\0\28\0\0\0\28", ("\0"):rep(28 * 28))
--       y:write "\0\0\8\1\0\0\0\1\7"
--       x:close()
--       y:close()
--     end
--     local train, test = mgpu.datasets.fashion_mnist.load_data { data_dir = "." } -- without data_dir it is downloaded
--     print(table.concat(train.x:shape(), " "), train.class_names[8])  --> 1 28 28 Sneaker
return require("mgpu.data.datasets.images").define {
  name = "fashion_mnist",
  classes = 10,
  class_names = { "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
    "Ankle boot" },
  folders = { "fashion-mnist", "fashion_mnist", "FashionMNIST" },
  hint = ", or: apt-get install dataset-fashion-mnist",
  url = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
  sha256 = {
    train_images = "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    train_labels = "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    t10k_images = "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    t10k_labels = "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
  },
  bytes = { train_images = 26421880, train_labels = 29515, t10k_images = 4422102, t10k_labels = 5148 },
}
