--- cifar10.load_data {data_dir =} -> train, test: 60,000 photographs in ten classes, 32 x 32 in colour.
--
--     local train, test = mgpu.datasets.cifar10.load_data()
--     train.x    -- uint8 {50000, 32, 32, 3}
--     train.y    -- int32 {50000}, class ids 0..9; train.class_names[id + 1]: "airplane" ...
-- Errors: see cifar.lua. Source: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
-- Example:
--     mgpu.datasets.shapes.write_cifar("data", 50) -- images in the form of the published files
--     local train, test = mgpu.datasets.cifar10.load_data { data_dir = "data" } -- without data_dir it is downloaded
--     print(table.concat(train.x:shape(), " "), train.class_names[1])  --> 50 32 32 3 airplane
return require("mgpu.data.datasets.cifar").define {
  name = "cifar10",
  folders = { "cifar10", "cifar-10", "CIFAR10", "cifar-10-batches-bin" },
  archive = "cifar-10-binary.tar.gz",
  sha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
  bytes = 170052171,
  train = { "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin" },
  test = { "test_batch.bin" },
  label_classes = { 10 },
  class_names = { { "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck" } },
}
