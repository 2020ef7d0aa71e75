--- Low-rank adaptation (LoRA): the layer's kernel is frozen, and a small product a b is trained and added to it.
--
-- A class that M.adapt has extended has the options lora_rank and lora_alpha and the method enable_lora. Its call reads
-- M.weight(layer):value() in place of the kernel. Files in Keras's layout by path hold the sum only, in the kernel's
-- place, as in Keras.
local core = require "mgpu.core"
local options = require "mgpu.options"

local ops = core.ops
local M = {}

local ENABLE = options.declare { positional = 1,
  { "rank", "integer", min = 1, required = true },
  { "lora_alpha", "number" },
  { "a_initializer", "initializer", default = "he_uniform" },
  { "b_initializer", "initializer", default = "zeros" },
}

--- options(list) -> the list of declared options with those of low-rank adaptation.
function M.options(list)
  list[#list + 1] = { "lora_rank", "integer", min = 1 }
  list[#list + 1] = { "lora_alpha", "number" }
  return list
end

--- weight(layer) -> its kernel, or an object with the same name and with value() the sum of the kernel and a b.
function M.weight(layer)
  return rawget(layer, "lora") or layer[layer.adapted]
end

-- The object that stands for the layer's frozen kernel plus the product of a and b.
local function adapted_weight(layer, kernel, a, b)
  return { name = kernel.name, value = function()
    local t = kernel:value()
    return t + ops.cast(ops.matmul(a, b), { dtype = t:dtype() }) * (layer.lora_alpha / layer.lora_rank)
  end }
end

local function enable(self, chosen)
  local field = self.adapted
  local kernel = rawget(self, field)
  if not kernel then self:fail "enable_lora: the layer has no weights yet: call it on an input first" end
  if rawget(self, "lora") then self:fail "enable_lora: low-rank adaptation is enabled already" end
  if self[field .. "_constraint"] then
    self:fail("a %s_constraint cannot be combined with low-rank adaptation, which leaves the %s as they are", field,
      field == "kernel" and "kernel's numbers" or field)
  end
  local sizes, made = kernel:shape(), {}
  local outputs = sizes[#sizes]
  sizes[#sizes] = chosen.rank
  for _, row in ipairs { { "a", sizes }, { "b", { chosen.rank, outputs } } } do
    local part, shape = unpack(row)
    made[part] = self:add_weight { name = ("lora_%s_%s"):format(field, part), shape = shape, dtype = "float32",
      initializer = chosen[part .. "_initializer"], regularizer = self[field .. "_regularizer"], optional = true }
    self[("lora_%s_%s"):format(field, part)] = made[part]
  end
  kernel.trainable = false
  self.lora_rank, self.lora_alpha = chosen.rank, chosen.lora_alpha or chosen.rank
  self.lora = adapted_weight(self, kernel, made.a, made.b)
end

--- adapt(class, field): gives a class, whose build is defined, low-rank adaptation of the weight in this field.
function M.adapt(class, field)
  local build = class.build
  class.adapted = field

  function class:build(shape, chosen)
    if self.lora_alpha and not self.lora_rank then self:fail "lora_alpha has no effect without lora_rank" end
    build(self, shape, chosen)
    if self.lora_rank and not rawget(self, "lora") then
      enable(self, options.check("enable_lora", ENABLE, { self.lora_rank, lora_alpha = self.lora_alpha }))
    end
  end

  --- layer:enable_lora {rank, lora_alpha = rank, a_initializer = "he_uniform", b_initializer = "zeros"}: freezes the
  --- kernel (of an Embedding, the table) and trains a low-rank product that is added to it.
  -- For Dense, EinsumDense, Embedding, ReversibleEmbedding, Conv1D, Conv2D and Conv3D that have weights; the options
  -- lora_rank and lora_alpha of these classes do the same. The kernel becomes kernel + a b lora_alpha / rank, with a
  -- {..., inputs, rank} and b {rank, outputs}, which are float32. Freeze other layers as usual.
  -- Files .keras and .weights.h5 hold the sum, as Keras's do: a model that is loaded from them begins with b = 0, and
  -- with a drawn anew (Keras sets a to 0 too, after which neither can learn). Errors: a layer without weights; a second
  -- call; a constraint of the kernel.
  -- Source: Hu et al., LoRA: low-rank adaptation of large language models, 2021.
  -- Example:
  --     local dense = L.Dense { 64 }
  --     dense:ensure_built { -1, 32 }
  --     dense:enable_lora { 2, lora_alpha = 4 }
  --     -- 32 * 2 + 2 * 64 numbers and 64 biases are trained
  --     print(dense:count_params())  --> 2304 256
  function class:enable_lora(given)
    enable(self, options.check(("%s %q: enable_lora"):format(self.class_name, self.name), ENABLE, given))
  end

  --- layer:stored_variables() -> those that Keras's files by path have: all but a and b.
  -- Example:
  --     local dense = L.Dense { 4, lora_rank = 1 }
  --     dense:ensure_built { -1, 3 }
  --     print(#dense.weights, #dense:stored_variables())  --> 4 2
  function class:stored_variables()
    if not rawget(self, "lora") then return self.weights end
    local a, b, list = self["lora_" .. field .. "_a"], self["lora_" .. field .. "_b"], {}
    for _, v in ipairs(self.weights) do
      if v ~= a and v ~= b then list[#list + 1] = v end
    end
    return list
  end

  --- layer:stored_value(variable) -> what these files hold for it: for the kernel its sum with a b.
  -- Example:
  --     local dense = L.Dense { 4, lora_rank = 1 }
  --     dense:ensure_built { -1, 3 }
  --     dense.lora_kernel_b:assign(mgpu.ones { 1, 4 })
  --     print(dense:stored_value(dense.kernel):eq(dense.kernel):all():item())  --> false
  function class:stored_value(v)
    return (v == self[field] and M.weight(self) or v):value()
  end

  --- layer:value_loaded(variable): after a file's value for it has been assigned; b becomes 0, since the kernel of the
  --- file is the sum.
  -- Example:
  --     local dense = L.Dense { 4, lora_rank = 1 }
  --     dense:ensure_built { -1, 3 }
  --     dense.lora_kernel_b:assign(mgpu.ones { 1, 4 })
  --     dense:value_loaded(dense.kernel)
  --     print(dense.lora_kernel_b:value():sum():item())  --> 0
  function class:value_loaded(v)
    local b = rawget(self, "lora_" .. field .. "_b")
    if b and v == self[field] then b:assign(ops.full(b:shape(), 0, b:dtype()):to(b:device())) end
  end
end

return M
