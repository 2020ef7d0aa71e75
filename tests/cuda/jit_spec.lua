-- Compiled steps on a cuda device, by the tests of the other devices: batch normalisation and padding folded into
-- convolutions, multi-tensor updates (all variables in one launch) and in-place results.
require "tests.cuda.device"
dofile "tests/lua/jit/fold_norm_spec.lua"
dofile "tests/lua/jit/fold_pad_spec.lua"
dofile "tests/lua/jit/multi_tensor_spec.lua"
