-- Tensors: creation, indexing, operators, dtypes, printing, and the errors of wrong use.
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"
local test = check.test

-- Asserts an error at a line of this file. fn must not call in a tail position: Lua forgets the line of
-- `return f()`, but not that of `return (f())`.
local function refused(fn, message, code)
  return check.raises(fn, "tensors_spec.lua:%d+: .*" .. message, code or "usage")
end

test("tensors are made from numbers, booleans and nested tables", function()
  check.equal(mgpu.tensor(3):shape(), {})
  check.equal(mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }:shape(), { 2, 3 })
  check.equal(mgpu.tensor { 1 }:dtype(), "float32")
  check.equal(mgpu.tensor { true, false }:dtype(), "bool")
  check.equal(mgpu.tensor({ 1, 2 }, { dtype = "i32" }):dtype(), "int32")
  check.equal(mgpu.tensor({ 1 }, { device = "ref:0" }):device(), "ref:0")
  check.equal(mgpu.tensor({}):shape(), { 0 })
  refused(function() mgpu.tensor { { 1, 2 }, { 3 } } end, "tensor: the nested tables are ragged")
  refused(function() mgpu.tensor { 1, "x" } end, "tensor: element 2 is a string")
  refused(function() mgpu.tensor(print) end, "tensor: expected a number or a table")
  refused(function() mgpu.tensor(1, { dtyp = "f32" }) end, 'did you mean "dtype"')
  refused(function() mgpu.zeros({ 2 }, { dtype = "flot32" }) end, 'did you mean "float32"')
end)

test("holes and names in arrays of numbers or tensors are errors that say where", function()
  local a = mgpu.ones { 2 }
  refused(function() mgpu.tensor { 1, nil, 3 } end, "tensor: entry 2 is missing: an array has no holes")
  refused(function() mgpu.tensor { nil, 3 } end, "tensor: entry 1 is missing")
  refused(function() mgpu.tensor { x = 1 } end, 'tensor: the name "x" stands in an array')
  refused(function() mgpu.tensor { [0] = 1, 2 } end, "tensor: the key 0 stands in an array")
  refused(function() mgpu.tensor { { 1, 2 }, { 3, nil, 4 } } end, "tensor: in %[2%], entry 2 is missing")
  refused(function() mgpu.tensor { { { 1 }, { 3, a = 4 } } } end, 'tensor: in %[1%]%[2%], the name "a"')
  refused(function() return a + { 1, nil, 2 } end, "add: entry 2 is missing")
  refused(function() mgpu.zeros { 2, nil, 3 } end, 'zeros: option "shape": entry 2 is missing')
  refused(function() mgpu.zeros { 2, -1 } end, "zeros: a size of the shape must be a whole number .*got %-1")
  refused(function() mgpu.rand { 2.5 } end, "rand: a size of the shape must be a whole number of at least 0, got 2.5")
  refused(function() mgpu.randint(0, 2, -3) end, "randint: a size of the shape .* got %-3")
  refused(function() a:reshape { 2, nil, 1 } end, 'reshape: option "shape": entry 2 is missing')
  refused(function() mgpu.concat { a, nil, a } end, "concat: entry 2 is missing")
  refused(function() mgpu.concat { a, a, axis = 1 } end, 'concat: the name "axis" .*; options come after the array')
  refused(function() mgpu.value_and_grad(print, { mgpu.variable { 1 }, nil, mgpu.variable { 2 } }) end,
    "value_and_grad: the variables: entry 2 is missing")
  refused(function() mgpu.jit(function(t) return t[1] end) { [0] = a, a } end,
    "mgpu.jit: argument 1: the key 0 is not a position")
end)

test("an operator between a tensor and a symbolic tensor, layer or model is an error", function()
  local t = mgpu.ones { 1, 3 }
  refused(function() return t + mgpu.Input { 3 } end,
    "add: expected a tensor, got symbolic tensor {None, 3} of Input .*, which has no values: .*Lambda")
  refused(function() return t * mgpu.layers.Dense { 3, name = "d" } end, 'mul: expected a tensor, got Dense "d"')
  refused(function() mgpu.tensor(mgpu.Input { 3 }) end, "tensor: expected a tensor, got symbolic tensor")
end)

test("zeros, ones, full, eye and the like give their numbers", function()
  check.equal(mgpu.zeros { 2 }:totable(), { 0, 0 })
  check.equal(mgpu.full({ 2 }, 7):totable(), { 7, 7 })
  check.equal(mgpu.arange(4):totable(), { 0, 1, 2, 3 })
  check.equal(mgpu.arange(2, 5):totable(), { 2, 3, 4 })
  check.equal(mgpu.arange(5, 0, -2):totable(), { 5, 3, 1 })
  check.near(mgpu.linspace(0, 1, 5):totable(), { 0, 0.25, 0.5, 0.75, 1 })
  check.equal(mgpu.linspace(0, 0.7, 50)[50]:item(), mgpu.tensor(0.7):item())
  check.equal(mgpu.eye(2, 3):totable(), { { 1, 0, 0 }, { 0, 1, 0 } })
  check.equal(mgpu.one_hot({ 0, 2 }, 3):totable(), { { 1, 0, 0 }, { 0, 0, 1 } })
  local r = mgpu.randint(3, 5, { 200 })
  check.equal({ r:dtype(), r:min():item(), r:max():item() }, { "int32", 3, 4 })
  local u = mgpu.rand { 500 }
  check.truthy(u:min():item() >= 0 and u:max():item() < 1)
end)

test("operators broadcast, and a Lua number takes the tensor's dtype", function()
  local t = mgpu.tensor { { 1, 2 }, { 3, 4 } }
  check.equal((t + mgpu.tensor { 10, 20 }):totable(), { { 11, 22 }, { 13, 24 } })
  check.equal((2 - t):totable(), { { 1, 0 }, { -1, -2 } })
  check.equal((-t / 2)[1]:totable(), { -0.5, -1 })
  check.equal((t ^ 2 % 5):totable(), { { 1, 4 }, { 4, 1 } })
  local i = mgpu.tensor({ 7, -7 }, { dtype = "int32" })
  check.equal({ (i + 1):dtype(), (i + 0.5):dtype(), (i / 2):dtype() }, { "int32", "float32", "float32" })
  check.equal(i:floordiv(2):totable(), { 3, -4 })
  check.equal((i + mgpu.ones { 2 }):dtype(), "float32")
  refused(function() return (t + mgpu.ones { 3 }) end, "add: .*{2, 2}.*{3}")
  refused(function() return (t + "x") end, "add: ")
end)

test("integers are exact up to 2^53, and results saturate at the dtype's limits", function()
  local function int(v, dtype) return mgpu.tensor({ v }, { dtype = dtype }) end
  for _, device in ipairs { "cpu:0", "ref:0" } do
    check.equal((int(2147483647, "int32"):to(device) + 1):totable(), { 2147483647 })
    check.equal((int(-2147483648, "int32"):to(device) - 1):totable(), { -2147483648 })
    check.equal((int(250, "uint8"):to(device) + 10):totable(), { 255 })
    check.equal((int(3, "uint8"):to(device) - 10):totable(), { 0 })
    check.equal((int(2 ^ 53 - 2, "int64"):to(device) + 1):totable(), { 2 ^ 53 - 1 })
  end
end)

test("a Lua number in where takes the dtype of the other choice, not the condition's", function()
  local x = mgpu.tensor({ 1, 2 }, { dtype = "float64" })
  for _, yes in ipairs { x:gt(1), x:to "float32" - 1 } do
    local y = core.ops.where(yes, x, 0.1)
    check.equal(y:dtype(), "float64")
    check.equal(y:totable(), { 0.1, 2 })
    check.equal(core.ops.where(yes, 0.1, x):totable(), { 1, 0.1 })
  end
  check.equal(core.ops.where(x, x:to "float32", 0.1):dtype(), "float32")
end)

test("positions count from 1 or, negative, from the end, and ranges include both ends", function()
  local t = mgpu.arange(12):reshape { 3, 4 }
  check.equal(t[1]:totable(), { 0, 1, 2, 3 })
  check.equal(t[-1][-1]:item(), 11)
  check.equal(t:slice({ { 2, 3 }, 1 }):totable(), { 4, 8 })
  check.equal(t:slice({ {}, { 4, 1, -2 } })[1]:totable(), { 3, 1 })
  check.equal(t:slice({ { -2, -1 }, { 1, 2 } }):totable(), { { 4, 5 }, { 8, 9 } })
  check.equal(#t, 3)
  refused(function() return (t[0]) end, "slice: axis 1: positions count from 1")
  refused(function() return (t[4]) end, "slice: axis 1 has 3 entries, there is no position 4")
  refused(function() return (t:slice { {}, {}, {} }) end, "slice: no axis 3: the tensor has 2")
end)

test("axes count from 1 or, negative, from the end, and can be given by name", function()
  local t = mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
  check.equal(t:sum(1):totable(), { 5, 7, 9 })
  check.equal(t:sum(-1):totable(), t:sum { axis = 2 }:totable())
  check.equal(t:sum { axis = { 1, 2 }, keepdims = true }:shape(), { 1, 1 })
  check.equal(mgpu.relu(t):totable(), t:relu():totable())
  check.equal(t:argmax(2):totable(), { 2, 2 })
  refused(function() return (t:sum(0)) end, "sum: .*axes count from 1")
  refused(function() return (t:sum(3)) end, "sum: axis 3")
  refused(function() return (t:sum { axs = 1 }) end, 'sum: unknown option "axs" %(did you mean "axis"')
  refused(function() return (t:mean { axs = 1 }) end, 'mean: unknown option "axs"')
  refused(function() return (t:relux()) end, 'no method "relux" %(did you mean "relu"')
  refused(function() return (mgpu.relux) end, 'did you mean "relu"')
end)

test("composite ops compute what their names say", function()
  local t = mgpu.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
  check.equal(t:mean():item(), 3.5)
  check.equal(t:mean(1, true):totable(), { { 2.5, 3.5, 4.5 } })
  check.near({ t:var():item(), t:std(2)[1]:item(), t:norm():item() }, { 35 / 12, (2 / 3) ^ 0.5, 91 ^ 0.5 })
  check.equal(t:clip(2, 5):totable(), { { 2, 2, 3 }, { 4, 5, 5 } })
  check.equal(t:transpose():totable(), { { 1, 4 }, { 2, 5 }, { 3, 6 } })
  check.equal({ t:flatten():shape(), t:expand_dims(-1):shape(), t[1]:expand_dims(1):squeeze():shape() },
    { { 6 }, { 2, 3, 1 }, { 3 } })
  check.equal(mgpu.stack({ t[1], t[2] }, 2):totable(), t:transpose():totable())
  check.equal(t:split(3, 2)[3]:totable(), { { 3 }, { 6 } })
  refused(function() t:split(2, 2) end, "split: axis 2 of size 3 cannot be cut into 2")
  refused(function() t:squeeze(1) end, "squeeze: axis 1 has size 2")
end)

test("composite ops take options by name and refuse wrong ones", function()
  local t = mgpu.tensor { { { 1 }, { 2 }, { 3 } } }
  check.equal({ t:squeeze { axis = 1 }:shape(), t:squeeze { axis = { 1, 3 } }:shape(), t:squeeze {}:shape() },
    { { 3, 1 }, { 3 }, { 3 } })
  check.equal(t:expand_dims { axis = -1 }:shape(), { 1, 3, 1, 1 })
  check.equal(t:split { n = 3, axis = 2 }[3], { { { 3 } } })
  check.equal(mgpu.stack({ t, t }, { axis = 2 }):shape(), { 1, 2, 3, 1 })
  check.equal({ t:clip { low = 2 }:sum():item(), t:clip { high = 2 }:sum():item() }, { 7, 5 })
  check.equal(t:transpose { order = { 2, 1, 3 } }:shape(), { 3, 1, 1 })
  check.equal(t:slice { ranges = { 1, { 2, 3 } } }, { { 2 }, { 3 } })
  check.equal(mgpu.one_hot({ 1 }, { classes = 2, dtype = "int32" }), mgpu.one_hot({ 1 }, 2, { dtype = "int32" }))
  check.equal(t:mean { axis = {} }:item(), 2) -- an empty list means all axes, as for sum
  for name, message in pairs { squeeze = "axis", expand_dims = "axis", split = "axis", clip = "low",
    transpose = "order", one_hot = "dtype", slice = "ranges", mean = "axis", var = "axis", norm = "axis" } do
    local wrong = message:sub(1, -2)
    refused(function() t[name](t, { [wrong] = 1 }) end,
      ('%s: unknown option "%s" %%(did you mean "%s"'):format(name, wrong, message))
  end
  refused(function() mgpu.stack({ t, t }, { axs = 1 }) end, 'stack: unknown option "axs"')
  refused(function() mgpu.stack { t, nil, t } end, "stack: entry 2 is missing")
  refused(function() mgpu.stack { t, t[1] } end, "stack: tensor 1 has shape {1, 3, 1}, but tensor 2 has {3, 1}")
  refused(function() t:mean { axis = 1, 2 } end, "mean: the options have names")
  refused(function() t:flatten(2) end, "flatten: too many arguments: takes 0 options")
  refused(function() t:expand_dims() end, "expand_dims: an axis is a whole number, got nil")
  refused(function() t:split(1.5, 2) end, "split: the number of parts must be a whole number, got 1.5")
  refused(function() t:slice { 1, { last = 2 } } end,
    "slice: axis 2: a range is {first, last, step}, but it has the key last")
end)

test("to changes dtype and device, clone copies, and the mean of integers is float32", function()
  local t = mgpu.tensor { 1.7, -1.7, 300 }
  check.equal(t:to "int32":totable(), { 1, -1, 300 })
  check.equal(t:to "ref:0":device(), "ref:0")
  check.truthy(t:to(t:device()) == t)
  check.equal(t:clone():totable(), t:totable())
  check.equal(mgpu.tensor({ 1, 2 }, { dtype = "int32" }):mean():item(), 1.5)
  refused(function() return (t:to "flot32") end, 'did you mean "float32"')
  refused(function() return (t:to "cpux:0") end, "cpux")
end)

test("set_floatx sets the dtype of tensors made from Lua numbers", function()
  mgpu.set_floatx "float64"
  local dtype = mgpu.ones { 1 }:dtype()
  mgpu.set_floatx "float32"
  check.equal(dtype, "float64")
  refused(function() mgpu.set_floatx "int32" end, "set_floatx: int32 is not")
end)

test("writing to a tensor and comparing with < are errors that name the remedy", function()
  local t = mgpu.ones { 2 }
  refused(function() t[1] = 3 end, "tensors are values.*:where")
  refused(function() return (t < t) end, ":lt")
  refused(function() return (t < mgpu.variable { 1 }) end, ":lt")
  check.truthy(t == t and t ~= mgpu.ones { 2 })
  check.equal(t:eq(1):totable(), { true, true })
  refused(function() return (t:item()) end, "item: the tensor has 2 elements")
  check.truthy(t:gt(0):all():item())
end)

-- Lua raises this error without calling a metamethod; the program adds the remedy to the message.
test("comparing a tensor and a number with < ends the program with a list of comparison ops", function()
  local path = check.path "less.lua"
  check.write(path, 'local t = require "mgpu".ones { 2 }\nif t < 1 then print "less" end\n')
  local output, status = check.run(check.program .. " " .. path)
  check.matches(output, "less.lua:2: attempt to compare userdata with number: tensors are .* use :lt")
  check.equal(status, 1)
end)

test("a tensor can be indexed only with a position or a method's name", function()
  local t = mgpu.ones { 2 }
  refused(function() return t[t] end, "indexed with one position, .* got a tensor: .*:gather")
  refused(function() return t[true] end, "got a boolean")
  refused(function() return t[nil] end, "got a nil")
  refused(function() return mgpu.variable { 1 }[{ 1, 2 }] end, "got a table: use :slice")
end)

test("options of a variable and kinds of devices are checked", function()
  refused(function() mgpu.variable({ 1 }, { nmae = "x" }) end, 'variable: unknown option "nmae" %(did you mean "name"')
  refused(function() mgpu.variable({ 1 }, { "x" }) end, "variable: the options have names")
  refused(function() mgpu.variable({ 1 }, "x") end, "variable: the options must be a table such as {name")
  refused(function() mgpu.variable({ 1 }, { trainable = 0 }) end, 'option "trainable" must be true or false')
  refused(function() mgpu.variable { 1 }.trainable = 0 end, "trainable must be true or false, got number")
  refused(function() mgpu.variable { 1, 2 }[1] = 3 end, "an entry cannot be set: .* give it to :assign")
  refused(function() mgpu.tensor(1, "int32") end, "tensor: the options must be a table such as {dtype")
  refused(function() mgpu.devices "gpuu" end,
    'unknown kind "gpuu" %(did you mean "gpu"%?%); the kinds of devices are .*cpu')
end)

test("an unknown name in a table of functions is an error with the nearest name", function()
  refused(function() return mgpu.parallel.multi_gpu_modle end, 'did you mean "multi_gpu_model"')
  refused(function() return mgpu.activations.rleu end, 'did you mean "relu"')
end)

test("a freed tensor cannot be used", function()
  local t = mgpu.ones { 2 }
  t:free()
  refused(function() return (t + 1) end, "the tensor was freed")
  refused(function() return (t:shape()) end, "the tensor was freed")
end)

test("tidy frees the tensors made inside, except those it returns, also after an error", function()
  local lost
  local kept, more = mgpu.tidy(function(n)
    lost = mgpu.ones { n }
    local inner = mgpu.tidy(function() return lost * 2 end)
    return { sum = inner:sum() }, nil, 3
  end, 4)
  check.equal(kept.sum:item(), 8)
  check.equal(more, nil)
  refused(function() return (lost:sum()) end, "freed")
  check.equal({ pcall(mgpu.tidy, function() lost = mgpu.ones { 1 } error("x", 0) end) }, { false, "x" })
  refused(function() return (lost:sum()) end, "freed")
end)

test("pointer gives access to the elements in memory", function()
  check.needs "cpu"
  local t = mgpu.tensor { 1, 2, 3 }
  local p = t:pointer()
  check.equal({ p[0], p[2] }, { 1, 3 })
end)

test("print shows shape, dtype, device and at most a screenful of numbers", function()
  check.matches(tostring(mgpu.tensor({ { 1, 2 }, { 3, 4 } }, { device = "ref:0" })),
    "tensor {2, 2} float32 ref:0\n{{1, 2},\n {3, 4}}")
  local text = tostring(mgpu.zeros { 1000, 1000 })
  check.matches(text, "{0, 0, 0, ..., 0, 0, 0}")
  check.truthy(#text < 400)
  check.truthy(#tostring(mgpu.zeros { 9, 9, 9, 9, 9 }) < 4000)
  check.matches(tostring(mgpu.zeros { 0, 3 }), "tensor {0, 3}")
end)

test("numbers are printed as NumPy prints them", function()
  local function body(t) return (tostring(t):gsub("^[^\n]*\n", "")) end
  check.equal(body(mgpu.tensor { { 1, 2.5, 0 }, { -0.25, 4, 1 } }), "{{ 1,     2.5,   0},\n {-0.25,  4,     1}}")
  check.equal(body(mgpu.tensor { 0.1, 0.2, 0.3 }), "{0.1, 0.2, 0.3}") -- no digits of float32's rounding
  check.equal(body(mgpu.tensor({ 1 / 3 }, { dtype = "float64" })), "{0.33333333}")
  check.equal(body(mgpu.tensor { 1e-5, 1 }), "{1e-05, 1e+00}")
  check.equal(body(mgpu.tensor { 123456.75, 0.5 }), "{1.2345675e+05, 5.0000000e-01}")
  check.equal(body(mgpu.tensor { 1, 1 / 0, -1 / 0, 0 / 0 }), "{   1,  inf, -inf,  nan}")
  check.equal(body(mgpu.tensor { true, false }), "{ true, false}")
  check.equal(body(mgpu.tensor({ 7, -100 }, { dtype = "int64" })), "{   7, -100}")
  check.equal(body(mgpu.tensor({ 0.1, -0.3 }, { dtype = "float16" })), "{ 0.1, -0.3}")
  check.equal(tostring(mgpu.tensor(3.14159)):match "%S+$", "3.14159")
  check.equal(body(mgpu.zeros { 2, 2, 1 }), "{{{0},\n  {0}},\n\n {{0},\n  {0}}}")
end)

test("a row that is too long for a line goes on below its first number", function()
  local lines = {}
  for line in tostring(mgpu.arange(100)):gmatch "[^\n]+" do lines[#lines + 1] = line end
  check.equal(#lines, 6)
  for i = 2, #lines do
    check.truthy(#lines[i] <= 96)
    check.matches(lines[i]:sub(1, 2), i == 2 and "{" or " ")
  end
end)

test("garbage collection keeps the memory of tensors bounded", function()
  local before = core.memory(core.default_device()).used
  for _ = 1, 400 do mgpu.zeros { 1e6 }:clone() end -- 1.6 GB in all
  check.truthy(core.memory(core.default_device()).used - before < 400e6)
end)

test("garbage collection knows of tensors that were computed on the way to another", function()
  local x = mgpu.eval(mgpu.ones { 1e6 })
  local before, most = core.memory(core.default_device()).used, 0
  for _ = 1, 400 do
    (x + 1):sum():item() -- x + 1, 4 MB, is garbage, but has been computed
    most = math.max(most, core.memory(core.default_device()).used - before)
  end
  check.truthy(most < 400e6, most)
end)

test("garbage is not taken for memory in use, which would leave more of it", function()
  local out = check.run(("%s -e '%s' 2>&1"):format(check.program, [[
    local mgpu = require "mgpu"
    local x = mgpu.eval(mgpu.rand { 8 * 1024 * 1024 })
    for _ = 1, 100 do mgpu.eval(x + 1) end
    print(mgpu.memory(mgpu.devices()[1]).peak)]]))
  check.truthy(tonumber(out) and tonumber(out) < 6 * 2 ^ 25, out) -- x and at most five others of 32 MiB
end)

test("only garbage costs garbage collections: not what a program frees, not arguments that are results", function()
  local out = check.run(("%s -e '%s' 2>&1"):format(check.program, [[
    local mgpu = require "mgpu"
    local collections = 0
    local function count_collections()
      getmetatable(newproxy(true)).__gc = function()
        collections = collections + 1
        count_collections()
      end
    end
    count_collections()
    local x = mgpu.eval(mgpu.rand { 4 * 1024 * 1024 })
    local function make() return mgpu.eval(x + 1) end
    local function run(step)
      collections = 0
      for _ = 1, 40 do step() end
      return collections
    end
    local same = mgpu.jit(function(v) return v end)
    local twice = mgpu.jit(function(v) local y = v + 1 return y, y end)
    print(run(function() make():free() end), run(function() mgpu.tidy(function() make() end) end),
      run(function() same(x) end), run(make), run(function() twice(x) end))]]))
  local freed, tidied, same, garbage, twice = out:match "^(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\n$"
  check.truthy(twice, out)
  check.truthy(tonumber(garbage) >= 5 and tonumber(twice) >= 5, out) -- 640 MiB of garbage
  -- two: one that was in progress, and one for the Lua objects of 40 steps
  check.truthy(tonumber(freed) <= 2 and tonumber(tidied) <= 2 and tonumber(same) <= 2, out)
end)

test("garbage is collected even after much memory was freed by hand", function()
  local out = check.run(("%s -e '%s' 2>&1"):format(check.program, [[
    local mgpu = require "mgpu"
    local function make(mib) return mgpu.eval(mgpu.zeros { mib * 256 * 1024 }) end
    for _ = 1, 16 do make(64):free() end
    local most = 0
    for _ = 1, 40 do make(32) most = math.max(most, mgpu.memory(mgpu.devices()[1]).used) end
    print(most)]]))
  -- of the 40 that are made: memory that was freed counts for two at most, and collections leave two more or so
  check.truthy(tonumber(out) and tonumber(out) < 10 * 2 ^ 25, out)
end)

test("wrong arguments of any kind are errors at the user's line, never a crash", function()
  local t, freed, circle = mgpu.ones { 2, 3 }, mgpu.ones { 2 }, {}
  freed:free()
  circle[1] = circle
  local junk = { "x", {}, print, -1, 0, 1e300, 0 / 0, t, freed, circle, true, { "a" }, { 1, 2 } }
  local skip = { text = true }
  for name, fn in pairs(core.methods) do
    for i = 1, skip[name] and 0 or #junk do
      for _, args in ipairs { { junk[i] }, { t, junk[i] }, { t, t, junk[i] } } do
        local ok, message = pcall(function() return (fn(unpack(args))) end)
        if not ok and not message:find "tensors_spec.lua:%d+: " and not message:find "^bad arg" then
          check.fail(name .. ": " .. message)
        end
      end
    end
  end
end)

-- Without reuse the kernel clears every page of each large result: 6240 page faults for these two.
test("the memory of large results is reused", function()
  if os.getenv "MGPU_MALLOC" then check.skip "a sanitizer's build does not keep freed blocks" end
  if not core.default_device():find "cpu" then check.skip "only the cpu device keeps them" end
  local function faults()
    local file = io.open "/proc/self/stat"
    if not file then check.skip "no /proc" end
    local fields = {}
    for field in file:read("*a"):gsub("^.*%) ", ""):gmatch "%S+" do fields[#fields + 1] = field end
    file:close()
    return tonumber(fields[8])
  end
  local x = mgpu.randn { 64, 28, 28, 64 }
  mgpu.eval(x)
  local two = mgpu.jit(function(v) return v * 2, v + 1 end)
  local function run()
    for _, t in ipairs { mgpu.eval(two(x)) } do t:free() end
  end
  for _ = 1, 3 do run() end
  local before = faults()
  for _ = 1, 10 do run() end
  check.equal((faults() - before) / 10 < 100, true)
end)
