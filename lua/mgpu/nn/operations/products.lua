--- Products of tensors in keras.ops; see init.lua.
local composite = require "mgpu.tensor.composite_ops"
local core = require "mgpu.core"

local ops = core.ops

local M = {}

M.Matmul = { "x1 x2", ops.matmul }

local function whole_axes(axes)
  if type(axes) == "number" then return axes end
  if type(axes) ~= "table" then core.fail("usage", "tensordot: axes must be a number, or axes of each tensor") end
  local moved = {}
  for i, side in ipairs(axes) do
    moved[i] = {}
    for k, axis in ipairs(type(side) == "table" and side or { side }) do
      moved[i][k] = type(axis) == "number" and axis >= 0 and axis + 1 or axis
    end
  end
  return moved
end
M.Tensordot = { "x1 x2 | axes:value?", function(a, b, axes)
  return composite.tensordot(a, b, { axes = whole_axes(axes or 2) })
end }

-- NumPy's: the last axis of a with the last but one of b.
M.Dot = { "x1 x2", function(a, b)
  if type(a) == "number" or type(b) == "number" or a:rank() == 0 or b:rank() == 0 then return a * b end
  return composite.tensordot(a, b, { axes = { { -1 }, { b:rank() == 1 and 1 or -2 } } })
end }
M.Inner = { "x1 x2", function(a, b) return composite.tensordot(a, b, { axes = { { -1 }, { -1 } } }) end }
M.Outer = { "x1 x2", function(a, b) return composite.outer(a, b) end }
M.Vdot = { "x1 x2", function(a, b) return ops.sum(composite.flatten(a) * composite.flatten(b)) end }

M.Einsum = { "*operands | subscripts", function(operands, subscripts)
  return composite.einsum(subscripts, operands)
end }

-- The product of vectors with three entries along the axis.
M.Cross = { "x1:tensor x2:tensor | axisa:number? axisb:number? axisc:number? axis:number?", function(a, b, axisa,
    axisb, axisc, axis)
  for _, given in pairs { axisa or -1, axisb or -1, axisc or -1, axis or -1 } do
    if given ~= -1 and given ~= math.max(a:rank(), b:rank()) - 1 then
      core.fail("unsupported", "cross: an axis other than the last one is not supported")
    end
  end
  local function entry(x, i)
    local ranges = { [x:rank()] = i }
    return composite.slice(x, ranges)
  end
  local parts = {}
  for i = 1, 3 do
    local j, k = i % 3 + 1, (i + 1) % 3 + 1
    parts[i] = entry(a, j) * entry(b, k) - entry(a, k) * entry(b, j)
  end
  return composite.stack(parts, { axis = -1 })
end }

return M
