-- What the progress bar and callbacks add to a step of fit.
--
--     build/mgpulua tests/bench/fit_loop.lua [--rounds 7]
--
-- The bar reads the clock in every step, and reads the metrics and draws ten times a second. Its share of a step of
-- 5 ms is computed from the two times. The callbacks take turns in a fit of a tiny model.

local core = require "mgpu.core"
local mgpu = require "mgpu"
local Progress = require "mgpu.train.progress"

local rounds = tonumber(arg[1] == "--rounds" and arg[2]) or 7
local STEPS, STEP = 2000, 5e-3

local model = mgpu.Sequential { mgpu.layers.Input { 8 }, mgpu.layers.Dense { 8, activation = "relu" },
  mgpu.layers.Dense { 1 } }
model:compile { optimizer = "adam", loss = "mse", metrics = { "mae" } }
local x, y = mgpu.rand { STEPS, 8 }, mgpu.rand { STEPS, 1 }

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- Microseconds of a call, the median of five loops.
local function microseconds(n, fn)
  local list = {}
  for i = 1, 5 do
    local start = core.clock()
    for _ = 1, n do fn() end
    list[i] = (core.clock() - start) / n * 1e6
  end
  return median(list)
end

-- ---- the bar --------------------------------------------------------------------------------------

local function bar()
  local columns, output = core.columns, mgpu.output
  core.columns, mgpu.output = function() return 100 end, function() end
  local progress = Progress.new(1)
  progress:begin(1e9)
  local function read() return model.compiled.metrics:read() end
  local quiet = microseconds(200000, function()
    progress.drawn = math.huge -- not due
    progress:step(7, read)
  end)
  local drawing = microseconds(2000, function()
    progress.drawn = 0 -- overdue
    progress:step(7, read)
  end)
  core.columns, mgpu.output = columns, output
  local share = (quiet + drawing * STEP / 0.1) / (STEP * 1e6)
  print(("progress bar: %.3f us a step, %.0f us a drawing: %.3f %% of a step of 5 ms"):format(quiet, drawing,
    share * 100))
end

-- ---- callbacks ------------------------------------------------------------------------------------

local C = mgpu.callbacks
local contenders = {
  { "no callbacks", nil },
  { "EarlyStopping, CSVLogger", { C.EarlyStopping { "loss", patience = 99 }, C.CSVLogger(os.tmpname()) } },
  { "on_batch_end that reads no field", { on_batch_end = function() end } },
  { "on_batch_end that reads the loss", { on_batch_end = function(_, _, logs) return logs.loss end } },
}

local function callbacks()
  local times = {}
  for round = 0, rounds do
    for i, contender in ipairs(contenders) do
      local start = core.clock()
      model:fit(x, y, { batch_size = 1, verbose = 0, callbacks = contender[2] })
      times[i] = times[i] or {}
      times[i][round] = (core.clock() - start) / STEPS * 1e6 -- round 0 warms up
    end
  end
  for i, contender in ipairs(contenders) do
    print(("fit, %-34s %7.2f us a step"):format(contender[1] .. ":", median(times[i])))
  end
end

callbacks()
bar()
os.remove(contenders[2][2][2].filename)
