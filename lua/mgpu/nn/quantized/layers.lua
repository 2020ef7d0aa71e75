--- Layers with weights of 8 or 4 bits: what a class needs so that a quantized dtype policy has an effect on it.
--
--     quantized.adapt(Dense, products.Dense)
-- A layer is quantized if it is built under a policy of mixed_precision.lua with `quantization` = {bits =, block =,
-- static =, activations =}. A kind says, for its class,
--     applies(layer, q)        whether the policy has an effect on the class (default: yes, but not if q.static)
--     specs(layer, shape, q)   the weights for an input of this shape, in Keras's order: arrays {field, shape, dtype}
--     values(layer, q, range)  field -> tensor, from the weights of the layer that is not quantized yet
--     call(layer, x, options)  the output
--     to_file, from_file       field -> function(layer, tensor): the form of a weight in Keras's files, and back
--     int8                     field -> true: Keras's files hold the weight as int8
--     check                    field -> function(layer, tensor) -> the fault of a file's value, or nil
-- Such layers only predict: a call for training is an error.
local core = require "mgpu.core"

local ops = core.ops
local M = {}

local kinds = setmetatable({}, { __mode = "k" }) -- class -> kind

-- Whether all elements of t fulfil a condition; this computes it.
local function all(condition) return ops.all(condition):item() end

--- positive(t) -> the fault of a scale: all must be above 0 and finite.
function M.positive(t)
  local fine = all(ops.logical_and(ops.gt(t, 0), ops.isfinite(t)))
  return not fine and "holds a scale that is not a positive number" or nil
end

--- whole(t, low, high) -> the fault of numbers that must be whole and in a range.
function M.whole(t, low, high)
  local f = ops.cast(t, { dtype = "float32" })
  local inside = ops.logical_and(ops.ge(f, low), ops.le(f, high))
  if not all(ops.logical_and(inside, ops.eq(ops.floor(f), f))) then
    return ("holds a number that is not a whole one from %d to %d"):format(low, high)
  end
end

-- Makes the weights; those of Keras's files may need less room than these (padding), so they are optional there.
local function make_weights(self, kind, shape, q)
  self.quantization, self.field_of = q, {}
  for _, spec in ipairs(kind.specs(self, shape, q)) do
    local field, sizes, dtype = unpack(spec)
    local bias = field == "bias"
    local scale = field:find "_scale$"
    local v = self:add_weight { name = field, shape = sizes, dtype = dtype or not bias and "float32" or nil,
      initializer = bias and self.bias_initializer or scale and "ones" or "zeros", trainable = bias,
      autocast = bias and nil, optional = not bias or nil }
    self[field], self.field_of[v] = v, field
  end
end

local function quantization_of(self, kind)
  local q = self.dtype_policy.quantization
  if not q then return nil end
  local applies = not q.static
  if kind.applies then applies = kind.applies(self, q) end
  return applies and q or nil
end

--- adapt(class, kind): gives a class, whose build and call are defined, its quantized form.
function M.adapt(class, kind)
  local build, call = class.build, class.call
  local stored_variables, stored_value = class.stored_variables, class.stored_value
  kinds[class.class_name] = kind

  function class:build(shape, chosen)
    local q = quantization_of(self, kind)
    if not q then return build(self, shape, chosen) end
    make_weights(self, kind, shape, q)
  end

  function class:call(x, training, options)
    if not rawget(self, "quantization") then return call(self, x, training, options) end
    if training and self.trainable then
      self:fail("has weights of %d bits, which cannot be trained: train the model before it is quantized, or freeze "
        .. "the layer with trainable = false", self.quantization.bits)
    end
    return kind.call(self, x, options or {})
  end

  --- layer:stored_variables() -> those that Keras's files by path have, in Keras's order: of a layer with low-rank
  --- adaptation all but a and b.
  -- Example:
  --     local dense = L.Dense { 4, dtype = "int8_from_float32" }
  --     dense:ensure_built { -1, 3 }
  --     for _, v in ipairs(dense:stored_variables()) do print(v.name:match "[^/]*$", v:dtype()) end
  --     --> kernel uint8
  --     --> bias float32
  --     --> kernel_scale float32
  function class:stored_variables()
    if rawget(self, "quantization") or not stored_variables then return self.weights end
    return stored_variables(self)
  end

  --- layer:stored_value(variable) -> what these files hold for it: bytes in Keras's order for a quantized kernel, the
  --- sum with a b for a kernel with low-rank adaptation.
  -- Example:
  --     local dense = L.Dense { 4, dtype = "int8_from_float32" }
  --     dense:ensure_built { -1, 3 }
  --     print(dense.kernel:shape()[4], #dense:stored_value(dense.kernel):shape())  --> 4 2
  function class:stored_value(v)
    local field = M.field_of(self, v)
    if not field then return stored_value and stored_value(self, v) or v:value() end
    local form = kind.to_file and kind.to_file[field]
    return form and form(self, v:value()) or v:value()
  end
end

--- field_of(layer, variable) -> the field of a quantized layer that holds it, or nil.
function M.field_of(layer, v) return rawget(layer, "field_of") and layer.field_of[v] end

--- stored_as(layer, variable) -> "int8" if Keras's files hold the weight as such bytes, else nil.
function M.stored_as(layer, v)
  local field = M.field_of(layer, v)
  return field and kinds[layer.class_name].int8[field] and "int8" or nil
end

--- from_file(layer, variable, t) -> the value for the weight, from what Keras's files hold.
function M.from_file(layer, v, t)
  local field = M.field_of(layer, v)
  local forms = field and kinds[layer.class_name].from_file
  return forms and forms[field] and forms[field](layer, t) or t
end

--- check_value(layer, variable, t, path): raises if a file's value cannot be one of the weight.
function M.check_value(layer, v, t, path)
  local field = M.field_of(layer, v)
  if not field then return end
  local check = kinds[layer.class_name].check[field]
  local fault = check and check(layer, t) or field:find "_scale$" and M.positive(t)
  if fault then core.fail("data", ("%s: the weight %q %s"):format(path, v.name, fault)) end
end

--- kind_of(layer) -> its kind, or nil if its class has no quantized form.
function M.kind_of(layer) return kinds[layer.class_name] end

--- convert(layer, policy, range): gives a layer with float weights this quantized policy, in place. range: of its
--- input, {steps, zero}, for q.static.
function M.convert(layer, policy, range)
  local kind, q = kinds[layer.class_name], policy.quantization
  local values, shape = kind.values(layer, q, range), layer.built_shape
  values.bias = rawget(layer, "bias") and layer.bias:value()
  for _, v in ipairs(layer.weights) do
    for field, value in pairs(layer) do
      if value == v then rawset(layer, field, nil) end
    end
  end
  layer.weights, layer.lora, layer.lora_rank, layer.lora_alpha = {}, nil, nil, nil
  layer.dtype_policy, layer.states_policy = policy, true
  make_weights(layer, kind, shape, q)
  M.fill(layer, values)
end

--- fill(layer, values): gives the weights of a quantized layer these values, by field, and computes them.
function M.fill(layer, values)
  for v, field in pairs(layer.field_of) do
    if values[field] then
      local t = ops.cast(values[field], { dtype = v:dtype() }):to(v:device())
      core.eval(t)
      v:assign(t)
    end
  end
end

return M
