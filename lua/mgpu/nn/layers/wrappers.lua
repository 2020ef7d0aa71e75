--- Layers around a layer: TimeDistributed, SpectralNormalization. The inner layer is the field `layer`.
-- RETURNS the classes by name.
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"

local ops = core.ops
local M = {}

-- ---- TimeDistributed ----------------------------------------------------------------------------

--- TimeDistributed {layer}: applies the layer to each step of a sequence.
-- x {batch, steps, ...} -> {batch, steps, sizes of the layer's output}. The steps are computed together, as further
-- rows of the batch; in training, a BatchNormalization sees one step after the other, as in Keras 3 (Keras 2 joins the
-- steps).
-- Weights: those of the layer. Errors: an input with fewer than 3 axes.
-- Example:
--     local frames = mgpu.ones { 2, 5, 8, 8, 3 } -- two films of five frames
--     print(unpack(L.TimeDistributed { L.Conv2D { 4, 3 } } (frames):shape()))  --> 2 5 6 6 4
local TimeDistributed = Layer:extend("TimeDistributed", { positional = 1, { "layer", "layer", required = true } })

TimeDistributed.supports_masking = true

local function inner_shape(self, shape)
  if #shape < 3 then
    self:fail("the input must have at least 3 axes (batch, steps, ...), got shape %s", self.shape_text(shape))
  end
  return { shape[1], unpack(shape, 3) }
end

function TimeDistributed:build(shape) self.layer:ensure_built(inner_shape(self, shape)) end

function TimeDistributed:output_shape(shape)
  local out = self.layer:output_shape(inner_shape(self, shape))
  return { out[1], shape[2], unpack(out, 2) }
end

-- Whether a step of training changes weights, as moving statistics, that the next step reads.
local function has_statistics(layer)
  local found = false
  layer:each_layer(function(each)
    found = found or (each.trainable and each.class_name == "BatchNormalization")
  end)
  return found
end

function TimeDistributed:call(x, training)
  local shape = x:shape()
  inner_shape(self, shape)
  if training and has_statistics(self.layer) then
    local list = {}
    for step = 1, shape[2] do
      local part = { shape[1], unpack(shape, 3) }
      local start, stop = {}, { unpack(shape) }
      for axis = 1, #shape do start[axis] = 0 end
      start[2], stop[2] = step - 1, step
      local y = self.layer(ops.reshape(ops.slice(x, { start = start, stop = stop }), { shape = part }), true)
      local out = y:shape()
      table.insert(out, 2, 1)
      list[step] = ops.reshape(y, { shape = out })
    end
    return ops.concat(list, { axis = 2 })
  end
  local y = self.layer(ops.reshape(x, { shape = { shape[1] * shape[2], unpack(shape, 3) } }), training)
  return ops.reshape(y, { shape = { shape[1], shape[2], unpack(y:shape(), 2) } })
end

M.TimeDistributed = TimeDistributed

-- ---- SpectralNormalization ----------------------------------------------------------------------

--- SpectralNormalization {layer, power_iterations = 1}: each training step first divides the kernel of the layer (or
-- its embeddings) by its largest singular value, which power iterations estimate.
-- x as the layer's -> as the layer's. Weights: those of the layer, and vector_u {1, last size of the kernel}, which is
-- not trained. Errors: a layer without kernel and embeddings. Source: Miyato et al., Spectral normalization, 2018.
-- Example:
--     local layer = L.SpectralNormalization { L.Dense { 2, kernel_initializer = "identity" }, power_iterations = 5 }
--     layer(mgpu.ones { 1, 2 }, { training = true })
--     -- the largest singular value of the identity is 1
--     print(("%.2f"):format(layer.kernel:value():max():item()))  --> 1.00
local SpectralNormalization = Layer:extend("SpectralNormalization", { positional = 1,
  { "layer", "layer", required = true },
  { "power_iterations", "integer", default = 1, min = 1 },
})

SpectralNormalization.contents_in_order = { "layer" }

function SpectralNormalization:build(shape)
  self.layer:ensure_built(shape)
  self.kernel = self.layer.kernel or self.layer.embeddings
  if not core.is_variable(self.kernel) then self:fail("%s has neither kernel nor embeddings", tostring(self.layer)) end
  local sizes = self.kernel:shape()
  self.vector_u = self:add_weight { name = "vector_u", shape = { 1, sizes[#sizes] }, trainable = false,
    initializer = { initializer = "truncated_normal", stddev = 0.02 } }
end

function SpectralNormalization:output_shape(...) return self.layer:output_shape(...) end

--- layer:stored_variables() -> the variables that Keras's files have in the place of this layer, without the inner one.
-- Example:
--     local layer = L.SpectralNormalization { L.Dense { 2 } }
--     layer:ensure_built { -1, 3 }
--     print(#layer:stored_variables())  --> 2
function SpectralNormalization:stored_variables() return { self.kernel, self.vector_u } end

local function unit(t) return t * ops.rsqrt(ops.maximum(ops.sum(ops.square(t)), 1e-12)) end

function SpectralNormalization:call(x, training)
  if training then
    local kernel, u = self.kernel:value(), self.vector_u:value()
    local sizes = kernel:shape()
    local matrix = ops.reshape(kernel, { shape = { -1, sizes[#sizes] } })
    local v
    for _ = 1, self.power_iterations do
      v = unit(ops.matmul(u, matrix, { transpose_b = true }))
      u = unit(ops.matmul(v, matrix))
    end
    local sigma = ops.matmul(ops.matmul(v, matrix), u, { transpose_b = true })
    local zero = ops.all(ops.eq(kernel, 0))
    local divided = ops.where(zero, kernel, kernel / ops.reshape(ops.where(zero, 1, sigma), { shape = {} }))
    self.vector_u:assign(ops.stop_gradient(ops.where(zero, self.vector_u:value(), u)))
    -- the gradient is that of the divided kernel, which the step of training changes
    self.kernel:assign(kernel + ops.stop_gradient(divided - kernel))
  end
  local y = self.layer(x, training)
  return y:dtype() == x:dtype() and y or ops.cast(y, { dtype = x:dtype() })
end

M.SpectralNormalization = SpectralNormalization

return M
