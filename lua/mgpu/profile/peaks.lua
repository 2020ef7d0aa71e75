--- What a device reaches: operations a second of a large matrix product, bytes a second of a large sum of two tensors.
-- Measured once for each device, in some tenths of a second.
local core = require "mgpu.core"

local M = {}

local LONG = 0.02 -- seconds that a measured call takes at least, unless the tensors are large
local RUNS = 3

-- Seconds of the fastest of some calls; reading a number waits for the device.
local function time(fn, ...)
  local best = math.huge
  for _ = 1, RUNS + 1 do -- the first one makes the plan
    local start = core.clock()
    fn(...):item()
    best = math.min(best, core.clock() - start)
  end
  return best
end

local function ones(device, ...)
  local t = core.place(core.ops.full({ ... }, 1, "float32"), device)
  core.eval(t)
  return t
end

-- The first size whose call takes long enough, or the last.
local function rate(sizes, call)
  for i, n in ipairs(sizes) do
    local seconds, amount = call(n)
    if seconds > LONG or i == #sizes then return amount / seconds end
  end
end

local function products(device)
  local multiply = core.jit(function(a, b) return core.ops.matmul(a, b):max() end)
  return rate({ 128, 512, 1024, 2048, 8192 }, function(n)
    return time(multiply, ones(device, n, n), ones(device, n, n)), 2 * n ^ 3
  end)
end

-- The sum reads two tensors and writes one; its maximum reads that again.
local function copies(device)
  local add = core.jit(function(a, b)
    local sum = a + b
    return sum:max(), sum
  end)
  return rate({ 2 ^ 16, 2 ^ 20, 2 ^ 23, 2 ^ 26 }, function(n)
    return time(function(a, b) return (add(a, b)) end, ones(device, n), ones(device, n)), 16 * n
  end)
end

local known = {}

--- of(device) -> {flops, bytes}: per second; nil if it could not be measured, as without memory for it.
function M.of(device)
  if known[device] == nil then
    local ok, flops, bytes = pcall(function() return products(device), copies(device) end)
    known[device] = ok and { flops = flops, bytes = bytes } or false
  end
  return known[device] or nil
end

return M
