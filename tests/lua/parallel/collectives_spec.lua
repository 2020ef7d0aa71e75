-- Which collectives a training step has: gradients in buckets of their own, however many sums of batch normalization
-- come between them, and one gather for the statistics of each batch normalization.
local check = require "check"
local mgpu = require "mgpu"
local in_float64 = require "fixtures".in_float64

local test = check.test
local L = mgpu.layers

-- The plan of a training step of a model with `n` batch normalizations on the devices.
local function plan(n, devices, rows, units)
  mgpu.seed(1)
  local layers = { L.Input { 6 } }
  for _ = 1, n do
    layers[#layers + 1] = L.Dense { units or 8, use_bias = false }
    layers[#layers + 1] = L.BatchNormalization {}
  end
  layers[#layers + 1] = L.Dense { 1 }
  local model = mgpu.Sequential(layers)
  local sgd = mgpu.optimizers.SGD { 0.1 }
  sgd:build(model.trainable_variables)
  local step = mgpu.jit(function(x)
    x = x:shard()
    local loss, grads = mgpu.value_and_grad(function()
      return model(x, { training = true }):square():mean()
    end, model.trainable_variables)()
    sgd:apply(grads, model.trainable_variables)
    return loss
  end, { devices = devices })
  local x = (mgpu.arange(rows * 6):to(mgpu.ones { 1 }:dtype()) % 7):reshape { rows, 6 }
  for _ = 1, 3 do step(x):item() end
  return step:dump(), model:get_weights()
end

-- The names of the collectives in a plan, in order; "bucket N" for N all-reduces together.
local function collectives(dump)
  local list, left, first = {}, 0, dump:match "(.-)\ncpu:1" or dump
  for line in first:gmatch "[^\n]+" do
    local n, name = line:match "(%d+) in a bucket", line:match " = (all_%a+)%("
    if n then
      list[#list + 1], left = "bucket " .. n, tonumber(n)
    elseif name == "all_reduce" and left > 0 then
      left = left - 1
    elseif name == "all_reduce" or name == "all_gather" then
      list[#list + 1] = name
    end
  end
  return list
end

local function count(list, name)
  local n = 0
  for _, other in ipairs(list) do n = n + (other:match(name) and 1 or 0) end
  return n
end

test("the statistics of a batch normalization are one gather, the sums of its gradient a bucket", function()
  for n = 1, 4 do
    local list = collectives(plan(n, { "cpu:0", "cpu:1" }, 12))
    check.equal(count(list, "all_gather"), n)
    check.equal(count(list, "^bucket 2$"), n) -- of the backward pass
    check.equal(count(list, "all_reduce"), 0)
  end
end)

test("gradients share a bucket although sums of batch normalizations come between them", function()
  for n = 1, 4 do
    local list = collectives(plan(n, { "cpu:0", "cpu:1" }, 12))
    check.equal(count(list, "bucket"), n + 1)
    check.equal(list[#list], "bucket " .. 3 * n + 3) -- kernel, gamma and beta; kernel and bias; the loss
  end
end)

test("statistics of equal and unequal shares are those of the whole batch, also of devices without rows", function()
  in_float64(function()
    for _, case in ipairs { { 3, 12 }, { 3, 13 }, { 4, 3 }, { 8, 16 }, { 8, 9 } } do
      local devices = {}
      for i = 1, case[1] do devices[i] = "cpu:" .. i - 1 end
      local _, weights = plan(2, devices, case[2])
      local _, wanted = plan(2, { "ref:0" }, case[2])
      for i, w in ipairs(weights) do check.near(w, wanted[i], 1e-11) end
    end
  end)
end)
