-- The cases of convolutions with 8-bit weights. See rows.lua.
--
-- Sums of integers are exact and the scaling is one formula, so devices give equal bits: tol = 0.
return function(case, bad)
  -- Bytes {runs, quads, filters, 4} of weights from -127 to 127; those behind the end of a run are 0.
  local function kernel(runs, run, filters)
    local quads, list = math.ceil(run / 4), {}
    for r = 0, runs - 1 do
      for q = 0, quads - 1 do
        for k = 0, filters - 1 do
          for i = 0, 3 do
            local code = ((r * 31 + (4 * q + i) * 17 + k * 101) * 40503) % 255 - 127
            list[#list + 1] = 4 * q + i < run and code % 256 or 0
          end
        end
      end
    end
    return { { runs, quads, filters, 4 }, numbers = list, dtype = "uint8" }
  end

  local function conv(x, filters, o)
    local size, dilations = o.size or { 1, 1 }, o.dilations or { 1, 1 }
    local whole = dilations[2] == 1 or size[2] == 1
    local c = { "conv2d_int8", { x, -1.5, 2 },
      kernel(whole and size[1] or size[1] * size[2], whole and size[2] * x[4] or x[4], filters),
      { { filters }, 20, 200 }, { { filters }, -1, 1 },
      o.range and { { 2 }, numbers = o.range, dtype = "float32" } or { { 0 }, numbers = {}, dtype = "float32" },
      size = o.size, strides = o.strides, pads = o.pads, dilations = o.dilations, activation = o.activation,
      dtypes = { "float32" }, grad = false, tol = 0, why = "exact sums" }
    case(c)
  end
  -- One scale for each pixel.
  conv({ 3, 1, 1, 5 }, 4, {})
  conv({ 1, 1, 1, 130 }, 77, { activation = "relu" })
  conv({ 7, 2, 3, 64 }, 65, { activation = "relu6" })
  conv({ 70, 1, 1, 33 }, 10, {})
  conv({ 0, 1, 1, 4 }, 3, {})
  -- One for all; numbers beyond the range are cut.
  local range = { 80, 100 }
  conv({ 2, 5, 6, 3 }, 4, { size = { 3, 3 }, range = range })
  conv({ 1, 4, 4, 1 }, 1, { range = range })
  conv({ 2, 7, 9, 3 }, 6, { size = { 3, 2 }, strides = { 2, 1 }, pads = { 1, 0, 0, 1 }, range = { 70, 0 } })
  conv({ 2, 9, 8, 2 }, 17, { size = { 3, 3 }, dilations = { 2, 2 }, pads = { 1, 1, 1, 1 }, range = { 70, 255 } })
  conv({ 1, 9, 8, 5 }, 9, { size = { 3, 1 }, dilations = { 2, 3 }, range = range, activation = "relu" })
  conv({ 4, 28, 28, 1 }, 6, { size = { 5, 5 }, pads = { 2, 2, 2, 2 }, range = range, activation = "relu" })
  conv({ 3, 13, 11, 16 }, 64, { size = { 3, 3 }, pads = { 1, 1, 1, 1 }, range = range })
  conv({ 2, 9, 9, 8 }, 130, { size = { 2, 2 }, strides = { 3, 3 }, range = range, activation = "relu6" })
  conv({ 2, 8, 7, 40 }, 33, { strides = { 2, 2 }, range = range })
  conv({ 2, 6, 6, 4 }, 20, { size = { 1, 4 }, strides = { 1, 5 }, pads = { 0, 0, 3, 2 }, range = range })
  conv({ 0, 6, 6, 4 }, 20, { size = { 3, 3 }, range = range })

  local function wrong(text, x, w, o)
    bad { "conv2d_int8", x or { { 1, 4, 4, 4 }, 0, 1 }, w or { { 1, 1, 2, 4 }, ints = 9, dtype = "uint8" },
      o.scale or { { 2 }, 1, 2 }, o.bias or { { 2 }, 0, 1 }, o.range or { { 0 }, 0, 1 }, size = o.size,
      strides = o.strides, dtypes = { "float32" }, error = text }
  end
  wrong("input 1 must be float32, got float64", { { 1, 4, 4, 4 }, 0, 1, dtype = "float64" }, nil, {})
  wrong("input 2 must be uint8, got int32", nil, { { 1, 1, 2, 4 }, ints = 9 }, {})
  wrong("4 axes", { { 1, 4, 4 }, 0, 1 }, nil, {})
  wrong("the kernel has shape {1, 1, 2, 4}, images {1, 4, 4, 8} need {1, 2, 2, 4}", { { 1, 4, 4, 8 }, 0, 1 }, nil, {})
  wrong("scale must have shape {2}, got {3}", nil, nil, { scale = { { 3 }, 1, 2 } })
  wrong("bias must have shape {2}, got {1}", nil, nil, { bias = { { 1 }, 1, 2 } })
  wrong("range must have shape {2}, got {3}", nil, nil, { range = { { 3 }, 1, 2 } })
  wrong("needs a range {steps, zero}", nil, { { 3, 3, 2, 4 }, ints = 9, dtype = "uint8" }, { size = { 3, 3 } })
  wrong("needs a range {steps, zero}", nil, nil, { strides = { 2, 2 } })
  wrong("a filter has 70000 weights", { { 1, 1, 1, 70000 }, 0, 1 },
    { { 1, 17500, 1, 4 }, ints = 2, dtype = "uint8" }, { scale = { { 1 }, 1, 2 }, bias = { { 1 }, 0, 1 } })
end
