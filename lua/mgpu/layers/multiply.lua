--- Multiply {} {a, b, ...}: the product of the inputs.
return require "mgpu.layers.merge".define("Multiply", require "mgpu.core".ops.mul)
