-- mgpu.models.text_cnn: sizes, an equal computation by hand, training, files, wrong options.
local check = require "check"
local mgpu = require "mgpu"

local test = check.test
local text_cnn = mgpu.models.text_cnn

test("text_cnn has the parameters of its layers", function()
  -- 10000 * 128, 100 * (size * 128 + 1) for 3, 4 and 5, 300 * 2 + 2
  check.equal((text_cnn {} :count_params()), 1280000 + 100 * (12 * 128 + 3) + 602)
  local text = require "mgpu.nn.summary".text(text_cnn { sizes = { 2, 7 }, filters = 6 })
  check.matches(text, "conv_7 %(Conv1D%) +%(None, None, 6%) +5,382")
  check.matches(text, "features %(Concatenate%) +%(None, 12%)")
  check.matches(text, "Total params: 1,286,950")
end)

test("texts have their words as rows, whatever the format of images is", function()
  mgpu.set_image_data_format "channels_first"
  local ok, message = pcall(function()
    local words = mgpu.tensor({ { 1, 2, 3, 0, 0, 0 } }, { dtype = "int32" })
    check.equal(text_cnn { vocabulary = 9, filters = 4 }(words):shape(), { 1, 2 })
    local encoder = mgpu.models.transformer_encoder { vocabulary = 9, length = 8, width = 8, heads = 2 }
    check.equal(encoder(words):shape(), { 1, 2 })
  end)
  mgpu.set_image_data_format "channels_last"
  check.truthy(ok, message)
end)

test("text_cnn finds a phrase wherever it stands, in texts of any length", function()
  -- one filter of two words that answers 3 * (word is 1) + 4 * (next word is 2)
  local model = text_cnn { vocabulary = 3, width = 3, filters = 1, sizes = { 2 }, classes = 2, dropout = 0 }
  model:get_layer "token_embedding".embeddings:assign(mgpu.tensor { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } })
  model:get_layer "conv_2".kernel:assign(mgpu.tensor({ 0, 3, 0, 0, 0, 4 }):reshape { 2, 3, 1 })
  model:get_layer "predictions".kernel:assign(mgpu.tensor { { 0, 1 } })
  local function answer(words)
    local p = model:predict(mgpu.tensor({ words }, { dtype = "int32" }))
    return math.log(p:slice { 1, 2 }:item() / p:slice { 1, 1 }:item())
  end
  for _, case in ipairs { { { 1, 2 }, 7 }, { { 0, 0, 0, 1, 2, 0 }, 7 }, { { 2, 0, 1 }, 3 }, { { 2, 2, 0 }, 4 },
    { { 1 }, 3 }, { { 0 }, 0 } } do
    check.near(answer(case[1]), case[2], 1e-3) -- a logarithm of float32 probabilities down to 1e-3
  end
end)

test("text_cnn learns, comes back from a file, and computes the same on one, two and three devices", function()
  check.needs "cpu"
  mgpu.seed(1)
  local x = mgpu.randint(0, 12, { 48, 9 }):to "int32"
  local y = x:eq(3):to "int32":max(2) -- whether word 3 is in the text
  local options = { vocabulary = 12, width = 8, filters = 8, sizes = { 1, 3 }, dropout = 0.2 }
  local model = text_cnn(options)
  local first = model:get_weights()
  model:compile { optimizer = mgpu.optimizers.Adam { 0.02 }, loss = "sparse_categorical_crossentropy" }
  local history = model:fit(x, y, { epochs = 20, batch_size = 16, verbose = 0 })
  check.truthy(history.history.loss[20] < history.history.loss[1] * 0.4, "the loss falls")
  model:save(check.path "t.keras")
  check.near((mgpu.load_model(check.path "t.keras"):predict(x) - model:predict(x)):abs():max(), 0, 1e-6)
  options.dropout = 0
  local expected
  for _, devices in ipairs { { "cpu:0" }, { "cpu:0", "cpu:1" }, { "cpu:0", "cpu:1", "cpu:2" } } do
    model = text_cnn(options)
    model:set_weights(first)
    model:compile { optimizer = "sgd", loss = "sparse_categorical_crossentropy", devices = devices }
    model:fit(x, y, { epochs = 3, batch_size = 16, shuffle = false, verbose = 0 })
    local found = model:predict(x)
    expected = expected or found
    check.near((found - expected):abs():max(), 0, 1e-5) -- sums in another order, in float32
  end
end)

test("sizes that text_cnn cannot have are errors that show them", function()
  for shown, sizes in pairs { [""] = {}, ["0"] = { 0 }, ["3, 3"] = { 3, 3 }, ["2, -1"] = { 2, -1 } } do
    check.raises(function() text_cnn { sizes = sizes } end,
      ('text_cnn: option "sizes" must be distinct numbers from 1 on, got {%s}'):format(shown), "usage")
  end
end)
