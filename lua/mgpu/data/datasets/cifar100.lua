--- cifar100.load_data {data_dir =, label_mode = "fine"} -> train, test: 60,000 photographs in 100 classes, or with
--- label_mode = "coarse" in 20, 32 x 32 in colour.
--
--     local train, test = mgpu.datasets.cifar100.load_data()
--     train.x    -- uint8 {50000, 32, 32, 3}
--     train.y    -- int32 {50000}, class ids 0..99
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
return require("mgpu.data.datasets.cifar").define {
  name = "cifar100",
  folders = { "cifar100", "cifar-100", "CIFAR100", "cifar-100-binary" },
  archive = "cifar-100-binary.tar.gz",
  sha256 = "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
  bytes = 168513733,
  train = { "train.bin" },
  test = { "test.bin" },
  label_classes = { 20, 100 },
  modes = { "coarse", "fine" },
}
