--- The quantized form of EinsumDense: see layers.lua.
--
-- Scales are those of Keras's _analyze_quantization_info: they have the axes of the output, of size 1 where the kernel
-- (or the input) has none. layers/einsum_dense.lua adds weight_sizes and check_shape.
local bytes = require "mgpu.nn.quantized.bytes"
local core = require "mgpu.core"
local einsum = require "mgpu.tensor.einsum"
local products = require "mgpu.nn.quantized.products"

local ops = core.ops
local M = { int8 = { kernel = true, kernel_zero = true } }

-- ---- from the axes of a factor to those of the output ---------------------------------------------

-- How a scale with the axes of the factor `letters` gets those of the output: {reduced = axes that are summed, order =,
-- expand =, squeeze =}, positions from 1.
local function alignment(letters, output)
  local reduced, expand, order, squeeze, at = {}, {}, {}, {}, nil
  for i = 1, #letters do
    if not output:find(letters:sub(i, i), 1, true) then reduced[#reduced + 1] = i end
  end
  for i = 1, #output do
    local there = letters:find(output:sub(i, i), 1, true)
    if there then order[#order + 1] = there else expand[#expand + 1] = i end
  end
  for _, axis in ipairs(reduced) do
    if #expand > 0 then at = table.remove(expand, 1) else squeeze[#squeeze + 1] = axis end
    table.insert(order, math.min(at or 1, #order + 1), axis)
  end
  return { reduced = reduced, order = order, expand = expand, squeeze = squeeze }
end

-- The sizes of such a scale from those of the factor.
local function aligned_shape(a, sizes)
  local out, reduced = {}, {}
  for _, axis in ipairs(a.reduced) do reduced[axis] = true end
  for i, axis in ipairs(a.order) do out[i] = reduced[axis] and 1 or sizes[axis] end
  for _, axis in ipairs(a.expand) do table.insert(out, axis, 1) end
  for i = #a.squeeze, 1, -1 do table.remove(out, a.squeeze[i]) end
  return out
end

-- A scale with the axes of the factor (summed ones have size 1) with those of the output.
local function aligned(a, t)
  return ops.reshape(ops.permute(t, { order = a.order }), { shape = aligned_shape(a, t:shape()) })
end

-- The letters of input, kernel and output for an input of this rank: those of "..." are digits.
local function letters_of(self, rank)
  local p = self.parts
  local dots = ("0123456789"):sub(1, rank - #p.x)
  if p.dots == "left" then return dots .. p.x, p.kernel, dots .. p.y end
  return p.x .. dots, p.kernel, p.y .. dots
end

-- ---- weights ------------------------------------------------------------------------------------

-- Rows and columns of the kernel of 4 bits: all axes that are summed, and the others.
local function flat_sizes(self, sizes)
  local rows, columns = 1, 1
  for i, size in ipairs(sizes) do
    local summed = not self.parts.y:find(self.parts.kernel:sub(i, i), 1, true)
    if summed then rows = rows * size else columns = columns * size end
  end
  return rows, columns
end

function M.specs(self, shape, q)
  local sizes, bias = M.weight_sizes(self, shape)
  self.kernel_sizes = sizes
  if q.bits == 4 then
    self.rows, self.columns = flat_sizes(self, sizes)
    return products.nibble_specs(self, self.rows, self.columns, bias and { "bias", bias }, q)
  end
  local _, kernel, output = letters_of(self, #shape)
  local list = { { "kernel", sizes, "uint8" } }
  if bias then list[2] = { "bias", bias } end
  list[#list + 1] = { "kernel_scale", aligned_shape(alignment(kernel, output), sizes) }
  return list
end

function M.values(self, q)
  local t = ops.cast(require "mgpu.nn.layers.lora".weight(self):value(), { dtype = "float32" })
  if q.bits == 4 then
    local rows, columns = flat_sizes(self, t:shape())
    return products.nibble_values(ops.reshape(t, { shape = { rows, columns } }), q)
  end
  local _, kernel, output = letters_of(self, #self.built_shape)
  local a = alignment(kernel, output)
  local codes, scale = bytes.abs_max(t, a.reduced, 8)
  return { kernel = bytes.to_bytes(codes), kernel_scale = aligned(a, scale) }
end

-- ---- call ---------------------------------------------------------------------------------------

-- The codes of x, and their scale as the output takes it.
local function rounded(self, x)
  local input, _, output = letters_of(self, x:rank())
  local a = alignment(input, output)
  local codes, steps = bytes.abs_max(x, a.reduced, 8)
  return codes, aligned(a, steps)
end

local function product_of_codes(self, x, q)
  local scale, kernel = self.kernel_scale:value(), bytes.codes(self.kernel:value())
  if q.activations then
    local steps
    x, steps = rounded(self, x)
    scale = scale * steps
  end
  return einsum(self.equation, { x, kernel }) / scale
end

function M.call(self, x)
  local q, t = self.quantization, ops.cast(x, { dtype = "float32" })
  local y
  M.check_shape(self, x:shape())
  if q.bits == 4 then
    local kernel, steps = products.nibble_kernel(self, self.columns), nil
    if q.activations then t, steps = rounded(self, t) end
    y = einsum(self.equation, { t, ops.reshape(kernel, { shape = self.kernel_sizes }) })
    if steps then y = y / steps end
  else
    y = product_of_codes(self, t, q)
  end
  y = ops.cast(y, { dtype = self.compute_dtype })
  return self.activate(self.bias and y + self.bias or y)
end

local function to_bytes(_, t) return bytes.to_bytes(t) end
M.from_file = { kernel = to_bytes, kernel_zero = to_bytes }
M.check = products.CHECK

return M
