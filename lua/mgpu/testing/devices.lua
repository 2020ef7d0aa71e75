--- The same training on different numbers of devices.
local assert_close = require "mgpu.testing.close"
local core = require "mgpu.core"
local in_float64 = require "mgpu.testing.float64"
local options = require "mgpu.options"

local SAME = options.declare {
  { "kind", "string", default = "cpu" }, { "steps", "integer", default = 3, min = 1 },
  { "batch_size", "integer", min = 1 }, { "seed", "integer", default = 1, min = 0 },
  { "rtol", "number", default = 1e-8, above = 0 },
}

local function fail(message, ...) core.fail("usage", "same_on_devices: " .. message:format(...)) end

local function names(kind, n)
  local list = {}
  for i = 1, n do list[i] = ("%s:%d"):format(kind, i - 1) end
  return list
end

-- What the model has learned, and what it predicts, after some steps on n devices.
local function trained(make, n, x, y, given)
  require "mgpu".seed(given.seed)
  local model = make(names(given.kind, n))
  if type(model) ~= "table" or not model.fit or not model.compiled then
    fail("the function must return a compiled model")
  end
  local used = model.compiled.devices
  if n > 1 and (not used or #used ~= n) then
    fail("the model for %d devices was compiled for %s: give compile the devices that the function gets", n,
      used and table.concat(used, ", ") or "one")
  end
  local history = model:fit(x, y, { batch_size = given.batch_size, epochs = 1, steps_per_epoch = given.steps,
    shuffle = false, verbose = 0 })
  local found = { history = history.history }
  for i, v in ipairs(model.variables) do -- automatic names are counted on from model to model
    found[("%d (%s)"):format(i, (v.name:gsub("_%d+/", "/")))] = v:value()
  end
  return found
end

--- same_on_devices(make, counts, x, y, {steps = 3, batch_size, kind = "cpu", seed = 1, rtol = 1e-8}): an error unless a
--- model has the same weights and history after training on each number of devices.
-- make(devices) returns the compiled model, with `devices` given to compile. It is called for each of the counts, with
-- the devices kind:0, kind:1, ...; before each call the seed is set. All runs are in float64, where rounding stays far
-- below rtol, so that any larger difference is a fault. batch_size: as in fit; one that no count divides tries unequal
-- shares.
-- Example:
--     local L, x = mgpu.layers, mgpu.rand { 10, 4 }
--     mgpu.testing.same_on_devices(function(devices)
--       local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 8 }, L.Dropout { 0.5 }, L.Dense { 1 } }
--       model:compile { optimizer = "adam", loss = "mse", devices = devices }
--       return model
--     end, { 1, 2 }, x, x:sum(2):reshape { 10, 1 }, { batch_size = 5, steps = 2 })
return function(make, counts, x, y, given)
  given = options.check("same_on_devices", SAME, given or {})
  if type(make) ~= "function" then fail("expected a function that makes the model, got a %s", type(make)) end
  if type(counts) ~= "table" or #counts < 2 then fail("expected at least two numbers of devices, as in { 1, 2, 4 }") end
  in_float64(function()
    local first = trained(make, counts[1], x, y, given)
    for i = 2, #counts do
      local same, what = pcall(assert_close, trained(make, counts[i], x, y, given), first,
        { rtol = given.rtol, atol = given.rtol })
      if not same then
        fail("%d devices against %d: %s", counts[i], counts[1], tostring(what):gsub("^.-assert_close: actual%.", ""))
      end
    end
  end)
end
