-- mgpu.set_floatx "float64": every model of mgpu.models trains in float64 on the reference device.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test

for _, name in ipairs { "lenet5", "mlp", "mnist_cnn" } do
  test(name .. " trains in float64 on ref", function()
    mgpu.set_floatx "float64"
    local ok, message = pcall(function()
      local shape = name == "mlp" and { 5, 5, 1 } or { 16, 16, 1 }
      local model = mgpu.models[name] { input_shape = shape, classes = 3 }
      model:compile { optimizer = mgpu.optimizers.Adam { 1e-3 }, loss = "sparse_categorical_crossentropy",
        devices = "ref:0" }
      local x = mgpu.rand { 2, unpack(shape) }
      check.equal(x:dtype(), "float64")
      check.equal(model.variables[1]:dtype(), "float64")
      local y = mgpu.tensor({ 0, 2 }, { dtype = "int32" })
      local first = model:train_on_batch(x, y).loss
      for _ = 1, name == "mnist_cnn" and 1 or 10 do model:train_on_batch(x, y) end
      local last = model:train_on_batch(x, y).loss
      check.truthy(last == last and last < first * 1.5, "the loss is a number and does not run away")
      check.equal(model:predict(x):dtype(), "float64")
    end)
    mgpu.set_floatx "float32"
    if not ok then error(message, 0) end
  end)
end
