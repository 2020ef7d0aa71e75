-- Loops on a cuda device, by the tests of the other devices: the program of a step, run once per step with other
-- addresses, alone and in captured graphs.
require "tests.cuda.device"
dofile "tests/lua/tensor/scan_spec.lua"
