-- Models of .onnx files on a cuda device: the constants of their graphs are computed on the host, while the model is
-- traced, and lie on the device where it computes with them.
require "tests.cuda.device"
local check = require "check"
local mgpu = require "mgpu"

local FOLDER = "tests/golden/onnx_models/"

for _, name in ipairs { "attention_new", "encoder_new", "images_old", "mlp_old", "movement_new" } do
  check.test(name .. " predicts on a cuda device what PyTorch computed", function()
    local model, data = mgpu.load_model(FOLDER .. name .. ".onnx"), mgpu.load(FOLDER .. name:match "^%a+" .. ".npz")
    local y = model:predict(data.x0)
    for i, t in ipairs(type(y) == "table" and y or { y }) do
      check.near(t:flatten():totable(), data["y" .. i - 1]:flatten():totable(), 2e-6) -- sums in another order
    end
  end)
end
