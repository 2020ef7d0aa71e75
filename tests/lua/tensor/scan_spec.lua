-- mgpu.scan: a function over the steps of a sequence, with a carried state.
local check = require "check"
local mgpu = require "mgpu"

local test = check.test

test("scan carries a state and stacks the outputs, in tables of any form, both ways", function()
  local xs = { a = mgpu.tensor { 1, 2, 3, 4 }, { b = mgpu.tensor { { 1, 1 }, { 2, 2 }, { 3, 3 }, { 4, 4 } } } }
  local function step(carry, x)
    local sum = carry.sum + x.a
    return { sum = sum, carry[1] * 2 }, { total = sum, { x[1].b * sum } }
  end
  local carry, ys = mgpu.scan(step, { sum = mgpu.zeros {}, mgpu.ones { 1 } }, xs)
  check.equal(carry.sum:item(), 10)
  check.equal(carry[1]:totable(), { 16 })
  check.equal(ys.total:totable(), { 1, 3, 6, 10 })
  check.equal(ys[1][1]:totable(), { { 1, 1 }, { 6, 6 }, { 18, 18 }, { 40, 40 } })
  carry, ys = mgpu.scan(step, { sum = mgpu.zeros {}, mgpu.ones { 1 } }, xs, { reverse = true })
  check.equal(carry.sum:item(), 10)
  check.equal(ys.total:totable(), { 10, 9, 7, 4 })
end)

test("scan without outputs returns the carry alone, also over more steps than an op has inputs", function()
  local carry, ys = mgpu.scan(function(c, x) return c + x end, mgpu.zeros {}, mgpu.arange(600))
  check.equal(carry:item(), 600 * 599 / 2)
  check.equal(ys, nil)
  local _, list = mgpu.scan(function(c, x) return c, x * 2 end, mgpu.zeros {}, mgpu.arange(600))
  check.equal(list:shape(), { 600 })
  check.equal(list[600]:item(), 1198)
end)

-- The loss of a small recurrence with a weight, in three forms.
local function loss_of(w, x, loop)
  local h, all = loop(function(h, xt)
    local new = (h * w + xt):tanh()
    return new, new * new
  end, mgpu.zeros({ 2 }, { dtype = "float64" }), x)
  return h:sum() + all:sum()
end

-- mgpu.scan written out; y is one tensor.
local function by_hand(fn, carry, xs, options)
  local function at(value, t)
    if type(value) ~= "table" then return value[t] end
    local out = {}
    for k, v in pairs(value) do out[k] = at(v, t) end
    return out
  end
  local function first(value) return type(value) == "table" and first(select(2, next(value))) or value end
  local ys, steps, y = {}, first(xs):shape()[1], nil
  for n = 1, steps do
    local t = options and options.reverse and steps + 1 - n or n
    carry, y = fn(carry, at(xs, t))
    ys[t] = y
  end
  return carry, y and mgpu.stack(ys)
end

test("gradients of scan equal those of the loop written out, in jit and outside, first and second", function()
  local x = mgpu.rand({ 5, 2 }, { dtype = "float64" })
  local function gradients(loop)
    local w, v = mgpu.variable(mgpu.tensor({ 0.5, -0.3 }, { dtype = "float64" })), mgpu.variable(x)
    local function first()
      local _, g = mgpu.value_and_grad(function() return loss_of(w:value(), v:value(), loop) end, { w, v })()
      return (g[1] * g[1]):sum() + g[2]:sum(), g
    end
    local _, second = mgpu.value_and_grad(first, { w, v })()
    local _, g = first()
    local jitted = mgpu.jit(function() return loss_of(w:value(), v:value(), loop) end)
    return { g[1]:totable(), g[2]:totable(), second[1]:totable(), second[2]:totable(), jitted():item() }
  end
  local a, b = gradients(mgpu.scan), gradients(by_hand)
  for i = 1, 4 do check.near(mgpu.tensor(a[i]):reshape { -1 }, mgpu.tensor(b[i]):reshape({ -1 }):totable(), 1e-12) end
  check.near(a[5], b[5], 1e-12)
end)

local wrong = {
  ["a step that is no function"] = { function() mgpu.scan(1, mgpu.zeros {}, mgpu.zeros { 2 }) end,
    "the first argument must be a function" },
  ["an option of another type"] = { function() mgpu.scan(print, mgpu.zeros {}, mgpu.zeros { 2 }, { reverse = 1 }) end,
    "reverse must be true or false" },
  ["xs without tensors"] = { function() mgpu.scan(print, mgpu.zeros {}, {}) end, "xs has no tensors" },
  ["a number in xs"] = { function() mgpu.scan(print, mgpu.zeros {}, { 1 }) end, "xs[1] must be a tensor" },
  ["xs without axes"] = { function() mgpu.scan(print, mgpu.zeros {}, mgpu.zeros {}) end, "xs has no axes" },
  ["no steps"] = { function() mgpu.scan(print, mgpu.zeros {}, mgpu.zeros { 0 }) end, "xs has 0 steps" },
  ["other numbers of steps"] = { function() mgpu.scan(print, mgpu.zeros {}, { mgpu.ones { 2 }, mgpu.ones { 3 } }) end,
    "xs[2] has 3 steps, but others have 2" },
  ["a carry that is gone"] = { function() mgpu.scan(function() end, mgpu.zeros {}, mgpu.zeros { 2 }) end,
    "the carry was a tensor, fn returned a nil" },
  ["a carry of another shape"] = { function()
    mgpu.scan(function() return mgpu.zeros { 2 } end, mgpu.zeros { 1 }, mgpu.zeros { 2 })
  end, "the carry had shape {1}, fn returned {2}" },
  ["a carry of another dtype"] = { function()
    mgpu.scan(function(c) return c:cast "float64" end, mgpu.zeros { 1 }, mgpu.zeros { 2 })
  end, "the carry was float32, fn returned float64" },
  ["a carry that is no table any more"] = { function()
    mgpu.scan(function(c) return c[1] end, { mgpu.zeros { 1 } }, mgpu.zeros { 2 })
  end, "the carry was a table of tensors" },
  ["a carry with a field less"] = { function()
    mgpu.scan(function() return {} end, { h = mgpu.zeros { 1 } }, mgpu.zeros { 2 })
  end, "the carry[h] is missing after fn" },
  ["a table of something else as y"] = { function()
    mgpu.scan(function(c) return c, { 1 } end, mgpu.zeros {}, mgpu.zeros { 2 })
  end, "y[1] must be a tensor" },
  ["a table that contains itself"] = { function()
    local t = {}
    t[1] = t
    mgpu.scan(function(c) return c end, t, mgpu.zeros { 2 })
  end, "the carry: tables nest deeper than 100" },
  ["other outputs at the second call"] = { function()
    local calls = 0
    mgpu.scan(function(c, x)
      calls = calls + 1
      return c + x, calls == 1 and x or nil
    end, mgpu.zeros {}, mgpu.ones { 5 }, { checkpoint = true })
  end, "fn returned 1 tensors as y, but 0 when checkpoint called it again" },
  ["a value read in a step"] = { function()
    mgpu.scan(function(c, x) return c + x:item() end, mgpu.zeros {}, mgpu.zeros { 2 })
  end, "no value is available inside the function of mgpu.scan" },
  ["an assignment in a step"] = { function()
    local v = mgpu.variable(mgpu.zeros {}, { name = "total" })
    mgpu.eval(v)
    mgpu.scan(function(c) v:assign(c) return c end, mgpu.zeros {}, mgpu.zeros { 2 })
  end, 'variable "total": the function of mgpu.scan cannot assign it' },
  ["a variable made of a step's value"] = { function()
    mgpu.scan(function(c) return mgpu.variable(c):value() end, mgpu.zeros {}, mgpu.zeros { 2 })
  end, "its value depends on a step of mgpu.scan" },
  ["a tensor moved in a step"] = { function()
    mgpu.scan(function(c, x) return c + x:to "ref:1":to(x:device()) end, mgpu.zeros {}, mgpu.zeros { 2 })
  end, "inside the function of mgpu.scan nothing is moved" },
  ["a shard in a step"] = { function()
    mgpu.scan(function(c, x) return c + x:shard() end, mgpu.zeros { 2 }, mgpu.zeros { 3, 2 })
  end, "its function calls shard: shard xs before" },
  ["an id out of range in one step"] = { function()
    local table = mgpu.ones { 3, 2 }
    mgpu.scan(function(c, id) return c + table:gather(id):sum() end, mgpu.zeros {},
      mgpu.tensor({ 0, 9, 2 }, { dtype = "int32" })):item()
  end, "an id is not among 0 to 2" },
  ["a stack of too many axes"] = { function()
    mgpu.scan(function(c) return c, mgpu.zeros { 1, 1, 1, 1, 1, 1, 1, 1 } * c end, mgpu.zeros {}, mgpu.zeros { 2 })
  end, "its steps cannot be stacked" },
  ["a draw of too many axes"] = { function()
    mgpu.scan(function(c) return c + mgpu.rand({ 1, 1, 1, 1, 1, 1, 1, 1 }):sum() end, mgpu.zeros {}, mgpu.zeros { 2 })
  end, "one more is for the steps" },
}

for name, row in pairs(wrong) do
  test(name .. " is refused", function() check.raises(row[1], row[2]) end)
end

-- ---- the loop --------------------------------------------------------------------------------------

local F64 = { dtype = "float64" }

-- The values and gradients of fn, an array of tensors each, by scan and written out; in jit and outside.
local function compare(fn, variables, tolerance)
  local function both(loop)
    local all = {}
    local function run() return mgpu.value_and_grad(function() return fn(loop) end, variables)() end
    local function keep(value, gradients)
      all[#all + 1] = value:reshape { 1 }
      for _, g in ipairs(gradients) do all[#all + 1] = g:reshape { -1 } end
    end
    keep(run())
    keep(mgpu.jit(run)())
    return mgpu.concat(all, 1)
  end
  check.near(both(mgpu.scan), both(by_hand):totable(), tolerance or 1e-12)
end

test("carries may be swapped, kept, delayed, stacked, and read where they are stacked", function()
  for _, width in ipairs { 1, 3, 4, 16 } do -- entries of 3 numbers are not aligned
    local w = mgpu.variable(mgpu.rand({ width }, F64))
    local x = mgpu.rand({ 5, width }, F64)
    for _, reverse in ipairs { false, true } do
      compare(function(loop)
        local last, ys = loop(function(c, xt)
          local sum = (c[1] * w + xt):tanh()
          -- 1 and 2 are swapped, 3 is kept, 4 and 5 delay 1, 6 is what y is, 7 is an entry, 8 a constant
          local after = { c[2], sum, c[3], c[1], c[4], sum, xt, mgpu.ones({ width }, F64) }
          return after, c[5] * c[3] + c[6] * 2 + c[7] + c[8]
        end, { x[1], x[2], x[3], x[4], x[5], x[1], x[2], x[3] }, x, { reverse = reverse })
        local total = (ys * ys):sum()
        for i, t in ipairs(last) do total = total + (t * i):sum() end
        return total
      end, { w })
    end
  end
end)

test("what a step does not compute can be stacked: carries, entries, values from outside, constants", function()
  local x, outside = mgpu.tensor({ 1, 2, 3 }, F64), mgpu.tensor({ 7, 8 }, F64)
  local last, ys = mgpu.scan(function(c, xt) return c, { c, xt, outside, mgpu.full({ 2 }, 5), xt } end,
    mgpu.tensor({ 4 }, F64), x)
  check.equal(last:totable(), { 4 })
  check.equal(ys[1]:totable(), { { 4 }, { 4 }, { 4 } })
  check.equal(ys[2]:totable(), { 1, 2, 3 })
  check.equal(ys[3]:totable(), { { 7, 8 }, { 7, 8 }, { 7, 8 } })
  check.equal(ys[4]:totable(), { { 5, 5 }, { 5, 5 }, { 5, 5 } })
  check.equal(ys[5]:totable(), { 1, 2, 3 })
end)

test("gradients of weights, biases, first carries and entries, also through integers and masks", function()
  local v = mgpu.variable
  local w, u, b = v(mgpu.rand({ 3, 4 }, F64)), v(mgpu.rand({ 4, 4 }, F64)), v(mgpu.rand({ 4 }, F64))
  local h0, x = v(mgpu.rand({ 2, 4 }, F64)), v(mgpu.rand({ 6, 2, 3 }, F64))
  local mask = mgpu.tensor { { true, true }, { true, false }, { false, false }, { true, true }, { false, true },
    { true, true } }
  compare(function(loop)
    local last, ys = loop(function(c, entry)
      local z = (entry.x:matmul(w) + c.h:matmul(u) + b + entry.x:matmul(w):relu()):tanh()
      local h = mgpu.where(entry.mask:reshape { 2, 1 }, z, c.h)
      return { h = h, n = c.n + 1 }, h * c.n:to "float64"
    end, { h = h0:value(), n = mgpu.zeros({}, { dtype = "int32" }) }, { x = x:value(), mask = mask })
    return (last.h * last.h):sum() + ys:sum()
  end, { w, u, b, h0, x })
end)

test("loops within loops have gradients, and second ones", function()
  local w = mgpu.variable(mgpu.tensor({ 0.5, -0.3 }, F64))
  local x = mgpu.rand({ 4, 3, 2 }, F64)
  local function loss(loop)
    local total = loop(function(c, rows)
      local inner, ys = loop(function(d, row)
        local new = (d * w + row + c * 0.1):tanh()
        return new, new * w
      end, c, rows)
      return inner + ys:sum(1) * 0.5
    end, mgpu.zeros({ 2 }, F64), x)
    return (total * total):sum()
  end
  compare(loss, { w })
  compare(function(loop)
    local _, g = mgpu.value_and_grad(function() return loss(loop) end, { w })()
    return (g[1] * g[1]):sum()
  end, { w })
end)

test("checkpoint gives the same numbers, for any number of steps, both ways", function()
  local w = mgpu.variable(mgpu.rand({ 3, 3 }, F64))
  for _, steps in ipairs { 1, 3, 4, 7, 12, 16, 23 } do
    local x = mgpu.rand({ steps, 2, 3 }, F64)
    for _, reverse in ipairs { false, true } do
      local function with(checkpoint)
        return function()
          local h, ys = mgpu.scan(function(h, xt)
            local new = (h:matmul(w) + xt):tanh()
            return new, { new, new * new }
          end, mgpu.ones({ 2, 3 }, F64), x, { reverse = reverse, checkpoint = checkpoint })
          return h:sum() + (ys[1] * x):sum() + ys[2]:sum()
        end
      end
      local a, ga = mgpu.value_and_grad(with(false), { w })()
      local b, gb = mgpu.value_and_grad(with(true), { w })()
      check.near(b:item(), a:item(), 1e-12)
      check.near(gb[1]:reshape { -1 }, ga[1]:reshape({ -1 }):totable(), 1e-11)
    end
  end
end)

-- The memory of a gradient of that many steps, and the lines of its plan.
local function plan_of(steps, checkpoint)
  local w = mgpu.variable(mgpu.rand { 16, 16 })
  local f = mgpu.jit(function(x)
    return mgpu.value_and_grad(function()
      local h = mgpu.scan(function(h, xt) return (h:matmul(w) + xt):tanh() end, mgpu.zeros { 16, 16 }, x,
        { checkpoint = checkpoint })
      return h:sum()
    end, { w })()
  end)
  f(mgpu.zeros { steps, 16, 16 })
  local _, lines = f:dump():gsub("\n", "")
  return f:report()[1].arena_bytes, lines
end

test("the plan of 5,000 steps is as long as that of 5, and checkpoint keeps the square root of them", function()
  local _, few = plan_of(5)
  local all, many = plan_of(4900)
  check.equal(many, few)
  local kept, small = plan_of(4900, true), plan_of(49, true)
  check.truthy(kept < all / 15, ("%d bytes instead of %d"):format(kept, all))
  -- ten times the carries for a hundred times the steps
  check.truthy(kept < small * 13, ("%d bytes for 49 steps, %d for 4900"):format(small, kept))
end)

test("each step draws its own numbers, and so does each step of a loop within", function()
  mgpu.seed(4)
  local seen = {}
  local function note(t)
    for _, v in ipairs(t:reshape({ -1 }):totable()) do
      check.falsy(seen[v], "a number was drawn twice")
      seen[v] = true
    end
  end
  local _, ys = mgpu.scan(function(c)
    local _, inner = mgpu.scan(function(k) return k, mgpu.rand { 3 } end, c, mgpu.zeros { 4 })
    return c, { mgpu.rand { 2 }, inner }
  end, mgpu.zeros {}, mgpu.zeros { 5 })
  check.equal(ys[1]:shape(), { 5, 2 })
  check.equal(ys[2]:shape(), { 5, 4, 3 })
  note(ys[1])
  note(ys[2])
  local f = mgpu.jit(function(x)
    local _, drawn = mgpu.scan(function(c) return c, mgpu.rand { 8 } end, mgpu.zeros {}, x)
    return drawn
  end)
  note(f(mgpu.zeros { 6 }))
  note(f(mgpu.zeros { 6 })) -- another run: other numbers
end)

test("an error in a step ends the loop, and the next loop is right", function()
  local fn = function() error("mine", 0) end
  for _ = 1, 3 do
    local _, message = pcall(mgpu.scan, function(c, x)
      mgpu.scan(fn, c, x)
      return c
    end, mgpu.zeros {}, mgpu.zeros { 2, 2 })
    check.equal(message, "mine")
  end
  check.equal(mgpu.scan(function(c, x) return c + x end, mgpu.zeros {}, mgpu.arange(4)):item(), 6)
end)

test("a tensor of a step that was kept cannot be used after the loop", function()
  local kept
  mgpu.scan(function(c, x) kept = c + x return c end, mgpu.zeros {}, mgpu.zeros { 3 })
  local why = "made inside the function of mgpu.scan"
  check.raises(function() return kept:item() end, why)
  check.raises(function() return (kept + 1):item() end, why)
  check.raises(function() mgpu.jit(function() return kept * 2 end)() end, why)
  check.raises(function() mgpu.scan(function(c) return c + kept end, mgpu.zeros {}, mgpu.zeros { 2 }):item() end, why)
  local v = mgpu.variable(mgpu.zeros {})
  mgpu.eval(v)
  check.raises(function() v:assign(kept) end, why)
end)

test("weights in halves sum their gradients over the steps in float32", function()
  local w = mgpu.variable(mgpu.full({ 4 }, 1):to "float16")
  local _, g = mgpu.value_and_grad(function()
    local sum = mgpu.scan(function(c, x) return c + (x * w):to "float32" end, mgpu.zeros { 4 },
      mgpu.full({ 3000, 4 }, 1):to "float16")
    return sum:sum()
  end, { w })()
  check.equal(g[1]:to("float32"):totable(), { 3000, 3000, 3000, 3000 }) -- in float16 a sum of ones stops at 2048
end)

test("a jitted function within a loop is a part of it", function()
  local double = mgpu.jit(function(t) return t * 2 end)
  check.equal(mgpu.scan(function(c, x) return c + double(x) end, mgpu.zeros {}, mgpu.arange(4)):item(), 12)
end)

test("a constant of a step may be read outside before the loop runs", function()
  local kept
  local sum = mgpu.scan(function(c, x)
    kept = mgpu.full({ 2 }, 0.5):to "float64"
    return c + x * kept
  end, mgpu.zeros({ 2 }, F64), mgpu.ones({ 3, 2 }, F64))
  check.equal(kept:totable(), { 0.5, 0.5 })
  check.equal(sum:totable(), { 1.5, 1.5 })
end)
