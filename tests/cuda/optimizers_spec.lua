-- The golden values of optimizers on a cuda device.
require "tests.cuda.device"
dofile "tests/lua/train/golden_optimizers_spec.lua"
