--- Subtract {} {a, b}: a - b.
return require "mgpu.layers.merge".define("Subtract", require "mgpu.core".ops.sub, { inputs = 2 })
