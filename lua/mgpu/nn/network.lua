--- The base of Sequential and Model: layers with names, training, saving, a summary.
--
-- The methods for training (compile, fit, ...) come from train/compile.lua and train/model_methods.lua,
-- those for saving from saving.lua. A network has `layers`, and is itself a layer.
local core = require "mgpu.core"
local foreign_names = require "mgpu.foreign_names"
local host_part = require "mgpu.nn.host_part"
local Layer = require "mgpu.nn.layer"
local methods = require "mgpu.methods"
local options = require "mgpu.options"

local Network = Layer:extend("Network", { positional = 0 })

Network.is_network, Network.autocast = true, false -- each of its layers casts its own inputs

for _, part in ipairs { require "mgpu.train.compile", require "mgpu.train.model_methods",
  require "mgpu.nn.saving".methods, require "mgpu.nn.quantized.quantize".methods } do
  for name, method in pairs(part) do Network[name] = method end
end

-- Model and Sequential cannot be extended: fit runs the graph of their layers and would ignore a `call` of the user.
function Network:extend(class_name, declared)
  if self ~= Network then
    core.fail("usage", ("%s:extend: write mgpu.Layer:extend(%q, {...}), and put the layer into a model to train it, as "
      .. "in mgpu.Sequential {mgpu.Input {4}, %s {}}"):format(self.class_name, class_name, class_name))
  end
  return Layer.extend(self, class_name, declared)
end

--- model:contents() -> its layers.
-- Example:
--     local model = mgpu.Sequential { L.Flatten {}, L.Dense { 3 } }
--     print(#model:contents(), model:contents()[2])  --> 2 Dense "dense"
function Network:contents() return self.layers end

--- model:get_layer(name) or model:get_layer {index = n} (from 1) -> the layer. Errors: there is none.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3, name = "hidden" }, L.Dense { 1 } }
--     print(model:get_layer "hidden", model:get_layer { index = 2 })  --> Dense "hidden" Dense "dense"
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
  self:fail("there is no layer %q%s", tostring(which), core.did_you_mean(which, names))
end

--- model:summary(): prints Keras's table of the layers. It takes no options.
-- Example:
--     mgpu.Sequential { name = "small", mgpu.Input { 4 }, L.Dense { 3 } }:summary()
--     --> Model: "small"
--     --> ________________________________________________________________________
--     --> Layer (type)                     Output Shape              Param #
--     --> ========================================================================
--     --> dense (Dense)                    (None, 3)                 15
--     --> ========================================================================
--     --> Total params: 15
--     --> Trainable params: 15
--     --> Non-trainable params: 0
--     --> ________________________________________________________________________
function Network:summary(given)
  options.check("summary", {}, given == nil and {} or given)
  local write = require "mgpu".output
  write(require "mgpu.nn.summary".text(self) .. "\n")
end

--- model:plot(path, {nested = true, title =}): draws the graph of the layers, with the shapes of their outputs and
--- their parameters, into an .svg file, which browsers show.
-- nested: draws the layers of models inside the model. Errors: another ending, a model without layers, the disk.
-- Example:
--     local model = mgpu.Sequential { L.Dense { 1, input_shape = { 2 } } }
--     model:plot("model.svg", { title = "One layer" })
--     print(io.open("model.svg"):read(4))  --> <svg
function Network:plot(path, given) require "mgpu.plot.model".plot(self, path, given) end

local described -- while a model and those inside it are described: {n =, [layer] = its first description}

-- The description of a layer. One that is part of several of these models gets a number, by which it is one layer again
-- when they are loaded.
local function describe(layer, config)
  local entry, first = { class_name = layer.class_name, config = config }, described[layer]
  if first and not layer.is_input then
    if not first.shared then described.n, first.shared = described.n + 1, described.n + 1 end
    entry.shared = first.shared
  end
  described[layer] = first or entry
  return entry
end

local function describe_all(self)
  local list = {}
  for i, layer in ipairs(self.layers) do
    local config = layer:get_config()
    if not layer.states_policy and (layer.is_input or layer.dtype_policy == self.dtype_policy) then
      config.dtype = nil
    end
    list[i] = describe(layer, config)
  end
  return list
end

--- model:layer_configs() -> array of {class_name =, config =, shared = a number if the layer is in several models}. A
--- layer that has the model's dtype policy because it did not state one leaves it out, so that it takes the model's
--- policy when it is loaded.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3 } }
--     print(model:layer_configs()[1].class_name, model:layer_configs()[1].config.units)  --> Dense 3
function Network:layer_configs()
  if described then return describe_all(self) end
  described = { n = 0 }
  local ok, list = pcall(describe_all, self)
  described = nil
  if not ok then error(list, 0) end
  return list
end

-- ---- the part on the host -----------------------------------------------------------------------

--- model.reads_values: whether a part of it reads values on the host, such as texts (host_part.lua); model.takes_text:
--- whether texts are among its inputs.
function Network.computed.reads_values(self) return host_part.of(self) ~= nil end
function Network.computed.takes_text(self)
  for _, input in ipairs(rawget(self, "inputs") or {}) do
    if input:dtype() == "string" then return true end
  end
  return rawget(self, "input_dtype") == "string" -- of a Sequential
end

--- model.body: the part behind the one that reads values, which training steps run; the model itself if there is none.
function Network.computed.body(self)
  local part = host_part.of(self)
  if not part then return self end
  part.body.compiled = self.compiled
  return part.body
end

-- ---- use ----------------------------------------------------------------------------------------

local function fits(shape, wanted)
  if #shape ~= #wanted then return false end
  for i = 2, #wanted do
    if wanted[i] ~= -1 and wanted[i] ~= shape[i] then return false end
  end
  return true
end

--- with_rank(x, wanted) -> x with an axis of size 1 added at its end, or dropped there, if that gives it as many axes
--- as the shape `wanted`; else x itself. Keras does the same.
-- Example:
--     print(unpack(mgpu.Sequential.with_rank(mgpu.ones { 8 }, { -1, 1 }):shape()))  --> 8 1
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

--- model:check_sample(x, wanted, which): raises unless the batch x has the shape `wanted`; `which` names the input.
-- Example:
--     local model = mgpu.Sequential { name = "m", mgpu.Input { 4 }, L.Dense { 3 } }
--     print(pcall(function() model:check_sample(mgpu.ones { 2, 5 }, { -1, 4 }) end))
--     --> false ... Sequential "m": a batch of shape {2, 5} was given, the model takes {None, 4}
function Network:check_sample(x, wanted, which)
  local shape = x:shape()
  if not fits(shape, wanted) then
    self:fail("a batch of shape %s was given%s, the model takes %s", self.shape_text(shape),
      which and " for input " .. which or "", self.shape_text(wanted))
  end
end

--- as_float(x, dtype) -> x as floats, unless `dtype` says that the model wants integers.
-- Example:
--     print(mgpu.Sequential.as_float(mgpu.tensor({ 1, 2 }, { dtype = "uint8" })):dtype())  --> float32
function Network.as_float(x, dtype)
  if not core.is_tensor(x) or x:dtype():find "float" then return x end
  if dtype and dtype:find "int" then return x end
  return x:cast(core.floatx())
end

--- model:begin_call(): drops the losses that layers added in earlier calls, at the start of an outermost call.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 2 }, L.Dense { 1, activity_regularizer = "l2" } }
--     model(mgpu.ones { 1, 2 })
--     model(mgpu.ones { 1, 2 }) -- begins by dropping the loss of the first call
--     print(#model:losses())  --> 1
function Network:begin_call()
  if not Layer.in_call() then self:forget_losses() end
end

-- ---- misuse that Lua would not explain ----------------------------------------------------------------

local USED = { "compile", "fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch",
  "set_devices", "save", "save_weights", "load_weights", "summary", "plot", "get_layer", "get_weights", "set_weights",
  "quantize", "count_params", "get_config", "to_json", "losses" }

-- Fields that a network may lack, though their names are near a method's, or that are asked for at each call of fit.
local ABSENT = { compiled = true, predict_step = true, saved_optimizer = true, input_names = true, output_names = true,
  several = true, listed = true, order = true, strategy = true, input_dtype = true, device = true }

methods.want_colons(Network, "model", "is_network", USED)

--- model:unknown_field(key): raises for the misspelt name of a method, as in model:evalute(x, y), and for the names
--- that other frameworks use; any other field that a model lacks is nil.
-- Example:
--     local model = mgpu.Sequential { name = "m", mgpu.Input { 2 }, L.Dense { 1 } }
--     print(pcall(function() return model:evalute() end))
--     --> false ... Sequential "m": there is no "evalute" (did you mean "evaluate"?)
--     -- an unset field
--     print(model.note)  --> nil
function Network:unknown_field(key)
  if type(key) ~= "string" or ABSENT[key] then return end
  local advice = foreign_names.advice("model", key)
  if advice then self:fail("there is no %q%s", key, advice) end
  if #key < 4 then return end
  local hint = core.did_you_mean(key, USED)
  local near = hint:match '"(.*)"'
  if not near or near:sub(1, 1) ~= key:sub(1, 1) or math.abs(#near - #key) > 2 then return end
  self:fail("there is no %q%s", key, hint)
end

return Network
