--- mgpu.parallel.optimizers: the multi-GPU optimizers of keras_experiments, RMSPropMGPU and others.
--
--     mgpu.parallel.optimizers.RMSPropMGPU { lr = 1e-4, decay = 1e-6, gdev_list = { "cuda:0", "cuda:1" } }
-- AdagradMGPU, AdadeltaMGPU, AdamMGPU, AdamaxMGPU, NadamMGPU, RMSPropMGPU, SGD_MGPU or SGDMGPU are our optimizers,
-- which train on several devices anyway, with further options:
--   gdev_list   names of devices, or a text as --devices spells it. A model compiled without devices trains on these;
--               a parallel model must have the same devices
--   usenccl     no effect: NCCL is used between GPUs if it is installed
--   lr, decay   Keras 2's: the learning rate, and by how much it falls: rate = lr / (1 + decay * step)
-- Options of the optimizer: mgpu.optimizers. Errors: a device that is not there; lr besides learning_rate.
local core = require "mgpu.core"
local devices = require "mgpu.parallel.devices"
local options = require "mgpu.options"

local CLASSES = { AdadeltaMGPU = "Adadelta", AdagradMGPU = "Adagrad", AdamMGPU = "Adam", AdamaxMGPU = "Adamax",
  NadamMGPU = "Nadam", RMSPropMGPU = "RMSprop", SGDMGPU = "SGD", SGD_MGPU = "SGD" }

local OPTIONS = options.declare {
  { "gdev_list", "string|table" },
  { "usenccl", "boolean" },
  { "lr", "number", min = 0 },
  { "decay", "number", default = 0, min = 0 },
}

-- Splits the given options: ours, checked, and those of the optimizer.
local function split(name, given)
  local ours, rest = {}, {}
  for key, value in pairs(type(given) == "table" and not getmetatable(given) and given or { given }) do
    local own = false
    for _, option in ipairs(OPTIONS) do own = own or option[1] == key end
    if own then ours[key] = value else rest[key] = value end
  end
  return options.check(name, OPTIONS, ours), rest
end

local function make(name, given)
  local class = require "mgpu.nn.optimizers"[CLASSES[name]]
  local chosen, rest = split(name, given)
  if chosen.lr then
    if rest.learning_rate ~= nil or rest[1] ~= nil then
      core.fail("usage", name .. ": lr and learning_rate are the same option: give one of them")
    end
    rest.learning_rate = chosen.lr
  end
  if chosen.decay > 0 then
    local rate = rest.learning_rate or rest[1] or class.declared[1].default
    rest.learning_rate, rest[1] = require "mgpu.nn.schedules".InverseTimeDecay { initial_learning_rate = rate,
      decay_steps = 1, decay_rate = chosen.decay }, nil
  end
  local optimizer = class(rest)
  local list = chosen.gdev_list
  if list then
    optimizer.gdev_list = devices.resolve(name, devices.spelled(name, type(list) == "string" and { list } or list))
  end
  return optimizer
end

local M = {}
for name in pairs(CLASSES) do
  --- RMSPropMGPU {gdev_list =, usenccl =, lr =, decay = 0, ...}, also AdadeltaMGPU, AdagradMGPU, AdamMGPU,
  --- AdamaxMGPU, NadamMGPU, SGDMGPU and SGD_MGPU: an optimizer for several devices. Options: see the introduction of
  --- mgpu.parallel.optimizers.
  -- Example:
  --     local opt = mgpu.parallel.optimizers.RMSPropMGPU { lr = 0.1, decay = 1, gdev_list = { "cpu:0", "cpu:1" } }
  --     print(opt.learning_rate, table.concat(opt.gdev_list, " "))  --> 0.1 cpu:0 cpu:1
  --     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
  --     model:compile { optimizer = opt, loss = "mse" } -- trains on both devices
  M[name] = function(given) return make(name, given) end
end

return require "mgpu.strict_table" ("mgpu.parallel.optimizers", M)
