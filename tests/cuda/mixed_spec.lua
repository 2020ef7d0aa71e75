-- Mixed precision on a cuda device: the same tests as on the host.
require "tests.cuda.device"
dofile "tests/lua/mixed_precision_spec.lua"
dofile "tests/lua/loss_scale_spec.lua"
