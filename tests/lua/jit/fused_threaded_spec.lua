-- Consecutive operations of a fused group run as threaded code, in one pass over memory. Here they give
-- the bits that they give one at a time: NaN for NaN, and zeros of the same sign.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local ops = core.ops

local UNARY = { "neg", "abs", "sign", "square", "sqrt", "rsqrt", "reciprocal", "exp", "expm1", "log", "log1p", "sin",
  "atan", "tanh", "sigmoid", "relu", "softplus", "erf", "floor", "ceil", "round", "logical_not", "isnan",
  "isfinite" }
local BINARY = { "add", "sub", "mul", "div", "pow", "mod", "floordiv", "maximum", "minimum", "atan2", "gt", "ge",
  "lt", "le", "eq", "ne", "logical_and", "logical_or", "logical_xor" }

-- The number of elements in which a and b differ.
local function different(a, b)
  local function both(test_of) return ops.logical_and(test_of(a), test_of(b)) end
  local same = ops.logical_and(ops.eq(a, b), ops.eq(1 / a, 1 / b))
  return ops.sum(ops.cast(ops.logical_not(ops.logical_or(same, both(ops.isnan))), { dtype = "int32" })):item()
end

test("every pair of operations gives the same bits fused and one at a time", function()
  local strange = { 0, -0.0, 1, -1, 1e-45, -1e-45, 1e-38, 3e38, -3e38, 1 / 0, -1 / 0, 0 / 0 }
  local left, right = {}, {}
  for i = 1, 12 * 12 do left[i], right[i] = strange[(i - 1) % 12 + 1], strange[math.ceil(i / 12)] end
  local a, b = mgpu.tensor(left), mgpu.tensor(right)
  local c = ops.permute(a:reshape { 12, 12 } * 1, { order = { 2, 1 } }):reshape { 144 } * -0.5
  local one = mgpu.tensor(0.7)
  mgpu.eval(a, b, c, one)
  local forms = {}
  for _, name in ipairs(UNARY) do forms[name] = function(x) return ops[name](x) end end
  for _, name in ipairs(BINARY) do
    forms[name .. " with it"] = function(x, y) return ops[name](x, y) end
    forms[name .. " from it"] = function(x, y) return ops[name](y, x) end
    forms[name .. " with a number"] = function(x) return ops[name](x, one) end
    forms[name .. " from a number"] = function(x) return ops[name](-3, x) end
    forms[name .. " of itself"] = function(x) return ops[name](x, x) end
  end
  for first, make in pairs(forms) do
    local made = make(a, b)
    mgpu.eval(made)
    for second, apply in pairs(forms) do
      local apart, together = apply(made, c), mgpu.jit(function() return apply(make(a, b), c) end)()
      mgpu.eval(apart)
      local n = different(apart, together)
      if n > 0 then error(("%s, then %s: %d differ"):format(first, second, n)) end
    end
  end
end)

-- A random chain of operations; each takes one or two inputs, which are operands or earlier results.
local function random_recipe(random, length)
  local recipe = {}
  for i = 1, length do
    local function earlier() return random(3) == 1 and -random(6) or math.max(i - random(3), -6) end
    local kind = random(10)
    local name = kind <= 4 and UNARY[random(#UNARY)] or BINARY[random(#BINARY)]
    if kind == 10 then name = "where" end
    recipe[i] = { name = name, earlier(), kind > 4 and earlier(), kind == 10 and earlier() }
  end
  return recipe
end

-- The results of a chain. An entry's positive numbers name earlier results; -1, -2 ... name operands, and
-- 0 the first operand.
local function follow(recipe, operands, each)
  local results = {}
  for i, entry in ipairs(recipe) do
    local taken = {}
    for k, at in ipairs(entry) do taken[k] = at and (results[at] or operands[math.max(1, -at)]) or nil end
    results[i] = ops.cast(ops[entry.name](unpack(taken)), { dtype = "float32" })
    each(results[i])
  end
  return results
end

test("random chains over operands of all kinds give the same bits", function()
  local random = math.random
  math.randomseed(11)
  mgpu.seed(11)
  for _, shape in ipairs { { 1 }, { 63 }, { 64 }, { 65 }, { 3, 5 }, { 70, 30 }, { 9, 500 }, { 5000 }, { 310, 100 } } do
    local rows, columns = #shape == 2 and shape[1] or 1, shape[#shape]
    for _ = 1, 12 do
      local recipe = random_recipe(random, random(2, 20))
      local operands = { mgpu.rand(shape) - 0.5, mgpu.rand(shape) + 0.5, mgpu.rand { columns } - 0.5,
        mgpu.rand { rows, 1 } + 0.1, mgpu.tensor(0.3), mgpu.rand { 1 } }
      if #shape == 1 then operands[4] = operands[2] end
      mgpu.eval(unpack(operands))
      local apart = follow(recipe, operands, mgpu.eval)
      local n = #apart
      local kept, early = core.variable(mgpu.zeros(apart[n]:shape())), random(n)
      local step = mgpu.jit(function()
        local results = follow(recipe, operands, function() end)
        kept:assign(results[n])
        return results[early]
      end)
      local got = step()
      check.equal(different(got, apart[early]), 0)
      check.equal(different(kept:value(), apart[n]), 0)
    end
  end
end)

-- Tiles are a few thousand elements, so the larger shapes have several tiles to a row of the operand.
test("an operand with a row for each image gives the same bits as one of the whole shape", function()
  mgpu.seed(13)
  local function apply(x, mask, row, number)
    return ops.where(mask, x * 2, number), (x - row) * row + number
  end
  local shapes = { { 3, 5, 7 }, { 2, 900, 3 }, { 4, 784, 64 }, { 2, 3, 50, 65 }, { 3, 40, 700 }, { 2, 3, 5000 } }
  for _, shape in ipairs(shapes) do
    local rows = { unpack(shape) }
    for i = 2, #shape - 1 do rows[i] = 1 end
    local ones = { unpack(rows) }
    ones[#ones] = 1
    for _, dtype in ipairs { "float32", "float16", "float64" } do
      local x, mask = mgpu.randn(shape):to(dtype), mgpu.rand(rows):gt(0.5)
      local row, number = mgpu.randn(rows):to(dtype), mgpu.randn(ones):to(dtype)
      local function whole(t) return mgpu.eval(ops.broadcast_to(t, { shape = shape })) end
      local a, b = mgpu.jit(apply)(x, mask, row, number)
      local c, d = mgpu.jit(apply)(x, whole(mask), whole(row), whole(number))
      check.equal({ different(a, c), different(b, d) }, { 0, 0 })
    end
  end
end)

-- As in an optimizer's update: several outputs over several tiles, one written over an input that other
-- operations read.
test("a chain that writes over its inputs gives the same bits", function()
  mgpu.seed(12)
  for _, n in ipairs { 10, 64, 4096, 4097, 50000 } do
    local start = { mgpu.rand { n }, mgpu.rand { n }, mgpu.rand { n } }
    mgpu.eval(unpack(start))
    local function update(w, m, s, eval)
      m = eval(m + eval(eval(0.5 - m) * 0.1))
      s = eval(s + eval(eval(ops.square(m)) - s))
      return eval(w - eval(m / eval(eval(ops.sqrt(s)) + 0.01))), m, s
    end
    local v = {}
    for i = 1, 3 do v[i] = core.variable(start[i] * 1) end
    local step = mgpu.jit(function()
      local w, m, s = update(v[1]:value(), v[2]:value(), v[3]:value(), function(x) return x end)
      v[1]:assign(w)
      v[2]:assign(m)
      v[3]:assign(s)
    end)
    for _ = 1, 3 do
      step()
      start = { update(start[1], start[2], start[3], function(x) mgpu.eval(x) return x end) }
    end
    for i = 1, 3 do check.equal(different(v[i]:value(), start[i]), 0) end
  end
end)

-- Operands and results of more than 16 MB are written with non-temporal stores; smaller ones are not.
test("results with non-temporal stores have the same bits", function()
  mgpu.seed(13)
  local n, part_size = 3000017, 1000000
  local a, b = mgpu.rand { n } - 0.5, mgpu.rand { n }
  mgpu.eval(a, b)
  for _, make in ipairs { function(x, y) return x * y end, function(x, y) return ops.relu(x * y - 0.1) end } do
    local step = mgpu.jit(make)
    local whole = step(a, b)
    for first = 1, n, part_size do
      local part = { first, math.min(first + part_size - 1, n) }
      local apart = step(a:slice { part } * 1, b:slice { part } * 1)
      check.equal(different(whole:slice { part } * 1, apart), 0)
    end
  end
end)
