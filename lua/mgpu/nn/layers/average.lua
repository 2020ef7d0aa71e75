--- Average {} {a, b, ...}: the mean of the inputs.
return require "mgpu.nn.layers.merge".define("Average", require "mgpu.core".ops.add,
  { finish = function(sum, n) return sum / n end })
