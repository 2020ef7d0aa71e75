--- A cell run over a sequence by mgpu.scan, with masks as in Keras: a masked step repeats the output and the states of
--- the step before it; before the first unmasked step the output is 0.
local cells = require "mgpu.nn.layers.recurrent.cells"
local core = require "mgpu.core"
local masks = require "mgpu.nn.masks"
local scan = require "mgpu.tensor.scan".scan

local ops = core.ops
local M = {}

-- {a, b, ...} as {b, a, ...}: from the batch first to the steps first, and back.
local function swapped(t)
  local order = { 2, 1 }
  for axis = 3, t:rank() do order[axis] = axis end
  return ops.permute(t, { order = order })
end

-- new where the mask {batch} is true, old elsewhere.
local function hold(mask, new, old) return ops.where(masks.aligned(mask, new), new, old) end

-- The function of a step, for scan.
local function step_of(cell, constants, how)
  return function(carry, x)
    local output, states = cells.step(cell, x.x, carry.states, constants)
    if x.mask then
      output = hold(x.mask, output, how.zero and 0 or carry.output)
      for i, state in ipairs(states) do states[i] = hold(x.mask, state, carry.states[i]) end
    end
    return { states = states, output = carry.output and output }, how.sequences and output or nil
  end
end

--- run(cell, x, states, how) -> the last output, the outputs of all steps {batch, steps, ...} or nil, the last states.
-- ARGS x: {batch, steps, ...}; states: array; how: {mask = {batch, steps} or nil, training =, dtype =, reverse = from
-- the last step to the first; the outputs have that order, sequences = whether all outputs are wanted, zero = masked
-- steps have an output of 0}.
function M.run(cell, x, states, how)
  local shape = x:shape()
  local constants = cells.draw(cell, { shape[1], unpack(shape, 3) }, how.dtype, how.training)
  local xs = { x = cells.project(cell, swapped(x), constants), mask = how.mask and swapped(how.mask) }
  local carry = { states = states }
  if how.mask or not how.sequences then
    carry.output = ops.full({ shape[1], unpack(cells.output_shape(cell)) }, 0, how.dtype)
  end
  local last, ys = scan(step_of(cell, constants, how), carry, xs, { reverse = how.reverse })
  if not ys then return last.output, nil, last.states end
  ys = swapped(ys)
  return nil, how.reverse and ys:flip(2) or ys, last.states
end

return M
