-- Sequential models, their weights and summary, and the models of mgpu.models.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

test("require sets no global, and an unknown name is an error with the nearest one", function()
  check.equal(rawget(_G, "mgpu"), nil)
  check.raises(function() return mgpu.Sequentiall end, 'did you mean "Sequential"?', "usage")
  check.raises(function() return mgpu.models.lenet6 end,
    'unknown model "lenet6" %(did you mean "lenet5"%?%); .*/models has char_lstm, cifar10_cnn, ', "usage")
end)

test("a model with an Input has its weights at once, a model without one at the first call", function()
  check.equal(mgpu.Sequential { L.Input { 3 }, L.Dense { 2 } }:count_params(), 8)
  check.equal(mgpu.Sequential { L.Dense { 2, input_shape = { 3 } } }:count_params(), 8)
  local later = mgpu.Sequential { L.Dense { 2 } }
  check.equal(later:count_params(), 0)
  later(mgpu.ones { 1, 3 })
  check.equal(later:count_params(), 8)
end)

test("layers can be added one by one and removed", function()
  local model = mgpu.Sequential()
  model:add(L.Input { 3 })
  model:add(L.Dense { 4 })
  model:add(L.Dense { 2 })
  check.equal(model(mgpu.ones { 5, 3 }):shape(), { 5, 2 })
  model:pop()
  check.equal(model(mgpu.ones { 5, 3 }):shape(), { 5, 4 })
  check.equal(#model.layers, 1)
end)

test("Sequential refuses a value that is not a layer, a layer given twice, and a name in use", function()
  check.raises(function() mgpu.Sequential { 5 } end, "entry 1 is a number, not a layer", "usage")
  check.raises(function() mgpu.Sequential { L.Flatten } end, "made by calling the class", "usage")
  local layer = L.Dense { 2, name = "d" }
  check.raises(function() mgpu.Sequential { layer, layer } end, "is in the model twice",
    "usage")
  check.raises(function() mgpu.Sequential { layer, L.Dense { 1, name = "d" } } end,
    'two layers are called "d"', "usage")
  check.raises(function() mgpu.Sequential { layer, L.Input { 2 } } end, "must be the first",
    "usage")
end)

test("a batch of a wrong shape is an error that names both shapes", function()
  local model = mgpu.Sequential { name = "m", L.Input { 3 }, L.Dense { 2 } }
  check.raises(function() model(mgpu.ones { 2, 4 }) end,
    'Sequential "m": a batch of shape {2, 4} was given, the model takes {None, 3}', "usage")
  check.equal(model(mgpu.ones { 2, 3 }):shape(), { 2, 2 })
end)

test("a last axis of size 1 is added or removed as in Keras", function()
  local images = mgpu.Sequential { L.Input { 4, 4, 1 }, L.Flatten {}, L.Dense { 2 } }
  check.equal(images(mgpu.ones { 3, 4, 4 }), images(mgpu.ones { 3, 4, 4, 1 }))
  local rows = mgpu.Sequential { L.Input { 3 }, L.Dense { 2 } }
  check.equal(rows(mgpu.ones { 5, 3, 1 }), rows(mgpu.ones { 5, 3 }))
end)

test("integer inputs are cast to floatx", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1, kernel_initializer = "ones" } }
  check.equal(model(mgpu.tensor({ { 1, 2 } }, { dtype = "uint8" })), { { 3 } })
end)

test("get_layer finds by name and by position", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1, name = "first" }, L.ReLU {} }
  check.equal(model:get_layer "first", model.layers[1])
  check.equal(model:get_layer { index = 2 }, model.layers[2])
  check.raises(function() model:get_layer "frist" end, 'did you mean "first"?', "usage")
end)

test("get_weights returns weights in Keras's order", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 3, name = "d" },
    L.BatchNormalization { name = "n" } }
  local names = {}
  for i, v in ipairs(model.variables) do names[i] = v.name end
  check.equal(names, { "d/kernel", "d/bias", "n/gamma", "n/beta", "n/moving_mean",
    "n/moving_variance" })
  check.equal(#model.trainable_variables, 4)
  local weights = model:get_weights()
  check.equal(#weights, 6)
  model:set_weights(weights)
  check.raises(function() model:set_weights { weights[1] } end, "set_weights", "usage")
end)

test("a layer or a model that is not trainable has no trainable variables", function()
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 3 }, L.Dense { 1 } }
  model.layers[1].trainable = false
  check.equal(#model.trainable_variables, 2)
  model.trainable = false
  check.equal(#model.trainable_variables, 0)
end)

test("a frozen model inside another keeps its moving statistics, and can be unfrozen", function()
  local norm = L.BatchNormalization { name = "n" }
  local inner = mgpu.Sequential { norm }
  local model = mgpu.Sequential { L.Input { 3 }, inner, L.Dense { 1 } }
  inner.trainable = false
  model(mgpu.rand { 4, 3 }, { training = true })
  check.equal(norm.moving_mean, { 0, 0, 0 })
  inner.trainable = true
  check.equal(#model.trainable_variables, 4)
  check.falsy(mgpu.Sequential { trainable = false, L.Dense { 1 } }.layers[1].trainable)
end)

test("a model can be a layer of another model", function()
  local inner = mgpu.Sequential { L.Dense { 4, name = "a" }, L.ReLU {} }
  local model = mgpu.Sequential { L.Input { 3 }, inner, L.Dense { 2, name = "b" } }
  check.equal(model(mgpu.ones { 1, 3 }):shape(), { 1, 2 })
  check.equal(model:count_params(), 16 + 10)
end)

test("summary prints Keras's table", function()
  local text, output = "", mgpu.output
  mgpu.output = function(part) text = text .. part end
  mgpu.models.mnist_cnn {}:summary()
  mgpu.output = output
  check.matches(text, 'Model: "mnist_cnn"')
  check.matches(text, "(None, 26, 26, 32)")
  check.matches(text, "Total params: 2,354,250")
  check.matches(text, "Trainable params: 2,353,738")
  check.matches(text, "Non-trainable params: 512")
end)

test("the models of mgpu.models have the parameter counts of their originals", function()
  check.equal({ mgpu.models.mnist_cnn {}:count_params() }, { 2354250, 2353738 })
  check.equal(mgpu.models.lenet5 {}:count_params(), 61706)
  check.equal(mgpu.models.mlp {}:count_params(), 669706)
  local other = mgpu.models.lenet5 { input_shape = { 32, 32, 3 }, classes = 5 }
  check.equal(other(mgpu.ones { 2, 32, 32, 3 }):shape(), { 2, 5 })
end)
