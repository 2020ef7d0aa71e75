--- Maximum {} {a, b, ...}: the largest of the inputs, element by element.
return require "mgpu.nn.layers.merge".define("Maximum", require "mgpu.core".ops.maximum)
