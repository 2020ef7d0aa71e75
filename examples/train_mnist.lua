-- Trains a small network on MNIST, tests it and saves it: the first thing to try.
--
--     mgpulua examples/train_mnist.lua --help
--
-- What it teaches: load data, describe a model, compile, fit, evaluate, save; the same on several
-- devices: with --devices cuda:0-7, or cpu:0-1 where there is no GPU.

local mgpu = require "mgpu"
local clock = require("mgpu.core").clock -- seconds

local HELP = [[
usage: mgpulua train_mnist.lua [options]
  --model NAME      mnist_cnn, lenet5 or mlp (mnist_cnn with a GPU, else lenet5)
  --epochs N        passes over the training data (12 with a GPU, else 3)
  --batch-size N    images a step (128)
  --devices LIST    where to train: cuda:0, cuda:0,1 or cpu:0-3 (the first of mgpu.devices())
  --strategy NAME   on several devices: mirrored, central or async (mirrored)
  --bn NAME         batch normalization over all rows (sync) or the rows of each device (local) (sync)
  --precision NAME  float32, mixed_bfloat16 or mixed_float16 (float32)
  --data NAME       mnist, fashion or digits (mnist; if it cannot be loaded, another one, with a note)
  --limit N         use only the first N images of each set
  --seed N          seed of the random numbers (42)
  --lr X            learning rate (that of RMSprop: 0.001)
  --save FILE       file that the model is saved in (model.safetensors)
  --evaluate [FILE] do not train; test the model in FILE (by default that of --save)
  --verbose N       0 silent, 1 progress bar, 2 one line an epoch (1)
  --help            this text]]

-- ---- options ------------------------------------------------------------------------------------

local function usage(text, ...)
  io.stderr:write("train_mnist.lua: ", text:format(...), " (see --help)\n")
  os.exit(1)
end

local function read_options(words)
  local kinds = { model = "word", epochs = "count", batch_size = "count", devices = "word",
    strategy = "word", bn = "word", precision = "word", data = "word", limit = "count", seed = "count",
    lr = "number", save = "word", evaluate = "flag", verbose = "count", help = "flag" }
  local options, i = {}, 1
  while words[i] do
    local name, value = words[i]:gsub("^%-%-", ""):gsub("%-", "_"), words[i + 1]
    local kind = words[i]:find "^%-%-" and kinds[name]
    if not kind then usage("unknown option %s", words[i]) end
    if kind == "flag" and (not value or value:find "^%-%-" or name == "help") then
      options[name] = true
    elseif not value then
      usage("%s needs a value", words[i])
    else
      if kind == "number" or kind == "count" then value = tonumber(value) end
      if not value or kind == "count" and (value < 0 or value % 1 ~= 0) then
        usage("%s: cannot read %q as a number", words[i], words[i + 1])
      end
      options[name], i = value, i + 1
    end
    i = i + 1
  end
  return options
end

-- Stops the program unless the value is nil or one of the names.
local function choice(option, value, names)
  for _, name in ipairs(names) do
    if value == nil or value == name then return value end
  end
  usage("--%s %s: there are %s", option, value, table.concat(names, ", "))
end

-- ---- data ---------------------------------------------------------------------------------------

local function load_data(name, limit)
  local sets = mgpu.datasets
  if name == "mnist" then return sets.mnist.load_data() end
  if name == "fashion" then return sets.fashion_mnist.load_data() end
  if name == "digits" then return sets.digits(math.max(limit or 0, 6000)) end
  local ok, train, test = pcall(sets.mnist.load_data)
  if ok then return train, test end
  print("MNIST cannot be loaded: " .. train:gsub("^%S+:%d+: ", ""))
  ok, train, test = pcall(sets.fashion_mnist.load_data)
  if not ok then train, test = sets.digits(6000) end
  print(("Using the data set %s instead."):format(train.name))
  return train, test
end

-- Images as float32 in 0..1 with a channel axis, labels one-hot.
local function prepare(set, limit)
  local rows = math.min(limit or math.huge, set.x:shape()[1])
  local x = set.x:slice { { 1, rows }, {}, {} }:reshape { rows, 28, 28, 1 }:to "float32" / 255
  return x, mgpu.to_categorical(set.y:slice { { 1, rows } }, set.classes)
end

-- ---- the run ------------------------------------------------------------------------------------

local function report(model, x, y)
  local score = model:evaluate(x, y, { verbose = 0 })
  print(("Test score: %.6f"):format(score.loss))
  print(("Test accuracy: %.4f"):format(score.accuracy))
end

local options = read_options(arg)
if options.help then
  print(HELP)
  return
end
if options.limit == 0 then usage "--limit 0 leaves no images" end
choice("data", options.data, { "mnist", "fashion", "digits" })
choice("model", options.model, { "mnist_cnn", "lenet5", "mlp" })
choice("strategy", options.strategy, { "mirrored", "central", "async" })
choice("bn", options.bn, { "sync", "local" })
choice("precision", options.precision, { "float32", "mixed_bfloat16", "mixed_float16" })
mgpu.seed(options.seed or 42)

local gpus = #mgpu.devices "cuda"
local devices = options.devices and require "mgpu.program".parse_devices(options.devices)
  or { mgpu.devices()[1] }
print("['" .. table.concat(mgpu.devices(), "', '") .. "']")
print(("Using %d GPUs."):format(gpus > 0 and #devices or 0))

local train, test = load_data(options.data, options.limit)
local x_train, y_train = prepare(train, options.limit)
local x_test, y_test = prepare(test, options.limit)
print(("X_train shape: (%s)"):format(table.concat(x_train:shape(), ", ")))
print(x_train:shape()[1] .. " train samples")
print(x_test:shape()[1] .. " test samples")

local path = options.save or "model.safetensors"
local compile_options = {
  optimizer = mgpu.optimizers.RMSprop { learning_rate = options.lr },
  loss = "categorical_crossentropy",
  metrics = { "accuracy" },
  devices = devices,
  strategy = options.strategy,
  bn = options.bn,
  precision = options.precision,
}

if options.evaluate then
  local model = mgpu.load_model(options.evaluate == true and path or options.evaluate)
  model:compile(compile_options)
  report(model, x_test, y_test)
  return
end

local name = options.model or gpus > 0 and "mnist_cnn" or "lenet5"
local model = mgpu.models[name] { input_shape = { 28, 28, 1 }, classes = train.classes }
print(#devices > 1 and ("Using Multi-GPU: %d devices"):format(#devices) or "NOT Using Multi-GPU")
model:compile(compile_options)

local start = clock()
model:fit(x_train, y_train, {
  batch_size = options.batch_size or 128,
  epochs = options.epochs or gpus > 0 and 12 or 3,
  verbose = options.verbose,
  style = options.verbose == 2 and "keras2" or nil,
  validation_data = { x_test, y_test },
})
report(model, x_test, y_test)
print(("Total Duration (%.3f sec)"):format(clock() - start))

model:save(path)
print("Saved the model in " .. path)
