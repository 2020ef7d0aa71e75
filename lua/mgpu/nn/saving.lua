--- Saving and loading models. The ending of the file's name chooses the format, a module in formats/.
--
--     model:save "mnist.safetensors"
--     local again = mgpu.load_model("mnist.safetensors", { custom = { Scale = Scale } })
-- save, save_weights and load_weights are methods of models; load_model is mgpu's. Loading never runs code of the
-- file. A format module has, as far as the format goes:
--     save(model, path, parts)          parts.compiled: {config =, tensors =} of train/compiled_state.lua, or nil
--     save_weights(model, path)
--     load_weights(model, path, {by_name =, skip_mismatch =})
--     load_model(path, custom, compile) -> model, compiled
--     writes_halves                     true: save and save_weights can write them (nn/stored_dtype.lua)
--     inference_only                    true: save does not get parts.compiled
--     check(model)                      raises if the model cannot be saved in the format
local compiled_state = require "mgpu.train.compiled_state"
local core = require "mgpu.core"
local model_config = require "mgpu.nn.model_config"
local Optimizer = require "mgpu.nn.optimizers.optimizer"
local mixed_precision = require "mgpu.nn.mixed_precision"
local options = require "mgpu.options"
local stored_dtype = require "mgpu.nn.stored_dtype"
local world = require "mgpu.parallel.world"

local M = {}

-- {ending, module in formats/}; a longer ending comes before a shorter one with which it ends.
local FORMATS = {
  { ".safetensors", "safetensors" },
  { ".npz", "npz" },
  { ".weights.h5", "keras_weights" },
  { ".h5", "keras_h5" },
  { ".hdf5", "keras_h5" },
  { ".keras", "keras_zip" },
  { ".onnx", "onnx" },
}

-- ---- paths --------------------------------------------------------------------------------------

local function known_endings(what)
  local list = {}
  for i, format in ipairs(FORMATS) do
    if require("mgpu.nn.formats." .. format[2])[what] then list[#list + 1] = FORMATS[i][1] end
  end
  return table.concat(list, ", ")
end

-- The format module for the path, which has the function `what`; `who` begins error messages.
local function format_of(path, what, who)
  if type(path) ~= "string" then
    core.fail("usage", ('%s "model.safetensors": the path must be text, got %s'):format(who,
      path == nil and "nothing" or "a " .. type(path)))
  end
  if path == "" then core.fail("usage", who .. ": the path is empty") end
  if path:find("%z") then core.fail("usage", ("%s: the path %q contains a zero byte"):format(who, path)) end
  local lower = path:lower()
  for _, format in ipairs(FORMATS) do
    if lower:sub(-#format[1]) == format[1] then
      local module = require("mgpu.nn.formats." .. format[2])
      if module[what] then return module end
      core.fail("usage", ("%s: %s files are not supported here: use one of %s"):format(who, format[1],
        known_endings(what)))
    end
  end
  local ending = path:match "%.[^./]*$"
  core.fail("usage", ("%s: %s: %s: the endings are %s"):format(who, path, ending
    and ("unknown ending %q"):format(ending) or "the name has no ending", known_endings(what)))
end

--- is_known(path) -> whether its ending is that of a file format of models.
function M.is_known(path)
  for _, format in ipairs(FORMATS) do
    if path:lower():sub(-#format[1]) == format[1] then return true end
  end
  return false
end

--- check_path(path, what, who = what): raises unless a model can be saved there: called before any work.
-- ARGS what: "save" or "save_weights". Errors: an ending that is unknown or has no such function; a folder that is
-- missing or cannot be written to.
function M.check_path(path, what, who)
  who = who or what
  local module = format_of(path, what, who)
  core.check_creatable(path, who)
  return module
end

-- ---- methods of models --------------------------------------------------------------------------

local function need_built(model, what)
  if not model.built then
    model:fail("%s: the model has no weights yet: give it an Input or call it once", what)
  end
end

-- Refuses weights that a step has made infinite: they would replace saved ones that are good.
local function need_finite(model, what)
  core.check_usable(model.variables, ("%s, and was not saved (%s)"):format(Optimizer.BAD_UPDATE, what))
end

-- The checked options of a call.
local function chosen_options(who, declared, given)
  if given ~= nil and (type(given) ~= "table" or getmetatable(given)) then
    core.fail("usage", ("%s: options are a table, got a %s"):format(who, type(given)))
  end
  return options.check(who, declared, given or {})
end

local function check_overwrite(path, chosen, who)
  if not chosen.overwrite and core.file_exists(path) then
    core.fail("usage", ("%s: %s exists already, and overwrite is false"):format(who, path))
  end
end

local OVERWRITE = { "overwrite", "boolean", default = true }
local HALVES = { "dtype", "string", values = { "float16", "bfloat16" } }
local SAVE = options.declare { OVERWRITE, { "include_optimizer", "boolean", default = true }, HALVES }
local SAVE_WEIGHTS = options.declare { OVERWRITE, HALVES }
local LOAD_WEIGHTS = options.declare { { "by_name", "boolean", default = false },
  { "skip_mismatch", "boolean", default = false } }
local LOAD = options.declare { { "custom", "table", default = {} }, { "compile", "boolean", default = true },
  { "trainable", "boolean" }, HALVES }

local methods = {}

-- The compiled state for a file; nil if there is none or it is not wanted.
local function compiled_parts(model, chosen)
  if not model.compiled or not chosen.include_optimizer then return nil end
  local config, tensors = compiled_state.capture(model)
  return { config = config, tensors = tensors }
end

-- Raises unless the format can hold weights as halves.
local function check_halves(model, format, chosen, what)
  if chosen.dtype and not format.writes_halves then
    model:fail("%s: dtype is for .safetensors, .keras, .h5 and .weights.h5 files", what)
  end
end

--- model:save(path, {include_optimizer = true, overwrite = true, dtype =}): writes weights, configuration and, if
--- compiled, everything that compile was given (but for devices), the optimizer with its state, and the random state.
--- After an error or a crash the file is the old one or none, never a part. With several processes rank 0 writes it,
--- and the others go on at once: mgpu.world():barrier() waits until it is there.
-- dtype = "float16" or "bfloat16": floating weights are written as halves, which makes the file half as large. They are
-- rounded to 11 or 8 bits; loading converts them back, or keeps them with load_model's dtype.
-- Errors: an unknown ending or option; a model that is not built; an option, a loss or a metric that is a function; the
-- disk; a file that exists, with overwrite = false.
-- Example:
--     local x = mgpu.rand { 4, 3 }
--     local model = mgpu.Sequential { mgpu.Input { 3 }, L.Dense { 1 } }
--     model:compile { optimizer = "adam", loss = "mse" }
--     model:save "model.safetensors"
--     local again = mgpu.load_model "model.safetensors" -- compiled, as it was
--     print((again:predict(x) - model:predict(x)):abs():max():item())  --> 0
function methods.save(model, path, given)
  local chosen = chosen_options("save", SAVE, given)
  if not world.is_first() then return end
  local format = M.check_path(path, "save", "model:save")
  check_overwrite(path, chosen, "save")
  need_built(model, "save")
  need_finite(model, "save")
  check_halves(model, format, chosen, "save")
  stored_dtype.with(chosen.dtype, format.save, model, path,
    { compiled = not format.inference_only and compiled_parts(model, chosen) or nil })
end

--- model:save_weights(path, {overwrite = true, dtype =}): writes the weights alone; dtype: see save. Errors: as save.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 3 }, L.Dense { 1 } }
--     model:save_weights "weights.safetensors"
--     print(pcall(function() model:save_weights("weights.safetensors", { overwrite = false }) end))
--     --> false ... save_weights: weights.safetensors exists already, and overwrite is false
function methods.save_weights(model, path, given)
  local chosen = chosen_options("save_weights", SAVE_WEIGHTS, given)
  if not world.is_first() then return end
  local format = M.check_path(path, "save_weights", "model:save_weights")
  check_overwrite(path, chosen, "save_weights")
  need_built(model, "save_weights")
  need_finite(model, "save_weights")
  check_halves(model, format, chosen, "save_weights")
  stored_dtype.with(chosen.dtype, format.save_weights, model, path)
end

--- model:load_weights(path, {by_name = false, skip_mismatch = false}): reads the weights, by name, or by order where
--- layers have automatic names.
-- by_name: loads the weights that file and model both have, and leaves the others as they are. skip_mismatch: leaves
-- the weights whose shape in the file differs as they are. Errors: weights that do not fit; then nothing has changed.
-- Example:
--     local function create() return mgpu.Sequential { mgpu.Input { 3 }, L.Dense { 1 } } end
--     local a, b = create(), create()
--     a:save_weights "weights.safetensors"
--     b:load_weights "weights.safetensors"
--     print((a.layers[1].kernel - b.layers[1].kernel):abs():max():item())  --> 0
function methods.load_weights(model, path, given)
  local chosen = chosen_options("load_weights", LOAD_WEIGHTS, given)
  local format = format_of(path, "load_weights", "model:load_weights")
  need_built(model, "load_weights")
  format.load_weights(model, path, chosen)
end

--- model:to_json() -> the model's layers as text, in Keras's form. Errors: an option that is a function.
-- Example:
--     local json = mgpu.Sequential { mgpu.Input { 3 }, L.Dense { 1 } }:to_json()
--     print(json:match '"units": *%d+')  --> "units":1
--     print((mgpu.model_from_json(json):count_params()))  --> 4
function methods.to_json(model) return require "mgpu.nn.keras.json".to_json(model) end
M.methods = methods

-- ---- mgpu.load_model ----------------------------------------------------------------------------

-- A class is a table that can be called; a bare {new = fn} is not a class.
local function check_custom(custom, who)
  for name, class in pairs(custom) do
    local meta = type(class) == "table" and getmetatable(class)
    if not meta or not meta.__call or type(class.new) ~= "function" then
      core.fail("usage", ("%s: custom.%s must be a class made by mgpu.Layer:extend, got a %s"):format(who,
        tostring(name), type(class)))
    end
  end
end

--- mgpu.load_model(path, {custom = {Name = class}, compile = true, trainable =, dtype =}) -> the model.
--
-- The endings are those of model:save. A .onnx file of any program becomes a model of one layer, L.OnnxGraph, whose
-- weights are frozen.
-- custom: own classes of layers, losses and metrics by name. The model is compiled if it was when it was saved, and fit
-- continues where training stopped; compile = false leaves that out. trainable: true or false for all layers, in place
-- of what the file says; a .onnx file is loaded with true to be trained further.
-- dtype = "float16" or "bfloat16": weights of float32 layers are kept in memory as halves, for prediction: the layers
-- compute in float32, and the model is frozen and not compiled.
-- Errors: no model in the file; an unknown layer class; a damaged file; weights that do not fit.
-- Example:
--     local model = mgpu.Sequential { mgpu.layers.Dense { 2, input_shape = { 3 } } }
--     model:save "model.keras"
--     local again = mgpu.load_model "model.keras"
--     local x = mgpu.ones { 1, 3 }
--     print(again(x):eq(model(x)):all():item())  --> true
function M.load_model(path, given)
  local chosen = chosen_options("load_model", LOAD, given)
  check_custom(chosen.custom, "load_model")
  local format = format_of(path, "load_model", "mgpu.load_model")
  if chosen.dtype and not format.writes_halves then
    core.fail("usage", "load_model: dtype is for models of .safetensors, .keras and .h5 files")
  end
  local model, compiled = mixed_precision.storing(chosen.dtype, format.load_model, path, chosen.custom,
    chosen.compile and not chosen.dtype)
  if chosen.dtype then
    stored_dtype.check_loaded(model, path)
    model.trainable = false
  end
  if compiled then
    model_config.guarded(path, compiled_state.restore, model, compiled.config, compiled.tensors,
      { path = path, custom = chosen.custom })
  end
  if chosen.trainable ~= nil then model.trainable = chosen.trainable end
  return model
end

local FROM_JSON = options.declare { { "custom", "table", default = {} } }

--- mgpu.model_from_json(text, {custom = {Name = class}}) -> the model, with new weights, not compiled.
-- text: of model:to_json(), or Keras's. Errors: text that is not a model's; an unknown class.
-- Example:
--     local model = mgpu.Sequential { mgpu.layers.Dense { 2, input_shape = { 3 } } }
--     local again = mgpu.model_from_json(model:to_json()) -- the same layers with new weights
--     print(#again.layers, again.layers[1].units)  --> 1 2
function M.model_from_json(text, given)
  local chosen = chosen_options("model_from_json", FROM_JSON, given)
  check_custom(chosen.custom, "model_from_json")
  if type(text) ~= "string" then
    core.fail("usage", "model_from_json: expected text, got " .. (text == nil and "nothing" or "a " .. type(text)))
  end
  return require "mgpu.nn.keras.json".model_from_json(text, chosen.custom)
end

return M
