-- What compile makes of its options: optimizer, loss and metrics, and the jitted steps they need.
--
-- The steps are nothing a user could not write: functions of the data's tensors under core.jit.
-- They return no loss; loss and metrics add up in variables on the device, to be read when somebody
-- wants to see them.

local core = require "mgpu.core"
local logs = require "mgpu.logs"

local ops = core.ops

local Compiled = {}
Compiled.__index = Compiled

-- What a step that met a NaN says; fit adds where.
Compiled.BAD_LOSS = "the loss is not finite (NaN or infinite)"
Compiled.BAD_GRADIENT = "a gradient is not finite (NaN or infinite)"

-- ---- names and functions ------------------------------------------------------------------------

-- The entry of mgpu[kind] for a name; raises with the nearest one.
local function by_name(kind, name) return require("mgpu." .. kind)[name] end

local function optimizer_of(value)
  if type(value) == "string" then value = by_name("optimizers", value) end
  if type(value) == "table" and value.new and not value.slots then value = value.new {} end
  if type(value) ~= "table" or not value.apply then
    core.fail("usage", "compile: optimizer must be a name or made by mgpu.optimizers, got "
      .. tostring(value))
  end
  return value
end

local function loss_of(value)
  local Loss = require "mgpu.losses.loss"
  if type(value) == "string" then value = by_name("losses", value) end
  if type(value) == "function" then return Loss.from_function(value) end
  if type(value) ~= "table" or not value.per_sample then
    core.fail("usage", "compile: loss must be a name, a function(y_true, y_pred), or one of "
      .. "mgpu.losses, got " .. tostring(value))
  end
  return value
end

-- The loss of that name, or nil.
local function loss_named(name)
  for _, known in ipairs(require "mgpu.losses"()) do
    if known == name then return by_name("losses", name) end
  end
end

-- A metric may also be the name of a loss, a loss, or a function(y_true, y_pred).
local function metric_of(value, loss, position)
  local Metric = require "mgpu.metrics.metric"
  local name, given = "metric_" .. position, type(value) == "string"
  if given then
    name, value = value, loss_named(value) or by_name("metrics", value)
  end
  if type(value) == "table" and value.per_sample then
    name, value = given and name or value.name, value.per_sample
  end
  if type(value) == "function" then
    value = Metric.from_function(value, name)
  elseif type(value) == "table" and value.new and not value.total then
    value = value.new {}
  end
  if type(value) ~= "table" or not value.update then
    core.fail("usage", "compile: a metric must be a name, a function(y_true, y_pred), or made by "
      .. "mgpu.metrics, got " .. tostring(value))
  end
  value.loss = loss.name
  return value
end

-- A lone metric needs no table.
local function metric_list(given, loss)
  if given == nil then return {} end
  if type(given) ~= "table" or given.update or given.per_sample then given = { given } end
  local list, seen = {}, { loss = true }
  for i, value in ipairs(given) do
    list[i] = metric_of(value, loss, i)
    if seen[list[i].name] then
      core.fail("usage", ('compile: two metrics are called "%s"; give one a name of its own')
        :format(list[i].name))
    end
    seen[list[i].name] = true
  end
  return list
end

-- ---- the parts of a step ------------------------------------------------------------------------

local function rows_at(t, index) return ops.gather(t, index, { axis = 1 }) end

-- The batch of a step: rows of the order, or the tensors themselves without an order.
function Compiled.take(x, y, weight, order, first, rows)
  if not order then return x, y, weight end
  local index = rows_at(order, ops.add(ops.iota { shape = { rows }, axis = 1, dtype = "int32" },
    first))
  return rows_at(x, index), y and rows_at(y, index), weight and rows_at(weight, index)
end

-- The scalar to minimise: the weighted mean over the batch plus the layers' own losses. As in
-- Keras, the sum is divided by the number of rows, not by the sum of the weights.
local function total_loss(model, loss, y, predictions, weight)
  local values = loss.per_sample(y, predictions)
  if weight then values = values * ops.cast(weight, { dtype = values:dtype() }) end
  local total = ops.sum(values) / values:count()
  if model.losses then
    for _, extra in ipairs(model:losses()) do total = total + extra end
  end
  return total
end

function Compiled:count(loss, rows, y, predictions)
  self.mean:update(loss, rows)
  for _, metric in ipairs(self.metrics) do metric:update(y, predictions) end
end

-- ---- the steps ----------------------------------------------------------------------------------

-- One update of the model. `key` only tells plans apart: see Compiled:key.
function Compiled:train_step(model)
  return core.jit(function(x_all, y_all, weight_all, order, first, rows, key) -- luacheck: no unused
    local x, y, weight = Compiled.take(x_all, y_all, weight_all, order, first, rows)
    local variables, predictions = model.trainable_variables, nil
    local loss, grads = core.value_and_grad(function()
      predictions = model(x, { training = true })
      return total_loss(model, self.loss, y, predictions, weight)
    end, variables)()
    core.guard_finite({ loss }, Compiled.BAD_LOSS)
    if #variables > 0 then
      local finite = {}
      for _, g in ipairs(grads) do finite[#finite + 1] = g or nil end
      core.guard_finite(finite, Compiled.BAD_GRADIENT)
      self.optimizer:apply(grads, variables)
    end
    self:count(loss, x:shape()[1], y, predictions)
  end)
end

function Compiled:test_step(model)
  return core.jit(function(x_all, y_all, weight_all, order, first, rows, key) -- luacheck: no unused
    local x, y, weight = Compiled.take(x_all, y_all, weight_all, order, first, rows)
    local predictions = model(x)
    local loss = total_loss(model, self.loss, y, predictions, weight)
    self:count(loss, x:shape()[1], y, predictions)
  end)
end

-- The step of a kind ("train", "test"), made once.
function Compiled:step(kind, model)
  if not self.steps[kind] then self.steps[kind] = self[kind .. "_step"](self, model) end
  return self.steps[kind]
end

-- What a plan depends on besides its arguments, as a number: the layers, and which variables are
-- trained.
function Compiled.key(model)
  local parts, trained = {}, {}
  for i, layer in ipairs(model.layers) do parts[i] = layer.name end
  for _, v in ipairs(model.trainable_variables) do trained[v] = true end
  for _, v in ipairs(model.variables) do parts[#parts + 1] = trained[v] and "+" or "-" end
  local text, hash = table.concat(parts, " "), 0
  for i = 1, #text do hash = (hash * 33 + text:byte(i)) % 2 ^ 47 end
  return hash
end

-- ---- loss and metrics ---------------------------------------------------------------------------

function Compiled:reset()
  self.mean:reset()
  for _, metric in ipairs(self.metrics) do metric:reset() end
end

-- The values so far, as logs; each name is preceded by `prefix`.
function Compiled:read(prefix, into)
  prefix = prefix or ""
  local values = into or logs.new()
  values[prefix .. "loss"] = self.mean:result()
  for _, metric in ipairs(self.metrics) do values[prefix .. metric.name] = metric:result() end
  return values
end

-- The state of loss and metrics, so that an evaluation inside an epoch leaves it as it was.
function Compiled:save()
  local saved = { self.mean:save() }
  for i, metric in ipairs(self.metrics) do saved[i + 1] = metric:save() end
  return saved
end

function Compiled:restore(saved)
  self.mean:restore(saved[1])
  for i, metric in ipairs(self.metrics) do metric:restore(saved[i + 1]) end
end

-- ---- the device ---------------------------------------------------------------------------------

local function move(variables, device)
  for _, v in ipairs(variables) do
    if v:device() ~= device then v:assign(v:value():to(device)) end
  end
end

-- Runs fn() with the chosen device as the default one and all state on it.
function Compiled:on_device(model, fn)
  local device = self.device
  if not device then return fn() end
  move(model.variables, device)
  move(self.optimizer:variables(), device)
  for _, metric in ipairs { self.mean, unpack(self.metrics) } do
    move({ metric.total, metric.count }, device)
  end
  local before = core.default_device()
  core.default_device(device)
  local ok, result = pcall(fn)
  core.default_device(before)
  if not ok then error(result, 0) end
  return result
end

-- ARGS optimizer, loss, metrics: as the user gave them; device: a name or nil
function Compiled.new(optimizer, loss, metrics, device)
  loss = loss_of(loss)
  return setmetatable({
    optimizer = optimizer_of(optimizer),
    loss = loss,
    metrics = metric_list(metrics, loss),
    mean = require("mgpu.metrics.mean").new { name = "loss" },
    device = device,
    steps = {},
  }, Compiled)
end

return Compiled
