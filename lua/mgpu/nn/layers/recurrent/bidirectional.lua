--- Bidirectional {layer, merge_mode = "concat", backward_layer =}: a recurrent layer over the sequence in both
--- directions.
-- x {batch, steps, ...} -> the outputs of both, merged: "concat" (along the last axis), "sum", "mul", "ave", or
-- "none": {forward, backward}. With return_state the states of both follow.
-- layer: L.LSTM {8}, for example. Its configuration makes both directions, so it shares no weights with them; the
-- backward one is `backward_layer` if that is given. Initial states are given behind x, first those of the forward
-- layer. With return_sequences a masked step has an output of 0 in both, as in Keras.
-- Errors: a layer without go_backwards; two layers of the same direction or with different options for their outputs.
-- Example:
--     local both = L.Bidirectional { L.GRU { 4, return_sequences = true } }
--     print(unpack(both(mgpu.ones { 2, 5, 3 }):shape()))  --> 2 5 8
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local layer_names = require "mgpu.nn.layer_names"

local ops = core.ops

local Bidirectional = Layer:extend("Bidirectional", { positional = 1,
  { "layer", "layer", required = true },
  { "merge_mode", "string", default = "concat", values = { "concat", "sum", "mul", "ave", "none" } },
  { "backward_layer", "layer" },
})
Bidirectional.supports_masking, Bidirectional.takes_states = true, true
Bidirectional.call_parameters = { "initial_state", "mask", "training" }
Bidirectional.contents_in_order = { "forward_layer", "backward_layer" }

local MERGE = {
  concat = function(a, b) return ops.concat({ a, b }, { axis = -1 }) end,
  sum = function(a, b) return a + b end,
  mul = function(a, b) return a * b end,
  ave = function(a, b) return (a + b) / 2 end,
}

-- A copy of the layer without its weights, named after its direction.
local function directed(self, layer, direction)
  local config = layer:get_config()
  config.name = direction .. "_" .. layer.name:gsub("^" .. direction .. "_", "")
  config.stream_name = ("%s/%s"):format(self.stream_name, direction)
  config.dtype = layer.states_policy and layer.dtype_policy or self.dtype_policy
  config.device = rawget(self, "device")
  if direction == "backward" then config.go_backwards = true end
  local made = require "mgpu.nn.model_config".copy(layer, config)
  made.states_policy, made.scoped = layer.states_policy or self.states_policy, rawget(self, "scoped")
  made:name_as(direction .. "_" .. layer_names.kind(layer.class_name))
  return made
end

-- Raises unless the directions differ and the outputs agree.
local function check_pair(self)
  local forward, backward = self.forward_layer, self.backward_layer
  if forward.go_backwards == backward.go_backwards then
    self:fail("both layers have go_backwards = %s: they must differ", tostring(forward.go_backwards))
  end
  for _, option in ipairs { "stateful", "return_sequences", "return_state" } do
    if forward[option] ~= backward[option] then
      self:fail("the layers must have the same %s: it is %s forward, %s backward", option, tostring(forward[option]),
        tostring(backward[option]))
    end
  end
end

function Bidirectional:init()
  for _, layer in ipairs { self.layer, self.backward_layer } do
    if not layer.name_as then self:fail("%s is not a recurrent layer", tostring(layer)) end
  end
  self.forward_layer = directed(self, self.layer, "forward")
  self.backward_layer = self.backward_layer or directed(self, self.layer, "backward")
  self.layer = self.forward_layer -- in the configuration, as in Keras
  check_pair(self)
  for _, layer in ipairs { self.forward_layer, self.backward_layer } do
    layer.zero_output_for_mask = layer.return_sequences
  end
end

--- layer:reset_state(), also reset_states(): the states of a stateful layer become 0.
-- Example:
--     local both = L.Bidirectional { L.SimpleRNN { 2, stateful = true } }
--     local x = mgpu.ones { 1, 3, 2 }
--     local first = both(x)
--     both:reset_state()
--     print(both(x):eq(first):all():item())  --> true
function Bidirectional:reset_state()
  self.forward_layer:reset_state()
  self.backward_layer:reset_state()
end
Bidirectional.reset_states = Bidirectional.reset_state

function Bidirectional:build(shape)
  for _, layer in ipairs { self.forward_layer, self.backward_layer } do
    layer.known_batch = rawget(self, "known_batch")
    layer:ensure_built(type(shape[1]) == "table" and shape[1] or shape)
  end
end

-- What the two directions give, tensors or shapes: their outputs, and the states of both in an array.
local function parted(self, one, other)
  if not self.forward_layer.return_state then return one, other, {} end
  local states = { unpack(one, 2) }
  for i = 2, #other do states[#states + 1] = other[i] end
  return one[1], other[1], states
end

function Bidirectional:output_shape(shape)
  local one, other, states = parted(self, self.forward_layer:output_shape(shape),
    self.backward_layer:output_shape(shape))
  if self.merge_mode == "none" then return { one, other, unpack(states) } end
  if self.merge_mode == "concat" then one[#one] = one[#one] + other[#other] end
  return #states > 0 and { one, unpack(states) } or one
end

function Bidirectional:compute_mask(_, mask)
  if type(mask) == "table" then mask = mask[1] or nil end
  mask = self.forward_layer.return_sequences and mask or nil
  if not mask then return nil end
  if self.merge_mode == "none" then return { mask, mask } end
  return self.forward_layer.return_state and { mask } or mask
end

-- x and the states number first .. last of the array of inputs, as the input of one direction.
local function input_of(x, first, last)
  if type(x) ~= "table" then return x end
  if last - first + 1 < 1 then return x[1] end
  return { x[1], unpack(x, first, last) }
end

function Bidirectional:call(x, training)
  local n = type(x) == "table" and #x - 1 or 0
  if n % 2 == 1 then self:fail("takes the same number of initial states for both directions, got %d", n) end
  local one, other, states = parted(self, self.forward_layer:apply(input_of(x, 2, 1 + n / 2), training),
    self.backward_layer:apply(input_of(x, 2 + n / 2, 1 + n), training))
  if self.forward_layer.return_sequences then other = other:flip(2) end
  if self.merge_mode == "none" then return { one, other, unpack(states) } end
  local y = MERGE[self.merge_mode](one, other)
  return #states > 0 and { y, unpack(states) } or y
end

return Bidirectional
