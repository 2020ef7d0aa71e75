-- Layers and activations compared with Keras: the golden sets layers, more_layers, conv_layers and
-- activations (tests/README.md). golden/comparing.lua has the tolerances.

local check = require "check"
local mgpu = require "mgpu"
local load_golden = require "golden.load"
local comparing = require "golden.comparing"
local near, from_one = comparing.near, comparing.from_one

local test = check.test

-- Calls the layer or function on x; returns the output, the gradients of the input and of the weights,
-- and the sum of penalties(), if given. The gradients are those of sum(y * upstream) + the penalties.
local function gradients(call, x, upstream, weights, penalties)
  local input, y, penalty = mgpu.variable(x), nil, nil
  local _, grads = mgpu.value_and_grad(function()
    y = call(input:value())
    local sum = (y * upstream(y:shape())):sum()
    for _, loss in ipairs(penalties and penalties() or {}) do
      penalty = penalty and penalty + loss or loss
    end
    return penalty and sum + penalty or sum
  end, { input, unpack(weights) })()
  return y, grads, penalty
end

local function trainable(layer)
  local list, moving = {}, {}
  for _, v in ipairs(layer.weights) do
    if v.trainable then list[#list + 1] = v else moving[#moving + 1] = v end
  end
  return list, moving
end

local function compare(case, setting)
  local layer = mgpu.layers[case.layer](comparing.arguments(case))
  layer:ensure_built { -1, select(2, unpack(case.input_shape)) }
  local weights = {}
  for k, recipe in ipairs(case.weights) do weights[k] = setting.tensor(recipe, recipe.shape) end
  layer:set_weights(weights)
  local list, moving = trainable(layer)
  local y, grads, penalty = gradients(function(x) return layer(x, { training = case.training }) end,
    setting.tensor(case.input, case.input_shape),
    function(shape) return setting.tensor(case.upstream, shape) end, list,
    function() return layer:losses() end)
  check.equal(layer:output_shape { -1, select(2, unpack(case.input_shape)) },
    { -1, select(2, unpack(case.output_shape)) })
  check.equal(y:shape(), case.output_shape)
  near(y, case.output, setting.tolerance)
  check.equal(penalty ~= nil, case.penalty ~= nil)
  if penalty then near(penalty, { case.penalty }, setting.tolerance) end
  near(grads[1] or y * 0, case.input_gradient, setting.tolerance)
  for k, wanted in ipairs(case.weight_gradients) do
    near(grads[k + 1], wanted, setting.tolerance)
  end
  for k, wanted in ipairs(case.after or {}) do near(moving[k], wanted, setting.tolerance) end
end

local tests_of = comparing.tests_of
tests_of("case", load_golden("layers").cases, compare)
local more = load_golden "more_layers"
tests_of("further case", more.cases, compare)
tests_of("convolution family", load_golden("conv_layers").cases, compare)
tests_of("merge", more.merges, comparing.merge)
tests_of("embedding", more.embeddings, comparing.embedding)

-- ---- activations --------------------------------------------------------------------------------

local golden = load_golden "activations"

-- Activations whose only argument is an axis; the golden set counts it from 0, mgpu from 1.
local ALONG = { softmax = true, log_softmax = true, glu = true, sparsemax = true }

local function compare_activation(case, setting)
  local fn, given = mgpu.activations.get(case.name), { unpack(case.arguments) }
  if ALONG[case.name] and given[1] then given[1] = from_one(given[1]) end
  local y, grads = gradients(function(x) return fn(x, unpack(given)) end,
    setting.tensor(case.input, golden.shape),
    function(shape) return setting.tensor(golden.upstream, shape) end, {})
  check.equal(y:shape(), case.output_shape)
  near(y, case.output, setting.tolerance)
  near(grads[1], case.input_gradient, setting.tolerance)
end

for _, case in ipairs(golden.cases) do
  local how = ""
  for _, argument in ipairs(case.arguments) do how = how .. " " .. tostring(argument) end
  test(("activation %s%s gives Keras's output and gradient"):format(case.name, how),
    function() comparing.in_all_settings(compare_activation, case) end)
end

-- The numbers of a list that belong to the edges of a magnitude of at most `most`.
local function within(most, list)
  local kept = {}
  for i, x in ipairs(golden.edges) do
    if math.abs(x) <= most then kept[#kept + 1] = list[i] end
  end
  return kept
end

for _, case in ipairs(golden.edge_cases) do
  test(("activation %s far from 0 and close to it"):format(case.name), function()
    local fn = mgpu.activations.get(case.name)
    -- float64: both sides compute in double. float32: a few units in the last of 24 bits; beyond e^40
    -- its numbers overflow.
    for dtype, how in pairs { float64 = { 700, 1e-10 }, float32 = { 40, 2e-6 } } do
      local x = mgpu.tensor(within(how[1], golden.edges), { dtype = dtype })
      local y, grads = gradients(fn, x, function() return 1 end, {})
      check.near(y, within(how[1], case.output), how[2])
      check.near(grads[1], within(how[1], case.input_gradient), how[2])
      local z, slopes = gradients(fn, mgpu.tensor(golden.meetings, { dtype = dtype }), function() return 1 end, {})
      check.near(z, case.at_meetings, how[2])
      local wanted = case.gradient_at_meetings
      if case.name == "celu" then wanted = { unpack(wanted) } wanted[5] = 1 end -- Keras's 2 at 0 is an error
      check.near(slopes[1], wanted, how[2])
    end
  end)
end

test("every activation of the module has golden values", function()
  local seen = { get = true }
  for _, case in ipairs(golden.cases) do seen[case.name] = true end
  for name in pairs(mgpu.activations) do check.truthy(seen[name], "golden values of " .. name) end
end)
