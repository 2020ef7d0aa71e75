--- Input {28, 28, 1}: says the shape of one sample; the batch is left out. Computes nothing.
-- OPTIONS shape, batch_size (ignored: any batch fits), dtype, name.
local Layer = require "mgpu.layer"

local Input = Layer:extend("Input", { whole = "shape", positional = 0,
  { "shape", "shape", required = true },
  { "batch_size", "integer", min = 1 },
})

function Input:init() self.is_input = true end

function Input:call(x) return x end -- luacheck: no self

return Input
