--- Average {} {a, b, ...}: the mean of the inputs.
return require "mgpu.layers.merge".define("Average", require "mgpu.core".ops.add,
  { finish = function(sum, n) return sum / n end })
