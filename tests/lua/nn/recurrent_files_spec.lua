-- Files of Keras with recurrent layers (golden/recurrent), loaded, saved and loaded again.
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local FOLDER = "tests/golden/recurrent/"

local can, problem = pcall(core.h5_read, FOLDER .. "keras2_chain.h5")
if not can and core.error_code() == "unsupported" then check.skip(problem) end

-- The largest difference between what the model predicts and what Keras did.
local function difference(model, data)
  local xs, largest = {}, 0
  while data["x" .. #xs] do xs[#xs + 1] = data["x" .. #xs] end
  local ys = model:predict(#xs > 1 and xs or xs[1])
  for i, y in ipairs(type(ys) == "table" and ys or { ys }) do
    largest = math.max(largest, (y - data["y" .. i - 1]):abs():max():item())
  end
  return largest
end

local paths = {}
for _, ending in ipairs { "keras", "h5" } do
  for _, path in ipairs(core.glob(FOLDER .. "*." .. ending)) do paths[#paths + 1] = path end
end

for _, path in ipairs(paths) do
  test(path:sub(#FOLDER + 1) .. " predicts as in Keras, also after it was saved in each format", function()
    local data = mgpu.load((path:gsub("%.%w+$", ".npz")))
    local model = mgpu.load_model(path, { compile = false })
    -- float32 on both sides, whose sums have other orders
    check.near(difference(model, data), 0, 2e-5)
    for _, ending in ipairs { ".keras", ".h5", ".safetensors" } do
      local saved = check.path("again" .. ending)
      model:save(saved)
      check.near(difference(mgpu.load_model(saved), data), 0, 2e-5)
    end
  end)
end

test("there are files to compare", function() check.truthy(#paths > 6, "model files") end)

-- The configuration of keras3_masked.keras, after change(config of the layers, by name).
local function changed(change)
  local archive = core.zip_read(FOLDER .. "keras3_masked.keras")
  local config, by_name = core.json_decode(archive:read "config.json"), {}
  archive:close()
  for _, layer in ipairs(config.config.layers) do by_name[layer.name] = layer end
  change(by_name)
  return core.json_encode(config)
end

local function find(by_name, class)
  for _, layer in pairs(by_name) do
    if layer.class_name == class then return layer end
  end
end

test("a mask in a call of Keras 3 is refused unless it arrives anyway", function()
  local function refused(change, message)
    local text = changed(change)
    check.raises(function() mgpu.model_from_json(text) end, message)
  end
  refused(function(layers) find(layers, "Embedding").config.mask_zero = false end,
    "is called with the argument mask, which is not supported")
  refused(function(layers) find(layers, "GRU").inbound_nodes[1].kwargs.mask = 5 end, "mask, which is no tensor")
  check.equal(mgpu.model_from_json(changed(function() end)).layers[2].mask_zero, true)
end)

test("initial states may stand behind the sequence or by name, and only recurrent layers take them", function()
  local x, h = mgpu.Input { 3, 2 }, mgpu.Input { 4 }
  local gru = mgpu.layers.GRU { 4, name = "gru" }
  local model = mgpu.Model { inputs = { x, h }, outputs = gru { x, h } }
  local config = core.json_decode(model:to_json())
  local layer
  for _, each in ipairs(config.config.layers) do layer = each.class_name == "GRU" and each or layer end
  local node = layer.inbound_nodes[1]
  check.equal({ #node.args, #node.kwargs.initial_state }, { 1, 1 })
  node.args[2], node.kwargs.initial_state = node.kwargs.initial_state, nil
  local loaded = mgpu.model_from_json(core.json_encode(config))
  loaded:set_weights(model:get_weights())
  local data = { mgpu.rand { 2, 3, 2 }, mgpu.rand { 2, 4 } }
  check.equal(loaded(data):totable(), model(data):totable())
  layer.class_name, layer.config = "Dense", { name = "gru", units = 4 }
  node.args[2], node.kwargs.initial_state = nil, node.args[2]
  check.raises(function() mgpu.model_from_json(core.json_encode(config)) end,
    'layer "gru" is called with the argument initial_state, which is not supported')
end)

test("a layer inside a layer must be one", function()
  local text = changed(function(layers) find(layers, "Bidirectional").config.layer = 5 end)
  check.raises(function() mgpu.model_from_json(text) end, "layer is not a layer")
end)

test("a GRU of Keras 2 without reset_after resets before, one of Keras 3 after", function()
  local function loaded(shape_name)
    local gru = { name = "g", units = 2, [shape_name] = { core.null, 3, 2 } }
    return mgpu.model_from_json(core.json_encode { class_name = "Sequential", config = { name = "s", layers = {
      { class_name = "InputLayer", config = { name = "i", [shape_name] = { core.null, 3, 2 } } },
      { class_name = "GRU", config = gru } } } }).layers[1].reset_after
  end
  check.equal({ loaded "batch_input_shape", loaded "batch_shape" }, { false, true })
end)
