--- Warnings about values that a loss takes without complaint, though they can hardly be meant.
--
-- Each is given once a model, on stderr, and names what mends it. Checked are the layers, when a model is compiled and
-- when data come; targets (the first rows, if there are very many numbers) and weights that are given as tensors; the
-- first batch of a dataset or generator, and of train_on_batch and test_on_batch after compile; predictions for the
-- first rows of these, unless a sigmoid or softmax made them.
local core = require "mgpu.core"
local data_checks = require "mgpu.train.data_checks"
local masks = require "mgpu.nn.masks"
local shapes = require "mgpu.nn.losses.shapes"
local warnings = require "mgpu.warnings"

local ops = core.ops
local M = {}

M.ROWS = 32 -- of which predictions are looked at

local MOST_TARGETS = 2 ^ 22 -- numbers, which take some 10 ms
local SLACK = 1e-3 -- by which floats may leave [0, 1]: rounding, interpolated images

-- Losses of probabilities: the activation that makes them; advice if targets, too, must be probabilities.
local LOSSES = {
  binary_crossentropy = { activation = "sigmoid",
    targets = 'scale them, or use loss = "sparse_categorical_crossentropy" for class ids' },
  categorical_crossentropy = { activation = "softmax" },
  sparse_categorical_crossentropy = { activation = "softmax" },
  kl_divergence = { activation = "softmax", targets = "normalize them" },
}
local MAKES_PROBABILITIES = { sigmoid = true, softmax = true } -- ops

-- ---- layers -------------------------------------------------------------------------------------

-- What these activations make of a single unit.
local OF_ONE_UNIT = { softmax = 1, log_softmax = 0, sparsemax = 1 }

-- The name of the layer's activation, and the axes that it normalizes; nil for other layers, and for classes of the
-- user, which may apply theirs to anything.
local function normalized(layer)
  local class = rawget(require "mgpu.nn.layers", layer.class_name)
  if not class or class.own_declared ~= layer.own_declared then return nil end
  if layer.class_name == "Softmax" then
    return "softmax", type(layer.axis) == "table" and layer.axis or { layer.axis }
  end
  local activations = require "mgpu.nn.activations"
  for name in pairs(OF_ONE_UNIT) do
    local given = rawget(layer, "activation")
    if given == name or given == activations[name] then return name, { -1 } end
  end
end

-- How many units the activation of a built layer normalizes; -1 if that is not known.
local function units_of(layer, axes)
  local shape, units = layer:output_shape(layer.built_shape), 1
  for _, axis in ipairs(axes) do
    local size = shape[axis < 0 and axis + #shape + 1 or axis]
    if size == -1 then return -1 end
    units = units * size
  end
  return units
end

--- layers(model): warns about a softmax over one unit.
function M.layers(model)
  if not warnings.switch() then return end
  model:each_layer(function(layer)
    local name, axes = normalized(layer)
    if name and layer.built and units_of(layer, axes) == 1 then
      warnings.once(model, '%s: %s over one unit is always %d: for two classes use activation = "sigmoid" and loss = '
        .. '"binary_crossentropy"', tostring(layer), name, OF_ONE_UNIT[name])
    end
  end)
end

-- ---- data ---------------------------------------------------------------------------------------

-- The smallest and the largest number of t, if any that counts is outside [0, 1]; else nil. NaN is no such number.
-- ARGS weight: of the rows, or nil; rows of weight 0 do not count.
local function outside(t, weight)
  local dtype = t:dtype()
  if dtype == "bool" then return nil end
  local slack = dtype:find "float" and SLACK or 0
  local good = ops.logical_not(ops.logical_or(ops.lt(t, -slack), ops.gt(t, 1 + slack)))
  if weight then
    local counts = shapes.weight("sample_weight", core.place(ops.ne(weight, 0), t:device()), t:shape(), "bool")
    good = ops.logical_or(good, ops.logical_not(counts))
  end
  if ops.all(good):item() then return nil end -- null devices, which compute nothing, answer true
  return ops.min(t):item(), ops.max(t):item()
end

local function check_targets(model, what, loss, y, weight)
  local advice, rows = LOSSES[loss.kind].targets, math.ceil(MOST_TARGETS / shapes.product(y:shape(), 2))
  local low, high = outside(data_checks.first_rows(y, rows), weight and data_checks.first_rows(weight, rows))
  if not low then return end
  warnings.once(model, "%s: y has numbers from %g to %g, but the targets of %s are from 0 to 1: %s", what, low, high,
    loss.name, advice)
end

local function check_predictions(model, what, loss, p)
  local made = core.producer(p) == "cast" and core.producer_input(p, 1) or p
  if MAKES_PROBABILITIES[core.producer(made)] then return end -- nothing is computed
  core.eval(p)
  local low, high = outside(p)
  if not low then return end
  local activation = LOSSES[loss.kind].activation
  warnings.once(model, '%s: the model predicts numbers from %g to %g, but %s takes probabilities: end the model with '
    .. 'activation = "%s"%s', what, low, high, loss.name, activation,
    loss.options.from_logits == false and ", or give the loss from_logits = true" or "")
end

local function check_weight(model, what, weight)
  local good = ops.logical_not(ops.lt(weight, 0))
  if ops.all(good):item() then return end
  warnings.once(model, "%s: sample_weight has negative numbers, down to %g, which make the loss of their rows grow: "
    .. "give a sample_weight of 0 to rows that are not to count", what, ops.min(weight):item())
end

--- is_due(model, what): whether the data of this call are to be looked at: of the methods for one batch, those of the
--- first call after compile.
function M.is_due(model, what)
  if not warnings.switch() then return false end
  if not what:find "_on_batch" then return true end
  local seen = model.compiled.seen_batches
  local due = not seen[what]
  seen[what] = true
  return due
end

--- data(what, model, y, predictions, weight): warns about values in them. By output number; predictions are those for
--- the first rows, lazy still.
function M.data(what, model, y, predictions, weight)
  M.layers(model)
  local outputs = model.compiled.outputs
  for i, output in ipairs(outputs) do
    local loss, p = output.loss, predictions[i]
    local where = #outputs > 1 and ('%s: output "%s"'):format(what, output.name) or what
    local row = loss and y[i] and LOSSES[loss.kind]
    -- targets of masked steps may be anything
    if row and row.targets and not masks.get(p) then check_targets(model, where, loss, y[i], weight[i]) end
    if row and not loss.options.from_logits then check_predictions(model, where, loss, p) end
    if weight[i] then check_weight(model, where, weight[i]) end
  end
end

return M
