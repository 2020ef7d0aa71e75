-- Updates that run as one, and everything in place, on a cuda device.
require "tests.cuda.device"
dofile "tests/lua/multi_tensor_spec.lua"
