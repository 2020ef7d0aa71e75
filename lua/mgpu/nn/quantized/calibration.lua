--- The ranges of the inputs of layers, from data: the model computes them, batch by batch.
local core = require "mgpu.core"

local ops = core.ops
local M = {}

local function fail(message, ...) core.fail("usage", ("quantize: " .. message):format(...)) end

-- The tensors of the data as a new array: of one, of an array of them, or of a table by the names of the inputs.
local function tensors_of(model, x)
  local list = { x }
  if type(x) == "table" and type(next(x)) == "string" and model.arrange then
    list = model:arrange(x)
  elseif type(x) == "table" and type(x[1]) == "userdata" then
    list = { unpack(x) }
  end
  for i, t in ipairs(list) do
    if type(t) == "table" then t = core.tensor(t) end
    if not core.is_tensor(t) then
      fail("calibration must be a tensor, or an array of tensors for several inputs, got %s",
        type(t) == "table" and "a table" or "a " .. type(t))
    end
    list[i] = t
  end
  local rows = list[1]:shape()[1]
  for i, t in ipairs(list) do
    local n = t:shape()[1]
    if not n or n == 0 then fail "calibration has no rows" end
    if n ~= rows then fail("calibration: tensor %d has %d rows, the first has %d", i, n, rows) end
  end
  return list, rows
end

local function rows_of(t, first, last)
  local stop = t:shape()
  local start = {}
  for i = 1, #stop do start[i] = i == 1 and first or 0 end
  stop[1] = last
  return ops.slice(t, { start = start, stop = stop })
end

-- The bounds of a batch: the least and the largest number, or those beyond which 100 - percentile % lie on each side;
-- not finite if any number is not.
local function bounds_of(t, percentile)
  t = ops.cast(t, { dtype = "float32" })
  if percentile == 100 then return ops.min(t), ops.max(t) end
  local n = t:count()
  t = ops.where(ops.all(ops.isfinite(t)), t, 0 / 0)
  local sorted = ops.reshape(t, { shape = { n } }):sort()
  local last = math.max(1, math.ceil(n * percentile / 100))
  local first = n - last
  return rows_of(sorted, first, first + 1), rows_of(sorted, last - 1, last)
end

--- range(low, high) -> {steps, zero}: the codes 0 to 255 for numbers from low to high, 0 among them.
function M.range(low, high)
  low, high = math.min(low, 0), math.max(high, 0)
  if high - low < 1e-30 then return { 1, 0 } end
  local steps = 255 / (high - low)
  return { steps, math.min(255, math.max(0, math.floor(-low * steps + 0.5))) }
end

-- Runs fn while the layers note the bounds of their inputs in `seen`.
local function noting(layers, percentile, seen, fn)
  for layer in pairs(layers) do
    local call = layer.call
    rawset(layer, "call", function(self, x, ...)
      local low, high = bounds_of(x, percentile)
      table.insert(seen, { layer = layer, low = low, high = high })
      return call(self, x, ...)
    end)
  end
  local ok, problem = pcall(fn)
  for layer in pairs(layers) do rawset(layer, "call", nil) end
  if not ok then error(problem, 0) end
end

--- ranges(model, layers, chosen) -> layer -> {steps, zero}, for the set `layers`.
-- ARGS chosen: {calibration =, batch_size =, percentile =}. A percentile below 100 is taken of each batch, and its
-- means are the bounds. Errors: data that the model cannot compute; numbers that are not finite; a layer that
-- is not reached.
function M.ranges(model, layers, chosen)
  local list, rows = tensors_of(model, chosen.calibration)
  local found = {}
  core.no_grad(function()
    for first = 0, rows - 1, chosen.batch_size do
      local batch, seen = {}, {}
      for i, t in ipairs(list) do batch[i] = rows_of(t, first, math.min(first + chosen.batch_size, rows)) end
      noting(layers, chosen.percentile, seen, function()
        model(#batch > 1 and batch or batch[1])
        for _, one in ipairs(seen) do one.low, one.high = one.low:item(), one.high:item() end
      end)
      for _, one in ipairs(seen) do
        if not (one.high - one.low < math.huge) then
          core.fail("data", ("quantize: the input of %s has numbers that are not finite"):format(tostring(one.layer)))
        end
        local bounds = found[one.layer] or { low = 0, high = 0, n = 0, least = one.low, most = one.high }
        bounds.low, bounds.high, bounds.n = bounds.low + one.low, bounds.high + one.high, bounds.n + 1
        bounds.least, bounds.most = math.min(bounds.least, one.low), math.max(bounds.most, one.high)
        found[one.layer] = bounds
      end
    end
  end)
  local ranges = {}
  for layer in pairs(layers) do
    local b = found[layer] or fail("the model does not use %s", tostring(layer))
    ranges[layer] = chosen.percentile == 100 and M.range(b.least, b.most) or M.range(b.low / b.n, b.high / b.n)
  end
  return ranges
end

return M
