-- Our all-reduce, to compare with others: the best of several trials, as mpi_allreduce.c measures it.
--
--     LAUNCHER mgpulua tests/bench/all_reduce.lua BYTES...     prints "BYTES SECONDS" for each size
local mgpu = require "mgpu"
local core = require "mgpu.core"
local TRIALS, TRIAL_SECONDS = 15, 0.1

for _, bytes in ipairs(arg) do
  local count = tonumber(bytes) / 4
  local best = core.world_sum_time(count, 2)
  local rounds = mgpu.world():gather(1 + math.floor(TRIAL_SECONDS / best))[1]
  for _ = 1, TRIALS do best = math.min(best, core.world_sum_time(count, rounds)) end
  if mgpu.world().rank == 0 then print(("%d %.9f"):format(4 * count, best)) end
end
