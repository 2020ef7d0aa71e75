-- Layers beside PyTorch's: time of forward and backward (gradients of inputs and weights) or, with `--pass
-- forward`, of the forward pass alone. One row a layer.
--
--     build/mgpulua tests/bench/layers.lua [--only NAME,NAME] [--rounds 7] [--venv FOLDER] [--threads 2]
--         [--pass step|forward] [--take median|minimum] [--turn 120]
--
-- Our step runs in this process under mgpu.jit, PyTorch's in peer_torch_layers.py. They take turns of 120 ms, so
-- that noise of the machine affects both. PyTorch is timed with images as planes (NCHW) and as
-- channels_last, and the faster layout counts. ratio = PyTorch's time / ours, the median over the rounds. A
-- round's time is the median of its steps or, with `--take minimum`, the fastest: for a machine that is busy with
-- other work. Both sides report the sizes of the output and of all gradients, which must agree.

package.path = "tests/bench/?.lua;" .. package.path
local turns = require "turns"
local options = turns.options { pass = "step" }
assert(options.pass == "step" or options.pass == "forward", "--pass is step or forward")

local mgpu = require "mgpu"
local core = require "mgpu.core"
local L = mgpu.layers

-- ---- the rows: name, input shapes, layer ---------------------------------------------------------
-- The name also names the case in peer_torch_layers.py, which has the same sizes (images are {batch, channels,
-- rows, columns} there). The third field makes the layer; with `ids` the input is integers below it.

local image, small = { 64, 28, 28, 64 }, { 64, 14, 14, 64 }
local sequence, tokens = { 64, 256, 64 }, { 32, 128, 256 }
local long, longer = { 32, 100, 128 }, { 64, 200, 64 } -- {batch, steps, features}
local relu_before = { call = function(flat, x) return flat(core.ops.relu(x)) end }

local rows = {
  { "Dense", { { 128, 1024 } }, function() return L.Dense { 1024 } end },
  { "Dense 32x512", { { 32, 512 } }, function() return L.Dense { 512 } end },
  { "Dense 64x2048", { { 64, 2048 } }, function() return L.Dense { 2048 } end },
  { "Dense 256x4096", { { 256, 4096 } }, function() return L.Dense { 4096 } end },
  { "relu", { image }, function() return L.Activation { "relu" } end },
  { "gelu", { tokens }, function() return L.Activation { "gelu" } end },
  { "tanh", { tokens }, function() return L.Activation { "tanh" } end },
  { "sigmoid", { tokens }, function() return L.Activation { "sigmoid" } end },
  { "softmax", { { 128, 1000 } }, function() return L.Activation { "softmax" } end },
  { "Conv1D", { sequence }, function() return L.Conv1D { 64, 3, padding = "same" } end },
  { "Conv2D 3x3", { image }, function() return L.Conv2D { 64, 3, padding = "same" } end },
  { "Conv2D 1x1", { image }, function() return L.Conv2D { 128, 1 } end },
  { "Conv2D 3x3 strided", { image },
    function() return L.Conv2D { 128, 3, strides = 2, padding = "same" } end },
  { "Conv2D 5x5 of 1 channel", { { 128, 28, 28, 1 } }, function() return L.Conv2D { 32, 5 } end },
  { "Conv2DTranspose", { small }, function() return L.Conv2DTranspose { 32, 2, strides = 2 } end },
  { "DepthwiseConv2D", { image }, function() return L.DepthwiseConv2D { 3, padding = "same" } end },
  { "SeparableConv2D", { image },
    function() return L.SeparableConv2D { 128, 3, padding = "same" } end },
  { "MaxPooling1D", { sequence }, function() return L.MaxPooling1D { 2 } end },
  { "MaxPooling2D", { image }, function() return L.MaxPooling2D { 2 } end },
  { "MaxPooling2D 3x3/2", { image }, function() return L.MaxPooling2D { 3, strides = 2 } end },
  { "AveragePooling1D", { sequence }, function() return L.AveragePooling1D { 2 } end },
  { "AveragePooling2D", { image }, function() return L.AveragePooling2D { 2 } end },
  { "GlobalMaxPooling1D", { sequence }, function() return L.GlobalMaxPooling1D {} end },
  { "GlobalMaxPooling2D", { image }, function() return L.GlobalMaxPooling2D {} end },
  { "GlobalAveragePooling1D", { sequence }, function() return L.GlobalAveragePooling1D {} end },
  { "GlobalAveragePooling2D", { image }, function() return L.GlobalAveragePooling2D {} end },
  { "ZeroPadding2D", { image }, function() return L.ZeroPadding2D { 1 } end },
  { "Cropping2D", { image }, function() return L.Cropping2D { 2 } end },
  { "UpSampling2D", { small }, function() return L.UpSampling2D { 2 } end },
  { "UpSampling2D bilinear", { small },
    function() return L.UpSampling2D { 2, interpolation = "bilinear" } end },
  { "BatchNormalization", { image }, function() return L.BatchNormalization {} end },
  { "LayerNormalization", { tokens }, function() return L.LayerNormalization {} end },
  { "Embedding", { ids = 20000, { 64, 200 } }, function() return L.Embedding { 20000, 128 } end },
  { "Add", { image, image }, function() return L.Add {} end },
  { "Subtract", { image, image }, function() return L.Subtract {} end },
  { "Multiply", { image, image }, function() return L.Multiply {} end },
  { "Average", { image, image }, function() return L.Average {} end },
  { "Maximum", { image, image }, function() return L.Maximum {} end },
  { "Concatenate", { image, image }, function() return L.Concatenate {} end },
  { "Dot", { { 64, 128, 64 }, { 64, 128, 64 } }, function() return L.Dot { -1 } end },
  { "Dropout", { tokens }, function() return L.Dropout { 0.5 } end },
  { "SpatialDropout2D", { image }, function() return L.SpatialDropout2D { 0.5 } end },
  { "GaussianNoise", { tokens }, function() return L.GaussianNoise { 0.1 } end },
  { "ReLU", { image }, function() return L.ReLU {} end },
  { "PReLU", { image }, function() return L.PReLU { shared_axes = { 2, 3 } } end },
  { "ELU", { image }, function() return L.ELU {} end },
  { "LeakyReLU", { image }, function() return L.LeakyReLU { 0.2 } end },
  { "Softmax", { { 256, 128, 128 } }, function() return L.Softmax {} end },
  { "Flatten after relu", { image }, function() return L.Flatten {} end, relu_before },
  { "Permute", { tokens }, function() return L.Permute { 2, 1 } end },
  { "LSTM 128 to 256", { long }, function() return L.LSTM { 256, return_sequences = true, use_bias = false } end },
  { "LSTM 64 to 64", { longer }, function() return L.LSTM { 64, return_sequences = true, use_bias = false } end },
  { "GRU 128 to 256", { long }, function() return L.GRU { 256, return_sequences = true, use_bias = false } end },
  { "GRU 64 to 64", { longer }, function() return L.GRU { 64, return_sequences = true, use_bias = false } end },
}

-- ---- our side -----------------------------------------------------------------------------------

local function make_input(shape, ids)
  if not ids then return mgpu.variable(mgpu.randn(shape)) end
  return mgpu.eval(mgpu.rand(shape) * ids):to "int32"
end

local function count(tensor)
  local n = 1
  for _, size in ipairs(tensor:shape()) do n = n * size end
  return n
end

-- The step of a row, which computes y and, unless it is forward only, the gradients of sum(y * g) with a
-- constant g; and the sizes of y and of the gradients as text.
local function make_step(row)
  local inputs, make, around = row[2], row[3], row[4]
  local layer, xs = make(), {}
  for i, shape in ipairs(inputs) do xs[i] = make_input(shape, inputs.ids) end
  local function forward()
    local argument = #xs == 1 and xs[1] or xs
    if around then return around.call(layer, argument) end
    return layer(argument, { training = true })
  end
  local g = mgpu.randn(forward():shape())
  mgpu.eval(g)
  local vars = {}
  for _, v in ipairs(inputs.ids and {} or xs) do vars[#vars + 1] = v end
  for _, v in ipairs(layer.trainable_variables) do vars[#vars + 1] = v end
  local step = mgpu.jit(function(seed)
    if options.pass == "forward" then return forward() end
    local y
    local _, grads = mgpu.value_and_grad(function()
      y = forward()
      return (y * seed):sum()
    end, vars)()
    return y, unpack(grads)
  end)
  local sizes = { count(g) }
  for _, v in ipairs(vars) do sizes[#sizes + 1] = count(v) end
  -- Results are freed at once, as PyTorch's are, and not by the garbage collector.
  local function run()
    local results = { mgpu.eval(step(g)) }
    for _, t in ipairs(results) do t:free() end
  end
  return run, table.concat(sizes, " ")
end

-- ---- the comparison -----------------------------------------------------------------------------

-- Times a row and prints it -> the ratio.
local function compare(row, peer)
  mgpu.seed(1)
  local step, sizes = make_step(row)
  local answer = turns.ask(peer, "case " .. row[1])
  local theirs, layouts = answer:match "^sizes ([%d ]+); layouts ([%w_ ]+)$"
  if theirs ~= sizes then
    error(("%s: our sizes %s, PyTorch's: %s"):format(row[1], sizes, answer), 0)
  end
  local names = {}
  for layout in layouts:gmatch "%S+" do names[#names + 1] = layout end
  local ours, best, ratio, layout = turns.race(step, peer, names)
  print(("  %-26s %9.3f %9.3f %7.2f  %s%s"):format(row[1], ours, best, ratio, #names > 1 and layout or "",
    peer.cores.mark()))
  io.flush()
  return ratio
end

-- ---- all rows -----------------------------------------------------------------------------------

local wanted
for name in (options.only or ""):gmatch "[^,]+" do
  wanted = wanted or {}
  wanted[name] = true
end

print(("\nlayers, %s, float32, %s threads, %s times; PyTorch's better layout"):format(
  options.pass == "step" and "forward and backward" or "forward", options.threads, options.take))
print(("  %-26s %9s %9s %7s"):format("", "ours ms", "torch ms", "ratio"))
local peer = turns.start("tests/bench/peer_torch_layers.py", "--pass " .. options.pass)
local below = 0
for _, row in ipairs(rows) do
  if not wanted or wanted[row[1]] then
    if compare(row, peer) < 1 then below = below + 1 end
    collectgarbage()
    collectgarbage()
  end
end
print(("  %d rows below 1.00"):format(below))
turns.stop(peer)
