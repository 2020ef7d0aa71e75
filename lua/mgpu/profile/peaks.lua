--- What a device reaches: operations a second of a large matrix product, bytes a second of a large sum of two tensors.
-- Measured once for each device, in some tenths of a second.
local core = require "mgpu.core"

local M = {}

local LONG = 2e-3 -- seconds that a measured call takes at least, unless the tensors are large
local RUNS = 4

-- Seconds of the fastest of some calls; reading a number waits for the device. A call before them makes plan, threads
-- and kernels.
local function time(fn, ...)
  local best = math.huge
  fn(...):item()
  for i = 1, RUNS do
    local start = core.clock()
    fn(...):item()
    best = math.min(best, core.clock() - start)
    if best > LONG and i > 1 then break end
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
  return rate({ 128, 256, 512, 1024, 2048, 8192 }, function(n)
    return time(multiply, ones(device, n, n), ones(device, n, n)), 2 * n ^ 3
  end)
end

-- A variable is updated in place: two tensors are read and one is written.
local function copies(device)
  return rate({ 2 ^ 16, 2 ^ 18, 2 ^ 20, 2 ^ 23, 2 ^ 26 }, function(n)
    local v = core.variable(ones(device, n), { name = "sum", trainable = false })
    local add = core.jit(function(a, small)
      v:assign(v:value() + a)
      return small + 1
    end)
    return time(add, ones(device, n), ones(device, 1)), 12 * n
  end)
end

local known = {}

--- of(device) -> {flops, bytes}: per second; nil if it could not be measured, as without memory for it.
function M.of(device)
  if known[device] == nil then
    local ok, flops, bytes = pcall(function() return products(device), copies(device) end)
    if not ok and core.error_code() == "interrupted" then error(flops, 0) end
    known[device] = ok and { flops = flops, bytes = bytes } or false
  end
  return known[device] or nil
end

return M
