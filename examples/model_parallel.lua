-- One model on three devices: two branches side by side, and the layers that join them.
--
--     mgpulua examples/model_parallel.lua --help
--
-- What it teaches: `device =` on a layer, mgpu.with_device around several layers.

local mgpu = require "mgpu"
local L = mgpu.layers
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser "One model on three devices."
parser:option("--devices", "Where the two branches and their sum are computed.", "cpu:0,cpu:1,cpu:2"):argname "A,B,C"
command_line.add_epochs(parser, 5)
local options = parser:parse()
local devices = {}
for name in options.devices:gmatch "[^,]+" do devices[#devices + 1] = name end
if #devices ~= 3 then command_line.stop("--devices needs three names, got %d (see --help)", #devices) end

-- y = the dot product of the rows of a and b: each branch sees one of them.
mgpu.seed(1)
local a, b = mgpu.rand { 2000, 16 }, mgpu.rand { 2000, 16 }
local y = (a * b):sum { axis = 2, keepdims = true }
mgpu.eval(a, b, y)

local in_a, in_b = mgpu.Input { 16, name = "a" }, mgpu.Input { 16, name = "b" }
local left = mgpu.with_device(devices[1], function()
  return L.Dense { 64, activation = "relu", name = "left_2" } (
    L.Dense { 64, activation = "relu", name = "left_1" } (in_a))
end)
local right = mgpu.with_device(devices[2], function()
  return L.Dense { 64, activation = "relu", name = "right_2" } (
    L.Dense { 64, activation = "relu", name = "right_1" } (in_b))
end)
local joined = mgpu.with_device(devices[3], function()
  return L.Dense { 1, name = "product" } (L.Multiply { name = "both" } { left, right })
end)
local model = mgpu.Model { inputs = { in_a, in_b }, outputs = joined, name = "two_branches" }
model:summary()

model:compile { optimizer = "adam", loss = "mse", devices = devices[1] }
model:fit({ a, b }, y, { batch_size = 64, epochs = options.epochs, verbose = 2 })
print(("mean squared error: %.5f"):format(model:evaluate({ a, b }, y, { verbose = 0 }).loss))
