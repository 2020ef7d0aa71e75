--- model:compile and model:set_devices.
local compile_options = require "mgpu.train.compile_options"
local compiled_state = require "mgpu.train.compiled_state"
local core = require "mgpu.core"
local devices = require "mgpu.parallel.devices"
local LossScaleOptimizer = require "mgpu.nn.optimizers.loss_scale_optimizer"
local mixed_precision = require "mgpu.nn.mixed_precision"
local options = require "mgpu.options"
local parallel = require "mgpu.parallel"
local placement = require "mgpu.train.placement"
local rate_scale = require "mgpu.train.rate_scale"
local RunningMetrics = require "mgpu.train.running_metrics"
local value_checks = require "mgpu.train.value_checks"

local M = {}

local COMPILE = options.declare {
  { "optimizer", "any", default = "rmsprop" },
  { "loss", "any" },
  { "loss_weights", "any" },
  { "metrics", "any" },
  { "weighted_metrics", "any" },
  { "devices", "any" },
  { "strategy", "any" },
  { "accumulate", "integer", default = 1, min = 1 },
  { "steps_per_execution", "integer", default = 1, min = 1 },
  { "run_eagerly", "boolean", default = false },
  { "bn", "string", default = "sync", values = { "sync", "local" } },
  { "precision", "string|table" },
  { "auto_scale_loss", "boolean", default = true },
  { "lr_scale", "any", default = false },
}

-- model.compiled: what compile makes of its options. The parts of train/ share it.
--   optimizer, metrics (running_metrics.lua)
--   options     compile's options, checked
--   outputs     for each output {name, loss, weight, metrics, weighted_metrics}
--   eager, accumulate, steps_per_execution, bn   as given
--   devices, strategy, home, ...                 see placement.lua
--   steps, positions                             see train_step.lua
--   fitting     whether a fit is running
--   seen_batches  the methods for one batch that were called, see value_checks.lua
--   restored    of a model from a file, see compiled_state.lua
local function new_compiled(chosen, output_names, where)
  local outputs = compile_options.outputs(chosen, output_names)
  local compiled = { options = chosen, optimizer = compile_options.optimizer(chosen.optimizer), outputs = outputs,
    metrics = RunningMetrics.new(outputs), eager = chosen.run_eagerly, accumulate = chosen.accumulate,
    steps_per_execution = chosen.steps_per_execution, bn = chosen.bn, seen_batches = {} }
  local rule = compiled.optimizer.inner_optimizer or compiled.optimizer
  for _, each in ipairs(chosen.accumulate > 1 and (rule.optimizers or { rule }) or {}) do
    if each.options.gradient_accumulation_steps then
      core.fail("usage", "compile: give only one of accumulate and the optimizer's gradient_accumulation_steps")
    end
  end
  placement.set_devices(compiled, where)
  return compiled
end

-- Applies compile's precision. A model that computes in float16 gets loss scaling: float16 has no numbers between 0
-- and 6e-8, so small gradients would become 0.
local function set_precision(model, compiled, chosen)
  if chosen.precision ~= nil then mixed_precision.apply(model, chosen.precision) end
  local scaled = compiled.optimizer.skips_steps
  if chosen.auto_scale_loss and not scaled and mixed_precision.computes_in(model, "float16") then
    compiled.optimizer = LossScaleOptimizer { compiled.optimizer }
  end
end

--- model:compile {optimizer = "rmsprop", loss =, metrics =, ...}: says how the model is trained, as Keras's compile.
--
--   optimizer         a name or one of mgpu.optimizers
--   loss              required: a name, one of mgpu.losses, or function(y_true, y_pred) -> one value per sample.
--                     With several outputs an array in their order, or a table by their names
--   loss_weights, metrics, weighted_metrics   likewise
--   devices           default device if nil; see mgpu.parallel and lua/mgpu/parallel/devices.lua
--   strategy          "mirrored" (default), "central", "async", "local_sgd", "elastic", "adasum",
--                     "parameter_server", or made by mgpu.parallel.strategy, which has their options
--   bn                batch normalization on several devices: "sync" (default) or "local"
--   precision         a dtype policy such as "mixed_bfloat16", of the layers that do not state one
--   auto_scale_loss   true: a model that computes in float16 gets a LossScaleOptimizer
--   lr_scale          false; "linear" or "sqrt": the learning rate, also a schedule's, is multiplied by the number of
--                     devices of all processes, or its square root. Training that is resumed keeps the factor
--   accumulate        1: the weights change every n-th batch, by the mean gradient of the rows of n batches, and at
--                     the end of an epoch. Schedules count the changes. The optimizers' option
--                     gradient_accumulation_steps is Keras's way: schedules count the batches, and a rest is carried on
--   steps_per_execution  1: batches in one call of the jitted step
--   run_eagerly       false: trains without jit, for debugging
-- Errors: an unknown option or name; a metric named twice; options that cannot be combined.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 3, activation = "softmax" } }
--     model:compile { optimizer = mgpu.optimizers.Adam { 1e-3 }, loss = "sparse_categorical_crossentropy",
--       metrics = { "accuracy" }, devices = { "cpu:0", "cpu:1" } } -- the rows of each batch are split over both
--     model:fit(mgpu.rand { 64, 4 }, mgpu.randint(0, 3, { 64 }), { epochs = 2, verbose = 0 })
function M:compile(given)
  if given ~= nil and type(given) ~= "table" then
    core.fail("usage", "compile: options are a table, got a " .. type(given))
  end
  local chosen = options.check("compile", COMPILE, given or {})
  if chosen.loss == nil then
    core.fail("usage", 'compile: loss is missing; give a name, as in loss = '
      .. '"categorical_crossentropy", or a function(y_true, y_pred)')
  end
  if chosen.accumulate > 1 and chosen.steps_per_execution > 1 then
    core.fail("usage", "compile: give only one of accumulate and steps_per_execution")
  end
  local compiled = new_compiled(chosen, self.output_names or { "output" }, parallel.resolve(self, chosen))
  set_precision(self, compiled, chosen)
  rate_scale.declare(compiled, chosen)
  compiled_state.compiled_again(self.compiled, compiled)
  self.compiled, self.optimizer, self.loss = compiled, compiled.optimizer, chosen.loss
  local rule = compiled.optimizer.inner_optimizer or compiled.optimizer
  if rule.train_model then rule:train_model(self) end
  value_checks.layers(self)
end

--- model:set_devices(list): replaces compile's option devices; weights, optimizer and counters stay. Called by a
--- callback during fit it takes effect at the next epoch.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { loss = "mse", devices = { "cpu:0", "cpu:1" } }
--     model:fit(mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }, { verbose = 0 })
--     model:set_devices { "cpu:0" }
--     model:fit(mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }, { verbose = 0 })
function M:set_devices(list)
  local compiled = self.compiled
  if not compiled then
    core.fail("usage", "set_devices: call model:compile {optimizer = ..., loss = ...} first")
  end
  local names, weights, stages = devices.resolve("set_devices", list)
  placement.set_devices(compiled, { devices = names, weights = weights, stages = stages,
    strategy = compiled.strategy, options = compiled.strategy_options })
end

return M
