--- Fast prediction: mgpu.compile_inference, and the short path of model:predict.
--
-- Both run a *frozen* step (core.jit {frozen = true}): what depends on the weights alone, such as filters scaled by a
-- batch normalization and filters in the form that a kernel reads, is made once, and again when a weight has changed.
local core = require "mgpu.core"
local host_part = require "mgpu.nn.host_part"
local likeness = require "mgpu.train.likeness"
local mixed_precision = require "mgpu.nn.mixed_precision"
local options = require "mgpu.options"
local placement = require "mgpu.train.placement"
local step_errors = require "mgpu.train.step_errors"
local structure = require "mgpu.nn.structure"
local train_step = require "mgpu.train.train_step"

local M = {}

-- ---- compile_inference ---------------------------------------------------------------------------

local OPTIONS = options.declare {
  { "batch", "integer|string", default = "any", min = 1 },
  { "threads", "integer", min = 1 },
  { "precision", "string" },
}

local function fail(text, ...) core.fail("usage", ("compile_inference: " .. text):format(...)) end

-- The checked options.
local function chosen_options(model, given)
  if type(model) ~= "table" or not model.is_network then
    fail("expected a model, got %s", type(model) == "table" and tostring(model) or "a " .. type(model))
  end
  local chosen = options.check("compile_inference", OPTIONS, given or {})
  if type(chosen.batch) == "string" and chosen.batch ~= "any" then
    fail('option "batch" must be a number of rows or "any", got %q', chosen.batch)
  end
  return chosen
end

-- fn(...), while the layers have this dtype policy.
local function with_precision(model, precision, fn, ...)
  local before = {}
  model:each_layer(function(layer) before[layer] = layer.dtype_policy end)
  mixed_precision.apply(model, precision, "compile_inference")
  local results = { pcall(fn, ...) }
  for layer, policy in pairs(before) do layer.dtype_policy = policy end
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2)
end

-- A function () -> a number that changes with the layers of the model and their policies.
local function key_of(model)
  local kept, key
  return function()
    if not kept or not structure.is_same(kept) then
      kept, key = structure.of(model, true), train_step.plan_key(model)
    end
    return key
  end
end

-- The jitted function (key, tensors...) -> outputs of the model's body.
local function step_of(model, chosen)
  local how = { frozen = true, threads = chosen.threads }
  for name, value in pairs(model.compiled and model.compiled.spread or {}) do how[name] = value end
  local function call(_, ...)
    local x, body = select("#", ...) == 1 and (...) or { ... }, model.body
    if chosen.precision then return with_precision(body, chosen.precision, body.apply, body, x, false) end
    return body:apply(x, false)
  end
  return core.jit(call, how)
end

-- The inputs as an array: f(a, b), f {a, b} or f {name = a, ...} for a model of several.
local function arranged(model, x, more)
  if #more > 0 and not model.arrange then fail("%d inputs were given, the model takes 1", #more + 1) end
  if #more > 0 then x = { x, unpack(more) } end
  if x == nil then fail("the function was called without input") end
  if not model.arrange then return { x } end
  return model:arrange(x)
end

local function as_tensor(value)
  if type(value) == "table" then return core.tensor(value) end
  return value
end

local function check_rows(t, rows)
  local n = core.is_tensor(t) and t:shape()[1]
  if n and n ~= rows then fail("the function was made for batches of %d rows, got %d", rows, n) end
end

-- Makes the plan for batches of so many rows, if all sizes of the inputs are known.
local function prepare(model, step, key, rows)
  local shapes, list = model.body.built_shape, {}
  if not shapes then return end
  if type(shapes[1]) ~= "table" then shapes = { shapes } end
  for i, shape in ipairs(shapes) do
    local sizes = { rows, unpack(shape, 2) }
    for _, size in ipairs(sizes) do if size < 0 then return end end
    local input = model.body.inputs[i]
    list[i] = core.ops.full(sizes, 0, input:dtype())
  end
  core.eval(unpack(list))
  step:prepare(key, unpack(list))
end

--- mgpu.compile_inference(model, {batch = "any", threads =, precision =}) -> f: a function that predicts, f(x) being
--- model(x) with training = false, without what is not needed for that.
--
-- x: a tensor or nested numbers, rows first; several inputs as f(a, b), f {a, b} or f {name = a}. f returns what
-- model(x) returns. The weights are taken as constants: batch normalization is folded into the filters before it,
-- and filters are packed or transformed for the kernels that read them, once. Weights that are changed later, by fit,
-- assign or load_weights, are noticed at the next call, and so are layers that are added, removed, replaced or
-- quantized: then a new plan is made. It costs memory for a second copy of most weights, of 3x3 filters four to seven
-- times as large (Winograd's algorithm).
--   batch      a number of rows, which each x must have: the plan is made now, not at the first call. "any": a plan is
--              made at the first call with so many rows, and kept
--   threads    at most so many of the process's; a small net takes one in any case
--   precision  the dtype policy of layers that do not state one, as in compile: "mixed_bfloat16"
-- On several devices (compile {devices = ...}) it runs as predict does. Errors: another number of rows; what model(x)
-- raises.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 3, kernel_initializer = "ones" } }
--     local f = mgpu.compile_inference(model, { batch = 1 })
--     print(f { { 1, 2 } })
--     --> tensor {1, 3} float32 cpu:0
--     --> {{3, 3, 3}}
function M.compile_inference(model, given)
  local chosen = chosen_options(model, given)
  if not model.built then model:fail "is not built yet: give it an Input, or call it once" end
  if chosen.precision then with_precision(model, chosen.precision, function() end) end -- raises if it cannot be
  local step, key, rows = step_of(model, chosen), key_of(model), chosen.batch ~= "any" and chosen.batch
  local part, compiled = host_part.of(model), model.compiled
  local placed = compiled and compiled.devices and compiled
  local function run(x, ...)
    local list = arranged(model, x, { ... })
    if part then
      list = host_part.inputs(model, list)
    else
      for i, value in ipairs(list) do list[i] = as_tensor(value) end
    end
    if rows then check_rows(list[1], rows) end
    return step(key(), unpack(list))
  end
  if placed then
    return function(...)
      local arguments = { n = select("#", ...), ... }
      return placement.on_device(placed, model, function() return run(unpack(arguments, 1, arguments.n)) end)
    end
  end
  if rows then prepare(model, step, key(), rows) end
  if part then return run end
  local is_tensor, listed = core.is_tensor, model.listed
  return function(x, ...) -- one tensor needs no arranging
    if listed or ... ~= nil or not is_tensor(x) then return run(x, ...) end
    if rows then check_rows(x, rows) end
    return step(key(), x)
  end
end

-- ---- predict again -------------------------------------------------------------------------------

local DEFAULT_SIZE = 32 -- rows: predict's batch_size

-- Whether `given`, the options of predict, are none but a batch size.
local function is_plain(given)
  if given == nil then return true end
  if type(given) ~= "table" or getmetatable(given) then return false end
  local name = next(given)
  return name == nil or name == "batch_size" and next(given, name) == nil
end

--- remember(model, x, source, call): notes that predict has checked x, which was one batch of tensors and is what the
--- step took, so that `again` can predict for tensors like it. call: {step, key, layout, compiled = the model's
--- compiled state, device = the default device}.
function M.remember(model, x, source, call)
  if type(x) == "table" and not getmetatable(x) then
    if #x ~= #source.tensors then return end
  else
    x = { x }
  end
  local likes = likeness.of(source.tensors, x)
  if not likes then return end
  call.likes, call.rows, call.structure = likes, source.rows, structure.of(model)
  model.known_prediction = call.structure and call or nil
end

-- The step's error as predict reports it.
local function raise(message)
  step_errors.guarded(function() return "predict: step 1" end, error, message, 0)
end

--- again(model, x, given) -> predict's result for tensors like those of the predict before, in one step and without
--- further checks; nil: this is another kind of call. given: predict's options.
function M.again(model, x, given)
  local call, compiled = rawget(model, "known_prediction"), rawget(model, "compiled")
  if not call or not is_plain(given) or compiled ~= call.compiled or compiled and compiled.devices then
    return nil
  end
  local size = given and given.batch_size or DEFAULT_SIZE
  if type(size) ~= "number" or size < call.rows or size % 1 ~= 0 then return nil end
  if type(x) ~= "table" then
    x = { x }
  elseif getmetatable(x) then
    return nil
  end
  if not likeness.matches(x, call.likes) then return nil end
  if core.default_device() ~= call.device or not structure.is_same(call.structure) then return nil end
  if model.several then
    local results = { pcall(call.step, call.rows, call.layout, call.key, nil, nil, unpack(x)) }
    if not table.remove(results, 1) then raise(results[1]) end
    return results
  end
  local ok, y = pcall(call.step, call.rows, call.layout, call.key, nil, nil, unpack(x))
  if not ok then raise(y) end
  return y
end

return M
