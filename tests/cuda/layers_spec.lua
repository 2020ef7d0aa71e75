-- Layers and activations on a cuda device, compared with Keras's golden values.
require "tests.cuda.device"
dofile "tests/lua/nn/golden_layers_spec.lua"
