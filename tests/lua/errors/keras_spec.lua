-- Error texts of model files of Keras whose training configuration has something that we do not have.
local cases = require "error_cases"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local L = mgpu.layers

local can, problem = pcall(core.h5_read, "tests/golden/keras/mlp_3.h5")
if not can and core.error_code() == "unsupported" then check.skip(problem) end

-- Saves a compiled model, lets `change` change its training configuration, and loads the file. (The path of the
-- program's own file stands in every message, in front of the text.)
local function load_changed(change)
  local path = check.path "changed.h5"
  local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 2 } }
  model:compile { optimizer = "adam", loss = "mse", metrics = { "mae" } }
  model:save(path)
  local list = core.h5_read(path)
  for _, entry in ipairs(list) do
    if entry.attribute == "training_config" then
      local config = core.json_decode(entry.text)
      change(config)
      entry.text = core.json_encode(config)
    end
  end
  core.h5_write(path, list)
  return mgpu.load_model(path)
end

local function object(class, config) return { class_name = class, config = config } end
local GIVE_IT = " is not known: give it with {custom = {"

cases {
  { "a loss that is a function of the user's", function()
    load_changed(function(config) config.loss = "own_loss" end)
  end, 'the loss "own_loss"' .. GIVE_IT .. "own_loss = ...}}, or load with {compile = false}", code = "unsupported" },
  { "a metric that is a function of the user's", function()
    load_changed(function(config) config.metrics = { "own_metric" } end)
  end, 'the metric "own_metric"' .. GIVE_IT, code = "unsupported" },
  { "a metric of a function that has no name", function()
    load_changed(function(config) config.metrics = { object("MeanMetricWrapper", { name = "m", fn = {} }) } end)
  end, 'the metric "m"' .. GIVE_IT, code = "unsupported" },
  { "a metric of a class of the user's", function()
    load_changed(function(config) config.metrics = { object("OwnMetric", { name = "own" }) } end)
  end, 'the metric "OwnMetric"' .. GIVE_IT, code = "unsupported" },
  { "an optimizer of the user's", function()
    load_changed(function(config) config.optimizer_config.class_name = "OwnAdam" end)
  end, 'the optimizer "OwnAdam"' .. GIVE_IT, code = "unsupported" },
  { "a schedule of the user's", function()
    load_changed(function(config) config.optimizer_config.config.learning_rate = object("OwnDecay", { rate = 1 }) end)
  end, 'the schedule "OwnDecay"' .. GIVE_IT, code = "unsupported" },
}
