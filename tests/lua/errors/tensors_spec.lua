-- Error texts of tensors and their ops. tests/ops has those that a wrong shape or attribute gives.
local cases = require "error_cases"
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
  { "options that are no table", function() mgpu.zeros({ 2 }, "float64") end,
    'zeros: the options must be a table such as {dtype = "float32"}, got string' },
  { "an unknown option of a tensor", function() mgpu.ones({ 2 }, { dtyp = "float64" }) end,
    'ones: unknown option "dtyp" (did you mean "dtype"?)' },
  { "a shape that is no list", function() mgpu.full("2x3", 1) end, "full: the shape must be a list, got string" },
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
}
