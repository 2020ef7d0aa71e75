--- Layers one after the other as one layer.
-- RETURNS the class by name.
local Layer = require "mgpu.nn.layer"
local masks = require "mgpu.nn.masks"

--- Pipeline {layers}: applies layers one after the other, as Sequential does, but it is a layer, not a model.
-- It is for preparing data: ds:map(function(x, y) return pipeline(x, true), y end), or as the first layer of a model.
-- x: what the first layer takes -> what the last one returns. The layers see the mode, training or inference, that the
-- pipeline is called in (in Keras, a call that does not say means training).
-- Errors: no layers.
-- Example:
--     local prepare = L.Pipeline { { L.CenterCrop { 8, 8 }, L.Rescaling { 1 / 255 } } }
--     print(unpack(prepare(mgpu.ones { 2, 10, 12, 3 }):shape()))  --> 2 8 8 3
local Pipeline = Layer:extend("Pipeline", { positional = 1, { "layers", "layers", required = true } })

Pipeline.autocast = false -- each layer has its own dtype

function Pipeline:init()
  if #self.layers == 0 then self:fail("needs at least one layer") end
end

-- There is no build: each layer is built by its own first call, or here. Only a call knows whether three axes are one
-- image without a batch.
function Pipeline:output_shape(shape, _, options)
  for _, layer in ipairs(self.layers) do
    layer:ensure_built(shape, options)
    shape = layer:output_shape(shape)
  end
  return shape
end

function Pipeline:output_dtype() return self.layers[#self.layers]:output_dtype() end

function Pipeline:call(x, training)
  local mask = masks.now()
  if mask and not masks.of(x) then masks.set(x, mask) end
  for _, layer in ipairs(self.layers) do x = layer(x, training) end
  return x
end

return { Pipeline = Pipeline }
