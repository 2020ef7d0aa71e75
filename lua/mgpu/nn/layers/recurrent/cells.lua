--- What recurrent layers ask of a cell, and the answers of cells that only have `call`.
--
-- A cell is a layer that computes one step: cell {x, state, ...} -> {output, state, ...}, each {batch, ...}. Its field
-- state_size is the size of its state, or an array of sizes, or of shapes without the batch; output_size, if given,
-- is that of the output, else the output has the shape of the first state. A layer that runs a cell over a sequence
-- calls
--     draw(cell, shape, dtype, training) -> what is the same in all steps, such as dropout masks; shape: of a step's x
--     project(cell, x, constants)        -> what does not depend on the state; x: {batch, ...} or {steps, batch, ...}
--     step(cell, projected, states, constants) -> output, new states (arrays)
-- A cell whose field in_loop has these functions, and state_shapes(cell), computes most of its work for all steps at
-- once, outside of the loop.
local core = require "mgpu.core"

local ops = core.ops
local M = {}

local function is_array(value) return type(value) == "table" end

--- is_cell(value): whether a layer has what a cell needs.
function M.is_cell(value)
  return type(value) == "table" and value.add_weight ~= nil and (value.in_loop ~= nil or value.state_size ~= nil)
end

--- state_shapes(cell) -> array of the shapes of its states, without the batch.
function M.state_shapes(cell)
  if cell.in_loop then return cell.in_loop.state_shapes(cell) end
  local sizes, shapes = cell.state_size, {}
  for i, size in ipairs(is_array(sizes) and sizes or { sizes }) do shapes[i] = is_array(size) and size or { size } end
  return shapes
end

--- output_shape(cell) -> the shape of its output, without the batch.
function M.output_shape(cell)
  local size = cell.output_size
  if size then return is_array(size) and size or { size } end
  return M.state_shapes(cell)[1]
end

function M.draw(cell, shape, dtype, training)
  if cell.in_loop then return cell.in_loop.draw(cell, shape, dtype, training) end
  return { training = training }
end

function M.project(cell, x, constants)
  if cell.in_loop then return cell.in_loop.project(cell, x, constants) end
  return x
end

function M.step(cell, projected, states, constants)
  if cell.in_loop then return cell.in_loop.step(cell, projected, states, constants) end
  local y = cell:call({ projected, unpack(states) }, constants.training)
  if type(y) ~= "table" or #y ~= 1 + #states then
    cell:fail("a cell's call must return {output, state, ...} with %d states", #states)
  end
  return y[1], { unpack(y, 2) }
end

--- call(cell, x, training) -> {output, state, ...} of one step; x: {input, state, ...}, or the input alone for states
--- of zeros.
function M.call(cell, x, training)
  if type(x) ~= "table" then x = { x } end
  local shapes, states, shape = M.state_shapes(cell), { unpack(x, 2) }, x[1]:shape()
  if #states > 0 and #states ~= #shapes then
    cell:fail("takes the input and %d states, got %d", #shapes, #states)
  end
  for i, size in ipairs(shapes) do
    states[i] = states[i] or ops.full({ shape[1], unpack(size) }, 0, cell.compute_dtype)
  end
  local constants = M.draw(cell, shape, cell.compute_dtype, training)
  local output, after = M.step(cell, M.project(cell, x[1], constants), states, constants)
  return { output, unpack(after) }
end

--- shapes_of_call(cell, shape) -> the shapes of what `call` returns.
function M.shapes_of_call(cell, shape)
  local batch = is_array(shape[1]) and shape[1][1] or shape[1]
  local list = { { batch, unpack(M.output_shape(cell)) } }
  for _, size in ipairs(M.state_shapes(cell)) do list[#list + 1] = { batch, unpack(size) } end
  return list
end

-- ---- dropout --------------------------------------------------------------------------------------

--- masks(cell, rate, count, shape, dtype, stream) -> array of `count` dropout masks {batch, ...}: 0, or 1 / (1 - rate).
--- They are drawn as one tensor, so that they differ.
function M.masks(cell, rate, count, shape, dtype, stream)
  local sizes = { shape[1], count, unpack(shape, 2) }
  local kept = ops.random { shape = sizes, kind = "bernoulli", a = 1 - rate, dtype = "bool",
    stream = cell:own_stream((cell.seed or "") .. stream) }
  local scaled, list = ops.cast(kept, { dtype = dtype }) * (rate < 1 and 1 / (1 - rate) or 0), {}
  for i = 1, count do list[i] = scaled:slice { {}, i } end
  return list
end

return M
