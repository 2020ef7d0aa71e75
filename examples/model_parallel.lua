-- One model on three devices: two branches side by side, and the layers that join them.
--
--     mgpulua examples/model_parallel.lua --help
--
-- What it teaches: `device =` on a layer, mgpu.with_device around several layers.

local mgpu = require "mgpu"
local L = mgpu.layers

local HELP = [[
usage: mgpulua model_parallel.lua [options]
  --devices A,B,C   where the two branches and their sum are computed (cpu:0,cpu:1,cpu:2)
  --epochs N        passes over the data (5)
  --help            this text]]

local function usage(text, ...)
  io.stderr:write("model_parallel.lua: ", text:format(...), " (see --help)\n")
  os.exit(1)
end

local options, i = { devices = "cpu:0,cpu:1,cpu:2", epochs = "5" }, 1
while arg[i] do
  local name = arg[i]:match "^%-%-(%a+)$"
  if name == "help" then
    print(HELP)
    return
  elseif not name or not options[name] then
    usage("unknown option %s", arg[i])
  elseif not arg[i + 1] then
    usage("%s needs a value", arg[i])
  end
  options[name], i = arg[i + 1], i + 2
end
local devices = {}
for name in options.devices:gmatch "[^,]+" do devices[#devices + 1] = name end
if #devices ~= 3 then usage("--devices needs three names, got %d", #devices) end
local epochs = tonumber(options.epochs) or usage("--epochs: cannot read %q as a number", options.epochs)

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
model:fit({ a, b }, y, { batch_size = 64, epochs = epochs, verbose = 2 })
print(("mean squared error: %.5f"):format(model:evaluate({ a, b }, y, { verbose = 0 }).loss))
