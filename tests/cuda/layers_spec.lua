-- The golden values of layers and activations on a cuda device.
require "tests.cuda.device"
dofile "tests/lua/golden_layers_spec.lua"
