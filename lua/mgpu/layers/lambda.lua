--- Lambda {function, output_shape =}: y = function(x, training). It cannot be saved: a layer of one's own
-- (mgpu.Layer:extend) can.
local Layer = require "mgpu.layer"

local Lambda = Layer:extend("Lambda", { positional = 1,
  { "function", "function", required = true },
  { "output_shape", "any" },
})

function Lambda:init()
  self.fn, self["function"] = self["function"], nil
  self.stated_shape, self.output_shape = self.output_shape, nil
  if type(self.stated_shape) == "table" then
    local stated = self.stated_shape
    self.output_shape = function(_, shape)
      local first = type(shape[1]) == "table" and shape[1] or shape
      return { first[1], unpack(stated) }
    end
  elseif type(self.stated_shape) == "function" then
    local stated = self.stated_shape
    self.output_shape = function(_, shape) return stated(shape) end
  elseif self.stated_shape ~= nil then
    self:fail("output_shape must be the sizes without the batch, or a function")
  end
end

function Lambda:call(x, training) return self.fn(x, training) end

function Lambda:get_config()
  self:fail "a Lambda holds a function, which cannot be saved: write a layer with mgpu.Layer:extend"
end

return Lambda
