--- Muon {learning_rate = 0.001, momentum = 0.95, nesterov = true, ns_steps = 5, weight_decay = 0.004, rms_rate = 0.2,
--- ...}: orthogonalized momentum (Newton-Schulz iteration) for matrices; Adam for everything else.
--
--     m <- momentum m + g;  u = g + momentum m (nesterov) or m                      for a matrix {rows, columns}
--     u <- u / |u|, then ns_steps times: A = u u^T;  u <- muon_a u + (muon_b A + muon_c A A) u
--     v <- v - rate weight_decay v - rate rms_rate sqrt(max(rows, columns)) u
-- Variables that are no matrices, those with "embedding" in their name (unless exclude_embeddings = false) and those
-- whose name contains an entry of exclude_layers are trained by Adam with adam_beta_1 = 0.9, adam_beta_2 = 0.999,
-- epsilon = 1e-7, the rate times adam_lr_ratio = 1 and adam_weight_decay = 0.004. rms_rate = false leaves the factor
-- out. muon_a = 3.4445, muon_b = -4.775, muon_c = 2.0315. Entries of exclude_layers are parts of names, no patterns;
-- names of models around a layer do not count, as they do in Keras.
-- Options of all optimizers: optimizer.lua. Source: Jordan et al., Muon, 2024; Liu et al., Muon is scalable, 2025.
-- Example:
--     local v = mgpu.variable(mgpu.ones { 2, 2 }, { name = "kernel" })
--     local muon = mgpu.optimizers.Muon { learning_rate = 1, weight_decay = 0, rms_rate = false, ns_steps = 10 }
--     muon:apply({ mgpu.tensor { { 5, 0 }, { 0, 1 } } }, { v }) -- both directions get steps of about the same length
--     local step = (1 - v:value()):totable()
--     print(step[1][1] > 0.6 and step[2][2] > 0.6 and step[1][1] < 1.3 and step[2][2] < 1.3)  --> true
local core = require "mgpu.core"
local Optimizer = require "mgpu.nn.optimizers.optimizer"

local ops = core.ops

local SMALL = 1e-7 -- keeps the norm of a gradient of zeros above 0

local Muon = Optimizer.define {
  class = "Muon",
  declared = {
    { "learning_rate", "any", default = 0.001 },
    { "adam_beta_1", "number", default = 0.9, min = 0, below = 1 },
    { "adam_beta_2", "number", default = 0.999, min = 0, below = 1 },
    { "adam_weight_decay", "number", default = 0.004, min = 0 },
    { "epsilon", "number", default = 1e-7, min = 0 },
    { "weight_decay", "number", default = 0.004, min = 0 },
    { "exclude_layers", "table" },
    { "exclude_embeddings", "boolean", default = true },
    { "muon_a", "number", default = 3.4445 },
    { "muon_b", "number", default = -4.775 },
    { "muon_c", "number", default = 2.0315 },
    { "adam_lr_ratio", "number", default = 1 },
    { "momentum", "number", default = 0.95, min = 0, max = 1 },
    { "ns_steps", "integer", default = 5, min = 0 },
    { "nesterov", "boolean", default = true },
    { "rms_rate", "number|boolean", default = 0.2 },
  },
}

-- Whether Adam trains the variable.
local function takes_adam(self, v)
  if #v:shape() ~= 2 or self.options.exclude_embeddings and v.name:lower():find("embedding", 1, true) then
    return true
  end
  for _, part in ipairs(self.options.exclude_layers or {}) do
    if v.name:find(part, 1, true) then return true end
  end
  return false
end

function Muon.check(chosen)
  local parts = chosen.exclude_layers or {}
  if chosen.rms_rate == true then core.fail("usage", 'Muon: option "rms_rate" must be a number, or false for none') end
  for key, part in pairs(parts) do
    if type(key) ~= "number" or key > #parts or type(part) ~= "string" then
      core.fail("usage", 'Muon: option "exclude_layers" must be an array of parts of names')
    end
  end
end

function Muon:slot_names(v)
  return takes_adam(self, v) and { "momentum", "velocity" } or { "momentum" }
end

function Muon:decay_of(v)
  return self.slots[v].velocity and self.options.adam_weight_decay or self.options.weight_decay
end

function Muon:scalars(now)
  local chosen = self.options
  now.alpha = now.rate * chosen.adam_lr_ratio * ops.sqrt(1 - ops.pow(chosen.adam_beta_2, now.step))
    / (1 - ops.pow(chosen.adam_beta_1, now.step))
end

-- The step that Adam takes.
local function adam(self, g, slots, now)
  local chosen = self.options
  local m, s = slots.momentum:value(), slots.velocity:value()
  m = m + (g - m) * (1 - chosen.adam_beta_1)
  s = s + (ops.square(g) - s) * (1 - chosen.adam_beta_2)
  slots.momentum:assign(m)
  slots.velocity:assign(s)
  return m * now.alpha / (ops.sqrt(s) + chosen.epsilon)
end

-- A matrix with the singular vectors of u, and singular values near 1: steps of a polynomial that moves them there.
local function orthogonalized(self, u)
  local chosen, shape = self.options, u:shape()
  local tall = shape[1] > shape[2]
  if tall then u = ops.permute(u, { order = { 2, 1 } }) end
  u = u / (ops.sqrt(ops.sum(ops.square(u))) + SMALL)
  for _ = 1, chosen.ns_steps do
    local squares = ops.matmul(u, u, { transpose_b = true })
    u = u * chosen.muon_a + ops.matmul(squares * chosen.muon_b + ops.matmul(squares, squares) * chosen.muon_c, u)
  end
  return tall and ops.permute(u, { order = { 2, 1 } }) or u
end

function Muon:update(v, g, slots, now)
  if slots.velocity then return adam(self, g, slots, now) end
  local chosen, shape = self.options, v:shape()
  local m = slots.momentum:value() * chosen.momentum + g
  slots.momentum:assign(m)
  local step = orthogonalized(self, chosen.nesterov and g + m * chosen.momentum or m) * now.rate
  return chosen.rms_rate and step * (math.sqrt(math.max(shape[1], shape[2])) * chosen.rms_rate) or step
end

return Muon
