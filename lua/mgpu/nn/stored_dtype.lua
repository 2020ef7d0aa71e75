--- The dtype of weights in a file: model:save(path, {dtype = "float16"}) writes floating weights as halves.
local core = require "mgpu.core"
local quantized = require "mgpu.nn.quantized.layers"

local M = {}

local current -- while a model is saved with another dtype; else nil

--- with(dtype, fn, ...) -> fn(...), during which value() gives weights in that dtype; nil: their own.
function M.with(dtype, fn, ...)
  current = dtype
  local ok, result = pcall(fn, ...)
  current = nil
  if not ok then error(result, 0) end
  return result
end

--- value(layer, v, t) -> t, the value of the layer's weight v, as the file is to have it. Scales of quantized weights
--- keep their dtype. Errors: a finite number that is infinite in float16.
function M.value(layer, v, t)
  local dtype = t:dtype()
  if not current or not dtype:find "^float" or dtype == current then return t end
  if layer and quantized.field_of(layer, v) then return t end
  local ops, small = core.ops, core.ops.cast(t, { dtype = current })
  if current == "float16" and not ops.all(ops.eq(ops.isfinite(small), ops.isfinite(t))):item() then
    core.fail("data", ("save: the weight %q has numbers beyond 65504, the largest float16: take bfloat16"):format(
      v.name))
  end
  return small
end

--- check_loaded(model, path): raises if a weight that was loaded as float16 has infinite numbers.
function M.check_loaded(model, path)
  local ops = core.ops
  for _, v in ipairs(model.variables) do
    local t = v:dtype() == "float16" and ops.cast(v:value(), { dtype = "float32" })
    if t and ops.any(ops.eq(ops.abs(t), math.huge)):item() then
      core.fail("data", ("%s: the weight %q has numbers beyond 65504, the largest float16: take bfloat16"):format(path,
        v.name))
    end
  end
end

return M
