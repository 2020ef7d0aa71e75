--- LocallyConnected1D and LocallyConnected2D {filters, kernel_size, strides, padding = "valid", implementation = 1,
--- ...} of Keras 1 and 2: convolutions that have other kernels at every place of the output. Keras 3 has neither.
--
-- LocallyConnected1D: x {batch, steps, channels} -> {batch, steps', filters}; LocallyConnected2D: x {batch, rows,
-- columns, channels} -> {batch, rows', columns', filters}; or channels_first. The sizes must be known.
-- Weights: kernel, bias {steps', filters} or {rows', columns', filters}. implementation says how the kernel is kept,
-- as in Keras: 1: {places, window * channels, filters}; 2: {input sizes..., output sizes...}, of which the numbers
-- outside the windows do nothing; 3: {n}, the numbers of 2 that do something. The results are the same.
-- Options: data_format, activation, use_bias = true, kernel_initializer = "glorot_uniform", bias_initializer = "zeros",
-- kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint, bias_constraint.
-- Errors: padding "same" with implementation 1; unknown sizes; other sizes than at the first call; a window that does
-- not fit.
-- Example:
--     local layer = L.LocallyConnected1D { 1, 2 }
--     layer:ensure_built { -1, 3, 1 }
--     layer:set_weights { mgpu.tensor { { { 1 }, { 0 } }, { { 0 }, { 10 } } }, mgpu.zeros { 2, 1 } }
--     -- the first of two numbers, then ten times the second
--     print(layer(mgpu.tensor { { { 1 }, { 2 }, { 3 } } }):reshape { -1 })
--     --> tensor {2} float32 cpu:0
--     --> { 1, 30}
local Activation = require "mgpu.nn.layers.activation".Activation
local core = require "mgpu.core"
local images = require "mgpu.nn.layers.images"
local kernels = require "mgpu.nn.layers.kernels"
local Layer = require "mgpu.nn.layer"
local sequences = require "mgpu.nn.layers.sequences"

local ops = core.ops
local M = {}

-- ---- which numbers of the input are in which window -------------------------------------------------

-- The first and last input position, from 0, of window `at` along an axis, before the edges cut it. With "same" Keras
-- centres the windows, also where strides would shift them.
local function window(at, size, stride, padding)
  local first = at * stride - (padding == "same" and math.floor(size / 2) or 0)
  return first, first + size - 1
end

-- For each place of the output the indices from 0 of its window in the flat input, in the order of the kernel's second
-- axis; -1 beyond an edge. ARGS g: see geometry.
local function taps_of(g, padding)
  local taps = {}
  local function index(row, column, channel)
    if row < 0 or row >= g.rows or column < 0 or column >= g.columns then return -1 end
    if g.first then return (channel * g.rows + row) * g.columns + column end
    return (row * g.columns + column) * g.channels + channel
  end
  for place = 0, g.places - 1 do
    local top, bottom = window(math.floor(place / g.out_columns), g.kernel[1], g.strides[1], padding)
    local left, right = window(place % g.out_columns, g.kernel[2], g.strides[2], padding)
    local list = {}
    local outer = g.first and g.channels or 1
    for o = 0, outer - 1 do
      for row = top, bottom do
        for column = left, right do
          for i = 0, g.channels / outer - 1 do list[#list + 1] = index(row, column, g.first and o or i) end
        end
      end
    end
    taps[place + 1] = list
  end
  return taps
end

-- Where the number (place, tap, filter) is in the flat kernel of implementation 2.
local function dense_index(g, place, tap, filter)
  local out = g.first and filter * g.places + place or place * g.filters + filter
  return tap * g.places * g.filters + out
end

-- Implementation 3 has the numbers of 2 that do something, sorted by output and then by input. RETURNS (place, filter,
-- tap) -> its index, and how many there are.
local function sparse_indices(g, taps)
  local before, count, ranks = {}, 0, {}
  for place, list in ipairs(taps) do
    local sorted, rank = {}, {}
    for _, tap in ipairs(list) do
      if tap >= 0 then sorted[#sorted + 1] = tap end
    end
    table.sort(sorted)
    for i, tap in ipairs(sorted) do rank[tap] = i - 1 end
    ranks[place] = { rank, #sorted }
  end
  for out = 0, g.places * g.filters - 1 do
    before[out] = count
    count = count + ranks[(g.first and out % g.places or math.floor(out / g.filters)) + 1][2]
  end
  return function(_, place, tap, filter)
    local out = g.first and filter * g.places + place or place * g.filters + filter
    return before[out] + ranks[place + 1][1][tap]
  end, count
end

-- The tensor {places, taps, filters} of the kernel's indices; `none` beyond an edge.
local function kernel_indices(g, taps, index, none)
  local all = {}
  for place, list in ipairs(taps) do
    all[place] = {}
    for k, tap in ipairs(list) do
      local row = {}
      for filter = 0, g.filters - 1 do row[filter + 1] = tap < 0 and none or index(g, place - 1, tap, filter) end
      all[place][k] = row
    end
  end
  return core.tensor(all, { dtype = "int32" })
end

-- ---- the layer --------------------------------------------------------------------------------------

-- The sizes that the windows depend on; a sequence is an image of one row.
local function geometry(self, shape, sizes, kernel, strides)
  local last = sizes.shape_last(self, shape)
  local out = sizes.shape_last(self, self:output_shape(shape))
  for i = 2, #last do
    if last[i] == -1 then self:fail("all sizes must be known, got shape %s", self.shape_text(shape)) end
  end
  local rank = #last
  local g = { rows = rank == 4 and last[2] or 1, columns = last[rank - 1], channels = last[rank],
    first = images.is_first(self), filters = self.filters, kernel = kernel, strides = strides,
    out = { unpack(out, 2, rank - 1) } }
  g.out_columns, g.places, g.inputs = out[rank - 1], 1, g.rows * g.columns * g.channels
  for _, size in ipairs(g.out) do g.places = g.places * size end
  return g
end

-- The kernel's shape, and where its numbers are: a tensor {places, taps, filters}, or nil for implementation 1.
local function kernel_of(self, g, taps, shape)
  if self.implementation == 1 then return { g.places, #taps[1], g.filters } end
  if self.implementation == 3 then
    local index, count = sparse_indices(g, taps)
    return { count }, kernel_indices(g, taps, index, count)
  end
  local wide = { unpack(shape, 2) }
  if g.first then wide[#wide + 1] = g.filters end
  for _, size in ipairs(g.out) do wide[#wide + 1] = size end
  if not g.first then wide[#wide + 1] = g.filters end
  return wide, kernel_indices(g, taps, dense_index, g.inputs * g.places * g.filters)
end

-- The numbers of t along its last axis at the indices, where the index behind the last number is a 0.
local function gathered(t, indices, edges)
  if edges then
    local shape = t:shape()
    shape[#shape] = 1
    t = ops.concat({ t, core.place(ops.full(shape, 0, t:dtype()), t:device()) }, { axis = -1 })
  end
  return ops.gather(t, core.place(indices, t:device()), { axis = t:rank() })
end

-- A class; axes: the names of the input's axes; sizes: the helpers of its shapes; pair: whether windows have two sizes.
local function define(class_name, axes, sizes, pair)
  local declared = kernels.options { positional = 2, { "filters", "integer", min = 1, required = true },
    pair and { "kernel_size", "pair", required = true } or { "kernel_size", "single", min = 1, required = true },
    pair and { "strides", "pair", default = { 1, 1 } } or { "strides", "single", default = 1, min = 1 },
    { "padding", "string", default = "valid", values = { "valid", "same" } }, images.data_format }
  declared[#declared + 1] = { "implementation", "integer", default = 1, min = 1, max = 3 }
  local Local = Layer:extend(class_name, declared)

  function Local:init()
    kernels.activate(self)
    if self.implementation == 1 and self.padding == "same" then
      self:fail('padding "same" needs implementation = 2 or 3')
    end
  end

  function Local:build(shape)
    self:need_rank(shape, pair and 4 or 3, axes)
    local kernel = pair and self.kernel_size or { 1, self.kernel_size }
    local g = geometry(self, shape, sizes, kernel, pair and self.strides or { 1, self.strides })
    local taps, flat, edges = taps_of(g, self.padding), {}, self.padding == "same"
    local kernel_shape, indices = kernel_of(self, g, taps, shape)
    for _, list in ipairs(taps) do
      for _, tap in ipairs(list) do flat[#flat + 1] = tap < 0 and g.inputs or tap end
    end
    self.geometry, self.edges, self.kernel_places = g, edges, indices
    self.taps = core.tensor(flat, { dtype = "int32" })
    self.kernel = kernels.add(self, "kernel", kernel_shape)
    if self.use_bias then
      local bias_shape = { unpack(g.out) }
      bias_shape[#bias_shape + 1] = self.filters
      self.bias = kernels.add(self, "bias", bias_shape)
    end
  end

  function Local:output_shape(shape)
    local kernel, strides = self.kernel_size, self.strides
    return Activation.shape_after(self, sizes.window_shape(self, shape, kernel, strides, self.filters, "kernel"))
  end

  function Local:call(x)
    local g, shape = self.geometry, x:shape()
    self:need_rank(shape, pair and 4 or 3, axes)
    for i = 2, #shape do
      if shape[i] ~= self.built_shape[i] then
        self:fail("the layer was built for %s, got an input of shape %s", self.shape_text(self.built_shape),
          self.shape_text(shape))
      end
    end
    local rows, window_size = shape[1], self.taps:count() / g.places
    local inside = gathered(ops.reshape(x, { shape = { rows, g.inputs } }), self.taps, self.edges)
    local kernel = self.kernel:value()
    if self.kernel_places then
      kernel = gathered(ops.reshape(kernel, { shape = { -1 } }), self.kernel_places, self.edges)
    end
    inside = ops.permute(ops.reshape(inside, { shape = { rows, g.places, window_size } }), { order = { 2, 1, 3 } })
    local y = ops.permute(ops.matmul(inside, kernel), { order = g.first and { 2, 3, 1 } or { 2, 1, 3 } })
    local out = { rows, unpack(g.out) }
    table.insert(out, g.first and 2 or #out + 1, g.filters)
    y = ops.reshape(y, { shape = out })
    -- with channels_first Keras reads the bias {places, filters} as {filters, places}, without moving its numbers
    if self.bias then y = y + ops.reshape(self.bias, { shape = { 1, unpack(out, 2) } }) end
    return self.activate(y)
  end

  return Local
end

--- LocallyConnected1D: see the top.
-- Example:
--     print(unpack(L.LocallyConnected1D { 4, 3, strides = 2 } (mgpu.ones { 1, 9, 2 }):shape()))  --> 1 4 4
M.LocallyConnected1D = define("LocallyConnected1D", "batch, steps, channels", sequences, false)

--- LocallyConnected2D: see the top.
-- Example:
--     local layer = L.LocallyConnected2D { 4, 3, padding = "same", implementation = 2 }
--     print(unpack(layer(mgpu.ones { 1, 5, 6, 2 }):shape()))
--     --> 1 5 6 4
M.LocallyConnected2D = define("LocallyConnected2D", "batch, rows, columns, channels", images, true)

return M
