-- Losses: values, gradients, shapes, options, and the errors about them.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local losses = mgpu.losses

local P = { { 0.7, 0.2, 0.1 }, { 0.1, 0.3, 0.6 } }
local ONE_HOT = { { 1, 0, 0 }, { 0, 0, 1 } }
local EXPECTED = { -math.log(0.7), -math.log(0.6) }

local function int(values) return mgpu.tensor(values, { dtype = "int32" }) end

test("categorical cross-entropy is minus the log of the right class's probability", function()
  local loss = losses.categorical_crossentropy
  check.near(loss.per_sample(ONE_HOT, mgpu.tensor(P)), EXPECTED)
  check.near(loss(ONE_HOT, mgpu.tensor(P)):item(), (EXPECTED[1] + EXPECTED[2]) / 2)
end)

test("sparse categorical cross-entropy of class ids is the same number", function()
  local loss = losses.sparse_categorical_crossentropy
  check.near(loss.per_sample(int { 0, 2 }, mgpu.tensor(P)), EXPECTED)
  check.near(loss.per_sample(int { { 0 }, { 2 } }, mgpu.tensor(P)), EXPECTED)
end)

test("binary cross-entropy averages over the last axis", function()
  local expected = { -(math.log(0.9) + math.log(0.8)) / 2 }
  local loss = losses.binary_crossentropy
  check.near(loss.per_sample({ { 1, 0 } }, mgpu.tensor { { 0.9, 0.2 } }), expected)
end)

test("binary cross-entropy takes y without the axis of one column", function()
  local loss = losses.binary_crossentropy
  check.near(loss.per_sample({ 1, 0 }, mgpu.tensor { { 0.9 }, { 0.2 } }),
    { -math.log(0.9), -math.log(0.8) })
end)

test("mean squared error averages the squares over the last axis", function()
  check.near(losses.mean_squared_error.per_sample({ { 0, 0 }, { 1, 1 } },
    mgpu.tensor { { 1, 3 }, { 1, 2 } }), { 5, 0.5 })
end)

test("short names mean the same losses", function()
  check.truthy(losses.mse == losses.mean_squared_error)
  check.truthy(losses.bce == losses.binary_crossentropy)
end)

test("logits give what their softmax gives", function()
  local logits = mgpu.tensor { { 1, 2, 3 }, { 0, -1, 4 } }
  local p = mgpu.softmax(logits):totable()
  for _, name in ipairs { "CategoricalCrossentropy", "SparseCategoricalCrossentropy" } do
    local y = name:find "Sparse" and int { 2, 0 } or mgpu.tensor { { 0, 0, 1 }, { 1, 0, 0 } }
    check.near(losses[name] { from_logits = true }.per_sample(y, logits),
      losses[name] {}.per_sample(y, mgpu.tensor(p)), 1e-5)
  end
end)

test("a softmax before the loss is computed from its logits: no log of zero", function()
  local logits = mgpu.variable(mgpu.tensor { { 200, 0 } })
  local value, grads = mgpu.value_and_grad(function()
    return losses.categorical_crossentropy({ { 0, 1 } }, mgpu.softmax(logits))
  end, { logits })()
  check.near(value:item(), 200)
  check.near(grads[1], { { 1, -1 } })
end)

test("a sigmoid before the loss is computed from its logits", function()
  local logits = mgpu.variable(mgpu.tensor { { 200 } })
  local value, grads = mgpu.value_and_grad(function()
    return losses.binary_crossentropy({ { 0 } }, mgpu.sigmoid(logits))
  end, { logits })()
  check.near(value:item(), 200)
  check.near(grads[1], { { 1 } })
end)

test("a softmax over another axis is not taken for the classes' one", function()
  local x = mgpu.tensor { { 1, 2 }, { 3, 5 } }
  local p = mgpu.softmax(x, { axis = 1 })
  local y = { { 1, 0 }, { 0, 1 } }
  check.near(losses.categorical_crossentropy.per_sample(y, p),
    losses.categorical_crossentropy.per_sample(y, mgpu.tensor(p:totable())))
end)

test("the gradient of softmax and cross-entropy is p - y over the batch size", function()
  local logits = mgpu.variable(mgpu.tensor { { 1, 2, 3 }, { 0, 0, 0 } })
  local _, grads = mgpu.value_and_grad(function()
    return losses.sparse_categorical_crossentropy(int { 2, 1 }, mgpu.softmax(logits))
  end, { logits })()
  local expected = mgpu.softmax(logits):totable()
  expected[1][3], expected[2][2] = expected[1][3] - 1, expected[2][2] - 1
  check.near(grads[1] * 2, expected)
end)

test("label smoothing mixes the targets with the uniform distribution", function()
  local p = mgpu.tensor { { 0.7, 0.2, 0.1 } }
  local loss = losses.CategoricalCrossentropy { label_smoothing = 0.3 }
  check.near(loss.per_sample({ { 1, 0, 0 } }, p),
    { -(0.8 * math.log(0.7) + 0.1 * math.log(0.2) + 0.1 * math.log(0.1)) })
  check.near(losses.categorical_crossentropy({ { 1, 0, 0 } }, p, { label_smoothing = 0.3 }):item(),
    loss({ { 1, 0, 0 } }, p):item())
end)

test("a label out of range is an error, not a silent zero", function()
  check.raises(function()
    losses.sparse_categorical_crossentropy(int { 0, 3 }, mgpu.tensor(P))
  end, "a label is not in 0 .. 2", "data")
end)

test("class ids for categorical cross-entropy: the error names to_categorical", function()
  check.raises(function()
    losses.categorical_crossentropy(int { 0, 2 }, mgpu.tensor(P))
  end, "mgpu.to_categorical(y, 3)", "usage")
end)

test("one-hot targets for the sparse loss: the error names the other loss", function()
  check.raises(function()
    losses.sparse_categorical_crossentropy(ONE_HOT, mgpu.tensor(P))
  end, "y looks one-hot: use categorical_crossentropy", "usage")
end)

test("wrong shapes are named", function()
  check.raises(function()
    losses.mean_squared_error({ { 1, 2 } }, mgpu.tensor { { 1, 2, 3 } })
  end, "y has shape {1, 2} but predictions of shape {1, 3} need {1, 3}", "usage")
end)

test("an unknown loss is an error with the nearest name", function()
  check.raises(function() return losses.categorical_crossentrop end, "categorical_crossentropy",
    "usage")
end)

test("an unknown option is an error", function()
  check.raises(function() losses.CategoricalCrossentropy { from_logit = true } end, "from_logits",
    "usage")
end)
