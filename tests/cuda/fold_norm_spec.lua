-- Batch normalisation folded into convolutions, on a cuda device: the tests of the other devices.
require "tests.cuda.device"
dofile "tests/lua/jit/fold_norm_spec.lua"
