-- mgpu.jit: the signature that decides which plan a call uses, results, retracing, and errors.
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"
local test = check.test

test("one plan serves calls that differ in numbers only inside tensors", function()
  local f = mgpu.jit(function(x) return x * 2 end)
  check.equal(f(mgpu.tensor { 1, 2 }):totable(), { 2, 4 })
  check.equal(f(mgpu.tensor { 5, 6 }):totable(), { 10, 12 })
  check.equal(f:plans(), 1)
  f(mgpu.ones { 3 })
  f(mgpu.ones({ 2 }, { dtype = "float64" }))
  check.equal(f:plans(), 3)
end)

test("arguments may be nested tables, and named fields have no order", function()
  local f = mgpu.jit(function(p) return p.a - p.list[1] * p.factor end)
  local a, b = mgpu.tensor { 10 }, mgpu.tensor { 3 }
  check.equal(f({ a = a, factor = 2, list = { b } }):totable(), { 4 })
  check.equal(f({ list = { b }, factor = 2, a = a }):totable(), { 4 })
  check.equal(f:plans(), 1)
end)

test("results keep their structure, and each call gets tables of its own", function()
  local f = mgpu.jit(function(x) return { sum = x:sum(), parts = { x, "text", 7 } }, 3, nil, true end)
  local r, three, none, yes = f(mgpu.tensor { 1, 2 })
  check.equal(r.sum:item(), 3)
  check.equal(r.parts[1]:totable(), { 1, 2 })
  check.equal({ r.parts[2], r.parts[3], three, none == nil, yes }, { "text", 7, 3, true, true })
  check.truthy(r ~= f(mgpu.tensor { 1, 2 }))
end)

test("a boolean, a string and nil are part of the signature", function()
  local f = mgpu.jit(function(x, flag) return flag and x * 2 or x end)
  local x = mgpu.tensor { 3 }
  check.equal({ f(x, true):item(), f(x, false):item(), f(x, nil):item() }, { 6, 3, 3 })
  check.equal(f:plans(), 3)
end)

test("a jitted function inside another and gradients inside a trace work", function()
  local square = mgpu.jit(function(x) return (x * x):sum() end)
  local f = mgpu.jit(function(x) return mgpu.grad(square)(x) end)
  check.equal(f(mgpu.tensor { 2, 3 }):totable(), { 4, 6 })
  check.equal(square:plans(), 0)
end)

test("precision, determinism and the default device are part of the signature", function()
  local f = mgpu.jit(function() return mgpu.ones { 2 } end)
  f()
  local function traces_anew(change, back)
    local before = f:plans()
    change()
    local t = f()
    back()
    f()
    check.equal(f:plans(), before + 1)
    return t
  end
  traces_anew(function() mgpu.precision "highest" end, function() mgpu.precision "fast" end)
  traces_anew(function() mgpu.deterministic(true) end, function() mgpu.deterministic(false) end)
  local home = core.default_device()
  local t = traces_anew(function() core.default_device "ref:1" end, function() core.default_device(home) end)
  check.equal(t:device(), "ref:1")
end)

test("at most 64 plans are kept", function()
  local script = check.path "plans.lua"
  check.write(script, [[
local mgpu = require "mgpu"
local f = mgpu.jit(function(x, n) return x + n end)
local x = mgpu.tensor { 1 }
for n = 1, 70 do assert(f(x, n):item() == 1 + n) end
print(f:plans(), f(x, 1):item()) -- the oldest plan was dropped and is made again
]])
  check.matches(check.run(check.program .. " " .. script), "64\t2\n") -- after a warning
end)

test("a jitted function sees that an upvalue holds another tensor or variable", function()
  local s, v, x = mgpu.tensor { 2 }, mgpu.variable { 3 }, mgpu.ones { 1 }
  local f = mgpu.jit(function(t) return t * s + v end)
  check.equal(f(x), { 5 })
  s = mgpu.tensor { 5 }
  check.equal(f(x), { 8 })
  v = mgpu.variable { 4 }
  check.equal(f(x), { 9 })
  v:assign { 1 } -- a variable's value is not part of the signature
  check.equal({ f(x):item(), f(x):item(), f:plans() }, { 6, 6, 3 })
  for i = 1, 7 do -- a new tensor at the address of a freed one must not be taken for that one
    s = nil
    collectgarbage()
    s = mgpu.tensor { i }
    check.equal(f(x), { i + 1 })
  end
end)

test("an upvalue that the trace itself sets does not cause a retrace", function()
  local last
  local f = mgpu.jit(function(x)
    last = x * 2
    return last + 1
  end)
  for i = 1, 3 do check.equal(f(mgpu.tensor { i }), { 2 * i + 1 }) end
  check.equal({ f:plans(), last ~= nil }, { 1, true })
end)

test("trainable acts from the next step on, and restoring it finds the old plan again", function()
  local L = mgpu.layers
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 2 }, L.BatchNormalization {}, L.Dense { 1 } }
  local opt, x, y = mgpu.optimizers.SGD { 0.1 }, mgpu.rand { 4, 2 }, mgpu.ones { 4, 1 }
  local step = mgpu.jit(function(a, b)
    local loss, grads = mgpu.value_and_grad(function()
      return mgpu.losses.mean_squared_error(b, model(a, { training = true })):mean()
    end, model.trainable_variables)()
    opt:apply(grads, model.trainable_variables)
    return loss
  end)
  local dense, norm = model.layers[1], model.layers[2]
  local watched = { dense.kernel, norm.gamma, norm.moving_mean }
  local function changes() -- whether a step changes each of the watched variables
    local before, list = {}, {}
    for i, v in ipairs(watched) do before[i] = v:value() end
    step(x, y)
    for i, v in ipairs(watched) do list[i] = v:ne(before[i]):any():item() end
    return list
  end
  changes()
  local plans = step:plans()
  check.equal(changes(), { true, true, true })
  dense.trainable = false
  check.equal(changes(), { false, true, true })
  norm.trainable = false -- now it normalises with the moving statistics
  check.equal(changes(), { false, false, false })
  dense.trainable, norm.trainable = true, true
  check.equal(changes(), { true, true, true })
  check.equal(step:plans(), plans + 2)
  dense.kernel.trainable = false
  check.equal(changes(), { false, true, true })
end)

test("one warning names the argument that keeps changing", function()
  local script = check.path "warn.lua"
  check.write(script, [[
local mgpu = require "mgpu"
local f = mgpu.jit(function(x, n) return x + n end)
for n = 1, 20 do f(mgpu.ones { 2 }, n) end
local rate = 0
local g = mgpu.jit(function(x) return x * rate end)
for n = 1, 20 do rate = n g(mgpu.ones { 2 }) end
]])
  local output = check.run(check.program .. " " .. script)
  check.matches(output, "argument 2 keeps changing")
  check.matches(output, 'upvalue "rate" keeps changing')
  local _, n = output:gsub("keeps changing", "")
  check.equal(n, 2)
end)

test("many shapes are named as such; predictions and evaluations in many sizes are no reason to warn", function()
  local script = check.path "sizes.lua"
  check.write(script, [[
local mgpu = require "mgpu"
local f = mgpu.jit(function(x) return x * 2 end)
for n = 1, 20 do f(mgpu.ones { n }) end
local model = mgpu.Sequential { mgpu.Input { 4 }, mgpu.layers.Dense { 3 } }
model:compile { optimizer = "sgd", loss = "mse" }
local g = mgpu.compile_inference(model)
for n = 1, 20 do
  local x, y = mgpu.ones { n, 4 }, mgpu.ones { n, 3 }
  model:predict(x)
  model:predict_on_batch(x)
  model:evaluate(x, y, { verbose = 0 })
  g(x)
end
io.stderr:write "trains\n"
for n = 1, 20 do model:train_on_batch(mgpu.ones { n, 4 }, mgpu.ones { n, 3 }) end
]])
  local output = check.run(check.program .. " " .. script .. " 2>&1")
  check.matches(output, "^mgpulua: warning: mgpu.jit: traced 9 times because the shape, dtype or device of argument 1 "
    .. "keeps changing: each is compiled by itself, so few are best\ntrains\nmgpulua: warning: fit: many training ")
  check.equal(select(2, output:gsub("warning", "")), 2)
end)

test("MGPU_CHECK=retrace names the line at which a value became a constant of the plan", function()
  check.needs "cpu" -- ref makes the number in a separate step
  local script = check.path "baked.lua"
  check.write(script, [[
local mgpu = require "mgpu"
local state = { rate = 1 }
local f = mgpu.jit(function(x)
  local y = x:exp()
  return y * state.rate
end)
f(mgpu.ones { 2 })
state.rate = 2
print(pcall(f, mgpu.ones { 2 }))
]])
  local output = check.run("MGPU_CHECK=retrace " .. check.program .. " " .. script)
  check.matches(output, "tracing again gave another plan")
  check.matches(output, "baked.lua:5")
  check.falsy(check.run(check.program .. " " .. script):find "another plan")
end)

test("MGPU_CHECK=retrace finds a field that holds another tensor or variable than before", function()
  local script = check.path "field.lua"
  check.write(script, [[
local mgpu = require "mgpu"
local state = { scale = mgpu.tensor { 2, 3 }, v = mgpu.variable { 1, 1 } }
local f = mgpu.jit(function(x) return x * state.scale + state.v + mgpu.tensor { 4, 5 } end)
local x = mgpu.ones { 2 }
for _ = 1, 3 do f(x) end
print "three calls"
state.scale = mgpu.tensor { 2, 3 }
print(pcall(f, x))
state.scale = mgpu.tensor { 2, 4 }
print(pcall(f, x))
state.scale, state.v = mgpu.tensor { 2, 3 }, mgpu.variable { 1, 1 }
print(pcall(f, x))
]])
  local output = check.run("MGPU_CHECK=retrace " .. check.program .. " " .. script)
  check.matches(output, "three calls\ntrue")
  local _, n = output:gsub("field.lua:%d+: mgpu.jit: tracing again met another tensor or variable of shape {2}", "")
  check.equal(n, 2, output)
end)

test("inside a traced function item and totable are refused, and print is harmless", function()
  local x = mgpu.tensor { 1, 2 }
  check.raises(function() mgpu.jit(function(v) return v:totable() end)(x) end,
    "jit_spec.lua:%d+: totable: not available inside mgpu.jit", "usage")
  local shown
  mgpu.jit(function(v) shown = tostring(v) return v end)(x)
  check.matches(shown, "being traced")
end)

test("an error in the function is raised unchanged and closes the trace", function()
  local token = {}
  local ok, problem = pcall(mgpu.jit(function() error(token) end), mgpu.ones { 1 })
  check.truthy(not ok and problem == token)
  check.falsy(core.tracing())
end)

test("arguments and results of other types are refused", function()
  local f = mgpu.jit(function(x) return x end)
  check.raises(function() f(print) end, "argument 1 is a function", "usage")
  check.raises(function() f(mgpu.ones { 1 }, ("x"):rep(5000)) end, "too long", "usage")
  check.raises(function() mgpu.jit(function() return print end)() end, "returned a function", "usage")
  check.raises(function() mgpu.jit(3) end, "expected a function, got number", "usage")
  local circle = {}
  circle[1] = circle
  check.raises(function() f(circle) end, "argument 1: tables nest deeper than 100: does one contain itself?", "usage")
  check.raises(function() mgpu.jit(function() return circle end)() end,
    "the tables that the function returned nest deeper than 100: does one contain itself?", "usage")
end)

test("fusion never makes two groups that need each other", function()
  -- e and l could be fused, p and q too; but q needs e by way of the sum, and l needs p: a cycle
  local function f(x, s)
    local e = x * 2
    local r = e:sum()
    local p = s + 1
    local l = e + p
    local q = p * r
    return r, l, q
  end
  local x, s = mgpu.tensor { 1, 2 }, mgpu.tensor(3)
  local r, l, q = mgpu.jit(f)(x, s)
  check.equal({ r:item(), l:totable(), q:item() }, { 6, { 6, 8 }, 24 })
end)

test("ops that read the same tensor become one group, unless one of them needs the other", function()
  local function groups(f, ...)
    local jitted = mgpu.jit(f)
    mgpu.eval(jitted(...))
    return select(2, jitted:dump():gsub("fused%(", ""))
  end
  local a, b, g = mgpu.randn { 3, 4 }, mgpu.randn { 3, 4 }, mgpu.randn { 3, 4 }
  check.equal(groups(function(x, y, z) return x * y, z * y, z * x end, a, b, g), 1)
  check.equal(groups(function(x, y) return x * 2, y * 3 end, a, b), 2) -- nothing is shared
  check.equal(groups(function(x, s) return x * s, s + 1 end, a, mgpu.tensor(3)), 2) -- other shapes
  check.equal(groups(function(x) return x * 2, x * (x * 3):sum() end, a), 2) -- joined: x * 2 and x * 3
  local f = mgpu.jit(function(x, y) return x * y, (x:sum() + y) * x end)
  local product, other = f(mgpu.tensor { 1, 2 }, mgpu.tensor { 3, 4 })
  check.equal({ product:totable(), other:totable() }, { { 3, 8 }, { 6, 14 } })
end)

test("a result that is a reshaped temporary can be read by later steps", function()
  check.needs "cpu" -- runs independent steps at the same time
  local n = 1000000
  local f = mgpu.jit(function(x)
    local r = (x * 2 + 1):reshape { 1000, n / 1000 }
    return r, r * 3 - 2
  end)
  for i = 1, 20 do
    local r, z = f(mgpu.full({ n }, i))
    check.equal({ r:min():item(), r:max():item() }, { 2 * i + 1, 2 * i + 1 })
    check.equal({ z:min():item(), z:max():item() }, { 6 * i + 1, 6 * i + 1 })
  end
end)

-- Slices of temporaries, one of which is overwritten in place after its last use.
local PARTS = [[
local function f(x)
  local t = x * 2
  local a, b = t:slice { { 2, 3 }, {} }, t:slice { { 1, 2 }, { 17, 32 } }
  local u = t + t:sum()
  local inner = u:slice { { 2, 4 }, {} }:slice { { 2, 3 }, {} }
  local c = u:reshape { 8, 16 }:slice { 3, {} }
  return a * u:slice { { 1, 2 }, {} } - inner, (b + c):sum(), u:slice { { 1, 2 }, { 3, 4 } } + 1, a:reshape { 64 }
end
local function values(...)
  local list = { ... }
  for i, t in ipairs(list) do list[i] = t:totable() end
  return list
end
]]

test("slices of a temporary are views, and their memory is not overwritten too early", function()
  local f, values = assert(loadstring(PARTS .. "return f, values"))()
  for _, name in ipairs { "ref:0", "cpu:0" } do
    if name == "ref:0" or #mgpu.devices "cpu" > 0 then
      mgpu.with_device(name, function()
        local jitted = mgpu.jit(f)
        for i = 1, 3 do
          local x = mgpu.arange(128):reshape { 4, 32 } / i
          check.near(values(jitted(x)), values(f(x)), 1e-5)
        end
      end)
    end
  end
end)

test("a slice that begins at an aligned address is a view, without a step of its own", function()
  check.needs "cpu"
  local path = check.path "script.lua"
  check.write(path, 'local mgpu = require "mgpu"\n' .. PARTS
    .. "mgpu.with_device('cpu:0', function() mgpu.jit(f)(mgpu.ones { 4, 32 }) end)")
  local out, status = check.run("MGPU_LOG=dispatch " .. check.program .. " " .. path)
  check.equal(status, 0)
  local _, n = out:gsub("cpu:0: slice", "")
  check.equal(n, 2) -- the two slices of some columns are not contiguous, so they are copied
end)

test("tensors made outside of the trace have values while a function is traced, and are constants of it", function()
  local f = mgpu.jit(function(x)
    local t = core.outside_trace(function() return mgpu.tensor { 1, 2 } * 3 end)
    local n = core.outside_trace(function() return t:sum():item() end)
    return x:reshape { n / 3, 2 } + t
  end)
  check.equal(f(mgpu.zeros { 6 }):totable(), { { 3, 6 }, { 3, 6 }, { 3, 6 } })
  check.equal({ core.outside_trace(function(a) return a, core.tracing() end, 5) }, { 5, false })
end)

test("an error outside of the trace leaves the trace as it was", function()
  local v = mgpu.variable(mgpu.zeros { 2 })
  local f = mgpu.jit(function(x)
    check.raises(function() core.outside_trace(function() error("no", 0) end) end, "no")
    check.raises(function() core.outside_trace(function() return x:totable() end) end, "being traced")
    check.raises(function() core.outside_trace(function() mgpu.jit(function(y) return y end)(mgpu.ones { 1 }) end) end,
      "a trace is already open")
    v:assign(x)
    return x * 2
  end)
  check.equal(f(mgpu.ones { 2 }):totable(), { 2, 2 })
  check.equal(v:value():totable(), { 1, 1 })
end)
