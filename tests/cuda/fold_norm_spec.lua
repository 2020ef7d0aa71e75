-- Batch normalisation folded into convolutions, on a cuda device.
require "tests.cuda.device"
dofile "tests/lua/fold_norm_spec.lua"
