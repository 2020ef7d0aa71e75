-- Memory runs out during fit steps, on one device and on four: from some allocation on every one fails, or a single
-- one does. The error must be "oom", the weights those of the steps that were counted, to the last bit, and the next
-- step must succeed. Failed allocations stand for a machine without memory, whatever its size.
local core = require "mgpu.core"
local mgpu = require "mgpu"

local L = mgpu.layers
local MOST_MISSES = 100 -- fits in a row that did not run out of memory: then no fault has any effect

local function make(devices)
  mgpu.seed(3)
  local model = mgpu.Sequential { L.Input { 6 }, L.Dense { 8, activation = "relu" }, L.BatchNormalization {},
    L.Dense { 3 } }
  model:compile { loss = "mse", optimizer = "adam", devices = devices }
  return model
end

local function steps_of(model) return tonumber(model.optimizer.iterations:item()) end

-- A problem, if the weights of the two models differ in any bit.
local function difference(model, twin)
  local theirs = twin:get_weights()
  for i, w in ipairs(model:get_weights()) do
    if (w - theirs[i]):abs():max():item() ~= 0 then return ("weight %d differs"):format(i) end
  end
end

-- Recovers n times. The twin makes the same steps with all the memory. RETURNS how many broke a promise, the last
-- of these, and how many fits ran out of memory.
local function recover(n, devices)
  local model, twin = make(devices), make(devices)
  local x, y = mgpu.rand { 12, 6 }, mgpu.rand { 12, 3 }
  mgpu.eval(x, y)
  local function step(one) one:fit(x, y, { batch_size = 12, verbose = 0, shuffle = false }) end
  step(model)
  step(twin)
  local failed, note, recovered, at, misses, most = 0, nil, 0, 0, 0, 0
  while recovered < n and misses < MOST_MISSES do
    at = at + 1
    local always = at % 4 ~= 0
    core.alloc_fault(at, always)
    local ok, message = pcall(step, model)
    local code = core.error_code()
    core.alloc_fault()
    local problem = not ok and code ~= "oom" and ("%s: %s"):format(code, message)
    if not ok then
      recovered, misses, most = recovered + 1, 0, math.max(most, at)
    else -- a single failure may be made up for by a collection; else the step is through with its allocations
      misses = misses + 1
      if always then at = 0 end
    end
    while steps_of(twin) < steps_of(model) do step(twin) end
    problem = problem or difference(model, twin)
    step(model)
    step(twin)
    problem = problem or difference(model, twin)
    if problem then failed, note = failed + 1, ("%d devices, allocation %d: %s"):format(#devices, at, problem) end
  end
  if recovered < n then failed, note = failed + 1, "memory no longer runs out" end
  return failed, note, recovered, most
end

return {
  what = "out of memory in a fit step: wrong error, weights of no step, or no recovery",
  count = 2000,
  few = 60,
  run = function(n)
    local failed, note, tried, calls = 0, nil, 0, {}
    local kind = pcall(core.device_info, "cpu:0") and "cpu:" or "ref:"
    for _, devices in ipairs { { kind .. 0 }, { kind .. 0, kind .. 1, kind .. 2, kind .. 3 } } do
      local more, problem, recovered, most = recover(math.ceil(n / 2), devices)
      failed, tried, note, calls[#calls + 1] = failed + more, tried + recovered, problem or note, most
    end
    note = note or ("half on 1 device, at each of %d allocations, half on 4, of %d"):format(unpack(calls))
    return failed, note, tried
  end,
}
