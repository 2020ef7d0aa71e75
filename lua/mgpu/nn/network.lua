--- What Sequential and the functional Model share: layers with names, training, saving, a summary.
--
-- Training methods (compile, fit, ...) come from train/model_methods.lua, saving from config.lua. A network has
-- `layers`, `sample_shapes` (of its inputs, without the batch; nil before it is known) and is itself
-- a layer.
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"

local Network = Layer:extend("Network", { positional = 0 })

Network.is_network, Network.autocast = true, false -- its layers cast for themselves

for _, part in ipairs { "mgpu.train.model_methods", "mgpu.nn.config" } do
  for name, method in pairs(require(part)) do Network[name] = method end
end

function Network:contents() return self.layers end

--- get_layer(name) or get_layer {index = n}
function Network:get_layer(which)
  if type(which) == "table" then which = which.index or which.name or which[1] end
  if type(which) == "number" then
    return self.layers[which] or self:fail("there is no layer %d: the model has %d", which, #self.layers)
  end
  local names = {}
  for i, layer in ipairs(self.layers) do
    if layer.name == which then return layer end
    names[i] = layer.name
  end
  local near = core.nearest(tostring(which), names)
  self:fail("there is no layer %q%s", tostring(which),
    near and (" (did you mean %q?)"):format(near) or "")
end

--- summary(): prints Keras's table. RETURNS nothing.
function Network:summary()
  local write = require "mgpu".output
  write(require "mgpu.nn.summary".text(self) .. "\n")
end

--- The configurations of the layers. A layer that has the model's policy because it said nothing else
--- does not name it: it takes that of the model again.
function Network:layer_configs()
  local list = {}
  for i, layer in ipairs(self.layers) do
    local config = layer:get_config()
    if not layer.states_policy and (layer.is_input or layer.dtype_policy == self.dtype_policy) then
      config.dtype = nil
    end
    list[i] = { class_name = layer.class_name, config = config }
  end
  return list
end

-- ---- use ----------------------------------------------------------------------------------------

local function fits(shape, wanted)
  if #shape ~= #wanted then return false end
  for i = 2, #wanted do
    if wanted[i] ~= -1 and wanted[i] ~= shape[i] then return false end
  end
  return true
end

--- x with the last axis of size 1 that the model's shape has and it lacks, or without the one it has and
--- the model's lacks, as Keras adjusts ranks.
function Network.with_rank(x, wanted)
  local shape = x:shape()
  local rank = #shape
  if rank == #wanted - 1 and wanted[#wanted] == 1 then
    shape[rank + 1] = 1
  elseif rank == #wanted + 1 and shape[rank] == 1 then
    shape[rank] = nil
  else
    return x
  end
  return core.ops.reshape(x, { shape = shape })
end

--- Raises if a batch does not have the shape that the model was built for; `which` names the input.
function Network:check_sample(x, wanted, which)
  local shape = x:shape()
  if not fits(shape, wanted) then
    self:fail("a batch of shape %s was given%s, the model takes %s", self.shape_text(shape),
      which and " for input " .. which or "", self.shape_text(wanted))
  end
end

--- x as the floats of the model, unless `dtype` says that who reads it wants integers.
function Network.as_float(x, dtype)
  if type(x) ~= "userdata" or x:dtype():find "float" then return x end
  if dtype and dtype:find "int" then return x end
  return x:cast(core.floatx())
end

--- Runs the layers inside: what they add to the loss is that of this call alone.
function Network:begin_call()
  if not Layer.in_call() then self:forget_losses() end
end

return Network
