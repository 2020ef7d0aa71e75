-- Layers for categories, compared with Keras: golden/categories/values.json.
package.path = "tests/?.lua;" .. package.path
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"
local test, L = check.test, mgpu.layers

local function golden()
  local file = assert(io.open "tests/golden/categories/values.json")
  local text = file:read "*a"
  file:close()
  return core.json_decode(text)
end

test("Hashing gives the bins of Keras, with and without a salt and a mask", function()
  local g = golden()
  for _, case in ipairs(g.hashing) do
    local bins = L.Hashing { 1000003, salt = case.options.salt, mask_value = case.options.mask_value } (g.texts)
    for i, bin in ipairs(case.bins) do check.equal(bins:totable()[i], bin) end
  end
  local bins = L.Hashing { 1000003 } (mgpu.tensor(g.numbers, { dtype = "int64" })):totable()
  for i, bin in ipairs(g.hashed_numbers) do check.equal(bins[i], bin) end
end)

test("HashedCrossing gives the bins of Keras", function()
  local g, few = golden(), {}
  for i = 1, 4 do few[i] = g.texts[i] end
  local bins = L.HashedCrossing { 1000003 } { few, mgpu.tensor(g.numbers, { dtype = "int64" }) }:totable()
  for i, bin in ipairs(g.crossing) do check.equal(bins[i], bin) end
end)

test("Discretization:adapt finds the boundaries of Keras", function()
  for _, case in ipairs(golden().discretization) do
    local layer, list = L.Discretization { num_bins = case.bins, epsilon = case.epsilon }, {}
    for i = 0, case.n - 1 do list[i + 1] = i * 37 % 101 end
    layer:adapt(mgpu.tensor(list))
    check.equal(#layer.bin_boundaries, #case.boundaries)
    for i, b in ipairs(case.boundaries) do check.near(layer.bin_boundaries[i], b, 1e-5) end -- float32 near 100
  end
end)

test("CategoryEncoding encodes as Keras in each mode", function()
  local x = mgpu.tensor({ { 3, 1, 3 }, { 0, 0, 2 } }, { dtype = "int64" })
  for _, case in ipairs(golden().encoding) do
    local y = L.CategoryEncoding { 4, output_mode = case.mode } (x)
    check.equal(y:eq(mgpu.tensor(case.y)):all():item(), true)
  end
end)

test("Discretization works within a model", function()
  local model = mgpu.Sequential { L.Input { 1 }, L.Discretization { { 0, 1 }, output_mode = "one_hot" } }
  local y = model:predict(mgpu.tensor { { -1 }, { 0 }, { 5 } }, { verbose = 0 })
  check.equal(y:eq(mgpu.tensor { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } }):all():item(), true)
end)

test("wrong options and calls of these layers say what to do", function()
  check.raises(function() L.Discretization { { "a" } } end, "must hold numbers")
  check.raises(function() L.Discretization { num_bins = 2 } (mgpu.ones { 1 }) end, "call adapt")
  check.raises(function() L.Discretization { { 1 } }:adapt { 1 } end, "adapt needs the option num_bins")
  check.raises(function() L.Discretization { num_bins = 2 }:adapt {} end, "there are no data")
  check.raises(function() L.Hashing { 2, salt = { 1, 2, 3 } } end, "one or two whole numbers")
  check.raises(function() L.Hashing { 2 } (nil) end, "takes strings")
  check.raises(function() L.HashedCrossing { 2 } { { "a" } } end, "at least two features")
  check.raises(function() L.HashedCrossing { 2 } { { "a" }, { "a", "b" } } end, "feature 2 has 2")
end)

local function strings(list) return table.concat(list, "|") end

test("StringLookup adapts and looks up as Keras in each mode", function()
  local g = golden()
  for _, case in ipairs(g.lookup) do
    local layer = L.StringLookup(case.options)
    layer:adapt(g.documents)
    check.equal(strings(layer:get_vocabulary()), strings(case.vocabulary))
    check.near(layer(g.asked), mgpu.tensor(case.y), 1e-6)
  end
end)

test("IntegerLookup adapts and looks up as Keras", function()
  local x = mgpu.tensor({ { 7, 0, -4 }, { 100, -9, 5 } }, { dtype = "int64" })
  for _, case in ipairs(golden().integers) do
    local layer = L.IntegerLookup(case.options)
    layer:adapt(mgpu.tensor({ { 5, 7 }, { 7, -9 } }, { dtype = "int64" }))
    check.equal(strings(layer:get_vocabulary()), strings(case.vocabulary))
    check.equal(layer(x):totable(), case.y)
  end
end)

test("a lookup with invert gives the terms back", function()
  local layer = L.StringLookup { vocabulary = { "a", "b" }, invert = true }
  check.equal(strings(layer { 2, 0, 1 }), "b|[UNK]|a")
  check.equal(L.IntegerLookup { vocabulary = { 5, 7 }, invert = true } { 2, 0 }:totable(), { 7, -1 })
end)

test("a lookup made from its configuration has the same vocabulary", function()
  local layer = L.StringLookup { output_mode = "tf_idf" }
  layer:adapt { { "a", "b" }, { "a" } }
  local copy = L.StringLookup(layer:get_config())
  check.near(copy { { "a", "x" } }, layer { { "a", "x" } }, 0)
end)

test("layers that read values map a dataset of numbers, and say so inside of a traced function", function()
  local numbers = mgpu.tensor({ 10, 20, 99, 30 }, { dtype = "int32" })
  local strict = L.IntegerLookup { vocabulary = { 10, 20, 30, 99 }, num_oov_indices = 0 }
  for _, layer in ipairs { strict, L.Hashing { num_bins = 5 } } do
    local list = {}
    for y in mgpu.data.from_tensors(numbers):map(layer):iter() do list[#list + 1] = y:item() end
    check.equal(list, layer(numbers):totable())
    local it = mgpu.data.from_tensors(numbers):map(function(x) return layer(x) end):iter()
    check.raises(it, "a layer that reads values was called while mgpu.jit traces")
  end
end)

test("StringLookup maps a dataset of text", function()
  local path = check.path "lines.txt"
  check.write(path, "b\na\nb\n")
  local ds, layer = mgpu.data.text_lines(path), L.StringLookup {}
  layer:adapt(ds:batch(2))
  local list = {}
  for y in ds:batch(3):map(function(lines) return layer(lines) end):iter() do list = y:totable() end
  check.equal(list, { 1, 2, 1 })
end)

test("wrong vocabularies and calls of lookups say what to do", function()
  local S = L.StringLookup
  check.raises(function() S {} { "a" } end, "call adapt or set_vocabulary")
  check.raises(function() S { invert = true } { 1 } end, "call adapt or set_vocabulary")
  check.raises(function() S { vocabulary = { "a", "a" } } end, "twice")
  check.raises(function() S { vocabulary = { 1 } } end, "term 1 of the vocabulary is a number")
  check.raises(function() S { vocabulary = {} } end, "at least one term")
  check.raises(function() S { vocabulary = { "a", "m" }, mask_token = "m" } end, "has the mask token")
  check.raises(function() S { vocabulary = { "a", "b" }, max_tokens = 2 } end, "max_tokens is 2")
  check.raises(function() S { vocabulary = { "a" }, num_oov_indices = 0 } { "b" } end, "num_oov_indices is 0")
  check.raises(function() S { vocabulary = { "a" } } { 3 } end, "takes strings, got a number")
  check.raises(function() S { vocabulary = { "a" } } (nil) end, "takes strings, nested tables")
  check.raises(function() L.IntegerLookup { vocabulary = { 1 } } { { "a" } } end, "takes numbers, got a string")
  check.raises(function() L.IntegerLookup {} { 1 } end, "call adapt or set_vocabulary")
  check.raises(function() S { invert = true, output_mode = "count" } end, "invert needs")
  check.raises(function() S { pad_to_max_tokens = true } end, "needs max_tokens")
  check.raises(function() S { salt = { 1 } } end, "one or two whole numbers")
  check.raises(function() S {}:adapt {} end, "have no values")
  check.raises(function() S { vocabulary = { "a" }, output_mode = "tf_idf" } end, "needs idf_weights")
  check.raises(function() S { vocabulary = { "a" }, idf_weights = { 1 } } end, "idf_weights need")
  local weighted = { vocabulary = { "a" }, idf_weights = { 1, 2 }, output_mode = "tf_idf" }
  check.raises(function() S(weighted) end, "2 numbers for 1")
end)

test("TextVectorization adapts and vectorizes as Keras in each mode", function()
  local g = golden()
  for _, case in ipairs(g.vectorized) do
    local layer, texts = L.TextVectorization(case.options), {}
    layer:adapt(g.sentences)
    check.equal(strings(layer:get_vocabulary()), strings(case.vocabulary))
    for i, text in ipairs(g.sentences) do texts[i] = text end
    texts[#texts + 1] = "new cat"
    check.near(layer(texts), mgpu.tensor(case.y), 1e-6)
    check.near(L.TextVectorization(layer:get_config())(texts), mgpu.tensor(case.y), 1e-6)
  end
end)

test("wrong options and calls of TextVectorization say what to do", function()
  local T = L.TextVectorization
  check.raises(function() T { standardize = "upper" } end, 'unknown value "upper"')
  check.raises(function() T { output_mode = "count", output_sequence_length = 3 } end, "output_sequence_length needs")
  check.raises(function() T {} (mgpu.ones { 2 }) end, "takes texts")
  check.raises(function() T { vocabulary = { "a" } } { { "a", "b" } } end, "takes texts, got a table")
end)

test("a .keras file gives layers the vocabulary that it keeps as an asset", function()
  local words = mgpu.load_model("tests/golden/categories/text.keras").layers[1]
  check.equal(strings(words:get_vocabulary()), "[UNK]|b|a|déd|c")
  check.near(words { "a b b z" }, mgpu.tensor { { 0.8605048656463623, 1.3862943649291992, 0.9162907600402832, 0, 0 } },
    1e-6) -- float32
  local numbers = mgpu.load_model("tests/golden/categories/numbers.keras").layers[1]
  check.equal(strings(numbers:get_vocabulary()), "-1|7|5|-9")
  local padded = mgpu.load_model("tests/golden/categories/padded.keras").layers[1] -- its weights are filled with zeros
  check.near(padded { "a b b z" }, mgpu.tensor { { 0.6323733329772949, 1.021651268005371, 0.6931471824645996,
    0, 0, 0, 0, 0, 0 } }, 1e-6)
end)

test("a .keras file whose vocabulary is no number is an error", function()
  local archive, path = core.zip_read "tests/golden/categories/numbers.keras", check.path "bad.keras"
  local members = {}
  for _, name in ipairs { "config.json", "metadata.json", "model.weights.h5" } do
    members[#members + 1] = { name = name, bytes = archive:read(name) }
  end
  archive:close()
  members[#members + 1] = { name = "assets/layers/integer_lookup/vocabulary.txt", bytes = "1\nx\n" }
  core.zip_write(path, members)
  check.raises(function() mgpu.load_model(path) end, 'integer_lookup/vocabulary.txt: "x" is no number', "data")
end)

test("indices are counted along the axis behind the batch, whatever lies outside", function()
  local function count(x, mode) return L.CategoryEncoding { 3, output_mode = mode or "count" }(x):totable() end
  check.equal(count(mgpu.tensor { 0, 2, 2, -1 }), { 1, 0, 2 })
  check.equal(count(mgpu.tensor { { 0, 2, 2 }, { 1, 3, 9 } }), { { 1, 0, 2 }, { 0, 1, 0 } })
  check.equal(count(mgpu.tensor { { 0, 2, 2 }, { 1, 3, 9 } }, "multi_hot"), { { 1, 0, 1 }, { 0, 1, 0 } })
  check.equal(count(mgpu.tensor { { { 0, 1 }, { 0, 5 } }, { { 2, 2 }, { 2, -1 } } }),
    { { { 2, 0, 0 }, { 0, 1, 0 } }, { { 0, 0, 2 }, { 0, 0, 1 } } })
  check.equal(count(mgpu.zeros { 2, 0 }), { { 0, 0, 0 }, { 0, 0, 0 } })
end)

test("Discretization compares numbers as they are", function()
  local function bins(x, edge, options)
    local given = options or {}
    given.bin_boundaries = { edge }
    return L.Discretization(given)(x):totable()
  end
  check.equal(bins(mgpu.tensor { 2049, 2048 }, 2048.5, { dtype = "mixed_float16" }), { 1, 0 })
  check.equal(bins(mgpu.tensor({ 16777217, 16777216 }, { dtype = "int64" }), 16777216.5), { 1, 0 })
  check.equal(bins(mgpu.tensor({ 1 + 1e-9, 1 }, { dtype = "float64" }), 1 + 5e-10), { 1, 0 })
  check.equal(bins(mgpu.tensor { 0 / 0 }, 0), { 1 }) -- as in Keras
  check.raises(function() L.Discretization { { 1, 2, 3 }, num_bins = 2 } end, "3 bin_boundaries make more than")
end)

test("hashes and salts of odd values are Keras's, or errors", function()
  local hashing = L.Hashing { 1000003 }
  check.equal(hashing { -0.5, 0, 0.5 }:totable(), { 537292, 537292, 537292 })
  check.raises(function() L.HashedCrossing { 5 } { { 1.5 }, { "a" } } end, "takes strings and whole numbers, got 1.5")
  check.raises(function() L.IntegerLookup { vocabulary = { 1 }, salt = 3, num_oov_indices = 5 } end,
    'salt needs oov_method = "farmhash"')
  check.equal(L.TextVectorization { vocabulary = { "a" } } "":shape(), { 0 })
end)

test("a new vocabulary of IntegerLookup counts from the next call on", function()
  local layer = L.IntegerLookup { vocabulary = { 7, 3 } }
  check.equal(layer({ 3, 5 }):totable(), { 2, 0 })
  layer:set_vocabulary { 5, 3, 1 }
  check.equal(layer({ 3, 5 }):totable(), { 2, 1 })
end)

test("IntegerLookup made of tensor ops agrees with the one that reads values", function()
  local numbers, terms = {}, { 7, -9, 100, 0, 12 }
  for i = -20, 120 do numbers[#numbers + 1] = i end
  local x = mgpu.tensor(numbers, { dtype = "int64" })
  for n = 1, #terms do
    local list, index = { unpack(terms, 1, n) }, {}
    for i, term in ipairs(list) do index[term] = i - 1 end
    local choices = { {}, { mask_token = 12 }, { num_oov_indices = 3 }, { num_oov_indices = 2, mask_token = 1 } }
    for _, options in ipairs(choices) do
      options.vocabulary = list
      if index[options.mask_token] then break end
      local layer, expected = L.IntegerLookup(options), {}
      local first, bins = options.mask_token and 1 or 0, options.num_oov_indices or 1
      for i, v in ipairs(numbers) do
        expected[i] = index[v] and first + bins + index[v] or first + v % bins
        if v == options.mask_token then expected[i] = 0 end
      end
      check.equal(mgpu.jit(function(t) return layer(t) end)(x):totable(), expected)
    end
  end
  local inverse = L.IntegerLookup { vocabulary = terms, invert = true, mask_token = 3, num_oov_indices = 2 }
  local back = mgpu.jit(function(t) return inverse(t) end)(mgpu.tensor({ 0, 1, 3, 7, 8 }, { dtype = "int32" }))
  check.equal(back:totable(), { 3, -1, 7, 12, -1 })
end)

test("count_weights say what each index counts, in a model and its files too", function()
  local x, w = mgpu.tensor { { 3, 1, 3 }, { 0, 9, 1 } }, mgpu.tensor { { 1, 2, 0.5 }, { 4, 5, 6 } }
  local wanted = { { 0, 2, 0, 1.5 }, { 4, 6, 0, 0 } }
  local layer = L.CategoryEncoding { 4, output_mode = "count" }
  check.equal(layer(x, { count_weights = w }):totable(), wanted)
  check.equal(layer(x):totable(), { { 0, 1, 0, 2 }, { 1, 1, 0, 0 } })
  local a, b = mgpu.Input { 3 }, mgpu.Input { 3 }
  local model = mgpu.Model { inputs = { a, b }, outputs = layer(a, { count_weights = b }) }
  for _, ending in ipairs { "keras", "h5", "safetensors" } do
    local path = check.path("weights." .. ending)
    model:save(path)
    check.equal(mgpu.load_model(path):predict({ x, w }, { verbose = 0 }):totable(), wanted)
  end
  check.raises(function() L.CategoryEncoding { 4 } { x, w } end,
    'count_weights go with output_mode = "count", not with', "usage")
  check.raises(function() layer { x, w:slice { {}, 1 } } end, "count_weights have the shape", "usage")
end)
