--- Weights of models that are made to be read from a file: they are not initialised, since the file has their values,
--- and there can be no more of them than the file has numbers.
--
-- So a small file whose configuration asks for large weights is refused before memory is taken, and no time is spent
-- on initial values.
local core = require "mgpu.core"

local M = {}

-- Weights that a file may lack can have TIMES the numbers that the file has, and in any case SMALL.
local TIMES, SMALL = 8, 65536

-- While a model is made from a file: numbers of the file that no weight has claimed yet; numbers that optional weights
-- may still have; its path. Else nil.
local left, left_optional, source

--- with_room(count, path, fn) -> the results of fn(), which makes a model and assigns all its weights. While it runs,
--- layers make blank weights, of at most `count` numbers together. path: named in the error.
function M.with_room(count, path, fn)
  local outer_left, outer_optional, outer_source = left, left_optional, source
  left, left_optional, source = count, math.max(TIMES * count, SMALL), path
  local results = { pcall(fn) }
  left, left_optional, source = outer_left, outer_optional, outer_source
  if not results[1] then collectgarbage() end -- else the next evaluation would compute the zeros
  core.prune_variables()
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2)
end

local function fail_too_small(layer, name, shape)
  core.fail("data", ("%s: the file is too small for the model in it: it has no room for the weight %q of shape %s")
    :format(source, name, layer.shape_text(shape)))
end

--- value(layer, name, shape, dtype, optional) -> the value of a blank weight, zeros that are not computed yet; nil if
--- no model is made from a file. optional: the file may lack this weight, so it gets its initial value, and nil is
--- returned. Errors: the file has not that many numbers.
function M.value(layer, name, shape, dtype, optional)
  if not left then return nil end
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  if optional then left_optional = left_optional - count else left = left - count end
  if left < 0 or left_optional < 0 then fail_too_small(layer, name, shape) end
  return not optional and core.ops.full(shape, 0, dtype) or nil
end

return M
