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

local function by_hand(fn, h, x)
  local ys = {}
  for t = 1, x:shape()[1] do h, ys[t] = fn(h, x[t]) end
  return h, mgpu.stack(ys)
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
  ["outputs of other forms"] = { function()
    local n = 0
    mgpu.scan(function(c, x)
      n = n + 1
      return c, n == 1 and { x } or { x, x }
    end, mgpu.zeros {}, mgpu.zeros { 2 })
  end, "step 2 returned y[2], other steps did not" },
  ["an output with a field less"] = { function()
    local n = 0
    mgpu.scan(function(c, x)
      n = n + 1
      return c, { a = x, b = n ~= 2 and x or nil }
    end, mgpu.zeros {}, mgpu.zeros { 3 })
  end, "step 2 returned no y[b], step 1 did" },
  ["an output that begins later"] = { function()
    local n = 0
    mgpu.scan(function(c, x)
      n = n + 1
      return c, n > 1 and x or nil
    end, mgpu.zeros {}, mgpu.zeros { 3 })
  end, "step 2 returned a y, step 1 did not return one" },
}

for name, row in pairs(wrong) do
  test(name .. " is refused", function() check.raises(row[1], row[2]) end)
end
