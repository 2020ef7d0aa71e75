--- Loops over sequences: a function applied to one step after the other, with a state that it carries along.
local arguments = require "mgpu.tensor.arguments"
local core = require "mgpu.core"
local ordered_keys = require "mgpu.ordered_keys"
local slice = require "mgpu.tensor.slicing"

local M, ops = {}, core.ops
local fail = arguments.fail

local MAX_NESTING = 100 -- of tables: more are taken for one that contains itself

local function is_tensor(value) return core.is_tensor(value) or core.is_variable(value) end

-- A structure like `value`, a tensor or nested tables of them, with fn(tensor, path) for each tensor.
local function map(value, fn, path, depth)
  depth = depth or 0
  if is_tensor(value) then return fn(value, path) end
  if depth > MAX_NESTING then
    fail("scan: %s: tables nest deeper than %d: does one contain itself?", path:match "^[^[]*", MAX_NESTING)
  end
  if type(value) ~= "table" or getmetatable(value) then
    fail("scan: %s must be a tensor or a table of tensors, got a %s", path, type(value))
  end
  local out = {}
  for _, key in ipairs(ordered_keys(value)) do
    out[key] = map(value[key], fn, ("%s[%s]"):format(path, tostring(key)), depth + 1)
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

-- The tensors of a structure in a list, appended to `list`; a structure with their positions there.
local function flatten(value, list, path)
  return map(value, function(t)
    list[#list + 1] = t
    return #list
  end, path)
end

-- The structure with list[n] for each position n.
local function build(form, list)
  if type(form) ~= "table" then return form and list[form] end
  local out = {}
  for key, item in pairs(form) do out[key] = build(item, list) end
  return out
end

-- The entries [first, first + count) of all tensors, as {n, count / n, ...} if n is given.
local function cut(list, first, count, n)
  local out = {}
  for i, t in ipairs(list) do
    local shape = t:shape()
    if shape[1] ~= count then t = slice(t, { { first, first + count - 1 } }) end
    if n then
      shape[1] = count / n
      table.insert(shape, 1, n)
      t = ops.reshape(t, { shape = shape })
    end
    out[i] = t
  end
  return out
end

-- Stacks of stacks, {n, count, ...}, as {n * count, ...}.
local function merge(t)
  local shape = t:shape()
  local n = table.remove(shape, 1)
  shape[1] = n * shape[1]
  return ops.reshape(t, { shape = shape })
end

-- A loop of loops of about sqrt(steps) steps: the gradient keeps the carries of the outer one, and runs the inner ones
-- again. `loop.step` is traced for the last steps once more if they make no whole inner loop.
local function scan_in_segments(loop, carries, arrays)
  local n_carries, inner = #carries, math.floor(math.sqrt(loop.steps))
  local outer = math.floor(loop.steps / inner)
  local whole = outer * inner
  local stacks = { {}, {} }
  local function keep(results, part, change)
    for i = 1, #results do
      if i <= n_carries then carries[i] = results[i] end
      if i > n_carries then stacks[part][i - n_carries] = change(results[i]) end
    end
  end
  local function run_rest(first, part)
    if whole == loop.steps then return end
    keep(core.scan(loop.steps - whole, loop.reverse, false, carries, cut(arrays, first, loop.steps - whole), loop.step),
      part, function(t) return t end)
  end
  if loop.reverse then run_rest(whole + 1, 2) end -- the last entries come first
  keep(core.scan(outer, loop.reverse, true, carries, cut(arrays, 1, whole, outer), function(c, entries)
    return core.scan(inner, loop.reverse, false, c, entries, loop.step)
  end), 1, merge)
  if not loop.reverse then run_rest(whole + 1, 2) end
  local first, again = #stacks[1], #stacks[2]
  if loop.reverse then first, again = again, first end
  if whole < loop.steps and first ~= again then
    fail("scan: fn returned %d tensors as y, but %d when checkpoint called it again", first, again)
  end
  local results = {}
  for i = 1, n_carries do results[i] = carries[i] end
  for i, t in ipairs(stacks[1]) do
    results[n_carries + i] = stacks[2][i] and ops.concat({ t, stacks[2][i] }, { axis = 1 }) or t
  end
  return results
end

local OPTIONS = { "reverse", "checkpoint" }

local function read_options(...)
  local values = { arguments.read_options("scan", OPTIONS, ...) }
  for i, name in ipairs(OPTIONS) do
    if values[i] ~= nil and type(values[i]) ~= "boolean" then
      fail("scan: %s must be true or false, got a %s", name, type(values[i]))
    end
  end
  return values[1] or false, values[2] or false
end

--- scan(fn, init, xs, {reverse = false, checkpoint = false}) -> carry, ys: calls `carry, y = fn(carry, x)` for each
--- step x of xs, from the carry `init` on.
-- carry, x, y: a tensor, or a table of them (also nested). xs: the same with the steps as the first axis, {steps, ...}.
-- ys: the y of all steps, {steps, ...}, or nil if fn returns none. The carry keeps its shapes and dtypes. reverse: the
-- last step comes first; ys stay in the places of their xs. fn is called once, with tensors that stand for those of
-- any step, so it cannot read their values; a plan runs it as a loop, and making the plan takes as long for 5,000
-- steps as for 5. Random numbers are drawn anew in each step; variables cannot be assigned. It works in mgpu.jit and
-- outside, has gradients, and may be nested. checkpoint: the gradient keeps about sqrt(steps) carries and computes the
-- steps between them again, in place of keeping the products of all steps; then fn may be called twice.
-- Errors: tensors with different numbers of steps; no steps; a carry that changes its form.
-- Example:
--     local total, sums = mgpu.scan(function(sum, x) return sum + x, sum + x end, mgpu.zeros {},
--       mgpu.tensor { 1, 2, 3 })
--     print(total:item())  --> 6
--     print(sums)
--     --> tensor {3} float32 cpu:0
--     --> {1, 3, 6}
function M.scan(fn, init, xs, ...)
  local reverse, checkpoint = read_options(...)
  if type(fn) ~= "function" then fail("scan: the first argument must be a function, got a %s", type(fn)) end
  local loop = { steps = count_steps(xs), reverse = reverse }
  local carries, arrays, y_form = {}, {}, nil
  local carry_form, x_form = flatten(init, carries, "the carry"), flatten(xs, arrays, "xs")
  function loop.step(params, entries)
    local before = build(carry_form, params)
    local after, y = fn(before, build(x_form, entries))
    check_carry(before, after, "the carry")
    local results = {}
    flatten(after, results, "the carry")
    if y ~= nil then y_form = flatten(y, results, "y") end
    return results
  end
  local results
  if checkpoint and loop.steps > 3 then
    results = scan_in_segments(loop, carries, arrays)
  else
    results = core.scan(loop.steps, reverse, false, carries, arrays, loop.step)
  end
  return build(carry_form, results), y_form and build(y_form, results)
end

return M
