-- Layers: names, weights, input checks, data formats, own layers (API.md, Models).
-- Keras's numbers are in golden_layers_spec.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

test("layers are named as Keras numbers them", function()
  mgpu.Layer.reset_names()
  check.equal(L.Conv2D { 1, 1 }.name, "conv2d")
  check.equal(L.Conv2D { 1, 1 }.name, "conv2d_1")
  check.equal(L.MaxPooling2D {}.name, "max_pooling2d")
  check.equal(L.GlobalAveragePooling2D {}.name, "global_average_pooling2d")
  check.equal(L.BatchNormalization {}.name, "batch_normalization")
  check.equal(L.ReLU {}.name, "re_lu")
  check.equal(L.Dense { 1, name = "own" }.name, "own")
end)

test("a layer makes its weights at the first use", function()
  local layer = L.Dense { 3, name = "d" }
  check.equal(#layer:get_weights(), 0)
  check.equal(layer(mgpu.ones { 2, 5 }):shape(), { 2, 3 })
  check.equal(layer:get_weights()[1]:shape(), { 5, 3 })
  check.equal(layer.kernel.name, "d/kernel")
  check.equal({ layer:count_params() }, { 18, 18 })
end)

test("an input of the wrong rank or size is named", function()
  check.raises(function() L.Conv2D { 2, 3, name = "c" } (mgpu.ones { 2, 9 }) end,
    'Conv2D "c": the input must have 4 axes (batch, rows, columns, channels), got shape {None, 9}',
    "usage")
  check.raises(function() L.MaxPooling2D {} (mgpu.ones { 2, 9 }) end, "must have 4 axes", "usage")
  check.raises(function() L.Conv2D { 2, 5 } (mgpu.ones { 1, 3, 3, 1 }) end, "does not fit", "usage")
  check.raises(function() L.MaxPooling2D { 5 } (mgpu.ones { 1, 3, 3, 1 }) end, "does not fit",
    "usage")
  check.raises(function() L.Reshape { 4 } (mgpu.ones { 2, 3 }) end, "has 3 elements", "usage")
  check.raises(function() L.Dense { 2 } "text" end, "expected a tensor, got string", "usage")
  local dense = L.Dense { 2, name = "d" }
  dense(mgpu.ones { 1, 3 })
  check.raises(function() dense(mgpu.ones { 1, 4 }) end,
    'Dense "d": the input has 4 features, the layer was built for 3', "usage")
  local conv = L.Conv2D { 2, 3 }
  conv(mgpu.ones { 1, 4, 4, 1 })
  check.raises(function() conv(mgpu.ones { 1, 4, 4, 2 }) end, "built for 1", "usage")
end)

test("Reshape takes one -1", function()
  check.equal(L.Reshape { 2, -1 } (mgpu.ones { 3, 8 }):shape(), { 3, 2, 4 })
  check.equal(L.Flatten {} (mgpu.ones { 3, 2, 4 }):shape(), { 3, 8 })
end)

test("channels_first gives what channels_last gives, permuted", function()
  local x = mgpu.rand { 2, 5, 6, 3 }
  local first = x:permute { 1, 4, 2, 3 }
  local seeded = mgpu.initializers.he_normal { seed = 1 }
  for _, make in ipairs {
    function(f) return L.Conv2D { 4, 3, kernel_initializer = seeded, data_format = f } end,
    function(f) return L.MaxPooling2D { 2, data_format = f } end,
    function(f) return L.AveragePooling2D { 2, padding = "same", data_format = f } end,
  } do
    local last = make "channels_last" (x)
    check.near(make "channels_first" (first):permute { 1, 3, 4, 2 }, last:totable(), 1e-6)
  end
  local last = L.BatchNormalization {} (x, { training = true })
  local other = L.BatchNormalization { axis = 2 } (first, { training = true })
  check.near(other:permute { 1, 3, 4, 2 }, last:totable(), 1e-6)
end)

test("the image data format can be set for all layers", function()
  mgpu.set_image_data_format "channels_first"
  local shape = L.Conv2D { 4, 3 } (mgpu.ones { 1, 2, 5, 6 }):shape()
  mgpu.set_image_data_format "channels_last"
  check.equal(shape, { 1, 4, 3, 4 })
end)

test("Dropout does nothing at inference; in training it zeroes and scales", function()
  local layer, x = L.Dropout { 0.25, name = "drop" }, mgpu.ones { 100, 100 }
  check.equal(layer(x):sum():item(), 10000)
  local y = layer(x, { training = true })
  local kept = y:gt(0):cast("float32"):mean():item()
  check.truthy(math.abs(kept - 0.75) < 0.03, "kept " .. kept)
  check.near(y:max():item(), 1 / 0.75)
  check.truthy(not y:eq(layer(x, { training = true })):all():item(), "a new mask each time")
end)

test("Dropout draws the same masks after the same seed", function()
  local layer, x = L.Dropout { 0.5, name = "drop" }, mgpu.ones { 8, 8 }
  mgpu.seed(3)
  local first = layer(x, { training = true }):totable()
  mgpu.seed(3)
  check.equal(layer(x, { training = true }), first)
end)

test("a batch normalization that is not trainable uses its moving statistics", function()
  local layer, x = L.BatchNormalization { trainable = false }, mgpu.rand { 4, 3 }
  check.equal(layer(x, { training = true }), layer(x):totable())
  check.equal(layer.moving_mean, { 0, 0, 0 })
end)

test("set_weights checks every shape before it changes one", function()
  local layer = L.Dense { 2, name = "d" }
  layer(mgpu.ones { 1, 2 })
  local before = layer:get_weights()[1]:totable()
  check.raises(function() layer:set_weights { { { 1, 2 }, { 3, 4 } }, { 1, 2, 3 } } end,
    "set_weights: array 2 has shape {3}, d/bias needs {2}", "usage")
  check.equal(layer.kernel, before)
  layer:set_weights { { { 1, 2 }, { 3, 4 } }, { 1, 2 } }
  check.equal(layer(mgpu.tensor { { 1, 1 } }), { { 5, 8 } })
end)

-- ---- own layers ---------------------------------------------------------------------------------

local function affine()
  local Affine = mgpu.Layer:extend("Affine", { units = "integer", activation = "linear" })
  function Affine:build(shape)
    self.w = self:add_weight { name = "w", shape = { shape[#shape], self.units } }
  end
  function Affine:call(x) return mgpu.matmul(x, self.w) end
  return Affine
end

test("an own layer's options are checked and become fields", function()
  local Affine = affine()
  local layer = Affine { units = 4 }
  check.equal({ layer.units, layer.activation }, { 4, "linear" })
  check.raises(function() Affine { unit = 4 } end,
    'Affine: unknown option "unit" (did you mean "units"?)', "usage")
  check.raises(function() Affine {} end, 'option "units" is missing', "usage")
end)

test("an own layer may change the shape inside a model", function()
  local model = mgpu.Sequential { L.Input { 3 }, affine() { units = 5 }, L.Dense { 2 } }
  check.equal(model(mgpu.ones { 4, 3 }):shape(), { 4, 2 })
  check.equal(model:count_params(), 15 + 12)
end)

test("layers and variables in fields of an own layer, or arrays of them, are found", function()
  local Pair = mgpu.Layer:extend("Pair", {})
  function Pair:build()
    self.parts = { L.Dense { 2, name = "left" }, L.Dense { 3, name = "right" } }
    self.scale = mgpu.variable(mgpu.ones {}, { name = "scale", trainable = true })
  end
  function Pair:call(x) return self.parts[2](self.parts[1](x)) * self.scale end
  local layer = Pair {}
  check.equal(layer(mgpu.ones { 1, 4 }):shape(), { 1, 3 })
  check.equal({ layer:count_params() }, { 20, 20 })
  layer.parts[1].trainable = false
  check.equal({ layer:count_params() }, { 20, 10 })
end)
