-- Mixed precision and loss scaling on a cuda device: the tests of the other devices.
require "tests.cuda.device"
dofile "tests/lua/nn/mixed_precision_spec.lua"
dofile "tests/lua/train/loss_scale_spec.lua"
