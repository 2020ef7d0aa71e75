--- mgpu: `local mgpu = require "mgpu"` returns this table and sets no global.
--
-- The functions on tensors come from tensor/; everything else is loaded on first use, so that starting stays fast.
-- Reading an unknown field raises and suggests the nearest name.
local core = require "mgpu.core"
local aliases = require "mgpu.aliases"

core.world_start()

local mgpu = {}
for name, value in pairs(require "mgpu.tensor") do mgpu[name] = value end

mgpu.version = core.version

--- mgpu.output(text): everything but warnings is printed by this function. Replace it to redirect the output. It
--- flushes, so that a log can be followed.
-- Example:
--     local kept = {}
--     mgpu.output = function(text) table.insert(kept, text) end
--     mgpu.show(mgpu.tensor { 1, 2, 3 }, { width = 20, height = 3 }) -- goes to the table
--     print(#kept)  --> 1
function mgpu.output(text)
  io.write(text)
  io.flush()
end

--- mgpu.seed(n): all random numbers from here on, the weights of new layers among them, are a function of n.
-- Example:
--     mgpu.seed(42)
--     local first = mgpu.rand { 3 }
--     mgpu.seed(42)
--     print(mgpu.rand({ 3 }):eq(first):all():item())  --> true
function mgpu.seed(n)
  core.seed(n)
  require "mgpu.nn.layer_names".restart_streams()
end

--- mgpu.rng_state([state]) -> {seed, base}: the random state, after setting it if one is given. base counts the draws.
-- Example:
--     local state = mgpu.rng_state()
--     local first = mgpu.rand { 3 }
--     mgpu.rng_state(state) -- back to where it was
--     print(mgpu.rand({ 3 }):eq(first):all():item())  --> true
function mgpu.rng_state(state)
  if state ~= nil then require "mgpu.nn.layer_names".note_seed() end
  return core.rng_state(state)
end

--- mgpu.reset_names(): automatic names of layers count from the start again, as after Keras's clear_session.
-- Example:
--     print(mgpu.layers.Dense(4).name, mgpu.layers.Dense(4).name)  --> dense dense_1
--     mgpu.reset_names()
--     print(mgpu.layers.Dense(4).name)  --> dense
function mgpu.reset_names() require "mgpu.nn.layer_names".reset() end

--- mgpu.set_image_data_format(format): "channels_last" (the default at the start) or "channels_first", for layers that
--- do not state a data_format.
-- Example:
--     mgpu.set_image_data_format "channels_first"
--     local y = mgpu.layers.Conv2D { 16, 3 } (mgpu.zeros { 1, 3, 8, 8 })
--     print(table.concat(y:shape(), " "))  --> 1 16 6 6
--     mgpu.set_image_data_format "channels_last"
function mgpu.set_image_data_format(format)
  if format ~= "channels_last" and format ~= "channels_first" then
    core.fail("usage", ('set_image_data_format: expected "channels_last" or "channels_first", got %s')
      :format(tostring(format)))
  end
  require "mgpu.nn.layers.images".default_format = format
end

local function fail_unknown_model(name, folder)
  local names = {}
  for _, path in ipairs(core.glob(folder .. "/*.lua")) do names[#names + 1] = path:match "([^/]*)%.lua$" end
  core.fail("usage", ("unknown model %q%s; %s has %s"):format(name, core.did_you_mean(name, names), folder,
    table.concat(names, ", ")))
end

-- mgpu.models: models.NAME {input_shape =, classes =} loads models/NAME.lua.
local function zoo()
  return setmetatable({}, {
    __index = function(self, name)
      local folder = (core.root or ".") .. "/models"
      local path = ("%s/%s.lua"):format(folder, name)
      if not (type(name) == "string" and name:match "^[%w_]+$" and core.file_exists(path)) then
        fail_unknown_model(tostring(name), folder)
      end
      local chunk, message = loadfile(path)
      if not chunk then error(message, 0) end
      local model = chunk()
      rawset(self, name, model)
      return model
    end,
  })
end

local loaders = {
  Layer = function() return require "mgpu.nn.layer" end,
  mixed_precision = function() return require "mgpu.nn.mixed_precision" end,
  with_device = function() return require "mgpu.nn.device_scope".with_device end,
  Model = function() return require "mgpu.nn.model" end,
  Sequential = function() return require "mgpu.nn.sequential" end,
  Input = function() return require "mgpu.nn.layers".Input end,
  explain = function() return require "mgpu.parallel.explain" end,
  profile = function() return require "mgpu.profile" end,
  show = function() return require "mgpu.show" end,
  ImageDataGenerator = function() return require "mgpu.data.image_data_generator" end,
  image = function() return require "mgpu.data.image" end,
  load = function() return require "mgpu.io.tensor_file".load end,
  save = function() return require "mgpu.io.tensor_file".save end,
  load_model = function() return require "mgpu.nn.saving".load_model end,
  model_from_json = function() return require "mgpu.nn.saving".model_from_json end,
  compile_inference = function() return require "mgpu.train.inference".compile_inference end,
  clone_model = function() return require "mgpu.nn.model_config".clone_model end,
  models = zoo,
  runs = function() return require "mgpu.runs" end,
  tune = function() return require "mgpu.tune" end,
  trial = function() return require "mgpu.tune.trial".trial end,
  world = function() return require "mgpu.parallel.world".world end,
  text = function() return require "mgpu.text" end,
  dashboard = function() return require "mgpu.dashboard" end,
  warnings = function() return require "mgpu.warnings".switch end,
}
for _, name in ipairs { "set_policy", "policy", "set_dtype_policy", "dtype_policy" } do
  loaders[name] = function() return require "mgpu.nn.mixed_precision"[name] end
end
for _, kind in ipairs { "layers", "optimizers", "losses", "metrics", "callbacks", "initializers",
  "regularizers", "constraints", "schedules", "datasets", "data", "activations", "parallel", "testing" } do
  loaders[kind] = function() return require("mgpu." .. (aliases[kind] or kind)) end
end

local function names()
  local list = {}
  for name in pairs(mgpu) do list[#list + 1] = name end
  for name in pairs(loaders) do list[#list + 1] = name end
  return list
end

return setmetatable(mgpu, {
  __index = function(_, name)
    local loader = loaders[name]
    if not loader then
      local hint = require "mgpu.foreign_names".hint("mgpu", name, names())
      core.fail("usage", ("mgpu has no %q%s"):format(tostring(name), hint))
    end
    local value = loader()
    rawset(mgpu, name, value)
    return value
  end,
})
