--- Trainings of replicas, for replicas_spec.lua: on several ranks by the strategy, on one rank by an emulation that is
--- written down here from the formulas, with a model for each of so many ranks as the devices given, "3", say.
local mgpu = require "mgpu"

local L = mgpu.layers

local IS_EMULATED = mgpu.world().size == 1
local RANKS -- that are emulated
local BATCH, ROWS, EPOCHS = 10, 32, 2 -- a pass ends with a batch of 2 rows: fewer than there are ranks

local M = {}

local function new_model()
  return mgpu.Sequential { L.Input { 5 }, L.Dense { 4, activation = "tanh" }, L.Dense { 1 } }
end

local function new_data()
  local x = mgpu.rand({ ROWS, 5 }, { dtype = "float64" })
  mgpu.eval(x)
  return x, x:sum { axis = 2, keepdims = true }
end

-- ---- the emulation ------------------------------------------------------------------------------

-- The rows of each rank in the batch that begins after row `at`: as many each, the first ones one more.
local function windows(at)
  local rows, list = math.min(BATCH, ROWS - at), {}
  local each, more, first = math.floor(rows / RANKS), rows % RANKS, at
  for r = 1, RANKS do
    local n = each + (r <= more and 1 or 0)
    list[r] = { first = first, n = n, share = n / rows }
    first = first + n
  end
  return list
end

local function rows_of(t, window) return t:slice { { window.first + 1, window.first + window.n }, {} } end

local function means(lists)
  local mean = {}
  for _, list in ipairs(lists) do
    for i, t in ipairs(list) do mean[i] = (mean[i] or 0) + t / RANKS end
  end
  return mean
end

local function state_of(model)
  local list = {}
  for i, v in ipairs(model.compiled.optimizer:variables()) do list[i] = v:value() end
  return list
end

-- Slots become their means; whole numbers are those of the first model.
local function share_state(models)
  local states = {}
  for r, model in ipairs(models) do states[r] = state_of(model) end
  local mean = means(states)
  for _, model in ipairs(models) do
    for i, v in ipairs(model.compiled.optimizer:variables()) do
      v:assign(v:dtype():find "float" and mean[i] or states[1][i])
    end
  end
end

-- Trains models[1 .. RANKS] on the rows of the ranks; rule(models, starts) after each `period` steps and at the end of
-- an epoch; settle(models) there. RETURNS the loss of each epoch.
local function emulate(models, x, y, period, rule, settle)
  local losses = {}
  for epoch = 1, EPOCHS do
    local sum, steps, starts = 0, 0, models[1]:get_weights()
    local context = { start = starts }
    for at = 0, ROWS - 1, BATCH do
      for r, window in ipairs(windows(at)) do
        if window.n > 0 then
          sum = sum + models[r]:train_on_batch(rows_of(x, window), rows_of(y, window)).loss * window.n
        end
      end
      steps = steps + 1
      if steps % period == 0 or at + BATCH >= ROWS then rule(models, context) end
    end
    settle(models, context)
    share_state(models)
    losses[epoch] = sum / ROWS
  end
  return losses
end

local rules, settles = {}, {}

function rules.local_sgd(models)
  local lists = {}
  for r, model in ipairs(models) do lists[r] = model:get_weights() end
  local mean = means(lists)
  for _, model in ipairs(models) do model:set_weights(mean) end
end

function settles.local_sgd() end

local RATE = 0.6

function rules.elastic(models, context)
  context.center = context.center or context.start
  local total = {}
  for _, model in ipairs(models) do
    local weights = model:get_weights()
    for i, w in ipairs(weights) do
      local distance = w - context.center[i]
      total[i] = (total[i] or 0) + distance
      weights[i] = w - distance * (RATE / RANKS)
    end
    model:set_weights(weights)
  end
  local center = {}
  for i, c in ipairs(context.center) do center[i] = c + total[i] * (RATE / RANKS) end
  context.center = center
end

function settles.elastic(models, context)
  for _, model in ipairs(models) do model:set_weights(context.center) end
end

local function adasum(a, b)
  local dot, aa, bb = (a * b):sum():item(), (a * a):sum():item(), (b * b):sum():item()
  return a * (aa > 0 and 1 - dot / (2 * aa) or 1) + b * (bb > 0 and 1 - dot / (2 * bb) or 1)
end

-- Of 3: the third into the first, then both; of 4: in pairs.
local function adasum_of(changes)
  if #changes == 3 then return adasum(adasum(changes[1], changes[3]), changes[2]) end
  if #changes == 2 then return adasum(changes[1], changes[2]) end
  return adasum(adasum(changes[1], changes[2]), adasum(changes[3], changes[4]))
end

function rules.adasum(models, context)
  local result = {}
  for i, from in ipairs(context.start) do
    local changes = {}
    for r, model in ipairs(models) do changes[r] = model:get_weights()[i] - from end
    result[i] = from + adasum_of(changes)
  end
  context.start = result
  for _, model in ipairs(models) do model:set_weights(result) end
end

function settles.adasum() end

-- ---- strategies by a rule -------------------------------------------------------------------------

local function optimizer_of(name)
  return name == "sgd" and mgpu.optimizers.SGD { 0.1 } or mgpu.optimizers.Adam { 0.02 }
end

local function result(model, losses)
  local found = { losses = losses }
  for i, w in ipairs(model:get_weights()) do found["weight " .. i] = w end
  for i, t in ipairs(state_of(model)) do found["state " .. i] = t end
  return found
end

local function compare(strategy, period, options, optimizer)
  M[#M + 1] = { name = ("%s, period %d, %s"):format(strategy, period, optimizer), fn = function(given)
    RANKS = tonumber(given.devices)
    local model = new_model()
    local x, y = new_data()
    local start = model:get_weights()
    if IS_EMULATED then
      local models = {}
      for r = 1, RANKS do
        models[r] = new_model()
        models[r]:compile { loss = "mse", optimizer = optimizer_of(optimizer) }
        models[r]:set_weights(start)
      end
      return result(models[1], emulate(models, x, y, period, rules[strategy], settles[strategy]))
    end
    options.devices = given.devices
    model:compile { loss = "mse", optimizer = optimizer_of(optimizer),
      strategy = mgpu.parallel.strategy(strategy, options) }
    local h = model:fit(x, y, { batch_size = BATCH, epochs = EPOCHS, shuffle = false, verbose = 0 })
    return result(model, h.history.loss)
  end }
end

for _, optimizer in ipairs { "sgd", "adam" } do
  compare("local_sgd", 1, { period = 1 }, optimizer)
  compare("local_sgd", 3, { period = 3 }, optimizer)
  compare("elastic", 2, { period = 2, rate = RATE }, optimizer)
  compare("adasum", 1, {}, optimizer)
end

-- ---- compressed gradients -----------------------------------------------------------------------

-- SGD by hand; sum(terms) -> the sums of what the ranks send of their terms.
local function emulate_gradients(model, x, y, sum)
  local losses = {}
  for epoch = 1, EPOCHS do
    local total = 0
    for at = 0, ROWS - 1, BATCH do
      local lists = {}
      for r, window in ipairs(windows(at)) do
        local terms = {}
        if window.n > 0 then
          local loss, grads = mgpu.value_and_grad(function()
            return mgpu.losses.mean_squared_error(rows_of(y, window), model(rows_of(x, window), { training = true }))
          end, model.trainable_variables)()
          total = total + loss:item() * window.n
          for i, g in ipairs(grads) do terms[i] = g * window.share end
        else
          for i, v in ipairs(model.trainable_variables) do terms[i] = v:value() * 0 end
        end
        lists[r] = terms
      end
      for i, s in ipairs(sum(lists)) do
        local v = model.trainable_variables[i]
        v:assign(v:value() - s:to(v:dtype()) * 0.1)
      end
    end
    losses[epoch] = total / ROWS
  end
  return losses
end

local function compressed(name, compression, sum, bound)
  M[#M + 1] = { name = name, floatx = "float32", bound = bound, fn = function(given)
    RANKS = tonumber(given.devices)
    local model, x, y = new_model(), new_data()
    x, y = x:to "float32", y:to "float32"
    local losses
    if IS_EMULATED then
      losses = emulate_gradients(model, x, y, sum)
    else
      model:compile { loss = "mse", optimizer = mgpu.optimizers.SGD { 0.1 },
        strategy = mgpu.parallel.strategy("mirrored", { compression = compression, devices = given.devices }) }
      losses = model:fit(x, y, { batch_size = BATCH, epochs = EPOCHS, shuffle = false, verbose = 0 }).history.loss
    end
    local found = { losses = losses }
    for i, w in ipairs(model:get_weights()) do found["weight " .. i] = w end
    return found
  end }
end

local function sum_of_halves(dtype)
  return function(lists)
    local sums = {}
    for i in ipairs(lists[1]) do
      local sum
      for r = 1, RANKS do
        local term = lists[r][i]:to(dtype)
        sum = sum and (sum:to "float32" + term:to "float32"):to(dtype) or term
      end
      sums[i] = sum
    end
    return sums
  end
end

local FRACTION = 0.3

-- The numbers of greatest magnitude of a flat array, the others 0; and what is left.
local function split_largest(list)
  local order, sent, rest = {}, {}, {}
  for i in ipairs(list) do order[i], sent[i], rest[i] = i, 0, list[i] end
  table.sort(order, function(a, b)
    local x, y = math.abs(list[a]), math.abs(list[b])
    return x > y or x == y and a < b
  end)
  for k = 1, math.max(1, math.floor(#list * FRACTION)) do
    local i = order[k]
    sent[i], rest[i] = list[i], 0
  end
  return sent, rest
end

local function sum_of_largest()
  local rests = {}
  return function(lists)
    local sums = {}
    for i in ipairs(lists[1]) do
      local shape = lists[1][i]:shape()
      for r = 1, RANKS do
        rests[r] = rests[r] or {}
        local term = lists[r][i]
        if rests[r][i] then term = term + rests[r][i] end
        local sent, rest = split_largest(term:reshape { -1 }:totable())
        rests[r][i] = mgpu.tensor(rest):reshape(shape)
        sums[i] = (sums[i] or 0) + mgpu.tensor(sent):reshape(shape)
      end
    end
    return sums
  end
end

-- In another order of sums, a term may be rounded to the neighbouring half: 2^-11 and 2^-8 of a gradient, of which a
-- few steps of a tenth are made.
compressed("gradients in float16", "float16", sum_of_halves "float16", 1e-3)
compressed("gradients in bfloat16", "bfloat16", sum_of_halves "bfloat16", 1e-2)
-- float32: sums in another order.
compressed("the largest gradients", { top_k = FRACTION }, sum_of_largest(), 1e-5)

return M
