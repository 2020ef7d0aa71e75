-- What recording a profile costs: a training step of lenet5 with and without one, in turns.
--
--     build/mgpulua tests/bench/profile.lua [ROUNDS]
--
-- Prints the fastest step of each in milliseconds, and the difference.
local core = require "mgpu.core"
local mgpu = require "mgpu"

local ROUNDS, EPOCHS, ROWS, BATCH = tonumber(arg[1]) or 12, 2, 2048, 32

mgpu.seed(1)
local model = mgpu.models.lenet5 {}
model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy" }
local x, y = mgpu.rand { ROWS, 28, 28, 1 }, mgpu.zeros({ ROWS }, { dtype = "int32" })

local function time()
  local start = core.clock()
  model:fit(x, y, { epochs = EPOCHS, batch_size = BATCH, verbose = 0 })
  return (core.clock() - start) / (EPOCHS * ROWS / BATCH) * 1e3
end

time()
local off, on = math.huge, math.huge
for _ = 1, ROUNDS do
  off = math.min(off, time())
  core.profile_begin()
  on = math.min(on, time())
  core.profile_end()
end
print(("%.3f ms a step, %.3f ms while a profile is recorded: %+.1f %%"):format(off, on, (on / off - 1) * 100))
