--- EinsumDense {equation, output_shape, activation =, bias_axes =, kernel_initializer = "glorot_uniform", ...}
-- y = activation(einsum(equation, x, kernel) + bias), as in Keras: the equation names the axes of x, of the kernel and
-- of y, as "abc,cd->abd" or "...c,cd->...d".
-- output_shape: the sizes of y without the batch (and without the axes of "..."); -1 where x has the same axis. A
-- letter of the kernel that y does not have is an axis of x that is summed.
-- Weights: kernel, and with bias_axes (letters of y) a bias of these axes, and of size 1 along later ones.
-- Options: bias_initializer = "zeros", kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint,
-- bias_constraint, lora_rank and lora_alpha (see enable_lora). Errors: an equation of another form; sizes of x and y
-- that differ; letters that are unknown.
-- Example:
--     local layer = L.EinsumDense { "abc,cd->abd", { -1, 8 }, bias_axes = "d" }
--     print(unpack(layer(mgpu.ones { 2, 5, 3 }):shape()))  --> 2 5 8
--     -- a kernel of 3 * 8 numbers and 8 biases
--     print((layer:count_params()))  --> 32
local Activation = require "mgpu.nn.layers.activation".Activation
local core = require "mgpu.core"
local einsum = require "mgpu.tensor.einsum"
local kernels = require "mgpu.nn.layers.kernels"
local Layer = require "mgpu.nn.layer"
local lora = require "mgpu.nn.layers.lora"
local quantized = require "mgpu.nn.quantized.layers"
local quantized_form = require "mgpu.nn.quantized.einsum"

local EinsumDense = Layer:extend("EinsumDense", lora.options(kernels.weight_options({ positional = 2,
  { "equation", "string", required = true },
  { "output_shape", "shape", required = true },
  { "activation", "activation" },
  { "bias_axes", "string" },
}, { { "kernel", "glorot_uniform" }, { "bias", "zeros" } }, true)))

-- The letters of x, of the kernel and of y, and where "..." stands: "left", "right" or nil.
local function parse(self)
  local text = self.equation:gsub("%s", "")
  for _, form in ipairs { { "^(%a+),(%a+)%->(%a+)$" }, { "^%.%.%.(%a+),(%a+)%->%.%.%.(%a+)$", "left" },
    { "^(%a%a+)%.%.%.,(%a+)%->(%a+)%.%.%.$", "right" } } do
    local x, kernel, y = text:match(form[1])
    if x then return { x = x, kernel = kernel, y = y, dots = form[2] } end
  end
  self:fail('the equation %q must have the form "ab,bc->ac", "...ab,bc->...ac" or "ab...,bc->ac..."', self.equation)
end

function EinsumDense:init()
  kernels.activate(self)
  self.sizes, self.output_shape = self.output_shape, nil -- the name of a method
  self.parts = parse(self)
end

function EinsumDense:get_config()
  local config = Layer.get_config(self)
  config.output_shape = self.sizes
  return config
end

-- The sizes of y for an input's, without the activation, and how many axes "..." has there.
local function shape_of_result(self, shape)
  local parts, out = self.parts, { shape[1], unpack(self.sizes) }
  local elided = #shape - #parts.x
  if elided < 0 or elided > 0 and not parts.dots then
    self:fail("the equation %q does not fit the input %s", self.equation, self.shape_text(shape))
  end
  if parts.dots == "left" then
    for i = 2, elided do table.insert(out, i, shape[i]) end
  else
    for i = #shape - elided + 1, #shape do out[#out + 1] = shape[i] end
  end
  if #out ~= #parts.y + elided then
    self:fail("the equation %q does not fit output_shape %s and the input %s", self.equation,
      self.shape_text(self.sizes), self.shape_text(shape))
  end
  return out, elided
end

-- The axis of a letter in x or in y.
local function axis_in(parts, letters, letter, elided)
  local at = letters:find(letter, 1, true)
  return at and at + (parts.dots == "left" and elided or 0)
end

-- Known sizes of y: where output_shape says -1, that of the same axis of x.
local function resolved(self, shape)
  local out, elided = shape_of_result(self, shape)
  local parts = self.parts
  for letter in parts.x:gmatch "." do
    local there, here = axis_in(parts, parts.y, letter, elided), shape[axis_in(parts, parts.x, letter, elided)]
    if there and out[there] ~= -1 and here ~= -1 and out[there] ~= here then
      self:fail("axis %q has size %d in the input %s, but %d in output_shape %s", letter, here, self.shape_text(shape),
        out[there], self.shape_text(self.sizes))
    end
    if there and out[there] == -1 then out[there] = here end
  end
  return out, elided
end

-- The sizes of the kernel for an input's shape, then y's and the number of axes of "...".
local function kernel_sizes(self, shape)
  local out, elided = resolved(self, shape)
  local parts, sizes = self.parts, {}
  for i = 1, #parts.kernel do
    local letter = parts.kernel:sub(i, i)
    local y, x = axis_in(parts, parts.y, letter, elided), axis_in(parts, parts.x, letter, elided)
    if not y and not x then self:fail("axis %q of the kernel is neither in the input nor in the output", letter) end
    sizes[i] = y and out[y] or shape[x]
  end
  return sizes, out, elided
end

-- The sizes of the bias for y's, or nil.
local function bias_sizes(self, out, elided)
  if not self.bias_axes then return nil end
  local parts, first, sizes = self.parts, math.huge, {}
  for letter in self.bias_axes:gmatch "." do
    local at = parts.y:find(letter, 1, true)
    if not at then self:fail("axis %q of bias_axes is not in the output %q", letter, parts.y) end
    first = math.min(first, at)
  end
  for at = first, #parts.y do
    local letter = parts.y:sub(at, at)
    local wanted = self.bias_axes:find(letter, 1, true)
    sizes[#sizes + 1] = wanted and out[axis_in(parts, parts.y, letter, elided)] or 1
  end
  for _ = 1, parts.dots == "right" and elided or 0 do sizes[#sizes + 1] = 1 end
  return sizes
end

function EinsumDense:build(shape)
  local sizes, out, elided = kernel_sizes(self, shape)
  self.kernel = kernels.add(self, "kernel", sizes)
  if self.bias_axes then self:add_bias(out, elided) end
end

lora.adapt(EinsumDense, "kernel")

--- layer:add_bias(shape of y, axes of "..."): makes the bias. For build.
-- Example:
--     local layer = L.EinsumDense { "ab,bc->ac", 4, bias_axes = "c" }
--     layer:ensure_built { -1, 3 }
--     print(unpack(layer.bias:shape()))  --> 4
function EinsumDense:add_bias(out, elided)
  self.bias = kernels.add(self, "bias", bias_sizes(self, out, elided))
end

function EinsumDense:output_shape(shape)
  return Activation.shape_after(self, (resolved(self, shape)))
end

function EinsumDense:call(x)
  resolved(self, x:shape())
  local y = einsum(self.equation, { x, lora.weight(self):value() })
  if self.bias then y = y + self.bias end
  return self.activate(core.is_tensor(y) and y or y:value())
end

--- The sizes of kernel and bias (nil without one) for an input's shape.
function quantized_form.weight_sizes(self, shape)
  local sizes, out, elided = kernel_sizes(self, shape)
  return sizes, bias_sizes(self, out, elided)
end

--- Raises for an input that does not fit.
quantized_form.check_shape = resolved

quantized.adapt(EinsumDense, quantized_form)

return EinsumDense
