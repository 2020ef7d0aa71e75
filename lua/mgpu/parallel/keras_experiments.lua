--- The multi-GPU interface of keras_experiments (keras_exp.multigpu): make_parallel, ModelMGPU,
--- print_mgpu_modelsummary.
--
--     local gpus = mgpu.parallel.get_available_gpus()
--     local model = mgpu.parallel.make_parallel(serial_model, gpus)
--     model:compile { optimizer = mgpu.parallel.optimizers.RMSPropMGPU { lr = 1e-4, gdev_list = gpus }, loss = ... }
local core = require "mgpu.core"
local devices = require "mgpu.parallel.devices"
local options = require "mgpu.options"
local view = require "mgpu.parallel.view"

local M = {}

local MAKE = {
  { "ps_device", "string" },
  { "usenccl", "boolean" },
  { "initsync", "boolean" },
  { "syncopt", "boolean" },
  { "enqueue", "boolean" },
}

local MODEL = options.declare { positional = 2,
  { "serial_model", "any", required = true },
  { "gdev_list", "any", required = true },
  unpack(MAKE),
}

-- The names in gdev_list: an array, or a text as --devices spells it.
local function device_names(who, list)
  if type(list) == "string" then list = { list } end
  if type(list) ~= "table" then
    core.fail("usage", ("%s: gdev_list must be a list of devices, got %s"):format(who,
      list == nil and "nothing" or "a " .. type(list)))
  end
  return devices.spelled(who, list)
end

-- Tells about options whose value is not the original's default.
local function tell_about(who, chosen)
  for _, special in ipairs { { "initsync", false }, { "syncopt", true }, { "enqueue", true } } do
    if chosen[special[1]] == special[2] then
      view.tell_once(who, special[1], "replicas are equal at the start, gradients are averaged and batches are staged "
        .. "in any case")
    end
  end
  if chosen.usenccl then view.tell_once(who, "usenccl", "NCCL is used between GPUs if it is installed") end
end

--- ModelMGPU {serial_model, gdev_list, ps_device =, usenccl =, initsync =, syncopt =, enqueue =} -> the model on these
--- devices.
-- It shares weights, layers and names with serial_model; what it saves is a file of the serial model, and what it loads
-- may come from one. Fields: serial_model, gdev_list. Options: see make_parallel.
-- Errors: fewer than two devices; a device that is not there.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     local parallel = mgpu.parallel.ModelMGPU { serial_model = model, gdev_list = { "cpu:0", "cpu:1" } }
--     print(parallel.serial_model == model, #parallel.gdev_list)  --> true 2
local function make_model(given)
  local chosen = options.check("ModelMGPU", MODEL, given)
  local model = chosen.serial_model
  view.check_model("ModelMGPU", "serial_model", model)
  local list = device_names("ModelMGPU", chosen.gdev_list)
  if #list < 2 then
    core.fail("usage", ("ModelMGPU: Number of gpus < 2: two or more devices are needed, got %s; visible: %s"):format(
      list[1] or "none", devices.visible()))
  end
  tell_about("make_parallel", chosen)
  list = devices.resolve("ModelMGPU", list)
  local central = chosen.ps_device and not chosen.usenccl
  return view.view_of(model, { devices = list, strategy = central and "central" or "mirrored",
    home = central and core.device_name(chosen.ps_device, true) or nil }, { serial_model = model, gdev_list = list })
end

M.ModelMGPU = setmetatable({ new = make_model }, {
  __call = function(_, given) return make_model(given) end,
  __tostring = function() return "class ModelMGPU" end,
})

local function is_callable(value)
  local meta = type(value) == "table" and getmetatable(value)
  return type(value) == "function" or (meta and meta.__call ~= nil)
end

--- make_parallel(model, gdev_list, {ps_device =, usenccl =, initsync =, syncopt =, enqueue =, model_class = ModelMGPU})
--- -> the model on these devices; with fewer than two devices the model itself.
-- ps_device: the weights are kept and updated there (strategy "central"), unless usenccl is true. initsync, syncopt,
-- enqueue and usenccl have no effect, since replicas are always equal at the start, gradients always averaged and
-- batches always staged; a value other than the original's default prints a note. model_class: makes the model from
-- one table, {serial_model =, gdev_list =, ...}: a function that adds to what ModelMGPU returns.
-- Errors: no model; a model that is parallel already; a device that is not there.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     local parallel = mgpu.parallel.make_parallel(model, { "cpu:0", "cpu:1" })
--     parallel:compile { optimizer = "rmsprop", loss = "mse" }
--     parallel:fit(mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }, { verbose = 0 })
function M.make_parallel(model, gdev_list, given)
  view.check_model("make_parallel", "the first argument", model)
  local list = device_names("make_parallel", gdev_list)
  local chosen = options.check("make_parallel", options.declare { { "model_class", "any", default = M.ModelMGPU },
    unpack(MAKE) }, given or {})
  local class = chosen.model_class
  if not is_callable(class) then
    core.fail("usage", ("make_parallel: model_class must be a function or a class, got a %s"):format(type(class)))
  end
  if #list < 2 then return model end
  chosen.serial_model, chosen.gdev_list, chosen.model_class = model, list, nil
  return class(chosen)
end

--- print_mgpu_modelsummary(model): prints the model's summary, then, indented, those of the models that are its layers.
-- Example:
--     local model = mgpu.Sequential { name = "small", mgpu.Input { 4 }, L.Dense { 1 } }
--     mgpu.parallel.print_mgpu_modelsummary(mgpu.parallel.make_parallel(model, { "cpu:0", "cpu:1" }))
--     --> MULTI-GPU MODEL: small
--     --> ...
function M.print_mgpu_modelsummary(model)
  if type(model) ~= "table" or not model.is_network then
    core.fail("usage", "print_mgpu_modelsummary: expected a model, got " .. (model == nil and "nothing"
      or "a " .. type(model)))
  end
  local write, text_of = require "mgpu".output, require "mgpu.nn.summary".text
  write(("\nMULTI-GPU MODEL: %s\n%s\n"):format(model.name, text_of(model)))
  for _, layer in ipairs(model.layers) do
    if layer.is_network then
      write(("\n\tSUBMODEL SUMMARY: %s\n\t%s\n"):format(layer.name, text_of(layer):gsub("\n", "\n\t")))
    end
  end
end

return M
