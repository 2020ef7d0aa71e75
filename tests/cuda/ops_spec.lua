-- The table of ops on a cuda device.
require "tests.cuda.device"
dofile "tests/ops/ops_spec.lua"
