-- Draws random loops for devices.lua, and runs one: a loss over its results, and gradients. On ref the loop is written
-- out, step by step; on cpu it is mgpu.scan, outside of jit, in jit, or on several devices that share the rows.
--
-- A value has a kind, which is its shape: M {rows, width}, V {width}, S {}, C {rows, 1}, W {width, width}, and
-- I {rows, 1} of int32. A body is a list of steps over numbered values: those from outside, its carries, its entries of
-- the arrays, then what the steps make.
local mgpu = require "mgpu"
local cases = require "ops.cases"

local random = math.random
local function pick(list) return list[random(#list)] end

local F64, I32 = { dtype = "float64" }, { dtype = "int32" }
local OUTSIDE = { "W", "W", "V", "C", "M", "S", "I" } -- what every body can read

local function shape_of(case, kind)
  local r, w = case.rows, case.width
  return ({ M = { r, w }, V = { w }, S = {}, C = { r, 1 }, I = { r, 1 }, W = { w, w } })[kind]
end

local function map(list, fn)
  local out = {}
  for i, v in ipairs(list) do out[i] = fn(v, i) end
  return out
end

-- ---- ops ----------------------------------------------------------------------------------------

-- The kind of the result, those of the inputs (any of the letters), and the function of these and the case. Results
-- stay small, so that sums in another order agree.
local OPS = {
  { "M", { "M", "MVSC" }, function(a, b) return (a + b) * 0.7 end },
  { "M", { "M", "MVSC" }, function(a, b) return a * b end },
  { "M", { "M", "MVSC" }, function(a, b) return mgpu.maximum(a, b) end },
  { "V", { "V", "VS" }, function(a, b) return (a - b):sin() end },
  { "M", { "M" }, function(a) return a:tanh() end },
  { "M", { "M" }, function(a) return a:softmax() end },
  { "M", { "M" }, function(a) return a:stop_gradient() end },
  { "M", { "M", "W" }, function(a, w) return (a:matmul(w) * 0.5):tanh() end },
  { "M", { "M", "W" }, function(a, w) return (a:matmul(w) * 0.5):tanh() end },
  { "W", { "M", "M" }, function(a, b) return (a:matmul(b, { transpose_a = true }) * 0.3):tanh() end },
  { "V", { "M" }, function(a) return a:mean { axis = 1 } end },
  { "V", { "M" }, function(a) return a:max { axis = 1 } end },
  { "C", { "M" }, function(a) return a:mean { axis = 2, keepdims = true } end },
  { "S", { "M" }, function(a) return (a:sum() * 0.1):tanh() end },
  { "M", { "C", "C", "M", "M" }, function(c, d, a, b) return mgpu.where(c:gt(d), a, b) end },
  { "I", { "I", "I" }, function(a, b) return (a * b + 1):mod(11) end },
  { "C", { "I" }, function(a) return a:to "float64" * 0.1 end },
  { "M", { "M" }, function(a) return a:roll(1, 2) end },
  { "M", { "M" }, function(a, case) return a:reshape({ case.rows * case.width }):sin():reshape(a:shape()) end },
  { "M", { "M" }, function(a) return (a:cumsum { axis = 2 } * 0.5):tanh() end },
  { "M", { "M", "I" }, function(a, i, case) return a:gather(i:reshape({ case.rows }):mod(case.rows)) end },
  { "M", { "M" }, function(a, case)
    if case.width % 2 == 1 then return a end
    local halves = mgpu.split(a, 2, 2)
    return mgpu.concat({ halves[2] * 0.9, halves[1]:tanh() }, 2)
  end },
}

local function constant(case, kind, value)
  local t = mgpu.full(shape_of(case, kind), math.floor(value * 5) / 5)
  return kind == "I" and (t * 5):to "int32" or t:to "float64"
end

-- ---- drawing ------------------------------------------------------------------------------------

local function draw_kinds(least, most, kinds)
  local list = {}
  for i = 1, random(least, most) do list[i] = pick(kinds) end
  return list
end

-- The number of a value of one of these kinds; newer ones are likelier. Without one, a constant is made.
local function choose(body, kinds)
  local found = {}
  for n, kind in ipairs(body.kinds) do
    if kinds:find(kind, 1, true) then
      for _ = 1, n > body.n_outside and 3 or 1 do found[#found + 1] = n end
    end
  end
  if #found > 0 and random() < 0.9 then return pick(found) end
  local kind = kinds:sub(1, 1)
  body.steps[#body.steps + 1] = { constant = kind, value = random() }
  body.kinds[#body.kinds + 1] = kind
  return #body.kinds
end

local draw_body

-- A loop within the body: over stacks of values, of which the body then has the carries and the last y.
local function draw_inner(body, depth)
  local inner = draw_body(depth + 1, body.kinds)
  local step = { loop = inner, stacks = {} }
  step.init = map(inner.carries, function(kind) return choose(body, kind) end)
  for i, kind in ipairs(inner.rows) do
    step.stacks[i] = {}
    for t = 1, inner.n do step.stacks[i][t] = choose(body, kind) end
  end
  body.steps[#body.steps + 1] = step
  for _, kind in ipairs(inner.carries) do body.kinds[#body.kinds + 1] = kind end
  for _, y in ipairs(inner.y) do body.kinds[#body.kinds + 1] = inner.kinds[y] end
end

function draw_body(depth, outside)
  local body = { n = random(depth == 0 and 6 or 3), reverse = random() < 0.4, checkpoint = random() < 0.3,
    carries = draw_kinds(0, 4, { "M", "M", "M", "V", "S", "C", "I" }),
    rows = draw_kinds(1, 3, { "M", "M", "V", "S", "C", "I" }), n_outside = #outside, steps = {} }
  body.kinds = map(outside, function(kind) return kind end)
  for _, list in ipairs { body.carries, body.rows } do
    for _, kind in ipairs(list) do body.kinds[#body.kinds + 1] = kind end
  end
  for _ = 1, random(7) do
    if depth < 2 and random(24) == 1 then
      draw_inner(body, depth)
    else
      local op = random(#OPS)
      local inputs = map(OPS[op][2], function(kinds) return choose(body, kinds) end) -- may add steps
      body.steps[#body.steps + 1] = { op = op, inputs = inputs }
      body.kinds[#body.kinds + 1] = OPS[op][1]
    end
  end
  body.after = map(body.carries, function(kind) return choose(body, kind) end)
  body.y = {}
  for i = 1, random(0, 3) do body.y[i] = choose(body, "MVSCI") end
  return body
end

local M = {}

--- A random loop as a case: its body, the sizes, which results are read, and how it runs on cpu.
function M.draw()
  local case = { "loop", body = draw_body(0, OUTSIDE), rows = random(7), width = random(8), jit = random(3) > 1,
    n_devices = pick { 1, 2, 3, 8 }, second = random(4) == 1, zero = {}, read = {},
    dtypes = { "float64" }, tol = 1e-10, scale = 1 }
  for i = 1, #case.body.carries do case.zero[i] = random(2) == 1 end
  for i = 1, #case.body.carries + #case.body.y do case.read[i] = random() < 0.8 end
  return case
end

-- ---- running ------------------------------------------------------------------------------------

local function scan(body, fn, init, xs)
  return mgpu.scan(fn, init, xs, { reverse = body.reverse, checkpoint = body.checkpoint })
end

local function written_out(body, fn, carry, xs)
  local ys = map(body.y, function() return {} end)
  for n = 1, body.n do
    local t = body.reverse and body.n + 1 - n or n
    local y
    carry, y = fn(carry, map(xs, function(x) return x[t] end))
    for i, list in ipairs(ys) do list[t] = y[i] end
  end
  return carry, map(ys, function(list) return mgpu.stack(list) end)
end

-- Carries and stacks of the body's loop over `outside`, its first carries and its arrays.
local function run(case, body, loop, outside, init, xs)
  return loop(body, function(carry, entries)
    local values = {}
    local function add(list) for _, t in ipairs(list) do values[#values + 1] = t end end
    local function take(numbers) return map(numbers, function(n) return values[n] end) end
    for i = 1, body.n_outside do values[i] = outside[i] end -- later ones were made for its first carries
    add(carry)
    add(entries)
    for _, step in ipairs(body.steps) do
      if step.loop then
        local stacks = map(step.stacks, function(numbers) return mgpu.stack(take(numbers)) end)
        local last, ys = run(case, step.loop, loop, values, take(step.init), stacks)
        add(last)
        add(map(ys, function(y) return y[step.loop.n] end))
      elseif step.constant then
        add { constant(case, step.constant, step.value) }
      else
        local inputs = take(step.inputs)
        inputs[#inputs + 1] = case
        add { OPS[step.op][3](unpack(inputs)) }
      end
    end
    return take(body.after), take(body.y)
  end, init, xs)
end

local function has_rows(kind) return kind == "M" or kind == "C" or kind == "I" end

-- Numbers of that kind; {rows, steps, ...} or {steps, ...} if `steps` is given.
local function numbers(case, kind, steps)
  local shape = shape_of(case, kind)
  if steps then table.insert(shape, has_rows(kind) and 2 or 1, steps) end
  return kind == "I" and mgpu.randint(0, 5, shape, I32) or mgpu.rand(shape, F64) - 0.4
end

-- The sum of what is read of the results.
local function loss_of(case, loop, outside, init, arrays)
  local xs = map(arrays, function(t, i) return has_rows(case.body.rows[i]) and t:permute { 2, 1, 3 } or t end)
  local first = map(case.body.carries, function(kind, i)
    return case.zero[i] and mgpu.zeros(shape_of(case, kind), kind == "I" and I32 or F64) or init[i]
  end)
  local carries, ys = run(case, case.body, loop, outside, first, xs)
  local total = mgpu.zeros({}, F64)
  for i, read in ipairs(case.read) do
    local t = carries[i] or ys[i - #carries]
    if read then total = total + (t:to "float64" * 0.3 + i):sin():sum() end
  end
  return total
end

-- The loss and the gradients by the variables; with case.second those of the sum of squares of the first ones.
local function differentiate(case, loss, variables)
  local value, gradients = mgpu.value_and_grad(loss, variables)()
  if not case.second then return value, gradients end
  local _, second = mgpu.value_and_grad(function()
    local total, first = mgpu.value_and_grad(loss, variables)()
    for _, g in pairs(first) do total = g and total + (g * g):sum() or total end -- false: no gradient
    return total
  end, variables)()
  return value, second
end

--- The loss and the gradients by what the loop reads, as devices.lua compares them.
function M.compute(case, device)
  mgpu.seed(case.salt)
  local loop, variables, arguments = device == "ref:0" and written_out or scan, {}, {}
  local shares = loop == scan and case.jit and case.n_devices > 1
  local function given(list, steps)
    return map(list, function(kind)
      arguments[#arguments + 1] = numbers(case, kind, steps)
      local argument, shift = #arguments, mgpu.variable(mgpu.zeros(arguments[#arguments]:shape(), F64))
      if kind ~= "I" then variables[#variables + 1] = shift end
      return function(list_of)
        local t = list_of[argument]
        if shares and has_rows(kind) then t = t:shard() end
        return kind == "I" and t or t + shift
      end
    end)
  end
  local outside, init = given(OUTSIDE), given(case.body.carries)
  local arrays = given(case.body.rows, case.body.n)
  local function step(...)
    local list = { ... }
    local function values(readers) return map(readers, function(read) return read(list) end) end
    local value, found = differentiate(case, function()
      return loss_of(case, loop, values(outside), values(init), values(arrays))
    end, variables)
    local results = { value } -- what a loss does not depend on has no gradient, or one of zeros
    for i, v in ipairs(variables) do results[i + 1] = found[i] or mgpu.zeros(v:shape(), F64) end
    return unpack(results)
  end
  local options = { devices = {} }
  for i = 1, case.n_devices do options.devices[i] = "cpu:" .. i - 1 end
  local jitted = (loop == written_out or case.jit) and mgpu.jit(step, shares and options or nil) or step
  local results = map({ jitted(unpack(arguments)) }, function(t) return cases.flat(t) end)
  return { shape = {}, dtype = "float64", values = table.remove(results, 1), gradients = results }
end

return M
