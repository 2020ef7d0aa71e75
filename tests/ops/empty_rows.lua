-- Cases without elements, of ops that the other files give none. See rows.lua.
return function(case)
  local function empty(c)
    c.grad = false
    case(c)
  end
  empty { "cast", { { 0, 3 }, -1, 1 }, dtype = "int32" }
  empty { "where", { { 0, 4 }, ints = 2 }, { { 0, 4 }, -3, 3 }, { { 4 }, -3, 3 } }
  empty { "full", shape = { 0, 4 }, value = 2.5 }
  empty { "iota", shape = { 3, 0 }, axis = 1 }
  empty { "random", shape = { 0, 7 }, kind = "normal", a = 0, b = 1 }
  for _, op in ipairs { "max", "min" } do empty { op, { { 0, 3 }, -1, 1 }, axis = { 2 } } end
  for _, op in ipairs { "argmax", "argmin" } do empty { op, { { 0, 3 }, -1, 1 }, axis = 2 } end
  for _, shape in ipairs { { 0, 3 }, { 3, 0 } } do
    for _, op in ipairs { "any", "all" } do empty { op, { shape, ints = 2 }, axis = { 2 }, as = "bool" } end
    empty { "cumsum", { shape, -1, 1 }, axis = 2 }
    empty { "all_finite", { shape, -1, 1 } }
    empty { "reshape", { shape, -1, 1 }, shape = { 0, 5 } }
    empty { "slice", { shape, -1, 1 }, start = { 0, 0 }, stop = shape, step = { 1, 1 } }
    empty { "broadcast_to", { { shape[1], 1 }, -1, 1 }, shape = shape }
    empty { "prod_grad", { shape, -1, 1 }, { { shape[1] }, -1, 1 } }
    for _, op in ipairs { "softmax", "log_softmax" } do empty { op, { shape, -1, 1 }, axis = -1 } end
  end
  empty { "rfft_transpose", { { 0, 2, 4 }, -1, 1 }, length = 7 }

  -- no images
  local x, kernel, y = { 0, 6, 6, 3 }, { 3, 3, 3, 4 }, { 0, 4, 4, 4 }
  empty { "conv2d_grad_input", { y, -1, 1 }, { kernel, -1, 1 }, input_shape = x }
  empty { "conv2d_grad_weight", { x, -1, 1 }, { y, -1, 1 }, kernel_shape = kernel }
  local pooled = { 0, 3, 3, 3 }
  empty { "max_pool2d", { x, -1, 1 }, size = { 2, 2 }, strides = { 2, 2 } }
  empty { "avg_pool2d", { x, -1, 1 }, size = { 2, 2 }, strides = { 2, 2 } }
  empty { "max_pool2d_grad", { x, -1, 1 }, { pooled, pooled = 1 }, { pooled, -1, 1 }, size = { 2, 2 },
    strides = { 2, 2 } }
  empty { "avg_pool2d_grad", { pooled, -1, 1 }, input_shape = x, size = { 2, 2 }, strides = { 2, 2 } }
end
