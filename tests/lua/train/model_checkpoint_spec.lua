-- ModelCheckpoint: names of files, what they hold, paths that are refused, and its use in the original scripts.

local check = require "check"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test = check.test
local printed = fixtures.printed
local C = mgpu.callbacks

local X, Y = fixtures.line(12)

local function fit(callbacks, options, model)
  options = options or {}
  options.verbose, options.batch_size, options.callbacks = 0, 4, callbacks
  model = model or fixtures.linear { metrics = "mae" }
  return model:fit(X, Y, options), model
end

local function weights_of(model)
  local list = {}
  for i, w in ipairs(model:get_weights()) do list[i] = w:totable() end
  return list
end

-- The names of the files in the folder.
local function files(folder)
  local list = {}
  for name in check.run("ls " .. folder):gmatch "[^\n]+" do list[#list + 1] = name end
  return list
end

local function new_folder(name)
  local folder = check.path(name)
  check.run(("rm -rf %s && mkdir %s"):format(folder, folder))
  return folder .. "/"
end

test("a field in the file name has Python's formats", function()
  local FilePattern = require "mgpu.train.callbacks.checkpoints".FilePattern
  local fields = { epoch = 7, batch = 120, loss = 0.12345, val_accuracy = 0.5 }
  for pattern, path in pairs {
    ["w-{epoch:02d}-{val_accuracy:.3f}.h5"] = "w-07-0.500.h5", -- as in the scripts of keras_experiments
    ["{epoch}-{batch:05d}"] = "7-00120", ["{epoch:3d}|"] = "  7|", ["{loss}"] = "0.12345", ["{loss:8.2f}"] = "    0.12",
    ["{loss:.2e}"] = "1.23e-01", ["{loss:08.3f}"] = "0000.123", ["{loss:.1%}"] = "12.3%", ["{loss:.2g}"] = "0.12",
    ["{{{epoch}}}"] = "{7}", ["no field"] = "no field", ["{epoch:.1f}"] = "7.0",
  } do
    check.equal(FilePattern.new(pattern, "here"):path(fields), path)
  end
end)

test("each epoch is saved under its own name, and holds the weights after that epoch", function()
  local folder, weights = new_folder "epochs", {}
  local h, model = fit({ C.ModelCheckpoint(folder .. "{epoch:02d}-{val_mae:.4f}-{loss:.4f}.safetensors"),
    { on_epoch_end = function(self, epoch) weights[epoch] = weights_of(self.model) end } },
    { epochs = 3, validation_split = 0.25 })
  for epoch, name in ipairs(files(folder)) do
    check.equal(name, ("%02d-%.4f-%.4f.safetensors"):format(epoch, h.history.val_mae[epoch], h.history.loss[epoch]))
    check.equal(weights_of(mgpu.load_model(folder .. name)), weights[epoch])
  end
  check.equal(#files(folder), 3)
  check.equal(weights_of(model), weights[3])
end)

test("save_weights_only saves weights, and save_freq counts batches", function()
  local folder, kept = new_folder "batches", {}
  local checkpoint = C.ModelCheckpoint { folder .. "{epoch}-{batch}-{mae:.4f}.safetensors", save_weights_only = true,
    save_freq = 2 }
  local _, model = fit({ { on_batch_end = function(self, batch, logs)
    if batch == 1 then kept[1] = logs.mae else kept[2] = weights_of(self.model) end
  end }, checkpoint }, { epochs = 2 })
  check.equal({ #files(folder), files(folder)[1]:match "^%d%-%d" }, { 3, "1-2" })
  check.equal(files(folder)[2], ("2-1-%.4f.safetensors"):format(kept[1]))
  check.equal(checkpoint.last_path, folder .. files(folder)[3])
  check.raises(function() mgpu.load_model(checkpoint.last_path) end, "holds weights only", "data")
  model:load_weights(checkpoint.last_path)
  check.equal(weights_of(model), kept[2])
end)

test("a path where nothing can be saved is refused before training starts", function()
  local begun = false
  local first = { on_train_begin = function() begun = true end }
  check.run("mkdir -p " .. check.path "folder.safetensors")
  for path, message in pairs { [check.path "model.xyz"] = 'ModelCheckpoint: .* unknown ending ".xyz"',
    [check.path "model"] = "the name has no ending",
    [check.path "none/{epoch}.safetensors"] = "fit: ModelCheckpoint: cannot write to the folder .*/none: No such file",
    [""] = "ModelCheckpoint: the path is empty" } do
    check.raises(function() fit { first, C.ModelCheckpoint(path) } end, message)
  end
  check.equal(begun, false)
end)

test("a model that cannot be saved is refused before training starts, unless its weights alone are wanted", function()
  local function own(y, p) return mgpu.mean((y - p) ^ 2, { axis = -1 }) end
  local function doubled(x) return x * 2 end
  local L = mgpu.layers
  local with_loss = mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }
  local with_lambda = mgpu.Sequential { L.Input { 2 }, L.Lambda { doubled }, L.Dense { 1 } }
  with_loss:compile { loss = own }
  with_lambda:compile { loss = "mse" }
  for model, message in pairs { [with_loss] = "the loss of output .* is a function", [with_lambda] = "Lambda" } do
    local begun = false
    local first = { on_train_begin = function() begun = true end }
    local path = check.path "own.safetensors"
    check.raises(function() fit({ first, C.ModelCheckpoint(path) }, {}, model) end,
      "model_checkpoint_spec.lua:%d+: .*" .. message .. ".*, or give ModelCheckpoint save_weights_only = true", "usage")
    check.equal(begun, false)
    fit(C.ModelCheckpoint { path, save_weights_only = true }, {}, model)
    model:load_weights(path)
  end
end)

test("a model that its first batch builds can be saved", function()
  local model, path = mgpu.Sequential { mgpu.layers.Dense { 1 } }, check.path "late.safetensors"
  model:compile { loss = "mse", optimizer = "adam" }
  model:fit(mgpu.data.from_tensors({ X, Y }):batch(4), { verbose = 0, callbacks = C.ModelCheckpoint(path) })
  check.equal(weights_of(mgpu.load_model(path)), weights_of(model))
end)

test("a save that fails during training is told, tried again, and training goes on", function()
  local folder = new_folder "lost"
  local checkpoint = C.ModelCheckpoint { folder .. "best.safetensors", monitor = "loss", save_best_only = true }
  local h
  local text = printed(function()
    h = fit({ { on_epoch_begin = function(_, epoch)
      if epoch == 2 then check.run(("mv %s %s"):format(folder, check.path "away")) end
      if epoch == 3 then check.run(("mv %s %s"):format(check.path "away", folder)) end
    end, on_epoch_end = function(_, epoch, logs) logs.loss = epoch == 2 and 0 or 2 - epoch / 10 end }, checkpoint },
      { epochs = 3 })
  end)
  check.equal({ #h.epoch, checkpoint.best }, { 3, 1.7 })
  check.matches(text, "^ModelCheckpoint: epoch 2 was not saved: .*lost.*\n$")
end)

test("verbose prints Keras's lines", function()
  local folder = new_folder "lines"
  local path = folder .. "best.safetensors"
  local losses = { on_epoch_end = function(_, epoch, logs) logs.loss = epoch == 2 and 3 or 2 - epoch / 2 end }
  check.equal(printed(fit, { losses, C.ModelCheckpoint { path, monitor = "loss", save_best_only = true,
    verbose = 1 } }, { epochs = 3 }), (
    "\nEpoch 1: loss improved from None to 1.50000, saving model to PATH\n\nEpoch 1: finished saving model to PATH\n"
    .. "\nEpoch 2: loss did not improve from 1.50000\n"
    .. "\nEpoch 3: loss improved from 1.50000 to 0.50000, saving model to PATH\n"
    .. "\nEpoch 3: finished saving model to PATH\n"):gsub("PATH", path))
  check.equal(printed(fit, C.ModelCheckpoint { path, verbose = 1 }), ("\nEpoch 1: saving model to %s\n"
    .. "\nEpoch 1: finished saving model to %s\n"):format(path, path))
end)

-- keras_experiments trains on several devices, keeps the best weights by val_acc, and loads them into the serial model.
test("the best weights by val_acc, trained on 1 and 4 devices, are loaded into the serial model", function()
  local x, y = fixtures.points(60)
  for _, devices in ipairs { { "cpu:0" }, { "cpu:0", "cpu:1", "cpu:2", "cpu:3" } } do
    for _, strategy in ipairs { "mirrored", "central", "async" } do
      mgpu.seed(3)
      local function new_model()
        return mgpu.Sequential { mgpu.layers.Input { 2 }, mgpu.layers.Dense { 3, activation = "softmax" } }
      end
      local model, path = new_model(), check.path "weights.best.safetensors"
      model:compile { optimizer = mgpu.optimizers.RMSprop { 0.05 }, loss = "sparse_categorical_crossentropy",
        metrics = { "accuracy" }, devices = devices, strategy = strategy }
      local best = C.ModelCheckpoint { path, monitor = "val_acc", mode = "max", save_best_only = true,
        save_weights_only = true }
      local h = model:fit(x, y, { batch_size = 8 * #devices, epochs = 8, verbose = 0, validation_data = { x, y },
        callbacks = { best, C.EarlyStopping { "val_acc", patience = 8 } } })
      local serial = new_model()
      serial:compile { loss = "sparse_categorical_crossentropy", metrics = { "accuracy" } }
      serial:load_weights(path)
      check.equal(best.best, math.max(unpack(h.history.val_acc)))
      check.near(serial:evaluate(x, y, { verbose = 0 }).acc, best.best, 1e-12)
    end
  end
end)
