-- LocallyConnected1D and LocallyConnected2D. Keras's numbers and gradients: old_files_spec.lua, the models local*.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

-- A layer whose kernel and bias have these numbers, called on x.
local function called(layer, x, kernel, bias)
  layer:ensure_built { -1, unpack(x:shape(), 2) }
  layer:set_weights { kernel, bias }
  return layer(x)
end

test("every place of the output has a kernel and a bias of its own", function()
  local x = mgpu.arange(1, 6):reshape { 1, 5, 1 }
  local kernel = mgpu.tensor { { { 1 }, { 0 } }, { { 0 }, { 1 } }, { { 1 }, { 1 } }, { { 2 }, { 0 } } }
  local y = called(L.LocallyConnected1D { 1, 2 }, x, kernel, mgpu.tensor { { 0 }, { 10 }, { 0 }, { 0 } })
  check.near(y:reshape { -1 }, { 1, 13, 7, 8 }, 1e-6)
end)

test("with the same kernel everywhere it is a convolution, in both data formats", function()
  local x, kernel = mgpu.rand { 2, 5, 6, 3 }, mgpu.rand { 3, 2, 3, 4 }
  local conv = L.Conv2D { 4, { 3, 2 }, strides = { 2, 1 }, use_bias = false }
  conv:ensure_built { -1, 5, 6, 3 }
  conv:set_weights { kernel }
  local function every(order, ...)
    local rows = kernel:permute(order):reshape { 1, 18, 4 }
    local list = {}
    for i = 1, 10 do list[i] = rows end
    local layer = L.LocallyConnected2D { 4, { 3, 2 }, strides = { 2, 1 }, use_bias = false, data_format = ... }
    layer:ensure_built { -1, unpack(... and { 3, 5, 6 } or { 5, 6, 3 }) }
    layer:set_weights { mgpu.concat(list, 1) }
    return layer
  end
  check.near(every { 1, 2, 3, 4 } (x), conv(x):totable(), 1e-5)
  local first = every({ 3, 1, 2, 4 }, "channels_first") (x:permute { 1, 4, 2, 3 })
  check.near(first:permute { 1, 3, 4, 2 }, conv(x):totable(), 1e-5)
end)

local function network(options)
  local given = { 3, 2, activation = "tanh", kernel_regularizer = "l2" }
  for key, value in pairs(options) do given[key] = value end
  return mgpu.Sequential { mgpu.Input { 5, 4, 2 }, L.LocallyConnected2D(given), L.ActivityRegularization { l2 = 0.1 },
    L.ThresholdedReLU { 0.1 }, L.Flatten {}, L.Dense { 2 } }
end

for implementation = 1, 3 do
  for _, data_format in ipairs { "channels_last", "channels_first" } do
    local options = { implementation = implementation, data_format = data_format,
      padding = implementation > 1 and "same" or "valid" }
    local what = ("implementation %d, %s, "):format(implementation, data_format)
    test(what .. "trains the same on 1, 2 and 3 devices", function()
      local weights, x, y = network(options):get_weights(), mgpu.rand { 7, 5, 4, 2 }, mgpu.rand { 7, 2 }
      local expected
      for n = 1, 3 do
        local model = network(options)
        model:set_weights(weights)
        model:compile { optimizer = mgpu.optimizers.SGD { 0.1 }, loss = "mse",
          devices = { unpack({ "cpu:0", "cpu:1", "cpu:2" }, 1, n) } }
        model:fit(x, y, { batch_size = 4, epochs = 2, verbose = 0, shuffle = false })
        local out = model:predict(x, { verbose = 0 })
        expected = expected or out:totable()
        check.near(out, expected, 1e-6) -- sums over the devices are rounded otherwise
      end
    end)
    test(what .. "returns from every format of files", function()
      local model, x = network(options), mgpu.rand { 2, 5, 4, 2 }
      for _, ending in ipairs { ".safetensors", ".h5", ".keras" } do
        local path = check.path("local" .. ending)
        model:save(path)
        check.equal(mgpu.load_model(path):predict(x, { verbose = 0 }), model:predict(x, { verbose = 0 }):totable())
      end
      check.equal(mgpu.model_from_json(model:to_json()):count_params(), model:count_params())
    end)
    test(what .. "has the gradients that central differences have", function()
      local layer = L.LocallyConnected2D { 2, 2, strides = { 1, 2 }, implementation = implementation, dtype = "float64",
        data_format = data_format, padding = options.padding, bias_initializer = "normal" }
      local x = mgpu.variable(mgpu.rand({ 2, 3, 4, 2 }, { dtype = "float64" }))
      layer:ensure_built { -1, 3, 4, 2 }
      local function loss() return layer(x:value()):square():sum() end
      for _, v in ipairs { x, layer.kernel, layer.bias } do
        local _, grads = mgpu.value_and_grad(loss, { v })()
        local numbers, step, shape = v:value():reshape({ -1 }):totable(), 1e-5, v:shape()
        local flat = grads[1]:reshape({ -1 }):totable()
        for i = 1, #numbers, 5 do
          local sides = {}
          for k, sign in ipairs { 1, -1 } do
            local moved = { unpack(numbers) }
            moved[i] = moved[i] + sign * step
            v:assign(mgpu.tensor(moved, { dtype = "float64" }):reshape(shape))
            sides[k] = loss():item()
          end
          check.near(flat[i], (sides[1] - sides[2]) / (2 * step), 1e-6) -- the square of the step, and rounding / step
        end
        v:assign(mgpu.tensor(numbers, { dtype = "float64" }):reshape(shape))
        loss():item()
      end
    end)
  end
end

test("what a LocallyConnected layer cannot do is an error that says so", function()
  local function refused(make, pattern) check.raises(make, pattern, "usage") end
  refused(function() L.LocallyConnected1D { 2, 3, padding = "same" } end,
    'padding "same" needs implementation = 2 or 3')
  refused(function() L.LocallyConnected1D { 2, 3, implementation = 4 } end, '"implementation" must be at most 3')
  refused(function() L.LocallyConnected1D { 2, 3 } (mgpu.ones { 1, 2, 1 }) end, "kernel of 3 steps does not fit")
  refused(function() L.LocallyConnected2D { 2, 3 } (mgpu.Input { -1, 5, 1 }) end, "all sizes must be known")
  local layer = L.LocallyConnected2D { 2, 3 }
  layer(mgpu.ones { 1, 5, 5, 1 })
  refused(function() layer(mgpu.ones { 1, 6, 5, 1 }) end, "was built for .* got an input of shape {1, 6, 5, 1}")
  local model = mgpu.Sequential { mgpu.Input { 5, 1 }, L.LocallyConnected1D { 2, 3 } }
  check.raises(function() model:save(check.path "local.onnx") end, "LocallyConnected1D .* ONNX has no op", "usage")
end)
