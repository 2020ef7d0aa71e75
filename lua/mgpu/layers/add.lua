--- Add {} {a, b, ...}: the sum of the inputs.
return require "mgpu.layers.merge".define("Add", require "mgpu.core".ops.add)
