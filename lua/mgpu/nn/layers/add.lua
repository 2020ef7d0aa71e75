--- Add {} {a, b, ...}: the sum of the inputs.
return require "mgpu.nn.layers.merge".define("Add", require "mgpu.core".ops.add)
