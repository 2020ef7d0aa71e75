-- The cases of the ops that resize and transform images. See rows.lua.
return function(case, bad, ALL)
  local BLENDED = { tol = 5e-6, why = "weights in float32, and sums in another order" }
  local function resize(x, size, o)
    o = o or {}
    for _, interpolation in ipairs(o.only or { "nearest", "bilinear", "bicubic", "area", "lanczos3", "lanczos5" }) do
      local shrunk = { x[1], size[1], size[2], x[4] }
      case { "image_resize", { x, -1, 1 }, size = size, interpolation = interpolation, antialias = o.antialias,
        tol = BLENDED.tol, why = BLENDED.why, grad = o.grad }
      case { "image_resize_grad", { shrunk, -1, 1 }, size = { x[2], x[3] }, interpolation = interpolation,
        antialias = o.antialias, tol = BLENDED.tol, why = BLENDED.why, grad = o.grad }
    end
  end
  resize({ 2, 3, 4, 2 }, { 6, 8 })
  resize({ 1, 5, 7, 3 }, { 3, 2 })
  resize({ 2, 6, 5, 1 }, { 6, 9 })
  resize({ 1, 4, 5, 17 }, { 7, 5 })
  resize({ 3, 1, 1, 5 }, { 4, 3 })
  resize({ 1, 6, 4, 2 }, { 1, 1 })
  resize({ 1, 4, 3, 2 }, { 4, 3 })
  resize({ 0, 4, 3, 2 }, { 2, 6 }, { grad = false })
  resize({ 2, 4, 3, 0 }, { 2, 6 }, { grad = false })
  resize({ 2, 9, 13, 3 }, { 4, 5 }, { antialias = true })
  resize({ 1, 3, 13, 1 }, { 5, 4 }, { antialias = true, only = { "bilinear", "bicubic", "lanczos3" } })
  resize({ 3, 40, 56, 3 }, { 97, 61 }, { grad = false })
  resize({ 2, 100, 90, 4 }, { 33, 41 }, { grad = false })
  resize({ 2, 17, 19, 65 }, { 34, 38 }, { grad = false })
  case { "image_resize", { { 2, 5, 6, 3 }, -3, 300 }, size = { 7, 4 }, interpolation = "nearest", dtypes = ALL,
    grad = false }
  case { "image_resize", { { 30, 50, 40, 3 }, ints = 250 }, size = { 70, 44 }, interpolation = "nearest", as = "uint8" }

  -- Angles and shifts at which no point lies halfway between two pixels.
  local TURN = { 0.8912, -0.3271, 1.2345, 0.4123, 0.9377, -0.7213, 0.00131, -0.00217 }
  local function transform(x, size, transforms, o)
    o = o or {}
    for _, interpolation in ipairs { "nearest", "bilinear" } do
      for _, mode in ipairs { "constant", "nearest", "reflect", "wrap" } do
        local tall, wide = unpack(size or { x[2], x[3] })
        case { "affine_transform", { x, -1, 1 }, transforms, size = size, interpolation = interpolation,
          fill_mode = mode, fill_value = 0.75, tol = BLENDED.tol, why = BLENDED.why, grad = o.grad == nil and { 1 } }
        case { "affine_transform_grad", { { x[1], tall, wide, x[4] }, -1, 1 }, transforms, size = { x[2], x[3] },
          interpolation = interpolation, fill_mode = mode, tol = BLENDED.tol, why = BLENDED.why,
          grad = o.grad == nil and { 1 } }
      end
    end
  end
  transform({ 2, 5, 6, 2 }, nil, { { 8 }, numbers = TURN, dtype = "float64" })
  transform({ 3, 4, 5, 1 }, { 7, 3 }, { { 3, 8 }, -1.37, 2.11, dtype = "float64" })
  transform({ 3, 4, 5, 3 }, { 6, 6 }, { { 3, 6 }, -5.37, 8.11, dtype = "float32" })
  transform({ 1, 1, 1, 4 }, { 3, 3 }, { { 1, 6 }, -5.37, 8.11, dtype = "float32" })
  transform({ 0, 4, 5, 3 }, nil, { { 1, 8 }, numbers = TURN, dtype = "float32" }, { grad = false })
  transform({ 5, 60, 70, 3 }, nil, { { 8 }, numbers = TURN, dtype = "float32" }, { grad = false })
  transform({ 2, 30, 33, 17 }, { 44, 21 }, { { 1, 6 }, numbers = { unpack(TURN, 1, 6) }, dtype = "float64" },
    { grad = false })
  case { "affine_transform", { { 2, 5, 6, 3 }, -3, 300 }, { { 8 }, numbers = TURN, dtype = "float32" },
    interpolation = "nearest", fill_value = 9, dtypes = ALL, grad = false }
  -- points at infinity, nowhere, far away, and exactly between two pixels
  for _, numbers in ipairs { { 1, 0, 0, 0, 1, 0, -1, 0 }, { 0, 0, 0 / 0, 0, 1, 0 }, { 1, 0, 1e30, 0, 1, 1e12 },
    { 1e-30, 0, -1 / 0, 0, 1, 0 }, { 1, 0, -0.5, 0, 1, 0.5 }, { -1, 0, 4, 0, -1, 3 } } do
    transform({ 1, 4, 5, 2 }, nil, { { #numbers }, numbers = numbers, dtype = "float32" }, { grad = false })
  end

  bad { "image_resize", { { 2, 5, 5, 3 }, 0, 1 }, error = "\"size\" is missing" }
  bad { "image_resize", { { 2, 5, 5, 3 }, 0, 1 }, size = { 3, 0 }, error = "size must be 1 to 2147483647, got 0" }
  bad { "image_resize", { { 5, 5, 3 }, 0, 1 }, size = 3, error = "4 axes" }
  bad { "image_resize", { { 2, 5, 0, 3 }, 0, 1 }, size = 3, error = "cannot resize images of shape {2, 5, 0, 3}" }
  bad { "image_resize", { { 2, 5, 5, 3 }, ints = 9 }, size = 3, error = "floating point" }
  bad { "image_resize", { { 2, 5, 5, 3 }, 0, 1 }, size = 3, interpolation = "cubic", error = "unknown value \"cubic\"" }
  bad { "affine_transform", { { 2, 5, 5, 3 }, 0, 1 }, { { 3, 8 }, 0, 1 }, error = "shape {2, 8}, {1, 8} or {8}" }
  bad { "affine_transform", { { 2, 5, 5, 3 }, 0, 1 }, { { 2, 7 }, 0, 1 }, error = "got {2, 7}" }
  bad { "affine_transform", { { 2, 5, 5, 3 }, 0, 1 }, { { 8 }, ints = 2 }, error = "floating point" }
  bad { "affine_transform", { { 2, 5, 5, 3 }, ints = 3 }, { { 8 }, 0, 1 }, error = "floating point" }
  bad { "affine_transform", { { 2, 0, 5, 3 }, 0, 1 }, { { 8 }, 0, 1 }, error = "cannot transform images" }
end
