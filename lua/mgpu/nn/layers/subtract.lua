--- Subtract {} {a, b}: a - b.
return require "mgpu.nn.layers.merge".define("Subtract", require "mgpu.core".ops.sub, { inputs = 2 })
