--- Layers with several inputs as ops of ONNX; see onnx/layers.lua.
local M = {}

-- ---- element by element -------------------------------------------------------------------------

-- The names of the tensors, all in the same order of axes, and the function that makes a value of that order. The
-- channels are second if all values have as many axes as the result and exist in that order already.
local function aligned(g, vs, rank)
  local second = rank > 2
  for _, v in ipairs(vs) do second = second and #v.shape == rank and v.first and true or false end
  local names = {}
  for i, v in ipairs(vs) do
    names[i] = second and v.first or g:plain(v)
    local missing = rank - #v.shape
    if missing > 0 then
      local axes = {}
      for k = 1, missing do axes[k] = k end -- after the batch
      names[i] = g:op("Unsqueeze", { names[i], g:integers(axes) })
    end
  end
  return names, second and g.first_value or g.value
end

local function shapes_of(vs)
  local shapes = {}
  for i, v in ipairs(vs) do shapes[i] = v.shape end
  return shapes
end

-- finish(graph, name, n, dtype): applied to the result for n inputs.
local function merge(op_type, finish)
  return function(g, layer, vs)
    local shape, dtype = layer:output_shape(shapes_of(vs)), vs[1].dtype
    local names, make = aligned(g, vs, #shape)
    local y = names[1]
    for i = 2, #names do y = g:op(op_type, { y, names[i] }) end
    return make(finish and finish(g, y, #names, dtype) or y, shape, dtype)
  end
end
M.Add, M.Subtract, M.Multiply, M.Maximum = merge "Add", merge "Sub", merge "Mul", merge "Max"
M.Average = merge("Add", function(g, sum, n, dtype) return g:op("Div", { sum, g:number(n, dtype) }) end)

function M.Concatenate(g, layer, vs)
  local shape = layer:output_shape(shapes_of(vs))
  local rank, names, make = #shape, aligned(g, vs, #shape)
  local axis = (layer.axis < 0 and layer.axis + rank or layer.axis - 1)
  if make == g.first_value and axis > 0 then axis = axis == rank - 1 and 1 or axis + 1 end
  return make(g:op("Concat", names, { axis = axis }), shape, vs[1].dtype)
end

-- ---- Dot ----------------------------------------------------------------------------------------

-- x scaled to length 1 along the axis, from 0; lengths below 1e-7 count as 1e-7.
local function unit(g, v, axis)
  local wide = v.dtype == "float64" and v or g:cast(v, "float32")
  local x = g:plain(wide)
  local squares = g:op("ReduceSum", { g:op("Mul", { x, x }), g:integers { axis } }, { keepdims = 1 })
  local length = g:op("Sqrt", { g:op("Max", { squares, g:number(1e-14, wide.dtype) }) })
  return g:cast(g.value(g:op("Div", { x, length }), v.shape, wide.dtype), v.dtype)
end

-- v as {batch, product of the other axes, size of the axis}, or with the last two swapped.
local function as_matrices(g, layer, v, axis, swapped)
  local perm, others = { 0 }, 1
  for k = 1, #v.shape - 1 do
    if v.shape[k + 1] == -1 then layer:fail "all sizes of its inputs must be known to save it as .onnx" end
    if k ~= axis then
      perm[#perm + 1] = k
      others = others * v.shape[k + 1]
    end
  end
  local sizes = { 0, others, v.shape[axis + 1] }
  if swapped then
    table.insert(perm, 2, axis)
    sizes[2], sizes[3] = sizes[3], sizes[2]
  else
    perm[#perm + 1] = axis
  end
  return g:op("Reshape", { g:op("Transpose", { g:plain(v) }, { perm = perm }), g:integers(sizes) })
end

function M.Dot(g, layer, vs)
  local axes, parts = type(layer.axes) == "table" and layer.axes or { layer.axes, layer.axes }, {}
  local shape = layer:output_shape(shapes_of(vs))
  for i, v in ipairs(vs) do
    local axis = axes[i] < 0 and axes[i] + #v.shape or axes[i] - 1
    parts[i] = as_matrices(g, layer, layer.normalize and unit(g, v, axis) or v, axis, i == 2)
  end
  local y = g:op("Reshape", { g:op("MatMul", parts), g:integers { 0, unpack(shape, 2) } })
  return g.value(y, shape, vs[1].dtype)
end

return M
