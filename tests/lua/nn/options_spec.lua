-- Declared options: a function takes one table of arguments, with named and positional fields.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

test("a single value instead of a table is the first positional field", function()
  check.equal(L.Dense(10).units, 10)
  check.equal(L.Dense { 10 }.units, 10)
  check.equal(L.Dense { units = 10 }.units, 10)
  check.equal(L.Activation "relu".activation, "relu")
end)

test("positional fields can be nested pairs", function()
  local layer = L.Conv2D { 32, { 3, 5 } }
  check.equal(layer.filters, 32)
  check.equal(layer.kernel_size, { 3, 5 })
  check.equal(L.Conv2D { 32, 3 }.kernel_size, { 3, 3 })
  check.equal(L.Input { 28, 28, 1 }:shape(), { -1, 28, 28, 1 })
  check.equal(L.Reshape { 7, 7, 64 }.target_shape, { 7, 7, 64 })
end)

test("a hole or a name in a list is an error that says where", function()
  check.raises(function() L.Input { nil, 3 } end, 'Input: option "shape": entry 1 is missing', "usage")
  check.raises(function() L.Input { 3, nil, 4 } end, 'Input: option "shape": entry 2 is missing', "usage")
  check.raises(function() L.Input { shape = { 3, x = 4 } } end, 'option "shape": the name "x"', "usage")
  check.raises(function() L.Input { [0] = 3 } end, 'option "shape": the key 0', "usage")
  check.raises(function() L.Conv2D { 8, { 3, nil, 5 } } end, 'option "kernel_size": entry 2 is missing', "usage")
  check.raises(function() L.Add {} { mgpu.ones { 1 }, nil, mgpu.ones { 1 } } end,
    "the inputs: entry 2 is missing", "usage")
  check.raises(function() L.Add {} { mgpu.Input { 1 }, nil, mgpu.Input { 1 } } end,
    "the inputs: entry 2 is missing", "usage")
  check.raises(function()
    local a = mgpu.Input { 1 }
    mgpu.Model { inputs = { a, nil, mgpu.Input { 1 } }, outputs = a }
  end, "inputs: entry 2 is missing", "usage")
end)

test("an unknown option is an error with the layer, the nearest option and the user's line", function()
  local make = function() L.Conv2D { 32, 3, name = "conv2", activaton = "relu" } end
  local message = check.raises(make,
    'Conv2D "conv2": unknown option "activaton" (did you mean "activation"?)', "usage")
  check.matches(message, "options_spec%.lua:%d+: ")
end)

test("a missing required option is an error", function()
  check.raises(function() L.Dense {} end, 'Dense: option "units" is missing', "usage")
end)

test("one option too many without a name is an error", function()
  check.raises(function() L.Dense { 10, "relu" } end,
    '"relu" has no name, but only units may be given by position', "usage")
end)

test("an option given by name and by position is an error", function()
  check.raises(function() L.Dense { 10, units = 10 } end, 'option "units" is given twice', "usage")
end)

test("an option of a wrong type is an error", function()
  check.raises(function() L.Dense { "ten" } end,
    'option "units" must be a whole number, got "ten"', "usage")
  check.raises(function() L.Dense { 10, use_bias = 1 } end, "must be true or false", "usage")
  check.raises(function() L.Conv2D { 8, { 3, 3, 3 } } end, 'option "kernel_size"', "usage")
end)

test("an option out of range is an error", function()
  check.raises(function() L.Dense { 0 } end, 'option "units" must be at least 1, got 0', "usage")
  check.raises(function() L.Dropout { 1.5 } end, 'option "rate" must be at most 1', "usage")
  check.raises(function() L.Dropout { 0 / 0 } end, 'option "rate"', "usage")
end)

test("a word that is not allowed is an error with the nearest allowed word", function()
  check.raises(function() L.Conv2D { 8, 3, padding = "sane" } end, 'did you mean "same"?', "usage")
end)

test("unknown layers, activations and initializers are errors with the nearest name", function()
  check.raises(function() return L.Dens end, 'unknown layer "Dens" (did you mean "Dense"?)',
    "usage")
  check.raises(function() L.Dense { 1, activation = "rleu" } end, 'did you mean "relu"?', "usage")
  check.raises(function() return mgpu.initializers.he_norml end, 'did you mean "he_normal"?',
    "usage")
end)

test("a class without options has none, whatever its list says about positions", function()
  check.equal(#L.Identity.own_declared, 0)
  check.equal(L.Identity { name = "same" }:get_config().positional, nil)
  check.raises(function() L.Identity { positional = 1 } end, 'unknown option "positional"', "usage")
end)
