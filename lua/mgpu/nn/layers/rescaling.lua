--- Rescaling {scale, offset = 0}: x * scale + offset, in training and at inference.
-- scale and offset: a number, or a list of one for each channel. x of any shape and dtype, integers too -> the same
-- shape, floating. Errors: a list whose length is not the number of channels.
-- Example:
--     local pixels = mgpu.tensor({ 0, 51, 255 }, { dtype = "uint8" })
--     print((L.Rescaling { 1 / 255 } (pixels) * 10):round())
--     --> tensor {3} float32 cpu:0
--     --> { 0,  2, 10}
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local Layer = require "mgpu.nn.layer"

local Rescaling = Layer:extend("Rescaling", { positional = 2,
  { "scale", "number|table", required = true },
  { "offset", "number|table", default = 0 },
})

Rescaling.supports_masking = true

function Rescaling:output_shape(shape) return shape end -- luacheck: no self

local function check_list(self, name)
  local list = self[name]
  if type(list) == "number" then return end
  local fault = #list == 0 and "it is empty" or core.array_fault(list)
  for _, v in ipairs(list) do
    if type(v) ~= "number" then fault = "it must hold numbers" end
  end
  if fault then self:fail("option %q: %s", name, fault) end
end

function Rescaling:init()
  check_list(self, "scale")
  check_list(self, "offset")
end

-- The number, or the list as a tensor along the channels of x.
local function factor(self, name, x)
  local list = self[name]
  if type(list) == "number" then return list end
  local shape = x:shape()
  local at = images.is_first {} and #shape == 4 and 2 or #shape
  if #list ~= shape[at] and #list ~= 1 then
    self:fail("option %q has %d numbers, but the input %s has %d channels", name, #list, self.shape_text(shape),
      shape[at])
  end
  local sizes = {}
  for i = 1, #shape do sizes[i] = i == at and #list or 1 end
  local t = core.tensor(list, { dtype = x:dtype(), device = x:device() })
  return core.ops.reshape(t, { shape = sizes })
end

function Rescaling:call(x)
  x = core.ops.cast(x, { dtype = self.compute_dtype })
  return x * factor(self, "scale", x) + factor(self, "offset", x)
end

return Rescaling
