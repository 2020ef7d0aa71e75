--- The short module names: `require "mgpu.layers"` loads lua/mgpu/nn/layers/init.lua.
--
-- PATHS is the one list of them. Loading this file appends a searcher to package.loaders that maps
-- PATHS is the only list of them. Loading this file appends a searcher to package.loaders that maps "mgpu.NAME" and
-- "mgpu.NAME.REST". init.lua loads it, and so does the program before the first require of a short name.
local PATHS = {
  activations = "nn.activations",
  callbacks = "train.callbacks",
  constraints = "nn.constraints",
  datasets = "data.datasets",
  explain = "parallel.explain",
  initializers = "nn.initializers",
  layer = "nn.layer",
  layers = "nn.layers",
  losses = "nn.losses",
  metrics = "nn.metrics",
  mixed_precision = "nn.mixed_precision",
  model = "nn.model",
  optimizers = "nn.optimizers",
  regularizers = "nn.regularizers",
  schedules = "nn.schedules",
  sequential = "nn.sequential",
}

table.insert(package.loaders, function(name)
  local short, rest = name:match "^mgpu%.([^.]+)(.*)$"
  local path = PATHS[short]
  if not path then return nil end
  return function() return require("mgpu." .. path .. rest) end
end)

return PATHS
