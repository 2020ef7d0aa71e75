--- train_on_batch and test_on_batch for batches like the one before, without its checks.
--
-- A batch is like it if its tensors have the same shapes, dtypes and devices, and the model and what compile was given
-- are the same. Then all that can be wrong are values, such as labels out of range, which the step itself refuses. The
-- step leaves the running sums of loss and metrics alone and returns those of its batch (train_step.get).
local core = require "mgpu.core"
local data_adapter = require "mgpu.train.data_adapter"
local likeness = require "mgpu.train.likeness"
local logs = require "mgpu.train.logs"
local Metric = require "mgpu.nn.metrics.metric"
local step_errors = require "mgpu.train.step_errors"
local train_step = require "mgpu.train.train_step"
local world = require "mgpu.parallel.world"

local M = {}

-- Adds what is given as x or as y to the list. RETURNS whether it is a tensor or an array.
local function add(list, given)
  if type(given) == "userdata" then
    list[#list + 1] = given
    return true
  end
  if type(given) ~= "table" or getmetatable(given) then return false end
  for _, t in ipairs(given) do list[#list + 1] = t end
  return true
end

-- The tensors of x and y in one array, and how many are of x; nil if they are something else than tensors and arrays.
local function tensors_of(x, y)
  local list = {}
  if not add(list, x) then return nil end
  local n_x = #list
  if not add(list, y) then return nil end
  return list, n_x
end

local function is_plain(compiled)
  return not compiled.devices and not compiled.eager and compiled.accumulate == 1 and world.size() == 1
    and compiled.metrics:is_built()
end

--- remember(model, kind, x, y, source): notes that a batch x, y was checked, which is the source's, and that its step
--- has succeeded. kind: "train" or "test".
function M.remember(model, kind, x, y, source)
  local compiled = model.compiled
  local list, n_x = tensors_of(x, y)
  if not list or not source.tensors or #list ~= #source.tensors or not is_plain(compiled) then return end
  local likes = likeness.of(source.tensors, list)
  if not likes then return end
  local known = rawget(model, "known_batches") or {}
  known[kind] = { compiled = compiled, optimizer = compiled.optimizer, likes = likes, n_x = n_x, rows = source.rows,
    layout = source.layout, key = train_step.plan_key(model), device = core.default_device() }
  rawset(model, "known_batches", known)
end

-- Whether the tensors of x and y, n_x of them of x, are a batch like the one that was noted.
local function is_known(model, known, list, n_x)
  if known.compiled ~= model.compiled or known.optimizer ~= known.compiled.optimizer or known.compiled.devices
    or known.device ~= core.default_device() or n_x ~= known.n_x then
    return false
  end
  return likeness.matches(list, known.likes) and train_step.plan_key(model) == known.key
end

-- What metrics:read() returns for these sums, while the metrics' own are as they were.
local function values_of(metrics, sums)
  local values, at = logs.new(), 0
  metrics:each(function(metric, name)
    local variables = metric:variables()
    if Metric.is_mean(metric) then
      local count = sums[at + 2]:item()
      values[name] = count == 0 and 0 or sums[at + 1]:item() / count
    else
      local saved = metric:save()
      metric:restore { unpack(sums, at + 1, at + #variables) }
      local ok, value = pcall(metric.result, metric)
      metric:restore(saved)
      if not ok then error(value, 0) end
      values[name] = value
    end
    at = at + #variables
  end)
  return values
end

-- RETURNS the logs of a step. Reading the sums of a GPU waits for the step's guards, which may raise only then.
local function run(known, step, list)
  return values_of(known.compiled.metrics, { step(known.rows, known.layout, known.key, unpack(list)) })
end

-- The step's error as the checks before it would have worded it, else with the place.
local function raise(model, kind, x, y, message)
  local what = kind .. "_on_batch"
  if core.error_code() == "data" then data_adapter.new(what, model, x, y, {}) end
  step_errors.raise(message, what, model)
end

--- again(model, kind, x, y) -> the logs of one step on a batch like one that was noted; nil: it is another batch.
function M.again(model, kind, x, y)
  local known = rawget(model, "known_batches")
  known = known and known[kind]
  if not known then return nil end
  local list, n_x = tensors_of(x, y)
  if not list or not is_known(model, known, list, n_x) then return nil end
  local step = train_step.get(known.compiled, kind .. "_batch", model, known.key)
  local scope = core.visit_scope()
  core.visit_scope(scope + 1)
  local ok, values = pcall(run, known, step, list)
  core.visit_scope(scope)
  if not ok then raise(model, kind, x, y, values) end
  if core.visit_wanted() then core.visit { kind = kind .. "_on_batch", model = model, compiled = known.compiled } end
  return values
end

return M
