-- Kernels of the cpu device that convert float16 and bfloat16 a part at a time: their results have the bits of float32
-- kernels that are given the same numbers, rounded once; with 1, 3 and 16 threads, in processes of their own. Sizes
-- need several parts, tiles and bands, and end within one.
local check = require "check"
local test = check.test
check.needs "cpu"

-- A script that calls f with halves and with the same numbers in float32, and prints how many elements differ.
local SCRIPT = [[
  local core, mgpu = require "mgpu.core", require "mgpu"
  local ops = core.ops
  local function slope(y) -- numbers that every dtype has, in the shape of y
    mgpu.seed(7)
    return mgpu.randn(y:shape()):to "bfloat16":to(y:dtype())
  end
  local function f(...) %s end
  local function numbers(t) return t:to("float64"):reshape({ -1 }):totable() end
  local function differing(dtype)
    mgpu.seed(1)
    local halves, floats = {}, {}
    for i, shape in ipairs { %s } do
      halves[i] = mgpu.randn(shape):to(dtype)
      if %s then
        local x = halves[i]
        x = ops.where(ops.lt(x, -3), x / 0, x)
        halves[i] = ops.where(ops.gt(x, 3), x / 0 - x / 0, x)
      end
      floats[i] = halves[i]:to "float32"
    end
    local got, expected = f(unpack(halves)), f(unpack(floats))
    if got:dtype() == dtype then expected = expected:to(dtype) end
    local different, a, b = 0, numbers(got), numbers(expected)
    for i = 1, #b do
      if a[i] ~= b[i] and (a[i] == a[i] or b[i] == b[i]) then different = different + 1 end
    end
    return different, #a == #b and #b
  end
  for _, dtype in ipairs { "float16", "bfloat16" } do print(dtype, differing(dtype)) end
]]

local PARAMETERS = [[
  local shape = x:shape()
  local m, row = ops.moments(x) + 1, mgpu.ones { shape[#shape] } / 3
]]

-- Each is { op, what it is done to, body of f, shapes }; `special` puts infinities and NaN among the inputs.
local cases = {
  { "moments", "one tile", "return ops.moments(...)", "{ 37, 41, 64 }" },
  { "moments", "few channels", "return ops.moments(...)", "{ 9001, 7 }" },
  { "moments", "many channels", "return ops.moments(...)", "{ 5, 21, 19, 200 }" },
  { "sum", "rows", "return (...):sum(1)", "{ 9001, 7 }" },
  { "sum", "rows of many channels", "return (...):sum(1)", "{ 501, 200 }" },
  { "sum", "everything", "return (...):sum()", "{ 203, 307 }" },
  { "max", "rows", "return (...):max(1)", "{ 501, 200 }", special = true },
  { "sum", "the last axis", "return (...):sum(2)", "{ 203, 5001 }" },
  { "sum", "an axis in the middle", "return (...):sum(2)", "{ 7, 131, 101 }" },
  { "sum", "two axes apart", "return (...):sum { 1, 3 }", "{ 7, 31, 101 }" },
  { "sum", "few terms", "return (...):sum { 1, 3 }", "{ 3, 31, 5, 701 }" },
  { "min", "the last axis", "return (...):min(-1)", "{ 203, 5001 }", special = true },
  { "all_finite", "finite numbers", "return ops.all_finite(...)", "{ 203, 307 }, { 5 }" },
  { "all_finite", "infinite numbers", "return ops.all_finite(...)", "{ 5 }, { 203, 307 }", special = true },
}

for what, shape in pairs {
  ["one tile"] = "{ 37, 41, 64 }", ["few channels"] = "{ 9001, 7 }", ["many channels"] = "{ 5, 21, 19, 200 }",
} do
  cases[#cases + 1] = { "batch_norm", what, "local x = ...; " .. PARAMETERS .. "return ops.batch_norm(x, m, row, row)",
    shape }
  cases[#cases + 1] = { "batch_norm_reduce", what,
    "local x, dy = ...; " .. PARAMETERS .. "return ops.batch_norm_reduce(x, m, dy)", shape .. ", " .. shape }
end

-- Rows of which a block has many, few and one; softmax along the last axis and along another.
for what, shape in pairs { ["short rows"] = "{ 301, 40 }", rows = "{ 203, 207 }", ["long rows"] = "{ 131, 3001 }" } do
  local prepare = "local x, dy = ...; local row = mgpu.linspace(0.5, 1.5, x:shape()[2]); "
  local pair = shape .. ", " .. shape
  cases[#cases + 1] = { "layer_norm", what, prepare .. "return ops.layer_norm(x, row, 1 - row)", shape }
  cases[#cases + 1] = { "layer_norm_grad", what, prepare .. "return ops.layer_norm_grad(x, row, dy)", pair }
  cases[#cases + 1] = { "layer_norm_reduce", what, prepare .. "return ops.layer_norm_reduce(x, dy)", pair }
  cases[#cases + 1] = { "layer_norm_grad", what .. ", the sums of both gradients", prepare .. [[
    local dx, sums = ops.layer_norm_grad(x, row, dy), ops.layer_norm_reduce(x, dy)
    return sums + 0 * dx:to "float32":sum()]], pair }
  cases[#cases + 1] = { "softmax_cross_entropy", what,
    "local x, t = ...; return ops.softmax_cross_entropy(x, t)", pair }
  cases[#cases + 1] = { "softmax_cross_entropy_grad", what,
    "local x, t = ...; return ops.softmax_cross_entropy_grad(x, t, slope(x:sum(2)))", pair }
  local labels = "local x = ...; local labels = (mgpu.arange(x:shape()[1]) % 50):to 'int32'; "
  cases[#cases + 1] = { "sparse_softmax_cross_entropy", what,
    labels .. "return ops.sparse_softmax_cross_entropy(x, labels)", shape }
  cases[#cases + 1] = { "sparse_softmax_cross_entropy_grad", what,
    labels .. "return ops.sparse_softmax_cross_entropy_grad(x, labels, slope(x:sum(2)))", shape }
end
for what, shape in pairs { rows = "{ 203, 207 }", ["long rows"] = "{ 11, 30001 }", columns = "{ 9, 131, 101 }" } do
  local axis = what == "columns" and 2 or -1
  for _, op in ipairs { "softmax", "log_softmax" } do
    cases[#cases + 1] = { op, what, ("return ops.%s(..., { axis = %d })"):format(op, axis), shape }
  end
  cases[#cases + 1] = { "softmax_grad", what,
    ("local y, dy = ...; return ops.softmax_grad(y, dy, { axis = %d })"):format(axis), shape .. ", " .. shape }
end

-- Windows that are pairs, overlap, leave gaps, and reach into padding; images with more rows than a band.
for _, pool in ipairs {
  { "pairs", "{ size = { 2, 2 }, strides = { 2, 2 } }", "{ 5, 43, 41, 6 }" },
  { "overlapping windows", "{ size = { 3, 3 }, strides = { 2, 2 }, pads = { 1, 1, 0, 1 } }", "{ 3, 163, 41, 36 }" },
  { "windows with stride 1", "{ size = { 5, 2 }, strides = { 1, 1 }, pads = { 2, 2, 1, 0 } }", "{ 2, 41, 29, 33 }" },
  { "windows with gaps", "{ size = { 2, 1 }, strides = { 5, 3 } }", "{ 3, 64, 41, 16 }" },
} do
  local what, attributes, shape = unpack(pool)
  local call = "local x, a = ..., " .. attributes .. "; "
  for _, op in ipairs { "max_pool2d", "avg_pool2d" } do
    cases[#cases + 1] = { op, what, call .. "return ops." .. op .. "(x, a)", shape, special = op == "max_pool2d" }
  end
  cases[#cases + 1] = { "max_pool2d_grad", what, call .. [[
    local y = ops.max_pool2d(x, a)
    return ops.max_pool2d_grad(x, y, slope(y), a)]], shape, special = true }
  cases[#cases + 1] = { "avg_pool2d_grad", what, call .. [[
    local dy = slope(ops.avg_pool2d(x, a))
    a.input_shape = x:shape()
    return ops.avg_pool2d_grad(dy, a)]], shape }
end

for _, case in ipairs(cases) do
  local op, what, body, shapes = unpack(case)
  test(("%s of halves is that of floats, rounded: %s"):format(op, what), function()
    local script = check.path "halves.lua"
    check.write(script, SCRIPT:format(body, shapes, tostring(case.special or false)))
    for _, threads in ipairs { 1, 3, 16 } do
      local output, status = check.run(("MGPU_THREADS=%d %s %s"):format(threads, check.program, script))
      check.equal(status, 0)
      check.matches(output, "^float16%s+0%s+%d+\nbfloat16%s+0%s+%d+\n$")
    end
    local log = check.run(("MGPU_LOG=dispatch %s %s"):format(check.program, script))
    check.matches(log, ": " .. op .. " b?float16")
    check.equal(log:match(": " .. op .. " of wider dtypes"), nil)
  end)
end
