-- Models whose first layers read texts, vocabularies and hashes, compared with Keras: golden/categories/text_models.
package.path = "tests/?.lua;" .. package.path
local check = require "check"
local mgpu = require "mgpu"
local test, L = check.test, mgpu.layers

local FOLDER = "tests/golden/categories/text_models/"
local TEXTS = { "good film", "Bad, bad film!", "what a film", "a good good one", "one", "bad" }
local CITIES = { "Rome", "Oslo", "Bonn", "Rome", "Lima", "Oslo" }
local CODES = mgpu.tensor({ { 3 }, { 5 }, { -4 }, { 1000 }, { 5 }, { 7 } }, { dtype = "int64" })
local AGES = mgpu.tensor { { 3.5 }, { 20 }, { 64 }, { 0 }, { 18 }, { 33 } }
local Y = mgpu.tensor { { 1 }, { 0 }, { 0 }, { 1 }, { 0 }, { 1 } }
local INPUTS = {
  words = TEXTS, weighted_words = TEXTS, two = TEXTS, scalars = CITIES, columns = { CITIES, CODES, AGES },
  numbers = mgpu.tensor({ { 3, 5 }, { 0, 9 }, { 7, 7 }, { 9, 9 }, { 5, 1 }, { 0, 0 } }, { dtype = "int64" }),
}
local FILES = { "words.keras", "weighted_words.keras", "two.keras", "scalars.keras", "scalars.h5", "columns.keras",
  "numbers.keras", "numbers.h5" }

-- fn(model, x, what Keras has made of the model, its name, its file) for each file.
local function each_model(fn)
  for _, version in ipairs { "", "_k2" } do
    local values = mgpu.load(FOLDER .. ("values%s.safetensors"):format(version))
    for _, file in ipairs(FILES) do
      local name = file:match "^[^.]*"
      local made = { after = {} }
      for key, value in pairs(values) do
        local i = key:match("^" .. name .. "/after/(%d+)")
        if i then made.after[tonumber(i)] = value end
      end
      made.y = values[name .. "/y"]
      fn(mgpu.load_model(FOLDER .. file:gsub("%.", version .. ".")), INPUTS[name], made, file)
    end
  end
end

test("models of Keras with texts, vocabularies and hashes predict what they do there", function()
  each_model(function(model, x, made)
    check.near(model(x), made.y, 2e-6) -- float32
    check.near(model:predict(x, { batch_size = 4 }), made.y, 2e-6)
    check.near(model:predict_on_batch(x), made.y, 2e-6)
  end)
end)

test("three steps of SGD change their weights as in Keras", function()
  each_model(function(model, x, made)
    for _ = 1, 3 do model:train_on_batch(x, Y) end
    for i, v in ipairs(model.trainable_variables) do check.near(v:value(), made.after[i], 1e-4) end
  end)
end)

test("they predict the same after saving and loading", function()
  local keep = os.getenv "MGPU_KEEP" -- a folder for files that Keras is to load
  each_model(function(model, x, made, file)
    for _, ending in ipairs { "keras", "h5", "safetensors" } do
      local path = check.path("model." .. ending)
      model:save(path)
      check.near(mgpu.load_model(path)(x), made.y, 2e-6)
      if keep and ending == file:match "%.(.*)" then
        model:save(("%s/%s"):format(keep, file))
        mgpu.save(("%s/%s.npy"):format(keep, file), model(x))
      end
    end
    check.equal(mgpu.clone_model(model):predict(x):shape(), model:predict(x):shape()) -- its weights are new
  end)
end)

-- A model of two texts and a number, and data for it.
local function mixed_model()
  local title = mgpu.Input { 1, dtype = "string", name = "title" }
  local body = mgpu.Input { {}, dtype = "string", name = "body" }
  local age = mgpu.Input { 1, name = "age" }
  local words = L.TextVectorization { vocabulary = { "good", "bad" }, output_mode = "multi_hot",
    name = "words" } (title)
  local hashed = L.Embedding { 5, 2 } (L.Hashing { 5, name = "hashed" } (body))
  local y = L.Dense { 4 } (L.Concatenate {} { words, hashed, age })
  local model = mgpu.Model { inputs = { title, body, age },
    outputs = { L.Dense { 1, name = "a" } (y), L.Dense { 2, name = "b" } (y) } }
  return model, { title = { "good", "bad", "bad good", "x", "y" }, body = { "a", "b", "c", "d", "a" },
    age = mgpu.tensor { { 1 }, { 2 }, { 3 }, { 4 }, { 5 } } }, { a = mgpu.ones { 5, 1 }, b = mgpu.zeros { 5, 2 } }
end

test("fit over arrays with texts trains as the body does over what the layers on the host make", function()
  local function train(of_body, given)
    mgpu.seed(3)
    local model, x, y = mixed_model()
    local trained = of_body and model.body or model
    trained:compile { optimizer = "sgd", loss = { a = "mse", b = "mae" } }
    if of_body then
      local words = mgpu.tensor { { 0, 1, 0 }, { 0, 0, 1 }, { 0, 1, 1 }, { 1, 0, 0 }, { 1, 0, 0 } }
      x = { words = words, hashed = L.Hashing { 5 } (x.body), age = x.age }
    end
    local history = trained:fit(x, y, given)
    return model, history.history, trained:evaluate(x, y, { verbose = 0 }).loss
  end
  local rows = { 1, 2, 1, 1, 3 }
  for _, given in ipairs { {}, { validation_split = 0.4 }, { sample_weight = rows },
    { sample_weight = { a = rows, b = { 1, 1, 1, 0, 0 } } } } do
    given.batch_size, given.epochs, given.verbose, given.shuffle = 2, 2, 0, false
    local ours, history, loss = train(false, given)
    local body, expected, expected_loss = train(true, given)
    for i, w in ipairs(ours:get_weights()) do check.near(w, body:get_weights()[i], 1e-6) end -- float32
    for name, list in pairs(expected) do check.near(history[name][2], list[2], 1e-6) end
    check.near(loss, expected_loss, 1e-6)
  end
end)

test("fit shuffles texts with their targets, validates, and weights classes", function()
  mgpu.seed(1)
  local x, y = {}, {}
  for i = 1, 60 do
    x[i], y[i] = (i % 2 == 0 and "good" or "bad") .. (i % 3 == 0 and " film film" or " film"), i % 2 == 0 and 1 or 0
  end
  y = mgpu.tensor(y, { dtype = "int32" })
  local model = mgpu.Sequential { mgpu.Input { 1, dtype = "string" },
    L.TextVectorization { vocabulary = { "good", "bad", "film" } }, L.Embedding { 5, 4 }, L.GlobalAveragePooling1D {},
    L.Dense { 2, activation = "softmax" } }
  model:compile { optimizer = mgpu.optimizers.Adam { 0.1 }, loss = "sparse_categorical_crossentropy",
    metrics = { "accuracy" }, devices = { "cpu:0", "cpu:1" } }
  local h = model:fit(x, y, { epochs = 8, batch_size = 8, verbose = 0, validation_data = { x, y },
    class_weight = { [0] = 1, [1] = 2 } }).history
  check.equal({ h.accuracy[8], h.val_accuracy[8] }, { 1, 1 })
  check.equal(model:predict({ "good film", "a bad one" }):argmax(2):totable(), { 1, 0 })
end)

test("datasets and generators of texts go through the layers on the host", function()
  local path = check.path "lines.txt"
  check.write(path, "good\nbad\ngood good\nx\n")
  local model = mgpu.Sequential { mgpu.Input { 1, dtype = "string" },
    L.TextVectorization { vocabulary = { "good", "bad" }, output_mode = "count" }, L.Dense { 1 } }
  local lines = { "good", "bad", "good good", "x" }
  local expected = model(lines)
  check.near(model:predict(mgpu.data.text_lines(path):batch(3)), expected, 1e-6)
  model:compile { loss = "mse" }
  local ones = mgpu.ones { 2, 1 }
  local loss = model:evaluate(lines, mgpu.ones { 4, 1 }, { verbose = 0 }).loss
  local at = 0
  local function batches()
    at = at + 2
    if lines[at] then return { lines[at - 1], lines[at] }, ones end
  end
  check.near(model:evaluate(batches, { steps = 2, verbose = 0 }).loss, loss, 1e-6)
  at = 0
  check.near(model:evaluate(coroutine.create(function() while true do coroutine.yield(batches()) end end),
    { steps = 2, verbose = 0 }).loss, loss, 1e-6)
  local own = { iter = function() at = 0; return batches end, length = function() return 2 end }
  check.near(model:evaluate(own, { verbose = 0 }).loss, loss, 1e-6)
  for y in mgpu.data.text_lines(path):batch(4):map(model):iter() do check.near(y, expected, 1e-6) end
end)

test("a fit over texts that was interrupted goes on where it stopped", function()
  local function train(folder, stop)
    mgpu.seed(5)
    local model = mgpu.Sequential { mgpu.Input { 1, dtype = "string" }, L.Hashing { 7, output_mode = "count" },
      L.Dense { 1 } }
    model:compile { optimizer = mgpu.optimizers.SGD { 0.01 }, loss = "mse" }
    local callback = mgpu.callbacks.LambdaCallback { on_epoch_end = function(epoch)
      if epoch == stop then error "stopped" end
    end }
    local x = { "a", "b", "c", "d", "e", "f", "g" }
    local ok = pcall(model.fit, model, x, mgpu.arange(7), { epochs = 4, batch_size = 2, verbose = 0, resume = folder,
      callbacks = { callback } })
    return model, ok
  end
  local whole = train(check.path "a")
  local _, done = train(check.path "b", 3)
  check.equal(done, false)
  local resumed = train(check.path "b")
  for i, w in ipairs(whole:get_weights()) do check.near(resumed:get_weights()[i], w, 0) end
end)

test("models with layers that read values in the wrong place, or wrong data, say what to do", function()
  local text, number = mgpu.Input { 1, dtype = "string", name = "text" }, mgpu.Input { 1, name = "number" }
  check.raises(function() L.Dense { 2 } (text) end, "computes with numbers, but its input is text")
  check.raises(function()
    return mgpu.Model { inputs = number, outputs = L.Hashing { 3, name = "h" } (L.Dense { 2, name = "d" } (number)) }
  end, 'Dense "d": has weights to train, but Hashing "h" behind it reads values on the host')
  local inner = mgpu.Model { inputs = text, outputs = L.Embedding { 3, 1 } (L.Hashing { 3 } (text)), name = "inner" }
  check.raises(function() return mgpu.Sequential { text, inner, L.Flatten {} } end,
    'Model "inner": has layers that read values as well as weights to train')
  check.raises(function() return mgpu.Model { inputs = text, outputs = text } end, "its texts leave")
  check.raises(function()
    return mgpu.Model { inputs = number, outputs = L.StringLookup { vocabulary = { "a" }, invert = true } (number) }
  end, "its texts leave the layers that read values")
  check.raises(function() return mgpu.Sequential { L.Hashing { 3 }, L.Dense { 1 } }:predict { "a" } end,
    "must begin with an Input, as mgpu.Input {1, dtype = \"string\"} for texts")
  check.raises(function() L.StringLookup { output_mode = "count" } (text) end, "has no vocabulary yet")
  check.raises(function() L.Hashing { 3, output_mode = "count" } (mgpu.Input { {}, dtype = "string" }) end,
    "counts the values of each row, but a row of shape {None} is one value")
  check.raises(function() L.TextVectorization {} (mgpu.Input { 2, dtype = "string" }) end, "takes one text a row")
  check.raises(function() L.HashedCrossing { 3 } (text) end, "at least two features")
  local model = mgpu.Sequential { mgpu.Input { 2, dtype = "string" }, L.Hashing { 3 }, L.Embedding { 3, 1 } }
  check.raises(function() model:predict(mgpu.ones { 2, 2 }) end, "must be an array of texts for each row, got a tensor")
  check.raises(function() model:predict { { "a", "b" }, { "c" } } end, "x has 1 texts in a row, expected 2")
  check.raises(function() model:predict { { "a", 3 } } end, "x must hold texts, has a number among them")
  check.raises(function() model:predict {} end, "is empty")
  local pair = mgpu.Model { inputs = { text, number }, outputs = { L.Hashing { 3 } (text), number } }
  check.raises(function() pair { { "a" }, "b" } end, 'expected a tensor for input "number", got a string')
  check.raises(function() model { { "a" } } end, "has 1 texts in a row, expected 2")
  check.raises(function() model:save(check.path "model.onnx") end, "save model.body, the part behind", "unsupported")
  model.body:save(check.path "body.onnx")
  model:compile { loss = "mse" }
  check.raises(function() model:fit({ { "a", "b" } }, mgpu.ones { 2, 2, 1 }) end, "x has 1 rows but y has 2")
end)

test("a batch all of whose texts are empty is refused with the layer, or padded to a given length", function()
  local function model(options)
    options.vocabulary, options.name = { "good", "bad" }, "words"
    local m = mgpu.Sequential { mgpu.Input { 1, dtype = "string" }, L.TextVectorization(options), L.Embedding { 5, 3 },
      L.GlobalAveragePooling1D {}, L.Dense { 1 } }
    m:compile { loss = "mse" }
    return m
  end
  local x, y = { "good", "", "", "" }, mgpu.ones { 4, 1 }
  local how = { batch_size = 2, verbose = 0, shuffle = false }
  local reason = ': TextVectorization "words" finds nothing in a batch of 2 rows: if its texts may all be empty, give '
  check.raises(function() model {}:fit(x, y, how) end, "fit" .. reason, "data")
  check.raises(function() model {}:predict(x, { batch_size = 2 }) end, "predict" .. reason, "data")
  check.raises(function() model {}:train_on_batch({ "", "" }, mgpu.ones { 2, 1 }) end, "rows: if its texts", "data")
  model { output_sequence_length = 2 }:fit(x, y, how)
end)
