-- Functional models: several inputs and outputs, shared layers, nested models, losses, and saving. Training
-- is compared with Keras (golden set functional).

local check = require "check"
local mgpu = require "mgpu"
local in_float64 = require "fixtures".in_float64
local comparing = require "golden.comparing"
local load_golden = require "golden.load"
local hash = require "golden.hash"

local test = check.test
local L = mgpu.layers

-- A model with two inputs, a shared layer, a nested model and two outputs.
local function two(given)
  given = given or {}
  local a, b = mgpu.Input { 6, name = "a" }, mgpu.Input { 4, name = "b" }
  local shared = L.Dense { 5, activation = "tanh", name = "shared", kernel_regularizer = given.shared }
  local u = shared(L.Dense { 4, name = "narrow", bias_regularizer = given.narrow } (a))
  local v = shared(b)
  local inner_input = mgpu.Input { 10, name = "inner_input" }
  local deep = L.Dense { 3, activation = "tanh", name = "deep", activity_regularizer = given.deep }
  local inner = mgpu.Model { inputs = inner_input, outputs = deep(inner_input), name = "inner" }
  local price = L.Dense { 1, name = "price" } (inner(L.Concatenate { name = "both" } { u, v }))
  local kind = L.Dense { 3, activation = "softmax", name = "kind" } (L.Add { name = "sum" } { u, v })
  return mgpu.Model { inputs = { a, b }, outputs = { price, kind }, name = "two" }
end

local function numbers(shape, ...) return comparing.array(shape, mgpu.ones { 1 }:dtype(), ...) end

local function data(rows, step)
  local ids = hash.labels(rows, 100 + step, 3)
  return { numbers({ rows, 6 }, 70 + step), numbers({ rows, 4 }, 80 + step) },
    { numbers({ rows, 1 }, 90 + step), mgpu.tensor(ids, { dtype = "int32" }) }
end

local LOSSES = { "mse", "sparse_categorical_crossentropy" }

-- ---- numbers ------------------------------------------------------------------------------------

for _, eager in ipairs { false, true } do
  test(("a functional model trains as in Keras%s"):format(eager and ", without jit" or ""), function()
    in_float64(function()
      local golden = load_golden "functional"
      local R = mgpu.regularizers
      local model = two { shared = R.L2 { 0.01 }, narrow = R.L1 { 0.02 }, deep = R.L2 { 0.1 } }
      local weights = {}
      for k, recipe in ipairs(golden.weights) do
        check.equal(recipe.name:match "[^/]+/[^/]+$", model.variables[k].name)
        weights[k] = numbers(recipe.shape, recipe.salt, recipe.scale, recipe.offset)
      end
      model:set_weights(weights)
      model:compile { optimizer = mgpu.optimizers.SGD { 0.1, momentum = 0.9 }, loss = LOSSES,
        loss_weights = { price = 1, kind = 0.5 }, run_eagerly = eager, devices = "ref:0" }
      local weight = { numbers({ golden.rows }, 110, 0.5, 1), mgpu.ones { golden.rows } }
      for step = 1, golden.steps do
        local x, y = data(golden.rows, step - 1)
        local r = model:train_on_batch(x, y, { sample_weight = weight })
        -- both sides compute in float64
        check.near({ r.loss, r.price_loss, r.kind_loss }, golden.curve[step], 1e-10)
      end
      for k, wanted in ipairs(golden.final) do
        check.near(model:get_weights()[k]:reshape { -1 }, wanted, 1e-10)
      end
    end)
  end)
end

-- ---- building -----------------------------------------------------------------------------------

test("the weights of a shared layer appear once, and those of a nested model are found", function()
  local model = two()
  local names = {}
  for i, v in ipairs(model.variables) do names[i] = v.name end
  check.equal(names, { "narrow/kernel", "narrow/bias", "shared/kernel", "shared/bias", "deep/kernel",
    "deep/bias", "price/kernel", "price/bias", "kind/kernel", "kind/bias" })
  check.equal(model:count_params(), 28 + 25 + 33 + 4 + 18)
end)

test("outputs come as an array in order, and inputs are given by order or by name", function()
  local model = two()
  local a, b = mgpu.rand { 2, 6 }, mgpu.rand { 2, 4 }
  local y = model { a, b }
  check.equal(y[1]:shape(), { 2, 1 })
  check.equal(y[2]:shape(), { 2, 3 })
  check.equal(model { a = a, b = b }[2], y[2])
  check.near(model:predict({ a, b }, { batch_size = 1 })[2], y[2], 1e-6)
  check.near(model:predict({ b = b, a = a })[1], y[1], 1e-6)
end)

test("a model made from symbols of another model shares its weights", function()
  local base = mgpu.Sequential { L.Input { 4 }, L.Dense { 3, name = "features" }, L.Dense { 2 } }
  local part = mgpu.Model { inputs = base.input, outputs = base:get_layer "features".output }
  check.equal(part(mgpu.ones { 2, 4 }):shape(), { 2, 3 })
  check.truthy(part.variables[1] == base.variables[1])
end)

test("a model from an inner symbol to an output runs only the layers between them", function()
  local x = mgpu.Input { 4 }
  local h = L.Dense { 3 } (x)
  local tail = mgpu.Model { inputs = h, outputs = L.Dense { 2 } (h) }
  check.equal(tail(mgpu.ones { 5, 3 }):shape(), { 5, 2 })
end)

test("symbolic tensors can be added, subtracted and multiplied", function()
  local a, b = mgpu.Input { 2 }, mgpu.Input { 2 }
  local model = mgpu.Model { inputs = { a, b }, outputs = (a + b) * a - b }
  check.equal(model { mgpu.tensor { { 1, 2 } }, mgpu.tensor { { 3, 4 } } }, { { 1, 8 } })
end)

test("unknown sizes stay unknown through the layers of a model", function()
  local x = mgpu.Input { -1, -1, 3 }
  local y = L.Conv2D { 4, 3, padding = "same" } (x)
  check.equal(y:shape(), { -1, -1, -1, 4 })
  check.equal(L.GlobalAveragePooling2D {} (y):shape(), { -1, 4 })
  local Twice = mgpu.Layer:extend "Twice"
  function Twice:call(t) return t * 2 end -- luacheck: no self
  check.equal(Twice {} (x):shape(), { -1, -1, -1, 3 })
end)

test("a user-defined layer with several inputs and outputs needs no shape function", function()
  local Swap = mgpu.Layer:extend "Swap"
  function Swap:build(shapes) self.w = self:add_weight { name = "w", shape = { shapes[1][2] } } end
  function Swap:call(x) return { x[2], x[1] * self.w } end
  local a, b = mgpu.Input { 2 }, mgpu.Input { 3 }
  local out = Swap {} { a, b }
  check.equal(out[1]:shape(), { -1, 3 })
  check.equal(out[2]:shape(), { -1, 2 })
  local model = mgpu.Model { inputs = { a, b }, outputs = out }
  check.equal(model { mgpu.ones { 4, 2 }, mgpu.ones { 4, 3 } }[1]:shape(), { 4, 3 })
end)

test("the summary shows the layers to which each layer is connected", function()
  local text = require "mgpu.nn.summary".text(two())
  check.matches(text, "both (Concatenate)               (None, 10)                0            "
    .. "shared, shared")
  check.matches(text, "Total params: 108")
end)

-- ---- training -----------------------------------------------------------------------------------

test("each output has its own loss, metrics and loss weight in the logs", function()
  local model = two()
  model:compile { optimizer = "sgd", loss = { price = "mse", kind = LOSSES[2] },
    metrics = { kind = "accuracy", price = { "mae" } } }
  local x, y = data(12, 0)
  local h = model:fit(x, { kind = y[2], price = y[1] }, { epochs = 2, batch_size = 5, verbose = 0,
    validation_data = { x, y } }).history
  for _, name in ipairs { "loss", "price_loss", "kind_loss", "price_mae", "kind_accuracy",
    "val_loss", "val_price_mae" } do
    check.equal(#(h[name] or {}), 2)
  end
  check.near(h.loss[2], h.price_loss[2] + h.kind_loss[2], 1e-5)
  local r = model:evaluate(x, y, { verbose = 0 })
  check.near(r.val_loss or r.loss, h.val_loss[2], 1e-6)
end)

test("an output without a loss does not count and needs no targets", function()
  local model = two()
  model:compile { loss = { kind = LOSSES[2] } }
  local x, y = data(6, 0)
  local before = model:get_layer "price":get_weights()[1]:totable()
  model:fit(x, { kind = y[2] }, { verbose = 0 })
  check.equal(model:get_layer "price":get_weights()[1], before)
end)

test("weighted_metrics use the sample weights, metrics do not", function()
  local model = mgpu.Sequential { L.Input { 1 }, L.Dense { 1, kernel_initializer = "ones" } }
  model:compile { loss = "mse", metrics = { "mae" }, weighted_metrics = { "mse" } }
  local r = model:evaluate({ { 1 }, { 3 } }, { { 0 }, { 0 } }, { sample_weight = { 1, 0 }, verbose = 0 })
  check.near({ r.loss, r.mae, r.mse }, { 0.5, 2, 1 }, 1e-6)
end)

test("a frozen layer keeps its weights, also inside other layers, and its regularizer stops", function()
  local model = two { shared = "l2" }
  model:compile { optimizer = "sgd", loss = LOSSES }
  local x, y = data(6, 0)
  check.equal(#model:losses(), 1)
  model:get_layer "shared".trainable = false
  model:get_layer "inner".trainable = false
  check.equal(#model:losses(), 0)
  local shared = model:get_layer "shared":get_weights()[1]:totable()
  local deep = model:get_layer "inner":get_weights()[1]:totable()
  local price = model:get_layer "price":get_weights()[1]:totable()
  model:fit(x, y, { verbose = 0 })
  check.equal(model:get_layer "shared":get_weights()[1], shared)
  check.equal(model:get_layer "inner":get_weights()[1], deep)
  check.truthy(model:get_layer "price":get_weights()[1]:totable()[1][1] ~= price[1][1])
  check.equal(model:get_layer "inner":get_layer "deep".trainable, false)
end)

test("the loss of a user-defined layer counts once for each use, in that call only", function()
  local Even = mgpu.Layer:extend "Even"
  function Even:call(t)
    self:add_loss(t:square():sum() * 0.5)
    return t
  end
  local layer = Even {}
  local x = mgpu.Input { 2 }
  local model = mgpu.Model { inputs = x, outputs = layer(layer(x)) }
  for _ = 1, 2 do
    model(mgpu.ones { 3, 2 })
    check.equal(#model:losses(), 2)
    check.near(model:losses()[1]:item(), 3)
  end
end)

-- ---- saving -------------------------------------------------------------------------------------

test("a functional model is saved and loaded with its graph of layers", function()
  local model, x = two { shared = mgpu.regularizers.L1L2 { l1 = 0.1 } }, data(3, 0)
  local path = check.path "two.safetensors"
  model:save(path)
  local again = mgpu.load_model(path)
  check.equal(again:predict(x)[1], model:predict(x)[1])
  check.equal(again:predict { a = x[1], b = x[2] }[2], model:predict(x)[2])
  check.equal(#again.layers, #model.layers)
  check.near(again:losses()[1]:item(), model:losses()[1]:item())
end)

-- ---- errors -------------------------------------------------------------------------------------

local function model_of(given) return function() return mgpu.Model(given()) end end

local x1, x2 = mgpu.Input { 2, name = "x1" }, mgpu.Input { 2, name = "x2" }
local added = L.Add { name = "added" } { x1, x2 }

for what, case in pairs {
  ["an output from another input"] = { model_of(function() return { inputs = x1, outputs = added } end),
    'the outputs depend on Input "x2", which is not among the inputs' },
  ["no outputs"] = { model_of(function() return { inputs = x1 } end), 'option "outputs" is missing' },
  ["a layer as an output"] = { model_of(function() return { inputs = x1, outputs = L.Dense { 2 } } end),
    "outputs must be a symbolic tensor" },
  ["a number among the inputs"] = { model_of(function() return { inputs = { x1, 5 }, outputs = x1 } end),
    "entry 2 of inputs is a number" },
  ["an input given twice"] = { model_of(function() return { inputs = { x1, x1 }, outputs = x1 } end),
    "is given twice" },
  ["two layers of one name"] = { model_of(function()
    return { inputs = x1, outputs = L.ReLU { name = "r" } (L.ReLU { name = "r" } (x1)) }
  end), 'two layers are called "r"' },
  ["an op on a symbol"] = { function() return x1:median() end, "a symbolic tensor has no values" },
  ["a tensor added to a symbol"] = { function() return x1 + mgpu.ones { 1 } end, "L.Lambda" },
  ["a symbol compared"] = { function() return x1 < x1 end, "no values to compare" },
  ["an operation without its second input"] = { function()
    return L.Operation { "Divide", { x1 = { input = 1 }, x2 = { input = 2 } } } (x1)
  end, "takes 2 inputs, got 1" },
  ["an operation with an input too many"] = { function()
    return L.Operation { "Divide", { x1 = { input = 1 }, x2 = 2 } } { x1, x1 }
  end, "takes 1 input, got 2" },
  ["an operation with an unknown argument"] = { function()
    return L.Operation { "Negative", { x = { input = 1 }, number = 2 } }
  end, "Negative has no argument number" },
  ["one input too few"] = { function() return two() { mgpu.ones { 1, 6 } } end,
    "1 inputs were given, the model takes 2" },
  ["an unknown input name"] = { function()
    return two() { a = mgpu.ones { 1, 6 }, b = mgpu.ones { 1, 4 }, c = 1 }
  end, 'there is no input "c"' },
  ["a batch of a wrong shape"] = { function() return two() { mgpu.ones { 1, 6 }, mgpu.ones { 1, 5 } } end,
    "a batch of shape {1, 5} was given for input b, the model takes {None, 4}" },
  ["losses by an unknown name"] = { function() two():compile { loss = { prise = "mse" } } end,
    'loss: the model has no output "prise" (did you mean "price"?)' },
  ["too many losses"] = { function() two():compile { loss = { "mse", "mse", "mse" } } end,
    "more entries than the model's 2 outputs" },
  ["no loss at all"] = { function() two():compile { loss = { false, false } } end, "no output has a loss" },
  ["a lone metric for two outputs"] = { function() two():compile { loss = "mse", metrics = "mae" } end,
    "give a table by their names" },
  ["a loss weight that is not a number"] = { function()
    two():compile { loss = "mse", loss_weights = { price = "x" } }
  end, 'the weight of "price" must be a number' },
} do
  test("an error: " .. what, function() check.raises(case[1], case[2], "usage") end)
end

test("data of wrong shapes or numbers of inputs is refused before the first step", function()
  local model = two()
  model:compile { loss = LOSSES }
  local x, y = data(6, 0)
  check.raises(function() model:fit(x, { y[1] }, {}) end, "y (kind) is missing", "usage")
  check.raises(function() model:fit({ x[1] }, y, {}) end, "x (b) is missing", "usage")
  check.raises(function() model:fit(x[1], y, {}) end, "an array of 2 tensors", "usage")
  check.raises(function() model:fit(x, { y[1], y[2], y[1] }, {}) end, "has an entry 3", "usage")
  check.raises(function() model:fit(x, { y[2], y[2] + 9 }, {}) end, 'output "kind"', "usage")
  check.raises(function() model:fit(x, y, { class_weight = { [0] = 1 } }) end, "one output", "usage")
end)

-- ---- arithmetic and parts of models ----------------------------------------------------------------

test("symbolic tensors take arithmetic with numbers and each other, and it is saved", function()
  local x = mgpu.Input { 3 }
  local h = L.Dense { 3 } (x)
  local function formula(a, b) return -(2 / ((a * 2 + 1) ^ 2 + 3)) / (b + 10) - 1 + a % 2 + 2 ^ a - (3 - b) end
  local model = mgpu.Model { inputs = x, outputs = formula(h, x) }
  local t = mgpu.rand { 4, 3 }
  local wanted = formula(model.layers[2](t), t):totable()
  check.near(model(t), wanted, 1e-6)
  local path = check.path "arithmetic.safetensors"
  model:save(path)
  check.near(mgpu.load_model(path)(t), wanted, 1e-6)
end)

test("a layer of a Sequential has its input and output at once", function()
  local layer = mgpu.Sequential { L.Input { 8 }, L.Dense { 3 } }.layers[1]
  check.equal({ layer.input:shape(), layer.output:shape() }, { { -1, 8 }, { -1, 3 } })
  local inner = mgpu.Sequential { L.Dense { 3 }, L.Dense { 4 } }
  mgpu.Sequential { L.Input { 8 }, inner, L.Dense { 2 } }
  check.equal(inner.layers[2].output:shape(), { -1, 4 })
  check.raises(function() return mgpu.Sequential { L.Dense { 3 } }.layers[1].output end, "give it an Input", "usage")
end)

test("a model as the first layer of a Sequential gives the shape of its input", function()
  local x = mgpu.Input { 8 }
  for _, inner in ipairs { mgpu.Sequential { L.Input { 8 }, L.Dense { 4 } },
    mgpu.Model { inputs = x, outputs = L.Dense { 4 } (x) } } do
    local model = mgpu.Sequential { inner, L.Dense { 2 } }
    check.equal({ model.built, model.output:shape(), #model.variables }, { true, { -1, 2 }, 4 })
  end
end)

test("features of a base model are reached by base.layers[n].output, also after pop", function()
  local base = mgpu.Sequential { L.Input { 8 }, L.Dense { 3 }, L.Dense { 4 } }
  check.equal(base.layers[2].output:shape(), { -1, 4 })
  base:pop()
  local model = mgpu.Model { inputs = base.input, outputs = L.Dense { 2 } (base.layers[1].output) }
  local t = mgpu.rand { 5, 8 }
  check.near(model(t), model.layers[3](base(t)):totable(), 1e-6)
  check.equal(model.variables[1], base.variables[1])
end)
