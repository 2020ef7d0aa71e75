--- SwapEMAWeights {swap_on_epoch = false}: evaluate, validation and predict use the averages of the weights.
--
--     model:compile { optimizer = mgpu.optimizers.SGD { use_ema = true }, loss = "mse" }
--     model:fit(x, y, { validation_split = 0.1, callbacks = mgpu.callbacks.SwapEMAWeights {} })
-- The optimizer keeps the averages (its option use_ema). They are exchanged with the weights before an evaluation, and
-- back after it. swap_on_epoch: they are in the model at the end of each epoch too, for the callbacks behind this one,
-- such as ModelCheckpoint, and after training: put EarlyStopping {restore_best_weights = true} behind it. An error
-- during an evaluation leaves the averages in the model. Errors: an optimizer without use_ema.
-- Source: Keras's SwapEMAWeights; there the averages stay in the model after predict.
-- Example:
--     local x = mgpu.ones { 8, 1 }
--     local model = mgpu.Sequential { mgpu.Input { 1 }, L.Dense { 1, kernel_initializer = "zeros" } }
--     model:compile { optimizer = mgpu.optimizers.SGD { 0.1, use_ema = true, ema_momentum = 0.5 }, loss = "mse" }
--     model:fit(x, x, { epochs = 2, batch_size = 8, verbose = 0 })
--     model:train_on_batch(x, x)
--     local with = model:evaluate(x, x, { verbose = 0, callbacks = mgpu.callbacks.SwapEMAWeights {} })
--     -- the averages lie behind the weights
--     print(with.loss > model:evaluate(x, x, { verbose = 0 }).loss)  --> true
local averages = require "mgpu.nn.optimizers.averages"
local Callback = require "mgpu.train.callbacks.callback"
local core = require "mgpu.core"

local SwapEMAWeights = Callback:extend("SwapEMAWeights", { positional = 1,
  { "swap_on_epoch", "boolean", default = false },
})

-- The optimizer that keeps the averages.
local function optimizer_of(self)
  local optimizer = self.model.compiled and self.model.compiled.optimizer
  optimizer = optimizer and rawget(optimizer, "inner_optimizer") or optimizer
  if not optimizer or not optimizer.options.use_ema then
    core.fail("usage", "SwapEMAWeights: the optimizer keeps no averages: compile with one that has use_ema = true")
  end
  return optimizer
end

-- Exchanges the weights and their averages.
local function swap(self)
  local optimizer = optimizer_of(self)
  self.swapped = not self.swapped
  self.averages = self.swapped and {} or nil
  for i, v in ipairs(optimizer.built) do
    local slot = optimizer.slots[v][averages.SLOT]
    local value, average = v:value(), slot:value()
    v:assign(average)
    slot:assign(value)
    if self.swapped then self.averages[i] = average end
  end
end

local function swap_in(self)
  if not self.swapped then swap(self) end
end

local function swap_out(self)
  if self.swapped then swap(self) end
end

--- Raises if there are no averages.
function SwapEMAWeights:on_train_begin() optimizer_of(self) end

--- With swap_on_epoch: training goes on with the weights.
function SwapEMAWeights:on_epoch_begin() swap_out(self) end

--- With swap_on_epoch: the averages are in the model.
function SwapEMAWeights:on_epoch_end()
  if self.swap_on_epoch then swap_in(self) end
end

--- The averages stay in the model: fit has just set the weights to what lay in the averages' place.
function SwapEMAWeights:on_train_end()
  if not self.swapped then return end
  local optimizer = optimizer_of(self)
  for i, v in ipairs(optimizer.built) do
    v:assign(self.averages[i])
    optimizer.slots[v][averages.SLOT]:assign(self.averages[i])
  end
  self.swapped, self.averages = false, nil
end

--- For checkpoints: whether the averages are in the model, and the averages.
function SwapEMAWeights:get_state() return { swapped = self.swapped or false, averages = self.averages } end

--- Continues from get_state's table.
function SwapEMAWeights:set_state(state) self.swapped, self.averages = state.swapped, state.averages end

--- Evaluation begins: the averages come into the model.
function SwapEMAWeights:on_test_begin() swap_in(self) end

--- Evaluation ends: the weights come back.
function SwapEMAWeights:on_test_end() swap_out(self) end

--- As for evaluation.
function SwapEMAWeights:on_predict_begin() swap_in(self) end

--- As for evaluation.
function SwapEMAWeights:on_predict_end() swap_out(self) end

return SwapEMAWeights
