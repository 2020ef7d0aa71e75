--- Weights of models that are made to be read from a file: they are not initialised, since the file has their values,
--- and there can be no more of them than the file has numbers.
--
-- So a small file whose configuration asks for large weights is refused before memory is taken, and no time is spent
-- on initial values.
local core = require "mgpu.core"

local M = {}

-- While a model is made from a file: numbers of the file that no weight has claimed yet; its path. Else nil.
local left, source

--- with_room(count, path, fn) -> the results of fn(), which makes a model and assigns all its weights. While it runs,
--- layers make blank weights, of at most `count` numbers together. path: named in the error.
function M.with_room(count, path, fn)
  local outer_left, outer_source = left, source
  left, source = count, path
  local results = { pcall(fn) }
  left, source = outer_left, outer_source
  if not results[1] then collectgarbage() end -- else the next evaluation would compute the zeros
  core.prune_variables()
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2)
end

--- value(layer, name, shape, dtype) -> the value of a blank weight, zeros that are not computed yet; nil if weights are
--- to be initialised. Errors: the file has not that many numbers.
function M.value(layer, name, shape, dtype)
  if not left then return nil end
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  if count > left then
    core.fail("data", ("%s: the file is too small for the model in it: it has no room for the weight %q of shape %s")
      :format(source, name, layer.shape_text(shape)))
  end
  left = left - count
  return core.ops.full(shape, 0, dtype)
end

return M
