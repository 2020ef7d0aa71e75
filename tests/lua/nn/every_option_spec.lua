-- The options of every layer, optimizer, loss and metric, tested from their declarations: each class
-- must refuse an unknown option, a wrong type, a value out of range, one value too many without a name, and
-- an option given twice. The table below adds the valid values of required options.

local check = require "check"
local mgpu = require "mgpu"

local test = check.test

local REQUIRED = { units = 3, filters = 4, kernel_size = 3, rate = 0.5, stddev = 0.1, target_shape = { 2, 3 },
  dims = { 2, 1 }, shape = { 3 }, input_dim = 5, output_dim = 2, axes = 2, activation = "relu",
  ["function"] = function(x) return x end, decay_steps = 10, decay_rate = 0.5, initial_learning_rate = 0.1,
  boundaries = { 1 }, values = { 1, 0.5 }, first_decay_steps = 5, inner_optimizer = "sgd", height = 3,
  width = 3, factor = 1, init_values = 0.1, projection_dim = 2, height_factor = 0.5, width_factor = 0.5, scale = 2,
  num_classes = 3, target_class_ids = { 1 }, recall = 0.5, precision = 0.5, specificity = 0.5, sensitivity = 0.5,
  equation = "ab,bc->ac", output_shape = 4, num_heads = 2, key_dim = 3, head_dim = 3, num_query_heads = 4,
  num_key_value_heads = 2, n = 2, output_size = 2, op = "Negative", arguments = { x = { input = 1 } },
  cell = mgpu.layers.GRUCell { 2 }, cells = { mgpu.layers.GRUCell { 2 } }, layer = mgpu.layers.GRU { 2 },
  layers = { mgpu.layers.Rescaling { 2 } }, max_number = 3,
  num_tokens = 4, num_bins = 3, optimizer_map = function() end, default_optimizer = "sgd",
  graph = { opset = 17, inputs = { { name = "x", dtype = "float32", shape = { -1, 2 } } },
    outputs = { { name = "x" } } } }

-- A value whose type is none of the declared ones.
local function wrong_for(kind)
  if kind:find "any" then return nil end
  local takes = { number = kind:find "number" or kind:find "integer" or kind:find "single" or kind:find "pair"
    or kind:find "margin" or kind:find "triple" or kind:find "shape", table = kind:find "table" or kind:find "shape"
    or kind:find "pair" or kind:find "margin" or kind:find "triple"
    or kind:find "initializer" or kind:find "regularizer" }
  if kind:find "boolean" then return kind:find "number" and "text" or 5 end
  if kind:find "string" or kind:find "initializer" or kind:find "activation" or kind:find "regularizer" then
    return true
  end
  return (takes.number or takes.table) and "text" or 5
end

local function valid(class)
  local given = {}
  for _, option in ipairs(class.declared) do
    if option.required then
      given[option[1]] = REQUIRED[option[1]]
      assert(given[option[1]] ~= nil, "REQUIRED lacks " .. option[1])
    end
  end
  return given
end

local function with(class, name, value)
  local given = valid(class)
  given[name] = value
  return given
end

local function refuses(make, given, pattern)
  check.raises(function() make(given) end, pattern, "usage")
end

local function check_option(name, class, make, option)
  local key = option[1]
  local wrong = wrong_for(option[2])
  if wrong ~= nil then refuses(make, with(class, key, wrong), ("option %q"):format(key)) end
  if option.min then refuses(make, with(class, key, option.min - 1), ("option %q"):format(key)) end
  if option.max then refuses(make, with(class, key, option.max + 1), ("option %q"):format(key)) end
  if option.values then refuses(make, with(class, key, "no_such_value"), ("option %q"):format(key)) end
  if option.required then
    local given = valid(class)
    given[key] = nil
    refuses(make, given, ("%s: option %q is missing"):format(name, key))
  end
  -- the error about a misspelled name suggests the right one
  if #key > 4 then
    refuses(make, with(class, key .. "x", 1), ("unknown option \"%sx\" (did you mean \"%s\"?)"):format(key, key))
  end
end

local function check_positions(name, class, make)
  if class.declared.whole then return end
  local n = class.declared.positional or 1
  local given = valid(class)
  for i = 1, n do
    local key = class.declared[i][1]
    given[i], given[key] = given[key] == nil and (REQUIRED[key] or class.declared[i].default or 2) or given[key],
      nil
  end
  given[n + 1] = 7
  refuses(make, given, n == 0 and "options are given by name" or "may be given by position")
  if n > 0 then
    local twice = valid(class)
    local key = class.declared[1][1]
    twice[1] = twice[key] or class.declared[1].default or 2
    twice[key] = twice[1]
    refuses(make, twice, ("option %q is given twice"):format(key))
  end
  check.truthy(name)
end

local seen = {}
local function check_class(kind, name, class, make)
  if seen[class] then return end
  seen[class] = true
  test(("%s %s refuses wrong values of each of its options"):format(kind, name), function()
    for _, option in ipairs(class.declared) do check_option(name, class, make, option) end
    check_positions(name, class, make)
    make(valid(class)) -- the valid values are accepted
  end)
end

for _, name in ipairs(mgpu.layers()) do
  local class = mgpu.layers[name]
  check_class("layer", name, class, function(given) return class(given) end)
end

for _, name in ipairs(mgpu.optimizers()) do
  if name:match "^%u" then
    local class = mgpu.optimizers[name]
    check_class("optimizer", name, class, function(given) return class(given) end)
  end
end

for _, name in ipairs(mgpu.metrics()) do
  if name:match "^%u" then
    local class = mgpu.metrics[name]
    check_class("metric", name, class, function(given) return class(given) end)
  end
end

for _, name in ipairs(mgpu.losses()) do
  if name:match "^%u" then
    local loss = mgpu.losses[name]
    check_class("loss", name, loss, function(given) return loss.new(given) end)
  end
end

for _, name in ipairs(mgpu.schedules()) do
  local class = mgpu.schedules[name]
  if class.declared then check_class("schedule", name, class, function(given) return class(given) end) end
end

test("an option error names the line of the user's call", function()
  local ok, message = pcall(function()
    return mgpu.layers.Conv2D { 3, 3, activaton = "relu" }
  end)
  check.equal(ok, false)
  check.matches(message, '^tests/lua/nn/every_option_spec%.lua:%d+: Conv2D: unknown option "activaton"')
end)
