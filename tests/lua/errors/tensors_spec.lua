-- Error texts of tensors and their ops. tests/ops has those that a wrong shape or attribute gives.
local cases = require "error_cases"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local function matrix() return mgpu.ones { 2, 3 } end
local function ones(rank)
  local shape = {}
  for i = 1, rank do shape[i] = 1 end
  return mgpu.ones(shape)
end

cases {
  { "einsum without tensors", function() mgpu.einsum "a->a" end, "einsum: no tensors are given" },
  { "a product of einsum with too many axes", function()
    mgpu.einsum("abcde,fghij->abcdefghij", ones(5), ones(5))
  end, "einsum: a product of two tensors has 10 axes, more than 8" },
  { "tensordot over more axes than there are", function() mgpu.tensordot(matrix(), matrix(), 3) end,
    "tensordot: axes = 3, but the tensors have 2 and 2 axes" },
  { "roll with shifts for other axes", function() mgpu.roll(matrix(), { 1, 2, 3 }, { 1, 2 }) end,
    "roll: got 3 of shift for 2 axes" },
  { "slice without a table", function() matrix():slice(5) end,
    "slice: expected a table of ranges such as {{1, 10}, {}, 3}, got number" },
  { "a table of tables of tables", function() mgpu.tensor { { { { { { { { { 1 } } } } } } } } } end,
    "tensor: tables nest deeper than 8" },
  { "the length of a number", function() return #mgpu.tensor(3) end, "#: a tensor of one number has no length" },
  { "free of something else", function() core.methods.free(3) end, "free: the argument must be a tensor, got number" },
  { "item of several numbers", function() matrix():item() end,
    "item: the tensor has 6 elements (shape {2, 3}), not one: use :totable()" },
  { "einsum with letters for all axes of dots but none left", function()
    mgpu.einsum("...ABCDEFGHIJKLMNOPQRSTUVWXYZ->...", mgpu.ones { 2 })
  end, "26 axes, the tensor has 1" },
  { "einsum that uses all letters, and dots", function()
    mgpu.einsum("ABCDEFG...,HIJKLMN...,OPQRSTU...,VWXYZ...->", ones(8), ones(8), ones(8), ones(6))
  end, "too many letters" },
  { "take_along_axis with ids of another size", function()
    mgpu.take_along_axis(mgpu.ones { 2, 3 }, mgpu.tensor({ { 0 }, { 1 }, { 2 } }, { dtype = "int32" }), 2)
  end, "take_along_axis: ids of shape {3, 1} for a tensor of shape {2, 3} along axis 2" },
  { "slice_rows from fractions", function() mgpu.ones { 2, 4 }:slice_rows(mgpu.ones { 2, 1 }, 2) end,
    "slice_rows: start must hold integers, got float32" },
  { "options that are not a table", function() mgpu.zeros({ 2 }, "float64") end,
    'zeros: the options must be a table such as {dtype = "float32"}, got string' },
  { "an unknown option of a tensor", function() mgpu.ones({ 2 }, { dtyp = "float64" }) end,
    'ones: unknown option "dtyp" (did you mean "dtype"?); the options are dtype, device' },
  { "an unknown option of an op", function() matrix():sum { rotate = 1 } end,
    'sum: unknown option "rotate"; the options are axis, keepdims' },
  { "a misspelt option of an op", function() matrix():sum { axs = 1 } end,
    'sum: unknown option "axs" (did you mean "axis"?); the options are axis, keepdims' },
  { "an option of an op that takes none", function() matrix():relu { rotate = 1 } end,
    'relu: unknown option "rotate"; there are no options' },
  { "an unknown option of arange", function() mgpu.arange(3, { rotate = 1 }) end,
    'arange: unknown option "rotate"; the options are dtype, device' },
  { "an unknown option of norm", function() mgpu.norm(matrix(), { rotate = 1 }) end,
    'norm: unknown option "rotate"; the options are ' },
  { "an unknown option of a variable", function() mgpu.variable({ 1 }, { rotate = 1 }) end,
    'variable: unknown option "rotate"; the options are ' },
  { "an unknown value of an op's option", function() core.ops.image_resize(mgpu.ones { 1, 2, 2, 1 }, { size = { 1, 1 },
    interpolation = "wavy" }) end, 'image_resize: option "interpolation": unknown value "wavy"; the values are ' },
  { "an unknown dtype", function() mgpu.full({ 2 }, 1, { dtype = "complex64" }) end,
    'full: unknown dtype "complex64"; the dtypes are bool, uint8, ' },
  { "an unknown dtype of ones", function() mgpu.ones({ 2 }, { dtype = "complex64" }) end,
    'ones: unknown dtype "complex64"' },
  { "an unknown dtype of rand", function() mgpu.rand({ 2 }, { dtype = "float31" }) end,
    'rand: unknown dtype "float31" (did you mean "float32"?)' },
  { "an unknown dtype of one_hot", function() mgpu.one_hot(mgpu.tensor({ 1 }, { dtype = "int32" }), 3, "int31") end,
    'one_hot: unknown dtype "int31" (did you mean "int32"?)' },
  { "a dtype that is no name", function() mgpu.eye(2, { dtype = 32 }) end,
    "eye: the dtype must be a name, got number" },
  { "a shape that is not a list", function() mgpu.full("2x3", 1) end, "full: the shape must be a list, got string" },
  { "arange to infinity", function() mgpu.arange(0, 1 / 0) end, "arange: the limit must be a number, got inf" },
  { "arange in steps of 0", function() mgpu.arange(0, 3, 0) end, "arange: the step must not be 0" },
  { "linspace of half a number", function() mgpu.linspace(0, 1, 2.5) end,
    "must be a whole number of at least 0, got 2.5" },
  { "eye of a negative size", function() mgpu.eye(-1) end, "must be a whole number of at least 0, got -1" },
  { "tensordot over an axis twice", function() mgpu.tensordot(matrix(), matrix(), { { 1, 1 }, { 1, 2 } }) end,
    "tensordot: axis 1 is given twice" },
  { "a slice from half a position", function() matrix():slice { { 1.5, 2 } } end,
    "slice: axis 1: positions are whole numbers, got 1.5" },
  { "a slice by a name", function() matrix():slice { "first" } end,
    "slice: axis 1: expected a number or {first, last, step}, got string" },
  { "a slice in steps of 0", function() matrix():slice { { 1, 2, 0 } } end,
    "slice: axis 1: the step must be a whole number other than 0, got 0" },
  { "an axis too long to sort", function() mgpu.zeros({ 2 ^ 31 }, { dtype = "uint8" }):argsort() end,
    "argsort: an axis of 2^31 elements" },
  { "tensors of two devices", function()
    return mgpu.tensor({ 1, 2 }, { device = "ref:0" }) + mgpu.tensor({ 1, 2 }, { device = "cpu:0" })
  end, 'add: inputs lie on ref:0 and cpu:0: move one with :to "ref:0"' },
  { "concat to an axis that no number can count", function()
    local x = mgpu.zeros({ 2 ^ 52 }, { dtype = "uint8" })
    for _ = 1, 6 do x = mgpu.concat { x, x } end
    local list = {}
    for i = 1, 32 do list[i] = x end
    mgpu.concat(list)
  end, "concat: axis 1 gets too large" },
  { "a kernel that is dilated beyond all numbers", function()
    core.ops.conv2d(mgpu.ones { 1, 4, 4, 1 }, mgpu.zeros { 2 ^ 33, 1, 1, 1 }, { dilations = { 2 ^ 31 - 1, 1 } })
  end, "conv2d: the window spans too many rows" },
  { "a gradient in another dtype", function()
    local labels = mgpu.tensor({ 0, 1 }, { dtype = "int32" })
    core.ops.sparse_softmax_cross_entropy_grad(matrix(), labels, mgpu.ones({ 2 }, { dtype = "float64" }))
  end, "dy must have the dtype of x, float32, got float64" },
  -- ---- gradients and steps
  { "the gradient of several numbers", function() mgpu.grad(function(x) return x * 2 end)(matrix()) end,
    "grad: the function must return one number, got shape {2, 3}: reduce it with :mean() or :sum()" },
  { "the gradient of a whole number", function()
    mgpu.grad(function(x) return x:cast "int32":sum() end)(matrix())
  end, "grad: the function must return a floating point number, got int64" },
  { "the gradient of nothing", function() mgpu.grad(function() end)(matrix()) end,
    "grad: the function must return a tensor of one number, got nothing" },
  { "the gradient by a number", function() mgpu.value_and_grad(function() end, { 1 })() end,
    "value_and_grad: entry 1 of the variables is a number" },
  { "a value that is wanted while a step is traced", function()
    mgpu.jit(function(x)
      mgpu.eval(x)
      return x
    end)(matrix())
  end, "no value is available inside mgpu.jit: the function is only being traced; return the tensor and read it" },
  { "a variable that gets a value of a traced step", function()
    local kept
    mgpu.jit(function(x)
      kept = x * 2
      return x
    end)(matrix())
    mgpu.variable(mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }, { name = "v" }):assign(kept)
  end, 'variable "v": the value was made inside mgpu.jit and cannot be used after it: return it from the function' },
  { "a step that shards batches of different sizes", function()
    core.jit(function(a, b) return core.ops.shard(a):sum() + core.ops.shard(b):sum() end,
      { devices = { "cpu:0", "cpu:1" } })(mgpu.ones { 4 }, mgpu.ones { 6 })
  end, "shard: the values sharded in one step must have equal numbers of rows, got 4 and 6" },
  { "a table of too many fields", function()
    local fields = {}
    for i = 1, 65 do fields["f" .. i] = matrix() end
    mgpu.jit(function(t) return t.f1 end)(fields)
  end, "mgpu.jit: argument 1 has more than 64 fields" },
  { "a step with too many results", function()
    mgpu.jit(function(x)
      local results = {}
      for i = 1, 513 do results[i] = x + i end
      return results
    end)(matrix())
  end, "mgpu.jit: the function returned more than 512 tensors" },
  { "a step on two devices that is submitted", function()
    mgpu.jit(function(x) return x + mgpu.ones { 1 } end):submit(mgpu.ones({ 1 }, { device = "ref:1" }))
  end, "submit: this step computes on 2 devices, but only a step on one device can run beside others: call it",
    code = "unsupported" },
  { "a central device for stages", function()
    core.jit(function(x) return x + 1 end, { devices = { "cpu:0", "cpu:1" }, stages = 2, central = "cpu:0" })(matrix())
  end, 'strategy "central" cannot be combined with layers that name a device: choose one', code = "unsupported" },
  { "a model on too many devices", function()
    local L = mgpu.layers
    local layers = { L.Input { 2 }, L.Dense { 2, device = "ref:0" } }
    for i = 0, 63 do layers[#layers + 1] = L.Dense { 2, device = "cpu:" .. i } end
    mgpu.Sequential(layers):predict(mgpu.ones { 4, 2 }, { verbose = 0 })
  end, "mgpu.jit: more than 64 devices" },
  -- ---- devices
  { "a device whose number is a letter", function() mgpu.ones({ 2 }, { device = "cpu:x" }) end,
    'device "cpu:x": the number after the colon must be 0 to 63' },
  { "a device with a letter after its number", function() mgpu.ones({ 2 }, { device = "cpu:0x" }) end,
    'unknown device "cpu:0x": "x" is left over after cpu:0' },
}

check.test("at most 64 runs of a step can be submitted", function()
  local device = core.default_device()
  local step, runs = mgpu.jit(function(x) return x + x end), {}
  for i = 0, 63 do
    core.default_device("cpu:" .. i)
    runs[#runs + 1] = step:submit(mgpu.ones { 1 })
  end
  core.default_device "ref:0"
  check.raises(function() step:submit(mgpu.ones { 1 }) end,
    "mgpu.jit: 64 submitted runs are under way: wait for one first", "usage")
  core.default_device(device)
  for _, run in ipairs(runs) do check.equal(run:wait():totable(), { 2 }) end
end)
