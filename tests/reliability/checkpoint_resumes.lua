-- A training is stopped at a random step by SIGKILL, SIGTERM or SIGUSR1 and started again: with shuffles, dropout,
-- datasets, several devices and others.
local resumed = require "reliability.resumed"

local OPTIONS = { "", "dataset=true", "accumulate=3", "steps_per_execution=2", "steps_per_epoch=7",
  [[devices={"cpu:0","cpu:1"}]], [[optimizer=require"mgpu".optimizers.LossScaleOptimizer{"sgd"}]], "shuffle=false",
  "dataset=true,accumulate=2,steps_per_epoch=8", [[devices={"cpu:0","cpu:1"},strategy="central",accumulate=2]] }
local SIGNALS = { 9, 15, 10 }

return {
  what = "fits stopped at a random step and resumed in a new process: not byte-identical",
  count = 50,
  few = 5,
  run = function(n, folder)
    local failed, note = 0, ""
    for i = 1, n do
      local options = OPTIONS[(i - 1) % #OPTIONS + 1]
      local signal = SIGNALS[math.random(#SIGNALS)]
      local problem = resumed.stopped_and_resumed(folder, i, options, ("kill=%d,signal=%d,freq=%d,%s"):format(
        math.random(2, 20), signal, math.random(1, 6), options))
      if problem then failed, note = failed + 1, ("%s, signal %d: %s"):format(options, signal, problem) end
    end
    return failed, note
  end,
}
