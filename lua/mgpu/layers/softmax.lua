--- Softmax {axis = -1}: e^x / sum(e^x) along an axis (1 = batch, -1 = last).
local core = require "mgpu.core"
local Layer = require "mgpu.layer"

local Softmax = Layer:extend("Softmax", { positional = 1, { "axis", "integer", default = -1 } })

function Softmax:call(x) return core.ops.softmax(x, { axis = self.axis }) end

return Softmax
