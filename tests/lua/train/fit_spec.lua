-- compile and fit: the training loop, its options and its errors.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

local function int(values) return mgpu.tensor(values, { dtype = "int32" }) end

local fixtures = require "fixtures"
local line, linear, points = fixtures.line, fixtures.linear, fixtures.points

local function classifier(loss, options)
  mgpu.seed(1)
  local model = mgpu.Sequential { L.Input { 2 }, -- names and seed determine the initial weights
    L.Dense { 8, activation = "relu", name = "hidden" },
    L.Dense { 3, activation = "softmax", name = "classes" } }
  options = options or {}
  options.loss = loss or "sparse_categorical_crossentropy"
  options.optimizer = options.optimizer or mgpu.optimizers.Adam { learning_rate = 0.02 }
  options.metrics = { "accuracy" }
  model:compile(options)
  return model
end

local quiet = { verbose = 0 }

local function with(options)
  options.verbose = 0
  return options
end

-- The text that print and fit wrote while fn ran.
local function output_of(fn)
  local before, parts = mgpu.output, {}
  mgpu.output = function(text) parts[#parts + 1] = text end
  local ok, message = pcall(fn)
  mgpu.output = before
  if not ok then error(message, 0) end
  return table.concat(parts)
end

-- ---- learning -----------------------------------------------------------------------------------

test("fit learns a line", function()
  local model, x, y = linear(), line(64)
  local h = model:fit(x, y, with { epochs = 60, batch_size = 8 })
  check.truthy(h.history.loss[60] < 1e-3, "the loss")
  check.near(model:predict(mgpu.tensor { { 0.5, 0.5 } }), { { 1.5 } }, 0.05)
end)

test("fit learns classes from class ids", function()
  local model, x, y = classifier(), points(90)
  local h = model:fit(x, y, with { epochs = 40, batch_size = 10 })
  check.truthy(h.history.accuracy[40] > 0.95, "accuracy " .. h.history.accuracy[40])
end)

test("class ids and one-hot targets train alike", function()
  local x, y = points(30)
  local a, b = classifier(), classifier "categorical_crossentropy"
  local ha = a:fit(x, y, with { epochs = 3 })
  local hb = b:fit(x, mgpu.to_categorical(y, 3), with { epochs = 3 })
  check.near(ha.history.loss, { unpack(hb.history.loss) }, 1e-5)
  check.near(ha.history.accuracy, { unpack(hb.history.accuracy) }, 1e-6)
end)

test("a user-defined loss function returns one value for each sample", function()
  local x, y = line(40)
  local own = linear { loss = function(t, p)
    return mgpu.sum(mgpu.square(p - t), { axis = -1 })
  end }
  local named = linear()
  local h1, h2 = own:fit(x, y, with { epochs = 2 }), named:fit(x, y, with { epochs = 2 })
  check.near(h1.history.loss, { unpack(h2.history.loss) }, 1e-6)
end)

test("Lua tables are accepted as data", function()
  local model = linear()
  local x, y = { { 0, 0 }, { 0, 1 }, { 1, 0 } }, { { 1 }, { 0 }, { 3 } }
  local h = model:fit(x, y, with { epochs = 2 })
  check.equal(#h.history.loss, 2)
end)

test("targets of shape {n} are accepted for outputs of shape {n, 1}", function()
  local model, x, y = linear(), line(16)
  model:fit(x, mgpu.reshape(y, { shape = { 16 } }), quiet)
end)

-- ---- exactness ----------------------------------------------------------------------------------

test("the first epoch has the numbers of a loop written by hand, with the short batch", function()
  local x, y = line(10)
  local model = linear()
  local h = model:fit(x, y, with { batch_size = 4, shuffle = false })
  local w, b, rate, total = { 0, 0 }, 0, 0.1, 0
  local xs, ys = x:totable(), y:totable()
  for first = 1, 10, 4 do
    local last = math.min(first + 3, 10)
    local n, gw, gb = last - first + 1, { 0, 0 }, 0
    for i = first, last do
      local e = w[1] * xs[i][1] + w[2] * xs[i][2] + b - ys[i][1]
      total = total + e * e
      gw[1], gw[2], gb = gw[1] + 2 * e * xs[i][1] / n, gw[2] + 2 * e * xs[i][2] / n, gb + 2 * e / n
    end
    w[1], w[2], b = w[1] - rate * gw[1], w[2] - rate * gw[2], b - rate * gb
  end
  check.near(h.history.loss[1], total / 10, 1e-5)
  check.near(model:get_weights()[1], { { w[1] }, { w[2] } }, 1e-5)
  check.near(model:get_weights()[2], { b }, 1e-5)
end)

test("shuffling visits every row once an epoch", function()
  local x, y = line(11)
  local model = linear { optimizer = mgpu.optimizers.SGD { learning_rate = 0 } }
  local h = model:fit(x, y, with { batch_size = 4, epochs = 3 })
  local expected = model:evaluate(x, y, quiet).loss
  check.near({ unpack(h.history.loss) }, { expected, expected, expected }, 1e-6)
end)

test("the same seed gives the same numbers, another seed different ones", function()
  local function run(seed)
    local model, x, y = classifier(), points(60)
    mgpu.seed(seed)
    return model:fit(x, y, with { epochs = 2, batch_size = 7 }).history.loss
  end
  check.equal({ unpack(run(3)) }, { unpack(run(3)) })
  check.falsy(run(3)[2] == run(4)[2], "the same loss with another seed")
end)

test("two fits of one epoch give the numbers of one fit of two epochs", function()
  local x, y = points(60)
  local a, b = classifier(), classifier()
  local ha = a:fit(x, y, with { epochs = 2, batch_size = 7 })
  b:fit(x, y, with { epochs = 1, batch_size = 7 })
  local hb = b:fit(x, y, with { epochs = 2, initial_epoch = 1, batch_size = 7 })
  check.equal(hb.history.loss[1], ha.history.loss[2])
  check.equal(hb.epoch, { 2 })
end)

test("fit gives the weights of a custom training loop", function()
  local x, y = points(20)
  local a, b = classifier(), classifier()
  a:fit(x, y, with { batch_size = 20, epochs = 3, shuffle = false })
  local opt, loss_of = b.optimizer, mgpu.losses.sparse_categorical_crossentropy
  local step = mgpu.jit(function(xs, ys)
    local loss, grads = mgpu.value_and_grad(function()
      return loss_of(ys, b(xs, { training = true }))
    end, b.trainable_variables)()
    opt:apply(grads, b.trainable_variables)
    return loss
  end)
  for _ = 1, 3 do step(x, y) end
  check.near(a:get_weights()[1], b:get_weights()[1]:totable(), 1e-6)
end)

-- ---- validation ---------------------------------------------------------------------------------

test("validation gives the numbers of evaluate, to the bit", function()
  local model, x, y = classifier(), points(60)
  local vx, vy = points(23)
  local h = model:fit(x, y, with { epochs = 2, batch_size = 8, validation_data = { vx, vy } })
  local r = model:evaluate(vx, vy, with { batch_size = 8 })
  check.equal(h.history.val_loss[2], r.loss)
  check.equal(h.history.val_accuracy[2], r.accuracy)
  check.equal(h.history.val_acc[2], r.acc)
end)

test("validation_split takes the last rows, before shuffling", function()
  local model, x, y = classifier(), points(40)
  local h = model:fit(x, y, with { epochs = 1, validation_split = 0.25, batch_size = 10 })
  local r = model:evaluate(x:slice { { 31, 40 }, {} }, y:slice { { 31, 40 } },
    with { batch_size = 10 })
  check.equal(h.history.val_loss[1], r.loss)
  check.equal(h.params.samples, 30)
end)

test("an evaluation in a callback does not change the epoch's means", function()
  local x, y = points(40)
  local function run(callbacks)
    return classifier():fit(x, y, with { batch_size = 8, callbacks = callbacks }).history.loss[1]
  end
  local plain = run()
  check.equal(run { { on_train_batch_begin = function(self)
    self.model:evaluate(x, y, quiet)
  end } }, plain)
end)

-- ---- options ------------------------------------------------------------------------------------

test("initial_epoch counts the epochs already done, and epochs is the last one", function()
  local model, x, y = linear(), line(8)
  local h = model:fit(x, y, with { initial_epoch = 2, epochs = 4 })
  check.equal(h.epoch, { 3, 4 })
  check.equal(#h.history.loss, 2)
end)

test("with steps_per_epoch the next epoch continues through the data", function()
  local x, y = line(12)
  local a, b = linear(), linear()
  a:fit(x, y, with { batch_size = 2, epochs = 2, steps_per_epoch = 3, shuffle = false })
  b:fit(x, y, with { batch_size = 2, epochs = 1, shuffle = false })
  check.equal(a:get_weights()[1]:totable(), b:get_weights()[1]:totable())
end)

test("sample weights multiply the losses of the rows", function()
  local x, y = line(6)
  local a, b = linear(), linear()
  a:fit(x, y, with { shuffle = false, sample_weight = { 2, 2, 2, 0, 0, 0 } })
  b:fit(x:slice { { 1, 3 }, {} }, y:slice { { 1, 3 }, {} }, with { shuffle = false })
  check.near(a:get_weights()[1], b:get_weights()[1]:totable(), 1e-6)
end)

test("class weights multiply the losses of the rows of a class, counted from 0", function()
  local x, y = points(9)
  local a, b = classifier(), classifier()
  local weights = {}
  for i = 1, 9 do weights[i] = i % 3 == 2 and 5 or 1 end
  a:fit(x, y, with { class_weight = { [0] = 1, [2] = 5 } })
  b:fit(x, y, with { sample_weight = weights })
  check.equal(a:get_weights()[1]:totable(), b:get_weights()[1]:totable())
  check.raises(function() a:fit(x, y, with { class_weight = { 1, 5 } }) end,
    "class_weight has no entry [0]", "usage")
  check.raises(function() a:fit(x, y, with { class_weight = { [0] = 1, [3] = 2 } }) end,
    "class_weight[3]: the classes are 0 to 2", "usage")
end)

test("a frozen layer keeps its weights from the next fit on", function()
  local model, x, y = classifier(), points(20)
  model:fit(x, y, quiet)
  local before = model:get_weights()[1]:totable()
  model.layers[1].trainable = false
  model:fit(x, y, quiet)
  check.equal(model:get_weights()[1]:totable(), before)
  model.layers[1].trainable = true
  model:fit(x, y, quiet)
  check.falsy(model:get_weights()[1]:totable()[1][1] == before[1][1], "the weight")
end)

test("replacing a layer of a compiled model takes effect", function()
  local model, x, y = classifier(), points(20)
  model:fit(x, y, quiet)
  local before = model:predict(x)
  model:pop()
  model:add(L.Dense { 3, name = "other", kernel_initializer = "zeros", activation = "softmax" })
  check.near(model:predict(x):slice { { 1, 1 }, {} }, { { 1 / 3, 1 / 3, 1 / 3 } }, 1e-6)
  check.equal(before:shape(), { 20, 3 })
end)

test("compile takes a device by name", function()
  local model, x, y = linear { devices = { "ref:0" } }, line(8)
  check.equal(#model:fit(x, y, quiet).history.loss, 1)
  check.raises(function() linear { devices = "gpux" } end, "gpux")
end)

-- ---- what is printed ----------------------------------------------------------------------------

test("verbose 0 prints nothing", function()
  local model, x, y = linear(), line(8)
  check.equal(output_of(function() model:fit(x, y, quiet) end), "")
end)

test("verbose 1 without a terminal prints plain lines", function()
  local model, x, y = classifier(), points(20)
  local text = output_of(function() model:fit(x, y, { batch_size = 8, epochs = 2 }) end)
  check.matches(text, "^Epoch 1/2\n3/3 %d+s %d+[mu]?s/step %- accuracy: 0%.%d%d%d%d %- loss: ")
  check.falsy(text:find "[\27\r]", "a control character")
end)

test("verbose 2 prints one line an epoch", function()
  local model, x, y = classifier(), points(20)
  local text = output_of(function()
    model:fit(x, y, { batch_size = 8, verbose = 2, validation_data = { x, y } })
  end)
  check.matches(text, "^3/3 %- %d+s %- %d+[mu]?s/step %- accuracy: [%d.]+ %- loss: "
    .. "[%d.]+ %- val_accuracy: [%d.]+ %- val_loss: [%d.]+\n$")
end)

test("style keras2 prints the lines of Keras 2", function()
  local model, x, y = classifier(), points(20)
  local text = output_of(function()
    model:fit(x, y, { verbose = 2, style = "keras2", validation_data = { x, y } })
  end)
  check.matches(text, "^Train on 20 samples, validate on 20 samples\nEpoch 1/1\n %- %d+s %- loss: "
    .. "%d%.%d%d%d%d %- acc: %d%.%d%d%d%d %- val_loss: %d%.%d%d%d%d %- val_acc: %d%.%d%d%d%d\n$")
end)

-- ---- state and time -----------------------------------------------------------------------------

test("a NaN in the data names epoch and step, and nothing of that step is committed", function()
  local x, y = line(12)
  local bad = x:totable()
  bad[8][1] = 0 / 0
  local a, b = linear(), linear()
  b:fit(x:slice { { 1, 6 }, {} }, y:slice { { 1, 6 }, {} },
    with { batch_size = 3, shuffle = false })
  check.raises(function()
    a:fit(mgpu.tensor(bad), y, with { batch_size = 3, shuffle = false })
  end, "fit: epoch 1, step 3: the loss is not finite", "nonfinite")
  check.equal(a:get_weights()[1]:totable(), b:get_weights()[1]:totable())
  check.equal(tonumber(a.optimizer.iterations:item()), 2)
  check.equal(#a:fit(x, y, quiet).history.loss, 1)
end)

test("a diverging loss is an error that names its epoch", function()
  local model, x, y = linear { optimizer = mgpu.optimizers.SGD { learning_rate = 1e30 } }, line(8)
  check.raises(function() model:fit(x, y, with { epochs = 9, batch_size = 8 }) end,
    "fit: epoch [2-9], step 1: ", "nonfinite")
end)

test("an error in a user-defined loss is raised unchanged, also after a NaN", function()
  local x, y = line(4)
  check.raises(function() linear():fit({ { 0 / 0, 1 } }, { { 1 } }, quiet) end, "is not finite")
  local model = linear { loss = function() error "own trouble" end }
  check.raises(function() model:fit(x, y, quiet) end, "own trouble")
end)

test("a gradient that is not finite is an error that names epoch and step", function()
  local model = linear { loss = function(t, p)
    return mgpu.sum(mgpu.sqrt((p - t) * 0), { axis = -1 })
  end }
  check.raises(function() model:fit({ { 1, 2 } }, { { 1 } }, quiet) end,
    "fit: epoch 1, step 1: a gradient is not finite", "nonfinite")
end)

test("fit accepts a model without trainable weights", function()
  local model, x, y = linear(), line(8)
  model.layers[1].trainable = false
  local before = model:evaluate(x, y, quiet).loss
  check.near(model:fit(x, y, quiet).history.loss[1], before, 1e-6)
end)

test("a learning rate changed by a callback takes effect in compiled steps", function()
  local x, y = line(16)
  local model = linear()
  local before
  model:fit(x, y, with { epochs = 2, callbacks = { on_epoch_begin = function(self, epoch)
    if epoch == 2 then
      self.model.optimizer.learning_rate = 0
      before = self.model:get_weights()[1]:totable()
    end
  end } })
  check.equal(model:get_weights()[1]:totable(), before)
end)

test("an error in a callback leaves the model usable", function()
  local model, x, y = linear(), line(8)
  check.raises(function()
    model:fit(x, y, with { callbacks = { on_epoch_end = function() error "own trouble" end } })
  end, "own trouble")
  model:fit(x, y, quiet)
end)

-- ---- one batch ----------------------------------------------------------------------------------

test("train_on_batch gives the numbers of one step of fit", function()
  local x, y = points(12)
  local a, b = classifier(), classifier()
  local h = a:fit(x, y, with { shuffle = false, batch_size = 12 })
  local r = b:train_on_batch(x, y)
  check.near(r.loss, h.history.loss[1], 1e-6)
  check.near(r.acc, h.history.accuracy[1], 1e-6)
  check.near(a:get_weights()[1], b:get_weights()[1]:totable(), 1e-6)
  local loss, accuracy = unpack(b:test_on_batch(x, y))
  check.equal({ loss, accuracy }, { unpack(b:evaluate(x, y, quiet)) })
end)

-- ---- bad input ----------------------------------------------------------------------------------

local function fails(sentence, message, fn, code)
  test(sentence, function() check.raises(fn, message, code or "usage") end)
end

fails("fit before compile is an error", "call model:compile", function()
  mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }:fit(line(4))
end)

fails("compile without a loss is an error", "compile: loss is missing", function()
  mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }:compile {}
end)

fails("an unknown loss is named with the nearest", "categorical_crossentropy", function()
  linear { loss = "categorical_crossentropi" }
end)

fails("an unknown optimizer is named with the nearest", "rmsprop", function()
  linear { optimizer = "rmsporp" }
end)

fails("an unknown metric is named with the nearest", "accuracy", function()
  linear { metrics = { "accurasy" } }
end)

fails("an unknown option of compile is named with the nearest", "optimizer", function()
  linear { optimiser = "sgd" }
end)

fails("an unknown option of fit is named with the nearest", "epochs", function()
  linear():fit({ { 1, 2 } }, { { 1 } }, { epoch = 3 })
end)

fails("rows of x and y must agree", "x has 8 rows but y has 4", function()
  local x = line(8)
  local _, y = line(4)
  linear():fit(x, y, quiet)
end)

fails("an empty tensor is an error", "x is empty", function()
  linear():fit(mgpu.zeros { 0, 2 }, mgpu.zeros { 0, 1 }, quiet)
end)

fails("a data set is not a tensor", "give its parts, as in train.x, train.y", function()
  linear():fit({ x = mgpu.zeros { 1, 2 }, y = mgpu.zeros { 1, 1 } }, nil, quiet)
end)

fails("an empty table is an error", "x is empty", function() linear():fit({}, {}, quiet) end)

fails("y must be given", "y is missing", function() linear():fit({ { 1, 2 } }, nil, quiet) end)

fails("batch size 0 is an error", "batch_size", function()
  linear():fit({ { 1, 2 } }, { { 1 } }, with { batch_size = 0 })
end)

fails("a label out of range names row, label and classes",
  "the label in row 3 of y is 3, but the model has 3 classes, numbered 0 to 2 (labels start at 0)",
  function()
    classifier():fit(mgpu.zeros { 4, 2 }, int { 0, 1, 3, 2 }, quiet)
  end)

fails("a label below 0 is out of range", "the label in row 2 of y is -1", function()
  classifier():fit(mgpu.zeros { 3, 2 }, int { 0, -1, 2 }, quiet)
end)

fails("a label that is not a whole number is an error", "the label in row 2 of y is 0.5", function()
  classifier():fit(mgpu.zeros { 3, 2 }, { 0, 0.5, 2 }, quiet)
end)

test("labels pass on null devices, which compute nothing", function()
  local script = check.path "null_labels.lua"
  check.write(script, [[
    local mgpu = require "mgpu"
    local model = mgpu.Sequential { mgpu.layers.Input { 4 }, mgpu.layers.Dense { 3, activation = "softmax" } }
    model:compile { loss = "sparse_categorical_crossentropy", optimizer = "sgd" }
    for _, y in ipairs { mgpu.zeros({ 8 }, { dtype = "int32" }), mgpu.zeros { 8 } } do
      model:fit(mgpu.zeros { 8, 4 }, y, { verbose = 0, class_weight = { [0] = 1, 2, 3 } })
    end
    print "trained"]])
  check.equal(check.run(check.program .. " --devices null:0 " .. script .. " 2>&1"), "trained\n")
end)

fails("class ids for one-hot loss: to_categorical is named", "mgpu.to_categorical(y, 3)", function()
  classifier "categorical_crossentropy":fit(mgpu.zeros { 3, 2 }, int { 0, 1, 2 }, quiet)
end)

fails("targets of the wrong width are named", "y has shape {3, 2}", function()
  linear():fit(mgpu.zeros { 3, 2 }, mgpu.zeros { 3, 2 }, quiet)
end)

fails("validation labels are checked too", "fit: validation_data: the label in row 1", function()
  classifier():fit(mgpu.zeros { 3, 2 }, int { 0, 1, 2 },
    with { validation_data = { mgpu.zeros { 1, 2 }, int { 7 } } })
end)

fails("a split that leaves nothing is an error", "leaves nothing to", function()
  linear():fit({ { 1, 2 } }, { { 1 } }, with { validation_split = 0.5 })
end)

fails("a wrong sample_weight is an error", "x has 2 rows but sample_weight has 1", function()
  linear():fit({ { 1, 2 }, { 3, 4 } }, { { 1 }, { 2 } }, with { sample_weight = { 1 } })
end)

test("Ctrl-C in fit names epoch and step, and the model can be used afterwards", function()
  local script = check.path "interrupted.lua"
  check.write(script, [[
    local mgpu = require "mgpu"
    local L = mgpu.layers
    local model = mgpu.Sequential { L.Input { 64 }, L.Dense { 64 }, L.Dense { 1 } }
    model:compile { optimizer = "sgd", loss = "mse" }
    local x, y = mgpu.zeros { 4096, 64 }, mgpu.zeros { 4096, 1 }
    local started
    local ok, message = pcall(model.fit, model, x, y, { epochs = 100000, verbose = 0,
      callbacks = { on_epoch_begin = function()
        if not started then
          started = true
          print "started"
          io.stdout:flush()
        end
      end } })
    print(ok, message, mgpu.error_code())
    print(model:fit(x, y, { verbose = 0 }).history.loss[1])
  ]])
  local out = check.run("timeout --foreground -s INT 2 " .. check.program .. " " .. script)
  check.matches(out, "false\t.*fit: epoch %d+, step %d+: interrupted")
  check.matches(out, "interrupted\n0")
end)

fails("options in the place of y are an error, not data", "fit_spec.lua:%d+: fit: y is missing: the options come "
  .. "after it, as in fit%(x, y, {epochs = ...}%)", function() linear():fit({ { 1, 2 } }, { epochs = 1 }) end)

fails("a class that class_weight has no weight for is named",
  "fit: class_weight has no weight for 2, the label in row 3 of y: the classes are 0 to 1", function()
    linear():fit(mgpu.zeros { 4, 2 }, { 0, 1, 2, 1 }, with { class_weight = { [0] = 1, [1] = 2 } })
  end)

fails("class_weight with targets that are not classes is an error", "fit: class_weight has no weight for 0.5, the "
  .. "label in row 2 of y", function()
  linear():fit(mgpu.zeros { 2, 2 }, { 1, 0.5 }, with { class_weight = { [0] = 1 } })
end)

test("a weighted metric with the name of an unweighted one gets another name", function()
  local model = linear { metrics = { "mae" }, weighted_metrics = { "mae", "mse" } }
  local h = model:fit({ { 1, 2 }, { 1, 2 } }, { 2, 0 }, with { sample_weight = { 1, 0 } }).history
  check.near({ h.mae[1], h.weighted_mae[1], h.mse[1] }, { 1, 2, 4 }, 1e-6)
  local one = mgpu.metrics.MeanAbsoluteError {}
  check.raises(function() linear { metrics = one, weighted_metrics = one } end,
    "is in both metrics and weighted_metrics", "usage")
end)

test("fit says once that a model has no trainable weights", function()
  local model = linear()
  model.trainable = false
  local text = output_of(function()
    model:fit(mgpu.ones { 2, 2 }, { 1, 1 }, with {})
    model:train_on_batch(mgpu.ones { 2, 2 }, { 1, 1 })
  end)
  check.equal(text, ("fit: %s has no trainable weights: there is nothing to train\n"):format(tostring(model)))
end)
