-- Recurrent layers against Keras (golden set recurrent), over several devices, with states that stay.
local check = require "check"
local mgpu = require "mgpu"
local comparing = require "golden.comparing"
local golden = require "golden.load" "recurrent"

local L = mgpu.layers
local test = check.test

-- float64 on both sides: what differs is the order of sums. Keras rounds the factors of regularizers to float32.
local TOLERANCE, REGULARIZED = 1e-9, 1e-7

-- The layer of {class =, args =}; other values as they are.
local function made(value)
  if type(value) ~= "table" then return value end
  local out = {}
  for key, item in pairs(value.class and value.args or value) do out[key] = made(item) end
  return value.class and L[value.class](out) or out
end

local function input_of(case)
  local rows = comparing.array(case.shape, "float64", 10):totable()
  local function hide(row, first, last)
    for step = first, last do
      for k in ipairs(rows[row][step]) do rows[row][step][k] = 0 end
    end
  end
  if case.masked then
    hide(1, 1, 1)
    hide(2, 3, case.shape[2])
    hide(3, 1, case.shape[2])
  end
  return mgpu.tensor(rows, { dtype = "float64" })
end

local function model_of(case)
  return mgpu.mixed_precision.with_policy("float64", function()
    local x = mgpu.Input { { unpack(case.shape, 2) }, dtype = "float64" }
    local layer = made { class = case.class, args = case.args }
    local model = mgpu.Model { inputs = x, outputs = layer(case.masked and L.Masking {} (x) or x) }
    local values = {}
    for k, v in ipairs(model.variables) do values[k] = comparing.array(v:shape(), "float64", 29 + k, 0.7) end
    model:set_weights(values)
    return { model, layer }
  end)
end

local function flat(y)
  if type(y) ~= "table" then y = { y } end
  local parts, shapes = {}, {}
  for i, t in ipairs(y) do parts[i], shapes[i] = t:reshape { -1 }, t:shape() end
  return mgpu.concat(parts), shapes
end

local function compare(case, device)
  local model, layer = unpack(model_of(case))
  local x, variables = mgpu.variable(input_of(case):to(device)), model.variables
  for _, v in ipairs(variables) do v:assign(v:value():to(device)) end
  local y, shapes
  local tolerance = case.args.kernel_regularizer and REGULARIZED or TOLERANCE
  local function loss()
    model:forget_losses()
    y, shapes = flat(model(x:value()))
    local sum = ((y - comparing.array(y:shape(), "float64", 20):to(device)) ^ 2):sum()
    for _, penalty in ipairs(layer:losses()) do sum = sum + penalty end
    return sum
  end
  for step = 1, golden.steps do
    local value, gradients = mgpu.value_and_grad(loss, { x, unpack(variables) })()
    if step == 1 then
      check.equal(shapes, case.shapes)
      comparing.near(y, case.output, tolerance)
      comparing.near(value, { case.loss }, tolerance)
      for k, wanted in ipairs(case.gradients) do comparing.near(gradients[k], wanted, tolerance) end
    end
    for k, v in ipairs(variables) do
      local new = v:value() - gradients[k + 1] * (golden.rate / y:count())
      if case.args.kernel_constraint and v.name:find "/kernel$" then new = new:maximum(0) end
      v:assign(new)
    end
  end
  for k, wanted in ipairs(case.trained) do comparing.near(variables[k], wanted, tolerance) end
end

for i, case in ipairs(golden.cases) do
  test(("case %d: %s%s gives Keras's outputs, gradients and weights after three steps"):format(i, case.class,
    case.masked and " with a mask" or ""), function()
    for _, device in ipairs { "cpu:0", "ref:0" } do compare(case, device) end
  end)
end

-- ---- several devices ----------------------------------------------------------------------------

-- The weights after a few steps of a masked model, whose sequences have other lengths on each device.
local function trained_on(devices, make)
  mgpu.seed(3)
  local model = mgpu.Sequential { mgpu.Input { 6, 2 }, L.Masking {}, make(), L.Dense { 1 } }
  local rows = mgpu.rand({ 12, 6, 2 }):totable()
  for row = 1, 12 do
    for step = 7 - math.floor(row / 2), 6 do rows[row][step] = { 0, 0 } end
  end
  model:compile { optimizer = "sgd", loss = "mse", devices = devices }
  model:fit(mgpu.tensor(rows), mgpu.rand { 12, 1 }, { epochs = 2, batch_size = 6, verbose = 0, shuffle = false })
  local list = {}
  for i, v in ipairs(model.variables) do list[i] = v:value():to "cpu:0":totable() end
  return list
end

local makers = {
  SimpleRNN = function() return L.SimpleRNN { 3 } end,
  LSTM = function() return L.Bidirectional { L.LSTM { 3 } } end,
  GRU = function() return L.GRU { 3, dropout = 0.3, recurrent_dropout = 0.3 } end,
}

for name, make in pairs(makers) do
  test(name .. " trains to the same weights on 1, 2 and 3 devices", function()
    local one = trained_on({ "cpu:0" }, make)
    for _, devices in ipairs { { "cpu:0", "cpu:1" }, { "cpu:0", "cpu:1", "cpu:2" } } do
      for i, values in ipairs(trained_on(devices, make)) do
        -- rounding of float32 sums in another order
        check.near(mgpu.tensor(values):reshape { -1 }, mgpu.tensor(one[i]):reshape({ -1 }):totable(), 2e-6)
      end
    end
  end)
end

test("channels_first images give the numbers of channels_last ones, with dropout in training too", function()
  local last = L.ConvLSTM2D { 2, 2, return_sequences = true, dropout = 0.4, recurrent_dropout = 0.4 }
  local first = L.ConvLSTM2D { 2, 2, return_sequences = true, dropout = 0.4, recurrent_dropout = 0.4,
    data_format = "channels_first" }
  local x = mgpu.rand { 2, 3, 4, 5, 1 }
  local y = last(x)
  first(x:transpose { 1, 2, 5, 3, 4 }):sum():item()
  first:set_weights(last:get_weights())
  local other = first(x:transpose { 1, 2, 5, 3, 4 }):transpose { 1, 2, 4, 5, 3 }
  check.near((y - other):abs():max(), 0, 1e-6)
  check.equal(first(x:transpose { 1, 2, 5, 3, 4 }, true):shape(), { 2, 3, 2, 3, 4 })
  check.truthy((last(x, true) - y):abs():max():item() > 1e-3, "training drops something")
end)

-- ---- states -------------------------------------------------------------------------------------

test("a stateful layer goes on where the batch before ended, in calls, predict and fit", function()
  local model = mgpu.Sequential { mgpu.Input { { 6, 2 } }, L.LSTM { 3, return_sequences = true } }
  local whole = model.layers[1]
  local kept = L.LSTM { 3, stateful = true, return_sequences = true }
  local x = mgpu.rand { 2, 6, 2 }
  local halves = { x:slice { {}, { 1, 3 } }, x:slice { {}, { 4, 6 } } }
  kept(halves[1])
  kept:set_weights(whole:get_weights())
  kept:reset_state()
  local wanted = model(x)
  for i, half in ipairs(halves) do
    check.near((kept(half) - wanted:slice { {}, { 3 * i - 2, 3 * i } }):abs():max(), 0, 1e-6)
  end
  local stateful = mgpu.Sequential { mgpu.Input { { 3, 2 } }, kept }
  kept:reset_states()
  for i, half in ipairs(halves) do
    check.near((stateful:predict(half) - wanted:slice { {}, { 3 * i - 2, 3 * i } }):abs():max(), 0, 1e-6)
  end
  stateful:compile { optimizer = "sgd", loss = "mse" }
  local before = kept.state_variables[1]:value():totable()
  stateful:fit(halves[1], halves[2]:mean(3, true) * mgpu.ones { 1, 1, 3 }, { epochs = 1, batch_size = 2, verbose = 0 })
  check.truthy(before[1][1] ~= kept.state_variables[1]:value():totable()[1][1], "the states have moved on")
  check.equal(#stateful.variables, 3) -- the states are no weights
end)

test("Input tells a stateful layer the size of the batches, in models of all kinds and from files", function()
  local function check_states(model, layer)
    local x = mgpu.rand { 2, 3, 4 }
    local first = model:predict(x)
    check.truthy((model:predict(x) - first):abs():max():item() > 1e-4, "the second batch went on")
    layer:reset_state()
    check.near((model:predict(x) - first):abs():max(), 0, 1e-6)
  end
  local model = mgpu.Sequential { mgpu.Input { { 3, 4 }, batch_size = 2 }, L.Dense { 3 }, L.GRU { 3, stateful = true } }
  check_states(model, model.layers[2])
  for _, ending in ipairs { "keras", "h5", "safetensors" } do
    model:save(check.path("s." .. ending))
    local again = mgpu.load_model(check.path("s." .. ending))
    check_states(again, again.layers[2])
  end
  local x = mgpu.Input { { 3, 4 }, batch_size = 2 }
  local both = L.Bidirectional { L.SimpleRNN { 2, stateful = true } }
  check_states(mgpu.Model { inputs = x, outputs = both(L.Dense { 3 } (x)) }, both)
end)

test("a stateful layer trains to the same weights on 1 and 2 devices", function()
  local function trained(devices)
    mgpu.seed(3)
    local model = mgpu.Sequential { mgpu.Input { { 3, 2 }, batch_size = 4 }, L.GRU { 3, stateful = true },
      L.Dense { 1 } }
    model:compile { optimizer = "sgd", loss = "mse", devices = devices }
    local x, y = mgpu.rand { 8, 3, 2 }, mgpu.rand { 8, 1 }
    model:fit(x, y, { epochs = 2, batch_size = 4, verbose = 0, shuffle = false })
    return model.layers[1].cell.kernel:value():to "cpu:0":reshape({ -1 }):totable()
  end
  -- rounding of float32 sums in another order
  check.near(trained { "cpu:0", "cpu:1" }, trained { "cpu:0" }, 2e-6)
end)

test("Bidirectional shares no weights with the layer it was given, and has a layer's states in order", function()
  local inner = L.GRU { 2, return_state = true }
  local both = L.Bidirectional { inner }
  local y = both { mgpu.ones { 1, 3, 2 }, mgpu.ones { 1, 2 }, mgpu.zeros { 1, 2 } }
  check.equal(#y, 3)
  check.equal(inner.built, false)
  check.equal(both.forward_layer.name, "forward_" .. inner.name)
  check.equal(both.backward_layer.name, "backward_" .. inner.name)
  local forward = both.forward_layer { mgpu.ones { 1, 3, 2 }, mgpu.ones { 1, 2 } }
  check.near((forward[2] - y[2]):abs():max(), 0, 1e-6)
end)

test("dropout draws one mask for all steps of a batch, and none in inference", function()
  local rnn = L.SimpleRNN { 40, dropout = 0.5, activation = "linear", kernel_initializer = "identity",
    recurrent_initializer = "zeros", return_sequences = true }
  local y = rnn(mgpu.ones { 1, 4, 40 }, true)
  check.equal(y:slice { 1, 1 }:totable(), y:slice { 1, 4 }:totable())
  local zeros = y:slice { 1, 1 }:eq(0):sum():item()
  check.truthy(zeros > 5 and zeros < 35, "half of them are dropped")
  check.equal(rnn(mgpu.ones { 1, 4, 40 }):eq(1):all():item(), true)
end)

test("half precision computes in the policy's dtype, with weights in float32", function()
  local model = mgpu.mixed_precision.with_policy("mixed_bfloat16", function()
    return mgpu.Sequential { mgpu.Input { 4, 2 }, L.Masking {},
      L.Bidirectional { L.LSTM { 3, return_sequences = true } }, L.GRU { 2 } }
  end)
  check.equal(model(mgpu.ones { 1, 4, 2 }):dtype(), "bfloat16")
  check.equal(model.layers[2].forward_layer.cell.kernel:dtype(), "float32")
end)

test("configurations give the same layers again, own cells included", function()
  local Decay = mgpu.Layer:extend("Decay", { state_size = 2 })
  function Decay:call(x) return { x[2] * 0.5 + x[1], x[2] * 0.5 + x[1] } end -- luacheck: no self
  local model = mgpu.Sequential { mgpu.Input { 4, 2 },
    L.RNN { { Decay {}, L.LSTMCell { 3 } }, return_sequences = true },
    L.Bidirectional { L.LSTM { 2, go_backwards = false }, merge_mode = "none" } }
  model:save "m.safetensors"
  local x = mgpu.rand { 2, 4, 2 }
  local loaded = mgpu.load_model("m.safetensors", { custom = { Decay = Decay } })
  for _, again in ipairs { loaded, mgpu.clone_model(model) } do
    again:set_weights(model:get_weights())
    for i, y in ipairs(again(x)) do check.equal(y:eq(model(x)[i]):all():item(), true) end
  end
  os.remove "m.safetensors"
end)

-- ---- wrong use ----------------------------------------------------------------------------------

local wrong = {
  ["a cell without state_size"] = { function() return L.RNN { L.Dense { 2 } } end,
    "is not a cell: it has no state_size" },
  ["a stack without cells"] = { function() return L.StackedRNNCells { {} } end, "needs at least one cell" },
  ["a stack of something else"] = { function() return L.StackedRNNCells { { L.Dense { 1 } } } end, "is not a cell" },
  ["an image"] = { function() return L.LSTM { 2 } (mgpu.ones { 1, 2, 3, 4 }) end, "must have 3 axes" },
  ["no steps"] = { function() return L.LSTM { 2 } (mgpu.ones { 1, 0, 3 }) end, "the sequences have no steps" },
  ["too few states"] = { function() return L.LSTM { 2 } { mgpu.ones { 1, 2, 3 }, mgpu.ones { 1, 2 } } end,
    "takes the input and 2 states, got 1" },
  ["a state of another size"] = { function() return L.GRU { 2 } { mgpu.ones { 1, 2, 3 }, mgpu.ones { 1, 3 } } end,
    "initial state 1 has shape {1, 3}, it must be {1, 2}" },
  ["too many states of a cell"] = { function()
    return L.GRUCell { 2 } { mgpu.ones { 1, 3 }, mgpu.ones { 1, 2 }, mgpu.ones { 1, 2 } }
  end, "takes the input and 1 states, got 2" },
  ["other features"] = { function()
    local cell = L.GRUCell { 2 }
    cell(mgpu.ones { 1, 3 })
    return cell(mgpu.ones { 1, 4 })
  end, "the input has 4 features, the cell was built for 3" },
  ["another batch when stateful"] = { function()
    local rnn = L.SimpleRNN { 2, stateful = true }
    rnn(mgpu.ones { 1, 2, 3 }):sum():item()
    return rnn(mgpu.ones { 2, 2, 3 })
  end, "has states of 1 rows, but the batch has 2" },
  ["a stateful layer in a step before its batch is known"] = { function()
    mgpu.Sequential { mgpu.Input { 2, 3 }, L.SimpleRNN { 2, stateful = true } }:predict(mgpu.ones { 1, 2, 3 })
  end, "must know the size of the batches" },
  ["a layer that is not recurrent in both directions"] = { function() return L.Bidirectional { L.Dense { 1 } } end,
    "is not a recurrent layer" },
  ["two forward layers"] = { function()
    return L.Bidirectional { L.GRU { 1 }, backward_layer = L.GRU { 1 } }
  end, "both layers have go_backwards = false" },
  ["layers with other outputs"] = { function()
    return L.Bidirectional { L.GRU { 1 }, backward_layer = L.GRU { 1, go_backwards = true, return_state = true } }
  end, "the layers must have the same return_state" },
  ["an odd number of states"] = { function()
    return L.Bidirectional { L.GRU { 1 } } { mgpu.ones { 1, 2, 3 }, mgpu.ones { 1, 1 } }
  end, "takes the same number of initial states for both directions, got 1" },
  ["an own cell that returns no state"] = { function()
    local Bad = mgpu.Layer:extend("Bad", { state_size = 2 })
    function Bad:call(x) return x[1] end -- luacheck: no self
    return L.RNN { Bad {} } (mgpu.ones { 1, 2, 2 })
  end, "a cell's call must return {output, state, ...} with 1 states" },
  ["an image smaller than the kernel"] = { function()
    return L.ConvLSTM2D { 1, 3 } (mgpu.ones { 1, 2, 2, 4, 1 })
  end, "the kernel does not fit into an input of size 2" },
  ["images of unknown sizes"] = { function()
    return L.ConvLSTM1D { 1, 3 } (mgpu.Input { { 2, -1, 1 } })
  end, "the sizes of the images must be known" },
  ["cells that are no layers"] = { function() return L.StackedRNNCells { { 1 } } end, "an array of layers" },
}

for name, row in pairs(wrong) do
  test(name .. " is refused", function() check.raises(row[1], row[2]) end)
end

test("whether a recorded mask arrives is found at once behind many residual blocks", function()
  -- each block reads the one before it twice, so there are 2^60 paths
  local uses, by_place, list = {}, { x = {} }, {}
  local function add(name, class, inputs)
    list[#list + 1] = { class_name = class, config = { name = name, op = class } }
    local use = { layer = #list, inputs = inputs }
    uses[#uses + 1], by_place[name] = use, { [0] = use }
    return { name = name, use = 0, output = 0 }
  end
  local at = add("x", "Input", {})
  local mask = add("mask", "Operation", { at })
  list[2].config.op = "NotEqual"
  for i = 1, 60 do at = add("block" .. i, "Add", { at, at }) end
  add("rnn", "LSTM", { at })
  uses[#uses].mask = mask
  check.raises(function()
    require "mgpu.nn.keras.recorded_masks".check(uses, list, by_place, { path = "m.keras" })
  end, 'layer "rnn" is called with the argument mask, which is not supported')
end)
