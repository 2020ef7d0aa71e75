-- A GRU that forecasts a time series: the sum of two waves and noise.
--
--     mgpulua examples/timeseries_gru.lua --help
--
-- What it teaches: windows over a series as sequences, a recurrent layer with dropout, a baseline to compare with.

local mgpu = require "mgpu"
local L = mgpu.layers
local command_line = dofile((arg[0]:match "^.*/" or "") .. "common/command_line.lua")

local parser = command_line.parser "Forecasts a time series by a GRU."
command_line.add_epochs(parser, 10)
command_line.add_count(parser, "--window", 1, "Values that a forecast is made from.", "24")
command_line.add_count(parser, "--ahead", 1, "How many steps ahead the forecast is.", "3")
command_line.add_count(parser, "--values", 100, "Length of the series.", "3000")
command_line.add_count(parser, "--units", 1, "Units of the GRU.", "16")
local options = parser:parse()

mgpu.seed(1)
local t = mgpu.arange(options.values)
local series = (t * 0.25):sin() + (t * 0.043):sin() * 0.5 + mgpu.randn { options.values } * 0.1
mgpu.eval(series)

-- Windows {rows, window, 1} and the value `ahead` steps behind each.
local rows = options.values - options.window - options.ahead + 1
if rows < 20 then command_line.stop "the series is too short for this --window and --ahead" end
local parts = {}
for i = 1, options.window do parts[i] = series:slice { { i, i + rows - 1 } } end
local x = mgpu.stack(parts, 2):expand_dims(-1)
local y = series:slice { { options.window + options.ahead, options.values } }:expand_dims(-1)
local split = math.floor(rows * 0.8) -- the last part of the series is for the test
local x_train, y_train = x:slice { { 1, split } }, y:slice { { 1, split } }
local x_test, y_test = x:slice { { split + 1, rows } }, y:slice { { split + 1, rows } }

local model = mgpu.Sequential {
  mgpu.Input { options.window, 1 },
  L.GRU { options.units, dropout = 0.05 },
  L.Dense { 1 },
}
model:summary()
model:compile { optimizer = mgpu.optimizers.Adam { 5e-3 }, loss = "mse" }
model:fit(x_train, y_train, { epochs = options.epochs, batch_size = 64, verbose = 2 })

local forecast = ((model:predict(x_test) - y_test) ^ 2):mean():item()
local last = ((x_test:slice { {}, options.window } - y_test) ^ 2):mean():item()
print(("mean squared error of the test: %.4f, of the last value as the forecast: %.4f"):format(forecast, last))
