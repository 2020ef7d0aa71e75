-- Inside of a model's C library (runtime/pack/embed.c): the function that predicts.
local core = require "mgpu.core"
core.world_start = function() end -- the host program is none of the processes that a launcher may have started

local HALF = { float16 = true, bfloat16 = true } -- C has no such types

--- embedded(path) -> a function of the inputs, tensors on the cpu, that RETURNS the outputs.
return function(path)
  local mgpu = require "mgpu"
  core.set_devices { "cpu:0" }
  local model = type(path) == "string" and mgpu.load_model(path, { compile = false }) or path
  return mgpu.jit(function(...)
    local outputs = model(select("#", ...) > 1 and { ... } or (...))
    if type(outputs) ~= "table" then outputs = { outputs } end
    for i, y in ipairs(outputs) do
      if HALF[y:dtype()] then outputs[i] = y:to "float32" end
    end
    return unpack(outputs)
  end)
end
