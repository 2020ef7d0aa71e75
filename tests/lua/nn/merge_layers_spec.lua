-- Layers with several inputs, and Embedding: numbers compared with Keras (golden set merge_layers), errors,
-- and use in models.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local load_golden = require "golden.load"
local comparing = require "golden.comparing"

local test = check.test
local L = mgpu.layers

local golden = load_golden "merge_layers"
comparing.tests_of("case", golden.cases, comparing.merge)
comparing.tests_of("embedding", golden.embeddings, comparing.embedding)

-- ---- errors -------------------------------------------------------------------------------------

local function ones(...) return mgpu.ones { ... } end

-- A layer, wrong inputs, and the message.
local WRONG = {
  { L.Add {}, ones(2, 3), "takes an array of inputs, as in layer {a, b}" },
  { L.Average {}, {}, "takes an array of inputs" },
  { L.Add {}, { ones(2, 3), ones(2, 4) },
    "inputs of shapes {None, 3} and {None, 4} do not broadcast: axis 2 has sizes 3 and 4" },
  { L.Multiply {}, { ones(2, 3, 4), ones(2, 3) }, "do not broadcast: axis 3 has sizes 4 and 3" },
  { L.Maximum {}, { ones(2, 3), ones(2, 3), ones(2, 2) }, "do not broadcast" },
  { L.Add {}, { ones(2, 3), ones(3, 3) }, "input 1 holds 2 samples, input 2 holds 3" },
  { L.Add {}, { ones(2, 3), ones(1, 3) }, "input 1 holds 2 samples, input 2 holds 1" },
  { L.Add {}, { ones(2, 3), "text" }, "expected a tensor, got string" },
  { L.Subtract {}, { ones(2, 3) }, "takes 2 inputs, got 1" },
  { L.Subtract {}, { ones(2, 3), ones(2, 3), ones(2, 3) }, "takes 2 inputs, got 3" },
  { L.Concatenate {}, ones(2, 3), "takes an array of inputs" },
  { L.Concatenate { 3 }, { ones(2, 3), ones(2, 3) }, "axis 3 is out of range for the input {None, 3}" },
  { L.Concatenate { 0 }, { ones(2, 3), ones(2, 3) }, "axis 0 is out of range" },
  { L.Concatenate { -3 }, { ones(2, 3), ones(2, 3) }, "axis -3 is out of range" },
  { L.Concatenate {}, { ones(2, 3, 1), ones(2, 4, 1) }, "differ in axis 2" },
  { L.Concatenate {}, { ones(2, 3, 4), ones(2, 3) }, "differ in their number of axes" },
  { L.Concatenate {}, { ones(2, 3), ones(3, 3) }, "input 1 holds 2 samples, input 2 holds 3" },
  { L.Dot { 2 }, ones(2, 3), "takes an array of inputs" },
  { L.Dot { 2 }, { ones(2, 3) }, "takes 2 inputs, got 1" },
  { L.Dot { 1 }, { ones(2, 3), ones(2, 3) }, "axis 1 is out of range for the input {None, 3} (the batch is 1)" },
  { L.Dot { { 2, 4 } }, { ones(2, 3), ones(2, 3, 4) }, "axis 4 is out of range" },
  { L.Dot { 2 }, { ones(2, 3), ones(2, 4) },
    "axes 2 and 2 of the inputs {None, 3} and {None, 4} have different sizes" },
  { L.Dot { 2 }, { ones(2, 3), ones(1, 3) }, "input 1 holds 2 samples, input 2 holds 1" },
}

for i, row in ipairs(WRONG) do
  test(("wrong inputs %d: the error of %s names the layer and the mistake"):format(i, row[1].class_name), function()
    local message = check.raises(function() row[1](row[2]) end, row[3], "usage")
    check.matches(message, ("%s %q: "):format(row[1].class_name, row[1].name))
  end)
end

test("a merge layer checks its inputs at every call, not only at the first", function()
  for _, case in ipairs {
    { L.Subtract {}, { ones(2, 3), ones(2, 3) }, { ones(2, 3), ones(2, 3), ones(2, 3) }, "got 3" },
    { L.Add {}, { ones(2, 3), ones(2, 3) }, { ones(2, 3), ones(1, 3) }, "2 samples" },
    { L.Add {}, { ones(2, 3), ones(2, 3) }, ones(2, 3), "an array of inputs" },
    { L.Concatenate {}, { ones(2, 3), ones(2, 3) }, { ones(2, 3), ones(1, 3) }, "2 samples" },
    { L.Concatenate {}, { ones(2, 3), ones(2, 3) }, ones(2, 3), "an array of inputs" },
    { L.Dot { 2 }, { ones(2, 3), ones(2, 3) }, { ones(2, 3), ones(2, 3), ones(2, 3) }, "got 3" },
  } do
    case[1](case[2])
    check.raises(function() case[1](case[3]) end, case[4], "usage")
  end
end)

test("Dot takes one axis or two", function()
  check.raises(function() L.Dot { axes = { 1, 2, 3 } } end, "axes must be one axis or two, got 3", "usage")
  check.raises(function() L.Dot { axes = { 1.5, 2 } } end, 'option "axes" must be', "usage")
end)

test("a normalized Dot divides by at least 1e-7, also for a length of 0", function()
  local layer, unit = L.Dot { 2, normalize = true }, mgpu.tensor { { 1, 0 } }
  check.near(layer { mgpu.tensor { { 3e-8, 4e-8 } }, unit }, { { 0.3 } }, 1e-6)
  check.near(layer { mgpu.tensor { { 3e-6, 4e-6 } }, unit }, { { 0.6 } }, 1e-6)
  local slope = mgpu.grad(function(x) return layer { x, unit }:sum() end)(mgpu.zeros { 1, 2 })
  check.equal(layer { mgpu.zeros { 1, 2 }, unit }, { { 0 } })
  check.near(slope, { { 1e7, 0 } }, 1e-6)
end)

-- ---- Embedding ----------------------------------------------------------------------------------

test("Embedding refuses ids outside its table", function()
  local layer = L.Embedding { 4, 2, name = "words" }
  for _, bad in ipairs { 4, -1, 2 ^ 30 } do
    check.raises(function() core.eval(layer(mgpu.tensor({ { 0, bad } }, { dtype = "int32" }))) end,
      'Embedding "words": an id is not among 0 to 3 (input_dim - 1)', "data")
  end
  for _, bad in ipairs { 0 / 0, 1 / 0, 1.5, -0.5, 1e30 } do
    check.raises(function() core.eval(layer(mgpu.tensor { 0, bad })) end, "an id is not among", "data")
  end
  check.equal(layer(mgpu.tensor { 3 }), layer(mgpu.tensor({ 3 }, { dtype = "int64" })):totable())
  check.equal(layer(mgpu.tensor({ { 0, 3 } }, { dtype = "uint8" })):shape(), { 1, 2, 2 })
end)

test("Embedding keeps ids exact in models, even 2^24 + 1, which float32 cannot represent", function()
  local rows = 2 ^ 24 + 2
  local layer = L.Embedding { rows, 1, embeddings_initializer = function(shape)
    return mgpu.zeros(shape)
  end }
  layer:ensure_built { -1, 1 }
  local ids = mgpu.tensor({ { rows - 1 } }, { dtype = "int32" })
  layer.embeddings:assign(mgpu.where(mgpu.arange(rows, { dtype = "int32" }):reshape { rows, 1 }
    :eq(rows - 1), 5, mgpu.zeros { rows, 1 }))
  check.equal(layer(ids), { { { 5 } } })
  check.equal(mgpu.Sequential { layer } (ids), { { { 5 } } })
end)

test("a model with an Embedding learns from integers and refuses an id outside the table", function()
  mgpu.seed(1)
  local ids = mgpu.randint(0, 8, { 64, 3 })
  local labels = ids:slice { {}, 1 }:ge(4):cast "int32"
  local model = mgpu.Sequential { L.Embedding { 8, 4, name = "words" }, L.Flatten {}, L.Dense { 2 } }
  model:compile { optimizer = mgpu.optimizers.Adam { 0.05 },
    loss = mgpu.losses.SparseCategoricalCrossentropy { from_logits = true }, metrics = "accuracy" }
  local history = model:fit(ids, labels, { epochs = 15, batch_size = 16, verbose = 0 }).history
  check.truthy(history.accuracy[15] > 0.9, "accuracy " .. history.accuracy[15])
  check.raises(function()
    model:fit(ids + 1, labels, { epochs = 1, batch_size = 16, verbose = 0 })
  end, 'Embedding "words": an id is not among 0 to 7', "data")
end)

-- ---- models -------------------------------------------------------------------------------------

test("every merge layer works in a model and when made from its configuration", function()
  local a, b = mgpu.rand { 4, 3, 2 }, mgpu.rand { 4, 3, 2 }
  for _, layer in ipairs { L.Add {}, L.Subtract {}, L.Multiply {}, L.Average {}, L.Maximum {},
    L.Concatenate { 2 }, L.Dot { { -1, 3 }, normalize = true } } do
    local x, y = mgpu.Input { 3, 2 }, mgpu.Input { 3, 2 }
    local model = mgpu.Model { inputs = { x, y }, outputs = layer { x, y } }
    local direct = layer { a, b }
    check.near(model { a, b }, direct:totable(), 1e-6)
    local again = L[layer.class_name](layer:get_config())
    check.equal(again:get_config(), layer:get_config())
    check.equal(again { a, b }, direct:totable())
  end
end)

test("output_shape of a merge keeps unknown sizes and takes known ones from the other input", function()
  check.equal(L.Add {}:output_shape { { -1, 3, 1 }, { -1, 1, 4 } }, { -1, 3, 4 })
  check.equal(L.Add {}:output_shape { { -1, -1, 4 }, { -1, 3, 4 } }, { -1, 3, 4 })
  check.equal(L.Concatenate { 2 }:output_shape { { -1, -1, 4 }, { -1, 3, 4 } }, { -1, -1, 4 })
  check.equal(L.Dot { { 3, 2 } }:output_shape { { -1, -1, 4 }, { -1, 4, 6 } }, { -1, -1, 6 })
end)
