--- cifar100.load_data {data_dir =, label_mode = "fine"} -> train, test: 60,000 photographs in 100 classes, or with
--- label_mode = "coarse" in 20, 32 x 32 in colour.
--
--     local train, test = mgpu.datasets.cifar100.load_data()
--     train.x    -- uint8 {50000, 32, 32, 3}
--     train.y    -- int32 {50000}, class ids 0..99; train.class_names[id + 1]: "apple" ...
-- Errors: see cifar.lua. Source: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
-- Example:
--     for _, part in ipairs { "train", "test" } do -- one blank image, in the form of the published files
--       local file = io.open(part .. ".bin", "wb")
--       file:write("\4\30", ("\0"):rep(32 * 32 * 3))
--       file:close()
--     end
--     local fine = mgpu.datasets.cifar100.load_data { data_dir = "." } -- without data_dir it is downloaded
--     local coarse = mgpu.datasets.cifar100.load_data { data_dir = ".", label_mode = "coarse" }
--     print(table.concat(fine.x:shape(), " "), fine.y[1]:item(), coarse.y[1]:item())  --> 1 32 32 3 30 4
--     print(fine.class_names[31], coarse.class_names[5])  --> dolphin fruit and vegetables
return require("mgpu.data.datasets.cifar").define {
  name = "cifar100",
  folders = { "cifar100", "cifar-100", "CIFAR100", "cifar-100-binary" },
  archive = "cifar-100-binary.tar.gz",
  sha256 = "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
  bytes = 168513733,
  train = { "train.bin" },
  test = { "test.bin" },
  label_classes = { 20, 100 },
  class_names = {
    { "aquatic mammals", "fish", "flowers", "food containers", "fruit and vegetables", "household electrical devices",
    "household furniture", "insects", "large carnivores", "large man-made outdoor things",
    "large natural outdoor scenes", "large omnivores and herbivores", "medium mammals", "non-insect invertebrates",
    "people", "reptiles", "small mammals", "trees", "vehicles 1", "vehicles 2" },
    { "apple", "aquarium fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple tree", "motorcycle", "mountain", "mouse", "mushroom", "oak tree", "orange",
    "orchid", "otter", "palm tree", "pear", "pickup truck", "pine tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk",
    "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow tree", "wolf", "woman", "worm" },
  },
  modes = { "coarse", "fine" },
}
