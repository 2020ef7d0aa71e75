--- Lambda {function, output_shape =}: y = function(x, training), any function of tensors.
-- output_shape: the sizes of a sample of the output, or a function of the input's shape; without it the function is
-- called with zeros to find out. Errors: a function that returns no tensor; saving: write a class with
-- mgpu.Layer:extend to get a layer that can be saved.
-- Example:
--     local double = L.Lambda { function(x) return x * 2 end }
--     print(double(mgpu.tensor { { 1, 2 } }))
--     --> tensor {1, 2} float32 cpu:0
--     --> {{2, 4}}
local Layer = require "mgpu.nn.layer"

local Lambda = Layer:extend("Lambda", { positional = 1,
  { "function", "function", required = true },
  { "output_shape", "any" },
})

-- The batch of a shape or of an array of shapes.
local function batch_of(shape) return type(shape[1]) == "table" and shape[1][1] or shape[1] end

function Lambda:init()
  local stated = rawget(self, "output_shape") -- the option, not the method of this name
  self.fn, self["function"], self.output_shape = self["function"], nil, nil
  if type(stated) == "table" then
    for _, size in ipairs(stated) do
      if type(size) ~= "number" or size % 1 ~= 0 or size < -1 then
        self:fail "output_shape must hold the sizes of a sample of the output"
      end
    end
    self.output_shape = function(_, shape) return { batch_of(shape), unpack(stated) } end
  elseif type(stated) == "function" then
    self.output_shape = function(_, shape) return stated(shape) end
  elseif stated ~= nil then
    self:fail "output_shape must be the sizes of a sample, without the batch, or a function"
  end
end

function Lambda:call(x, training)
  return self.fn(x, training)
end

function Lambda:get_config()
  self:fail "a Lambda holds a function, which cannot be saved: write a layer with mgpu.Layer:extend"
end

return Lambda
