--- Shapes of outputs that only a call can tell, where sizes of the inputs are unknown (-1): the call is made with two
--- sizes in the unknown places, and what differs between the two is unknown.
local core = require "mgpu.core"

local function has_unknown(shapes)
  for _, shape in ipairs(shapes) do
    for _, size in ipairs(shape) do if size == -1 then return true end end
  end
  return false
end

-- The shapes with `unknown` for sizes of -1.
local function filled(shapes, unknown)
  local list = {}
  for i, shape in ipairs(shapes) do
    list[i] = {}
    for k, size in ipairs(shape) do list[i][k] = size == -1 and unknown or size end
  end
  return list
end

--- probe(layer, shapes, stand_ins, fn) -> the shapes of the outputs, and what else fn returns; nil, the first problem
--- and its error code if fn raises for all stand-ins.
-- ARGS shapes: of the inputs; stand_ins: pairs of sizes, tried in turn; fn(shapes without -1) -> the shapes of the
-- outputs, and two results more.
return function(layer, shapes, stand_ins, fn)
  local problem, code
  for _, sizes in ipairs(has_unknown(shapes) and stand_ins or { {} }) do
    local ok, a, more, last = pcall(fn, filled(shapes, sizes[1]))
    local b = a
    if ok and sizes[2] then ok, b = pcall(fn, filled(shapes, sizes[2])) end
    if ok then
      if #a ~= #b then layer:fail "the number of outputs depends on a size that is not known" end
      for i, shape in ipairs(a) do
        for k, size in ipairs(shape) do if size ~= b[i][k] then shape[k] = -1 end end
      end
      return a, more, last
    end
    problem, code = problem or b, code or core.error_code()
  end
  return nil, problem, code
end
