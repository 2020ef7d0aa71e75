--- Multiply {} {a, b, ...}: the product of the inputs.
return require "mgpu.nn.layers.merge".define("Multiply", require "mgpu.core".ops.mul)
