--- What the cells with kernels share: their options, their weights, the products of a step's gates.
local activations = require "mgpu.nn.activations"
local cells = require "mgpu.nn.layers.recurrent.cells"
local core = require "mgpu.core"
local kernels = require "mgpu.nn.layers.kernels"
local Layer = require "mgpu.nn.layer"

local ops = core.ops
local M = {}

local RATES = {
  { "dropout", "number", default = 0, min = 0, max = 1 },
  { "recurrent_dropout", "number", default = 0, min = 0, max = 1 },
  { "seed", "integer", min = 0 },
}
M.RATES = RATES

-- The kinds of an option and Keras's defaults for kernel, recurrent kernel and bias.
local KINDS = { { "initializer", "glorot_uniform", "orthogonal", "zeros" }, { "regularizer" }, { "constraint" } }

--- options(own, extra) -> the declared options of a cell: its own, activation, use_bias, those of the weights, dropout,
--- and the list `extra`.
function M.options(own, extra)
  own[#own + 1] = { "use_bias", "boolean", default = true }
  for _, row in ipairs(KINDS) do
    for i, weight in ipairs { "kernel", "recurrent", "bias" } do
      own[#own + 1] = { weight .. "_" .. row[1], row[1], default = row[i + 1] }
    end
  end
  for _, list in ipairs { RATES, extra or {} } do
    for _, option in ipairs(list) do own[#own + 1] = option end
  end
  return own
end

--- start(cell): looks up the activations.
function M.start(cell)
  cell.activate = activations.get(cell.activation, tostring(cell))
  if cell.recurrent_activation then
    cell.gate = activations.get(cell.recurrent_activation, tostring(cell))
  end
end

--- bias_with_forget(cell, units) -> the initializer of a bias with four parts, of which the second, of the forget gate,
--- is ones.
function M.bias_with_forget(cell, units)
  local initialize = require "mgpu.nn.initializers".get(cell.bias_initializer)
  return function(_, dtype, stream)
    return ops.concat({ initialize({ units }, dtype, stream), ops.full({ units }, 1, dtype),
      initialize({ 2 * units }, dtype, stream) }, { axis = 1 })
  end
end

--- add_weights(cell, kernel, recurrent, bias): makes kernel, recurrent_kernel and bias of these shapes.
function M.add_weights(cell, kernel, recurrent, bias)
  cell.kernel = kernels.add(cell, "kernel", kernel)
  cell.recurrent_kernel = kernels.add(cell, "recurrent_kernel", recurrent, "recurrent")
  if not cell.use_bias then return end
  local initializer = cell.bias_initializer
  if cell.unit_forget_bias then initializer = M.bias_with_forget(cell, bias[#bias] / 4) end
  cell.bias = cell:add_weight { name = "bias", shape = bias, initializer = initializer,
    regularizer = cell.bias_regularizer, constraint = cell.bias_constraint }
end

--- draw(cell, shape, dtype, training) -> {input = masks or nil, recurrent = masks or nil}, {} outside of training. As
--- in Keras each gate has a mask only where the state is dropped too.
-- ARGS count: of masks, if it does not depend on that.
function M.draw(cell, shape, dtype, training, count)
  local constants = {}
  count = count or cell.recurrent_dropout > 0 and cell.gates or 1
  if training and cell.dropout > 0 and (cell.dropout < 1 or cell.gates == 1) then
    constants.input = cells.masks(cell, cell.dropout, count, shape, dtype, "")
  end
  if training and cell.recurrent_dropout > 0 and (cell.recurrent_dropout < 1 or cell.gates == 1) then
    local state = cells.state_shapes(cell)[1]
    constants.recurrent = cells.masks(cell, cell.recurrent_dropout, count, { shape[1], unpack(state) }, dtype,
      "/recurrent")
  end
  return constants
end

--- product(x, kernel, masks, multiply = matmul, axis = -1) -> the product of x with the kernel of all gates, which are
--- side by side along the axis; masks: nil, one for all gates, or one for each.
function M.product(x, kernel, masks, multiply, axis)
  multiply = multiply or ops.matmul
  if not masks then return multiply(x, kernel) end
  if #masks == 1 then return multiply(x * masks[1], kernel) end
  local list = kernel:split(#masks, -1)
  for i, part in ipairs(list) do list[i] = multiply(x * masks[i], part) end
  return ops.concat(list, { axis = axis or -1 })
end

--- define(class_name, gates, declared) -> a class of cells with `gates` kernels side by side, called as a layer. Its
--- in_loop lacks `step`, and has two functions of the cell more: bias_shape, input_bias.
function M.define(class_name, gates, declared)
  local Cell = Layer:extend(class_name, declared)
  local in_loop = {}
  Cell.gates, Cell.in_loop = gates, in_loop
  function Cell:init() M.start(self) end
  function Cell:build(shape)
    if type(shape[1]) == "table" then shape = shape[1] end
    self:need_rank(shape, 2, "batch, features")
    self.features = shape[2]
    M.add_weights(self, { shape[2], gates * self.units }, { self.units, gates * self.units },
      in_loop.bias_shape(self, gates * self.units))
  end
  function in_loop.bias_shape(_, n) return { n } end
  function in_loop.state_shapes(self) return { { self.units } } end
  function Cell:output_shape(shape) return cells.shapes_of_call(self, shape) end
  function in_loop.draw(self, shape, dtype, training) return M.draw(self, shape, dtype, training) end
  function in_loop.project(self, x, constants)
    local shape = x:shape()
    if shape[#shape] ~= self.features then
      self:fail("the input has %d features, the cell was built for %d", shape[#shape], self.features)
    end
    local y = M.product(x, self.kernel, constants.input)
    return self.bias and y + in_loop.input_bias(self) or y
  end
  function in_loop.input_bias(self) return self.bias end
  function Cell:call(x, training) return cells.call(self, x, training) end
  return Cell
end

return M
