-- Multi-tensor updates (all variables in one launch) and in-place results, on a cuda device.
require "tests.cuda.device"
dofile "tests/lua/jit/multi_tensor_spec.lua"
