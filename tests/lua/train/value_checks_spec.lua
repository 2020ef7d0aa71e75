-- Warnings about values that can hardly be meant: when they come, once a model, how they are silenced, and that valid
-- use gives none.
local check = require "check"
local mgpu = require "mgpu"
local stderr_of = require "fixtures".stderr_of

local L = mgpu.layers
local test = check.test

local HEADS = { sigmoid = { 1, "sigmoid" }, linear = { 1 }, softmax = { 3, "softmax" }, scores = { 3 } }

-- A compiled model with predictions of that kind.
local function model_of(head, options)
  local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { HEADS[head][1], activation = HEADS[head][2] } }
  options.optimizer = mgpu.optimizers.SGD { 1e-3 }
  model:compile(options)
  return model
end

-- Eight rows, and labels for one or three units.
local X = { { 1, 2, 3, 4 }, { -1, 1, 0, 2 }, { 2, 2, -5, 1 }, { 0, 1, 1, 1 }, { 3, 3, 1, -3 }, { 1, 1, 1, 1 },
  { -4, -1, 3, 2 }, { 0, 0, 1, 1 } }
local BITS = { 0, 1, 1, 0, 1, 0, 1, 1 }
local IDS = { 0, 2, 1, 0, 1, 2, 1, 1 }
local ONE_HOT = {}
for i, id in ipairs(IDS) do ONE_HOT[i] = { id == 0 and 1 or 0, id == 1 and 1 or 0, id == 2 and 1 or 0 } end

-- list with entry i set to value.
local function with(list, i, value)
  local copy = { unpack(list) }
  copy[i] = value
  return copy
end

local function bce(options) return mgpu.losses.BinaryCrossentropy(options) end

-- The words between the beginning of a warning and its advice.
local TARGETS = "fit: y has numbers from %s, but the targets of %s are from 0 to 1"
local PREDICTIONS = "fit: the model predicts numbers from"
local WEIGHTS = "fit: sample_weight has negative numbers, down to %-2"

-- what, head, loss, labels, sample weights -> words of each warning, in order
local CASES = {
  { "labels of 5", "sigmoid", "binary_crossentropy", with(BITS, 3, 5), nil, { TARGETS:format("0 to 5",
    "binary_crossentropy") } },
  { "labels of -1", "sigmoid", "binary_crossentropy", with(BITS, 3, -1), nil, { TARGETS:format("%-1 to 1",
    "binary_crossentropy") } },
  { "labels of 2 and logits", "linear", bce { from_logits = true, name = "mine" }, with(BITS, 3, 2), nil,
    { TARGETS:format("0 to 2", "mine") } },
  { "targets of kl_divergence above 1", "softmax", "kl_divergence", with(ONE_HOT, 2, { 0, 3, 0 }), nil,
    { TARGETS:format("0 to 3", "kl_divergence") } },
  { "logits to binary_crossentropy", "linear", "binary_crossentropy", BITS, nil,
    { PREDICTIONS .. ".-, but binary_crossentropy takes probabilities: end the model with activation = \"sigmoid\", or "
      .. "give the loss from_logits = true\n" } },
  { "logits to categorical_crossentropy", "scores", "categorical_crossentropy", ONE_HOT, nil,
    { PREDICTIONS .. ".-, but categorical_crossentropy takes .- \"softmax\", or give the loss from_logits = true\n" } },
  { "logits to sparse_categorical_crossentropy", "scores", "sparse_categorical_crossentropy", IDS, nil,
    { PREDICTIONS .. ".-, but sparse_categorical_crossentropy takes .- \"softmax\", or give" } },
  { "logits to kl_divergence", "scores", "kl_divergence", ONE_HOT, nil,
    { PREDICTIONS .. ".-, but kl_divergence takes probabilities: end the model with activation = \"softmax\"\n" } },
  { "negative sample weights", "sigmoid", "binary_crossentropy", BITS, { 1, 1, -2, 1, 1, 0, 1, 1 }, { WEIGHTS } },
  { "negative sample weights of another loss", "linear", "mse", BITS, { 1, 1, -2, 1, 1, 0, 1, 1 }, { WEIGHTS } },
  { "everything at once", "linear", "binary_crossentropy", with(BITS, 3, 5), { 1, 1, -2, 1, 1, 0, 1, 1 },
    { "y has numbers", PREDICTIONS, WEIGHTS } },
  -- valid use
  { "labels within [0, 1]", "sigmoid", "binary_crossentropy", with(BITS, 3, 0.3), nil, {} },
  { "labels that rounding has moved", "sigmoid", "binary_crossentropy", with(with(BITS, 3, 1 + 1e-7), 4, -1e-7), nil,
    {} },
  { "label smoothing", "sigmoid", bce { label_smoothing = 0.2 }, BITS, nil, {} },
  { "wrong labels of weight 0", "sigmoid", "binary_crossentropy", with(BITS, 3, -1), { 1, 1, 0, 1, 1, 1, 1, 1 }, {} },
  { "logits with from_logits", "linear", bce { from_logits = true }, BITS, nil, {} },
  { "scores with from_logits", "scores", mgpu.losses.CategoricalCrossentropy { from_logits = true }, ONE_HOT, nil, {} },
  { "ids with from_logits", "scores", mgpu.losses.SparseCategoricalCrossentropy { from_logits = true }, IDS, nil, {} },
  { "weighted one-hot labels", "softmax", "categorical_crossentropy", with(ONE_HOT, 2, { 0, 0, -3 }), nil, {} },
  { "class ids", "softmax", "sparse_categorical_crossentropy", IDS, nil, {} },
  { "any numbers for mse", "linear", "mse", with(BITS, 3, 500), nil, {} },
  { "-1 and 1 for hinge", "linear", "hinge", { 1, -1, 1, 1, -1, -1, 1, 1 }, nil, {} },
  { "a function as loss", "linear", function(y, p) return (y - p):abs():sum(2) end, with(BITS, 3, 5), nil, {} },
}

-- Checks that text consists of warnings with these words (patterns), in order, and nothing else.
local function check_warnings(text, wanted)
  local _, lines = text:gsub("\n", "")
  check.equal({ text, lines }, { text, #wanted })
  local at = 1
  for _, words in ipairs(wanted) do
    local first, last = text:find(words, at)
    check.truthy(first, ("%q lacks %q"):format(text, words))
    at = last
  end
  for line in text:gmatch "[^\n]+" do check.equal(line:sub(1, 18), "mgpulua: warning: ") end
end

for _, case in ipairs(CASES) do
  local title, head, loss, y, weight, wanted = unpack(case, 1, 6)
  test(title .. (#wanted > 0 and " are warned about, once a model" or " are no reason for a warning"), function()
    mgpu.seed(3)
    for _, devices in ipairs { { "cpu:0" }, { "cpu:0", "cpu:1", "cpu:2" } } do
      local model = model_of(head, { loss = loss, devices = devices })
      local function fit() model:fit(mgpu.tensor(X), mgpu.tensor(y), { verbose = 0, sample_weight = weight }) end
      check_warnings(stderr_of(fit), wanted)
      check.equal((stderr_of(fit)), "")
      model:compile { loss = loss, optimizer = "sgd" }
      check.equal((stderr_of(fit)), "")
    end
  end)
end

-- ---- where they come ----------------------------------------------------------------------------

local WRONG = with(BITS, 3, 5)

-- Calls of a model with data, by name: what begins the warning, and the call.
local CALLS = {
  { "fit", function(model, x, y) model:fit(x, y, { verbose = 0 }) end },
  { "evaluate", function(model, x, y) model:evaluate(x, y, { verbose = 0 }) end },
  { "train_on_batch", function(model, x, y) model:train_on_batch(x, y) end },
  { "test_on_batch", function(model, x, y) model:test_on_batch(x, y) end },
  { "fit", function(model, x, y) model:fit(mgpu.data.from_tensors { x, y }:batch(8), { verbose = 0 }) end },
  { "fit", function(model, x, y)
    model:fit(function() return x, y end, { verbose = 0, steps_per_epoch = 2 })
  end },
  { "fit", function(model, x, y) model:fit(x, y:cast "uint8", { verbose = 0 }) end },
}

for i, row in ipairs(CALLS) do
  test(("call %d, %s, warns about labels, and about predictions"):format(i, row[1]), function()
    mgpu.seed(3)
    local model = model_of("linear", { loss = "binary_crossentropy" })
    check_warnings(stderr_of(row[2], model, mgpu.tensor(X), mgpu.tensor(WRONG)),
      { row[1] .. ": y has numbers from 0 to 5", row[1] .. ": the model predicts" })
  end)
end

test("validation data are looked at", function()
  local model, x = model_of("sigmoid", { loss = "binary_crossentropy" }), mgpu.tensor(X)
  check_warnings(stderr_of(model.fit, model, x, mgpu.tensor(BITS), { verbose = 0, validation_data = { x, WRONG } }),
    { "fit: validation_data: y has numbers from 0 to 5" })
end)

test("of a dataset the first batch is looked at", function()
  local function text_of(labels)
    local model = model_of("sigmoid", { loss = "binary_crossentropy" })
    return (stderr_of(model.fit, model, mgpu.data.from_tensors { mgpu.tensor(X), mgpu.tensor(labels) }:batch(4),
      { verbose = 0, epochs = 2 }))
  end
  check_warnings(text_of(with(BITS, 3, 5)), { "y has numbers" })
  check_warnings(text_of(with(BITS, 7, 5)), {})
end)

test("of the methods for one batch the first call after compile is looked at", function()
  local model = model_of("sigmoid", { loss = "binary_crossentropy" })
  local x, good, bad = mgpu.tensor(X), mgpu.tensor(BITS), mgpu.tensor(WRONG)
  check_warnings(stderr_of(function()
    model:train_on_batch(x, good)
    model:train_on_batch(x, bad)
    model:test_on_batch(x, good)
    model:test_on_batch(x, bad)
  end), {})
  model:compile { loss = "binary_crossentropy" }
  check_warnings(stderr_of(model.train_on_batch, model, x, bad), { "train_on_batch: y has numbers" })
end)

test("each output of a model is looked at, and the messages name them", function()
  local x = mgpu.Input { 4 }
  local model = mgpu.Model { inputs = x, outputs = { L.Dense { 1, name = "a" } (x),
    L.Dense { 1, activation = "sigmoid", name = "b" } (x) } }
  model:compile { loss = { a = "mse", b = "binary_crossentropy" } }
  local y = mgpu.tensor(WRONG)
  check_warnings(stderr_of(model.fit, model, mgpu.tensor(X), { y, y }, { verbose = 0 }),
    { 'fit: output "b": y has numbers from 0 to 5' })
end)

test("targets of masked steps may be anything", function()
  local model = mgpu.Sequential { mgpu.Input { 2, 2 }, L.Masking {}, L.Dense { 1, activation = "sigmoid" } }
  model:compile { loss = "binary_crossentropy" }
  check_warnings(stderr_of(model.fit, model, mgpu.tensor { { { 1, 2 }, { 0, 0 } } }, mgpu.tensor { { 1, -1 } },
    { verbose = 0 }), {})
end)

test("predictions are looked at where layers have devices, and where training is asynchronous", function()
  mgpu.seed(3)
  local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3, device = "cpu:1" }, L.Dense { 1, device = "cpu:2" } }
  model:compile { loss = "binary_crossentropy" }
  check_warnings(stderr_of(model.fit, model, mgpu.tensor(X), mgpu.tensor(BITS), { verbose = 0 }), { PREDICTIONS })
  for _, strategy in ipairs { "async", "central" } do
    model = model_of("linear", { loss = "binary_crossentropy", devices = { "cpu:0", "cpu:1" }, strategy = strategy })
    check_warnings(stderr_of(model.fit, model, mgpu.tensor(X), mgpu.tensor(BITS), { verbose = 0 }), { PREDICTIONS })
  end
end)

test("probabilities that no sigmoid made last are no reason for a warning, nor are NaN", function()
  local x = mgpu.Input { 4 }
  local a, b = L.Dense { 1, activation = "sigmoid" } (x), L.Dense { 1, activation = "sigmoid" } (x)
  local model = mgpu.Model { inputs = x, outputs = L.Average {} { a, b } }
  model:compile { loss = "binary_crossentropy" }
  check_warnings(stderr_of(model.fit, model, mgpu.tensor(X), mgpu.tensor(BITS), { verbose = 0 }), {})
  check_warnings(stderr_of(model.test_on_batch, model, mgpu.tensor(X), mgpu.tensor(with(BITS, 3, 0 / 0))), {})
end)

-- ---- a softmax over one unit ----------------------------------------------------------------------

local ONE_UNIT = {
  { 'Dense "last": softmax over one unit is always 1', function()
    return L.Dense { 1, activation = "softmax", name = "last" }
  end },
  { 'Dense "last": softmax over one unit is always 1', function()
    return L.Dense { 1, activation = mgpu.activations.softmax, name = "last" }
  end },
  { 'Dense "last": log_softmax over one unit is always 0', function()
    return L.Dense { 1, activation = "log_softmax", name = "last" }
  end },
  { 'Activation "last": softmax over one unit is always 1', function()
    return mgpu.Sequential { L.Dense { 1 }, L.Activation { "softmax", name = "last" } }
  end },
  { 'Softmax "last": softmax over one unit is always 1', function()
    return mgpu.Sequential { L.Dense { 1 }, L.Softmax { name = "last" } }
  end },
  { 'Softmax "last": softmax over one unit is always 1', function()
    return mgpu.Sequential { L.Dense { 6 }, L.Reshape { { 1, 6, 1 } }, L.Softmax { { 2, 4 }, name = "last" },
      L.Flatten {} }
  end },
  { 'Conv2D "last": softmax over one unit is always 1', function()
    return mgpu.Sequential { L.Reshape { { 2, 2, 1 } }, L.Conv2D { 1, 1, activation = "softmax", name = "last" },
      L.Flatten {} }
  end },
}

for i, row in ipairs(ONE_UNIT) do
  test(("a softmax over one unit is warned about when a model is compiled, or built: %d"):format(i), function()
    local model = mgpu.Sequential { mgpu.Input { 4 }, row[2]() }
    local function compile() model:compile { loss = "mse" } end
    check_warnings(stderr_of(compile), { row[1] .. ': for two classes use activation = "sigmoid"' })
    check.equal((stderr_of(compile)), "")
    model = mgpu.Sequential { row[2]() } -- built by the first data
    check.equal((stderr_of(compile)), "")
    local y = mgpu.zeros { 8, unpack(model(mgpu.tensor(X)):shape(), 2) }
    check_warnings(stderr_of(function()
      model:fit(mgpu.tensor(X), y, { verbose = 0 })
      model:fit(mgpu.tensor(X), y, { verbose = 0 })
    end), { row[1] })
  end)
end

test("a softmax over several units, or over a length that is not known, is fine", function()
  local layers = { L.Dense { 2, activation = "softmax" }, L.Softmax {}, L.Dense { 1, activation = "sigmoid" } }
  for _, layer in ipairs(layers) do
    local model = mgpu.Sequential { mgpu.Input { 4 }, layer }
    check.equal((stderr_of(model.compile, model, { loss = "mse" })), "")
  end
  local model = mgpu.Sequential { mgpu.Input { -1, 1 }, L.Softmax { 2 } }
  check.equal((stderr_of(model.compile, model, { loss = "mse" })), "")
end)

test("a layer of the user's may apply its activation to anything", function()
  local Pool = mgpu.Layer:extend("Pool", { activation = "softmax" })
  function Pool:call(x) return (x * mgpu.activations[self.activation](x)):sum { axis = 2, keepdims = true } end
  local model = mgpu.Sequential { mgpu.Input { 4 }, Pool {} }
  check.equal((stderr_of(model.compile, model, { loss = "mse" })), "")
end)

test("a model inside a model is looked at", function()
  local inner = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1, activation = "softmax", name = "deep" } }
  local x = mgpu.Input { 4 }
  local model = mgpu.Model { inputs = x, outputs = inner(x) }
  check_warnings(stderr_of(model.compile, model, { loss = "mse" }), { 'Dense "deep": softmax' })
end)

-- ---- silence ------------------------------------------------------------------------------------

test("mgpu.warnings(false) silences them, and the check costs nothing then", function()
  check.equal(mgpu.warnings(), true)
  check.equal(mgpu.warnings(false), true)
  local text = stderr_of(function()
    local model = model_of("linear", { loss = "binary_crossentropy" })
    model:fit(mgpu.tensor(X), mgpu.tensor(WRONG), { verbose = 0 })
    mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1, activation = "softmax" } }:compile { loss = "mse" }
  end)
  check.equal({ mgpu.warnings(true), mgpu.warnings() }, { false, true })
  check.equal(text, "")
  check.raises(function() mgpu.warnings(0) end, "warnings: expected true, false or nothing, got a number", "usage")
end)

test("they go to stderr, and MGPU_WARNINGS=no silences them", function()
  local script = check.path "softmax.lua"
  check.write(script, [[
    local mgpu = require "mgpu"
    mgpu.Sequential { mgpu.Input { 4 }, mgpu.layers.Dense { 1, activation = "softmax" } }:compile { loss = "mse" }
    print "done"
  ]])
  local function run(more) return check.run(("%s %s %s"):format(more, check.program, script)) end
  check.matches(run "", 'mgpulua: warning: Dense "dense": softmax over one unit is always 1')
  check.equal(check.run(("%s %s 2>/dev/null"):format(check.program, script)), "done\n")
  check.equal(run "MGPU_WARNINGS=no", "done\n")
  check.matches(check.run(("MGPU_WARNINGS=off %s %s 2>&1"):format(check.program, script)),
    'softmax.lua:%d+: MGPU_WARNINGS must be yes or no, got "off"')
end)
