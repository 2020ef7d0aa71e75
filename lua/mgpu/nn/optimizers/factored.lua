--- Adafactor {learning_rate = 0.001, beta_2_decay = -0.8, epsilon_1 = 1e-30, epsilon_2 = 0.001, clip_threshold = 1,
--- relative_step = true, ...}: mean squares of a matrix kept as those of its rows and of its columns.
--
--     b = 1 - t^beta_2_decay;  q = g^2 + epsilon_1
--     r <- b r + (1 - b) mean of q over the last axis;  c <- the same over the last but one
--     s = r / (mean of r over its last axis) * c          a vector: s <- b s + (1 - b) q
--     u = g / sqrt(s);  u = u / max(1, rms(u) / clip_threshold)
--     v <- v - max(epsilon_2, rms(v)) min(rate, 1 / sqrt(t)) u
-- Keras's rule: its relative_step changes nothing, since the bound 1 / sqrt(t) holds in any case; the slot velocity
-- holds s. Options of all optimizers: optimizer.lua. Source: Shazeer & Stern, Adafactor, 2018; Keras.
-- Example:
--     local v = mgpu.variable(mgpu.ones { 2, 3 })
--     mgpu.optimizers.Adafactor { learning_rate = 0.5 }:apply({ mgpu.full({ 2, 3 }, 7) }, { v })
--     print(v:value():round())
--     --> tensor {2, 3} float32 cpu:0
--     --> {{0, 0, 0},
--     -->  {0, 0, 0}}
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local ops = core.ops

local Adafactor = Optimizer.define {
  class = "Adafactor",
  declared = {
    { "learning_rate", "any", default = 0.001 },
    { "beta_2_decay", "number", default = -0.8 },
    { "epsilon_1", "number", default = 1e-30, min = 0 },
    { "epsilon_2", "number", default = 0.001, min = 0 },
    { "clip_threshold", "number", default = 1, above = 0 },
    { "relative_step", "boolean", default = true },
  },
}

function Adafactor.slot_names() return { "r", "c", "velocity" } end

-- r has no last axis, c no last but one. A vector has neither: its two are one unused number, as in Keras.
function Adafactor.slot_shape(name, shape)
  local n = #shape
  if name ~= "r" and name ~= "c" then return shape end
  if n < 2 then return {} end
  local short = { unpack(shape) }
  table.remove(short, name == "r" and n or n - 1)
  return short
end

local function mean(t, axis)
  return ops.sum(t, { axis = axis, keepdims = true }) / t:shape()[axis]
end

local function rms(t) return ops.sqrt(ops.sum(ops.square(t)) / t:count()) end

function Adafactor:scalars(now)
  now.beta = 1 - ops.pow(now.step, self.options.beta_2_decay)
  now.rho = ops.minimum(now.rate, 1 / ops.sqrt(now.step))
end

-- The mean squares of a matrix (or of several, along the first axes), from those of rows and columns.
local function of_rows_and_columns(square, slots, beta)
  local rank = square:rank()
  local function averaged(slot, axis)
    local new = mean(square, axis)
    local old = ops.reshape(slot:value(), { shape = new:shape() })
    new = old * beta + new * (1 - beta)
    slot:assign(ops.reshape(new, { shape = slot:shape() }))
    return new
  end
  local rows, columns = averaged(slots.r, rank), averaged(slots.c, rank - 1)
  return rows / mean(rows, rank - 1) * columns
end

function Adafactor:update(v, g, slots, now)
  local all
  local square = ops.square(g) + self.options.epsilon_1
  if v:rank() >= 2 then
    all = of_rows_and_columns(square, slots, now.beta)
  else
    all = slots.velocity:value() * now.beta + square * (1 - now.beta)
  end
  slots.velocity:assign(all)
  local step = g / ops.sqrt(all)
  step = step / ops.maximum(rms(step) / self.options.clip_threshold, 1)
  return step * (ops.maximum(rms(v), self.options.epsilon_2) * now.rho)
end

return Adafactor
