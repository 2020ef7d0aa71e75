--- Values of an ONNX graph while it runs: a tensor in one or both orders of its axes, or a constant.
--
-- ONNX has the channels of images and sequences as the second axis; our convolutions and pools have them last. So a
-- value of at least three axes may exist in either order: v:tensor() is the tensor that ONNX means, v:last() the one
-- with the second axis moved to the end, and the other one is made by a permutation when it is first asked for. Ops
-- that take either (element by element, concatenations, ...) use what is there: a chain of image ops has permutations
-- at its ends only. onnx/graph.lua does the same for writing.
-- A kernel of a convolution, {filters, channels, sizes...} in ONNX, is {sizes..., channels, filters} here: v:kernel().
-- A constant is a value that depends on no input and no weight: shapes, axes, and what is computed from them. It is
-- kept on the cpu, and its numbers can be read while the graph is traced (v:numbers).
local core = require "mgpu.core"

local ops = core.ops
local M = {}

local HOST = "cpu:0" -- where constants are
M.HOST = HOST

local Value = {}
Value.__index = Value

--- plain(t) -> the value of a tensor in ONNX's order; last(t): of one with the channels last.
function M.plain(t) return setmetatable({ t = t }, Value) end
function M.last(t) return setmetatable(t:rank() < 3 and { t = t } or { l = t }, Value) end

--- kernel(t) -> the value of a kernel in our order.
function M.kernel(t) return setmetatable({ k = t }, Value) end

--- constant(t, run) -> the value of a constant on the cpu; run: of the graph (run.lua), or nil.
function M.constant(t, run) return setmetatable({ constant = t, run = run }, Value) end

--- is_value(v) -> whether v is one.
function M.is_value(v) return getmetatable(v) == Value end

--- to_last(t), to_first(t) -> the tensor with axis 2 moved to the end, and back.
function M.to_last(t)
  local rank, order = t:rank(), { 1 }
  for i = 2, rank - 1 do order[i] = i + 1 end
  order[rank] = 2
  return ops.permute(t, { order = order })
end

function M.to_first(t)
  local rank, order, shape = t:rank(), { 1 }, t:shape()
  local channels = table.remove(shape)
  table.insert(shape, 2, channels)
  if shape[1] * channels == t:count() then return ops.reshape(t, { shape = shape }) end -- single pixels
  for i = 3, rank do order[i] = i - 1 end
  order[2] = rank
  return ops.permute(t, { order = order })
end

-- The order of the axes of a kernel: {filters, channels, sizes...} to {sizes..., channels, filters}, or back.
local function kernel_order(rank, back)
  local order = {}
  for i = 1, rank - 2 do order[back and i + 2 or i] = back and i or i + 2 end
  order[back and 2 or rank - 1], order[back and 1 or rank] = back and rank - 1 or 2, back and rank or 1
  return order
end

--- to_kernel(t), from_kernel(t) -> a kernel of ONNX in our order, and back.
function M.to_kernel(t) return ops.permute(t, { order = kernel_order(t:rank(), false) }) end
function M.from_kernel(t) return ops.permute(t, { order = kernel_order(t:rank(), true) }) end

-- The constant on the device of the run.
local function placed(self)
  local run = self.run
  if not run or run.folding or run.device == HOST then return self.constant end
  self.there = self.there or core.outside_trace(function()
    local t = core.place(self.constant, run.device)
    core.eval(t) -- a step moves no constants between devices
    return t
  end)
  return self.there
end

--- v:tensor() -> the tensor in ONNX's order.
function Value:tensor()
  if self.constant then return placed(self) end
  if not self.t then self.t = self.l and M.to_first(self.l) or M.from_kernel(self.k) end
  return self.t
end

--- v:kernel() -> the tensor as a kernel in our order.
function Value:kernel()
  self.k = self.k or M.to_kernel(self:tensor())
  return self.k
end

--- v:last() -> the tensor with the channels last.
function Value:last()
  if self:rank() < 3 then return self:tensor() end
  if not self.l then self.l = M.to_last(self:tensor()) end
  return self.l
end

--- v:only_last() -> whether the tensor in ONNX's order would have to be made.
function Value:only_last() return self.l ~= nil and self.t == nil end

--- v:shape() -> the sizes in ONNX's order.
function Value:shape()
  if not self:only_last() then return (self.constant or self:tensor()):shape() end
  local s = self.l:shape()
  table.insert(s, 2, table.remove(s))
  return s
end

local function any(self) return self.constant or self.t or self.l or self.k end
function Value:rank() return any(self):rank() end
function Value:dtype() return any(self):dtype() end

--- v:count() -> the number of elements.
function Value:count() return any(self):count() end

--- v:numbers(what) -> the elements of a constant as a flat list; booleans for bool. `what` names the value in the error
--- for one that is no constant.
function Value:numbers(what)
  if not self.constant then
    core.fail("unsupported", what .. " depends on the data or on weights; it must be a constant, or follow from shapes")
  end
  if not self.list then
    local flat = ops.reshape(self.constant, { shape = { self.constant:count() } })
    self.list = core.outside_trace(function() return flat:totable() end)
  end
  return self.list
end

--- v:number(what) -> the only element of a constant.
function Value:number(what)
  local list = self:numbers(what)
  if #list ~= 1 then core.fail("data", ("%s must be one number, got %d"):format(what, #list)) end
  return list[1]
end

-- The tensor for an op on channels-last tensors of this rank, against which it broadcasts.
local function aligned(v, rank)
  local shape = v:shape()
  if #shape == rank then return v:last() end
  if #shape == 0 then return v:tensor() end
  for _ = #shape + 1, rank do table.insert(shape, 1, 1) end
  return M.to_last(ops.reshape(v:tensor(), { shape = shape }))
end

--- map(fn, ...) -> the value of fn(tensors), for an fn that works element by element and broadcasts.
function M.map(fn, ...)
  local rank, lasts, list = 0, 0, {}
  for _, v in ipairs { ... } do
    rank = math.max(rank, v:rank())
    if v:only_last() then lasts = math.max(lasts, v:rank()) end
  end
  local last = lasts > 0 and lasts == rank
  for i, v in ipairs { ... } do list[i] = last and aligned(v, rank) or v:tensor() end
  local y = fn(unpack(list))
  return last and M.last(y) or M.plain(y)
end

--- axis_last(axis, rank) -> where the axis (from 0, in ONNX's order) is with the channels last, from 1.
function M.axis_last(axis, rank)
  if axis == 0 then return 1 end
  return axis == 1 and rank or axis
end

--- along(v) -> the tensor of v in the order that is there, for an op along axes; axis_in(axis) -> ONNX's axis (from 0)
--- in that order, from 1; wrap(t) -> the value of a result in that order.
function M.along(v)
  if not v:only_last() then return v:tensor(), function(axis) return axis + 1 end, M.plain end
  local rank = v:rank()
  return v:last(), function(axis) return M.axis_last(axis, rank) end, M.last
end

--- axis_at(axis, rank) -> ONNX's axis (from 0, or negative from the end) from 0. Errors: out of range.
function M.axis_at(axis, rank)
  local at = axis < 0 and axis + rank or axis
  if at < 0 or at >= rank or at % 1 ~= 0 then
    core.fail("data", ("the axis %s is out of range: there are %d axes"):format(tostring(axis), rank))
  end
  return at
end

return M
