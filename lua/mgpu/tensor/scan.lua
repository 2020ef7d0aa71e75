--- Loops over sequences: a function applied to one step after the other, with a state that it carries along.
local arguments = require "mgpu.tensor.arguments"
local core = require "mgpu.core"
local movement = require "mgpu.tensor.movement"
local ordered_keys = require "mgpu.ordered_keys"
local slice = require "mgpu.tensor.slicing"

local M, ops = {}, core.ops
local fail = arguments.fail

local function is_tensor(value) return core.is_tensor(value) or core.is_variable(value) end

-- A structure like `value`, a tensor or nested tables of them, with fn(tensor, path) for each tensor.
local function map(value, fn, path)
  if is_tensor(value) then return fn(value, path) end
  if type(value) ~= "table" or getmetatable(value) then
    fail("scan: %s must be a tensor or a table of tensors, got a %s", path, type(value))
  end
  local out = {}
  for _, key in ipairs(ordered_keys(value)) do
    out[key] = map(value[key], fn, ("%s[%s]"):format(path, tostring(key)))
  end
  return out
end

-- The number of steps: the first axis of all tensors in xs.
local function count_steps(xs)
  local steps
  map(xs, function(t, path)
    local size = t:shape()[1]
    if not size then fail("scan: %s has no axes, so it has no steps", path) end
    steps = steps or size
    if size ~= steps then fail("scan: %s has %d steps, but others have %d", path, size, steps) end
  end, "xs")
  if not steps then fail("scan: xs has no tensors, so the number of steps is unknown") end
  if steps == 0 then fail("scan: xs has 0 steps: at least 1 is needed") end
  return steps
end

-- Puts the entries of t along the first axis into list[first], ... Halving keeps the cost of the gradient, which pads
-- each part to the size of what it was cut from, at steps * log(steps).
local function unstack(t, list, first)
  local shape = t:shape()
  local n = table.remove(shape, 1)
  if n == 1 then
    list[first] = ops.reshape(t, { shape = shape })
    return list
  end
  local half = math.floor(n / 2)
  unstack(slice(t, { { 1, half } }), list, first)
  return unstack(slice(t, { { half + 1, n } }), list, first + half)
end

-- Raises unless the carry after a step has the form of the one before it.
local function check_carry(before, after, path)
  if is_tensor(before) then
    if not is_tensor(after) then fail("scan: %s was a tensor, fn returned a %s for it", path, type(after)) end
    local was, is = table.concat(before:shape(), ", "), table.concat(after:shape(), ", ")
    if was ~= is then fail("scan: %s had shape {%s}, fn returned {%s}: a carry keeps its shape", path, was, is) end
    if before:dtype() ~= after:dtype() then
      fail("scan: %s was %s, fn returned %s: a carry keeps its dtype", path, before:dtype(), after:dtype())
    end
    return
  end
  if type(after) ~= "table" then fail("scan: %s was a table of tensors, fn returned a %s for it", path, type(after)) end
  for _, keys in ipairs { before, after } do
    for _, key in ipairs(ordered_keys(keys)) do
      local inner = ("%s[%s]"):format(path, tostring(key))
      if before[key] == nil or after[key] == nil then
        fail("scan: %s is missing %s fn", inner, after[key] == nil and "after" or "before")
      end
      check_carry(before[key], after[key], inner)
    end
  end
end

-- The y of all steps along a new first axis.
local function stacked(ys, steps)
  for i = 2, steps do
    if (ys[i] == nil) ~= (ys[1] == nil) then
      fail("scan: step %d returned %s y, step 1 did %sreturn one", i, ys[i] == nil and "no" or "a",
        ys[1] == nil and "not " or "")
    end
  end
  if ys[1] == nil then return nil end
  local lists = {}
  local form = map(ys[1], function(_, path)
    lists[path] = {}
    return path
  end, "y")
  for i = 1, steps do
    map(ys[i], function(t, path)
      if not lists[path] then fail("scan: step %d returned %s, other steps did not", i, path) end
      lists[path][i] = t
    end, "y")
  end
  for path, list in pairs(lists) do
    for i = 1, steps do
      if not list[i] then fail("scan: step %d returned no %s, step 1 did", i, path) end
    end
  end
  local function build(value)
    if type(value) == "string" then return movement.stack(lists[value]) end
    local out = {}
    for key, item in pairs(value) do out[key] = build(item) end
    return out
  end
  return build(form)
end

--- scan(fn, init, xs, {reverse = false}) -> carry, ys: calls `carry, y = fn(carry, x)` for each
--- step x of xs, from the carry `init` on.
-- carry, x, y: a tensor, or a table of them (also nested). xs: the same with the steps as the first axis, {steps, ...}.
-- ys: the y of all steps, {steps, ...}, or nil if fn returns none. The carry keeps its shapes and dtypes. reverse: the
-- last step comes first; ys stay in the places of their xs. The loop is unrolled: plans grow with the steps. fn must
-- not assign variables or draw random numbers: draw them before, as a part of xs. It works in mgpu.jit and outside, and
-- has gradients. Errors: tensors with different numbers of steps; no steps; a carry, or a y, that changes its form.
-- Example:
--     local total, sums = mgpu.scan(function(sum, x) return sum + x, sum + x end, mgpu.zeros {},
--       mgpu.tensor { 1, 2, 3 })
--     print(total:item())  --> 6
--     print(sums)
--     --> tensor {3} float32 cpu:0
--     --> {1, 3, 6}
function M.scan(fn, init, xs, ...)
  local reverse = arguments.read_options("scan", { "reverse" }, ...)
  if type(fn) ~= "function" then fail("scan: the first argument must be a function, got a %s", type(fn)) end
  if reverse ~= nil and type(reverse) ~= "boolean" then
    fail("scan: reverse must be true or false, got a %s", type(reverse))
  end
  local steps = count_steps(xs)
  local carry = map(init, function(t) return t end, "the carry")
  local parts = map(xs, function(t) return { parts = unstack(t, {}, 1) } end, "xs")
  local function at(value, i)
    if value.parts and is_tensor(value.parts[1]) then return value.parts[i] end
    local out = {}
    for key, item in pairs(value) do out[key] = at(item, i) end
    return out
  end
  local ys = {}
  for n = 1, steps do
    local i = reverse and steps + 1 - n or n
    local after, y = fn(carry, at(parts, i))
    check_carry(carry, after, "the carry")
    carry, ys[i] = after, y
  end
  return carry, stacked(ys, steps)
end

return M
