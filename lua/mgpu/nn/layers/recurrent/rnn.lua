--- RNN {cell, return_sequences = false, return_state = false, go_backwards = false, stateful = false, unroll = false,
-- zero_output_for_mask = false}
-- Runs a cell over the steps of a sequence. x {batch, steps, ...} -> the last output {batch, ...}, or with
-- return_sequences all of them {batch, steps, ...}; with return_state an array {output, state, ...}.
-- cell: L.LSTMCell {8}, an array of cells (StackedRNNCells), or an own layer that computes one step: its call gets
-- {x, state, ...} and returns {output, state, ...}, its field state_size is the size of a state or an array of sizes.
-- Initial states are 0, or given behind x: rnn {x, state, ...}. A masked step repeats the output and the states of the
-- step before it; with zero_output_for_mask its output is 0. go_backwards: from the last step to the first, and the
-- outputs stay in this order. stateful: a batch begins with the states at the end of the batch before it, until
-- reset_state(); all batches have one size, stated by mgpu.Input {..., batch_size = n} or by a first call of the model.
-- unroll: accepted as in Keras; it changes nothing. Errors: a cell without state_size; another number of states.
-- Example:
--     local Sum = mgpu.Layer:extend("Sum", { state_size = 3 }) -- adds up its inputs
--     function Sum:call(x) return { x[1] + x[2], x[1] + x[2] } end
--     print(L.RNN { Sum {} } (mgpu.ones { 1, 5, 3 }))
--     --> tensor {1, 3} float32 cpu:0
--     --> {{5, 5, 5}}
local cells = require "mgpu.nn.layers.recurrent.cells"
local core = require "mgpu.core"
local Layer = require "mgpu.nn.layer"
local loop = require "mgpu.nn.layers.recurrent.loop"
local masks = require "mgpu.nn.masks"
local trial = require "mgpu.nn.trial"

local ops = core.ops

-- Options of all recurrent layers.
local SEQUENCE = {
  { "return_sequences", "boolean", default = false },
  { "return_state", "boolean", default = false },
  { "go_backwards", "boolean", default = false },
  { "stateful", "boolean", default = false },
  { "unroll", "boolean", default = false },
  { "zero_output_for_mask", "boolean", default = false },
}

local RNN = Layer:extend("RNN", { positional = 1, { "cell", "layer|layers", required = true }, unpack(SEQUENCE) })
RNN.SEQUENCE = SEQUENCE
RNN.supports_masking, RNN.takes_states = true, true
RNN.call_parameters = { "initial_state", "mask", "training" }
RNN.axes = "batch, steps, features"
RNN.rank = 3

function RNN:init()
  if not self.cell.add_weight then
    self.cell = require "mgpu.nn.layers.recurrent.kinds".StackedRNNCells { cells = self.cell }
  end
  if not cells.is_cell(self.cell) then self:fail("%s is not a cell: it has no state_size", tostring(self.cell)) end
end

--- layer:name_as(kind): the layer and the cell made with it have automatic names of this kind ("forward_lstm").
-- Example:
--     L.LSTM { 4 }:name_as "forward_lstm" -- as Bidirectional does
function RNN:name_as(kind)
  self.name_kind = kind
  if rawget(self.cell, "name_kind") then self.cell.name_kind = kind end
end

-- ---- states -------------------------------------------------------------------------------------

-- The variables that hold the states between batches, for batches of n rows.
local function kept_states(self, n)
  if not self.state_variables then
    if core.tracing() then
      self:fail("is stateful, so it must know the size of the batches before it is in a jitted step: give the model "
        .. "mgpu.Input {..., batch_size = n}, or call it once with a batch")
    end
    self.state_variables = {}
    for i, shape in ipairs(cells.state_shapes(self.cell)) do
      self.state_variables[i] = core.variable(ops.full({ n, unpack(shape) }, 0, self.variable_dtype),
        { name = ("%s/rnn_state_%d"):format(self.name, i), trainable = false })
    end
  end
  local kept = self.state_variables[1]:shape()[1]
  if kept ~= n then
    self:fail("is stateful and has states of %d rows, but the batch has %d: all batches must have one size", kept, n)
  end
  return self.state_variables
end

--- layer:reset_state(), also reset_states(): the states of a stateful layer become 0.
-- Example:
--     local rnn = L.SimpleRNN { 2, stateful = true }
--     local x = mgpu.ones { 1, 3, 2 }
--     local first = rnn(x)
--     print(rnn(x):eq(first):all():item()) -- it went on from the states of the first call  --> false
--     rnn:reset_state()
--     print(rnn(x):eq(first):all():item())  --> true
function RNN:reset_state()
  for _, v in ipairs(self.state_variables or {}) do v:assign(ops.full(v:shape(), 0, v:dtype()):to(v:device())) end
end
RNN.reset_states = RNN.reset_state

-- The states in front of the first step: those given, those kept, or 0.
local function first_states(self, given, x)
  local shapes, dtype, n, states = cells.state_shapes(self.cell), self.compute_dtype, x:shape()[1], {}
  if #given > 0 and #given ~= #shapes then self:fail("takes the input and %d states, got %d", #shapes, #given) end
  local kept = self.stateful and not trial.running() and kept_states(self, n)
  for i, shape in ipairs(shapes) do
    local state = given[i]
    if state then
      local text, wanted = self.shape_text(state:shape()), self.shape_text { n, unpack(shape) }
      if text ~= wanted then self:fail("initial state %d has shape %s, it must be %s", i, text, wanted) end
    end
    state = state or kept and core.place(kept[i]:value(), x:device()) or ops.full({ n, unpack(shape) }, 0, dtype)
    states[i] = ops.cast(state, { dtype = dtype })
  end
  return states
end

-- ---- the layer ----------------------------------------------------------------------------------

-- The shape of the sequence, from that or from the array of shapes with the states behind it.
local function sequence_shape(self, shape)
  if type(shape[1]) == "table" then shape = shape[1] end
  self:need_rank(shape, self.rank or #shape, self.axes)
  return shape
end

function RNN:build(shape)
  shape = sequence_shape(self, shape)
  self.cell:ensure_built { shape[1], unpack(shape, 3) }
  local n = shape[1] > 0 and shape[1] or rawget(self, "known_batch")
  if self.stateful and n then kept_states(self, n) end
end

function RNN:output_shape(shape)
  shape = sequence_shape(self, shape)
  local all = cells.shapes_of_call(self.cell, shape)
  if self.return_sequences then table.insert(all[1], 2, shape[2]) end
  return self.return_state and all or all[1]
end

function RNN:compute_mask(_, mask)
  if type(mask) == "table" then mask = mask[1] or nil end
  mask = self.return_sequences and mask or nil
  return self.return_state and mask and { mask } or mask
end

function RNN:call(x, training)
  local given = {}
  if type(x) == "table" then given, x = { unpack(x, 2) }, x[1] end
  if sequence_shape(self, x:shape())[2] == 0 then self:fail "the sequences have no steps" end
  local mask = masks.now()
  if type(mask) == "table" then mask = mask[1] or nil end
  local last, all, states = loop.run(self.cell, x, first_states(self, given, x), { mask = mask, training = training,
    dtype = self.compute_dtype, reverse = self.go_backwards, sequences = self.return_sequences,
    zero = self.zero_output_for_mask })
  for i, v in ipairs(self.stateful and not trial.running() and self.state_variables or {}) do
    v:assign(ops.cast(states[i], { dtype = v:dtype() }))
  end
  local y = self.return_sequences and all or last
  return self.return_state and { y, unpack(states) } or y
end

-- The layers made of one cell: they have its options as their own.

--- of_cell(class_name, Cell, declared) -> a subclass of RNN with a cell of that class, made from the options that both
--- declare.
function RNN.of_cell(class_name, Cell, declared)
  for _, option in ipairs { { "activity_regularizer", "regularizer" }, unpack(SEQUENCE) } do
    declared[#declared + 1] = option
  end
  local class = RNN:extend(class_name, declared)
  function class:init()
    local chosen = { name = self.name, stream_name = self.stream_name, trainable = self.trainable,
      dtype = self.dtype_policy, device = rawget(self, "device") }
    for _, option in ipairs(Cell.own_declared) do chosen[option[1]] = rawget(self, option[1]) end
    self.cell = Cell(chosen)
    self.cell.states_policy, self.cell.scoped = self.states_policy, rawget(self, "scoped")
    self.cell.name_kind = require "mgpu.nn.layer_names".kind(class_name)
  end
  return class
end

return RNN
