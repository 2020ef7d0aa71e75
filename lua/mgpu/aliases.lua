--- The short module names: `require "mgpu.layers"` loads lua/mgpu/nn/layers/init.lua, and
--- `require "mgpu.layers.conv2d"` is mgpu.layers.Conv2D.
--
-- PATHS is the only list of them. Loading this file appends a searcher to package.loaders that maps "mgpu.NAME",
-- "mgpu.NAME.FILE" and "mgpu.NAME.CLASS". init.lua loads it, and so does the program before the first require of a
-- short name.
local PATHS = {
  activations = "nn.activations",
  callbacks = "train.callbacks",
  constraints = "nn.constraints",
  data = "data",
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

-- The class of a namespace by its name in small letters, with or without underscores; or nil.
local function class_named(namespace, name)
  local wanted = name:gsub("_", "")
  local names = type(namespace) == "table" and getmetatable(namespace) and getmetatable(namespace).files
  for key in pairs(names or {}) do
    if key:lower() == wanted then return namespace[key] end
  end
end

table.insert(package.loaders, function(name)
  local short, rest = name:match "^mgpu%.([^.]+)(.*)$"
  local path = PATHS[short] and "mgpu." .. PATHS[short]
  if not path then return nil end
  if rest == "" or package.searchpath(path .. rest, package.path) then
    return function() return require(path .. rest) end
  end
  local class = class_named(require(path), rest:sub(2))
  return class and function() return class end
end)

return PATHS
