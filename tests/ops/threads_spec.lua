-- Results of the cpu device do not depend on the number of threads: the same bits with 1, 3 and 64, in processes of
-- their own. Each op is large enough to be shared, with sizes that no number of threads divides. The filters' gradients
-- of few channels, whose sums are made thread by thread, are not here, and oneDNN is switched off.
local check = require "check"
local test = check.test
check.needs "cpu"

-- A script that prints the bits of y = f(inputs) and of the inputs' gradients, as a checksum each. `shapes` is a list.
local SCRIPT = [[
  local core, mgpu, ffi = require "mgpu.core", require "mgpu", require "ffi"
  local ops = core.ops
  mgpu.seed(1)
  local inputs = {}
  for i, shape in ipairs { %s } do inputs[i] = mgpu.variable(mgpu.randn(shape)) end
  local function f(...) return %s end
  local dy, y = mgpu.randn(f(unpack(inputs)):shape())
  local _, gradients = mgpu.value_and_grad(function()
    y = f(unpack(inputs))
    return (y * dy):sum()
  end, inputs)()
  for _, t in ipairs { mgpu.eval(y, unpack(gradients)) } do
    local n, sum = 1, 0
    for _, d in ipairs(t:shape()) do n = n * d end
    local bits = ffi.cast("const uint32_t *", t:pointer())
    for i = 0, n - 1 do sum = (sum * 31 + bits[i]) %% 4294967296 end
    print(n, sum)
  end
]]

local function bits_of(threads, shapes, f)
  local script = check.path "script.lua"
  check.write(script, SCRIPT:format(shapes, f))
  local output, status = check.run(("MGPU_ONEDNN=no MGPU_THREADS=%d %s %s"):format(threads, check.program, script))
  check.equal(status, 0)
  return output
end

for _, case in ipairs {
  { "max pooling whose windows overlap", "{ 5, 63, 41, 16 }",
    "ops.max_pool2d(..., { size = { 3, 3 }, strides = { 2, 2 }, pads = { 1, 1, 0, 1 } })" },
  { "max pooling whose windows do not overlap", "{ 5, 42, 41, 6 }",
    "ops.max_pool2d(..., { size = { 2, 2 }, strides = { 2, 2 } })" },
  { "average pooling", "{ 5, 63, 41, 16 }",
    "ops.avg_pool2d(..., { size = { 3, 2 }, strides = { 2, 1 }, pads = { 1, 1, 0, 1 } })" },
  { "the input's gradient with few channels", "{ 5, 43, 39, 3 }",
    "ops.conv2d(..., mgpu.randn { 7, 7, 3, 32 }, { strides = { 2, 2 }, pads = { 3, 2, 1, 3 } })" },
  { "Winograd's convolution", "{ 5, 21, 19, 16 }, { 3, 3, 16, 40 }", "ops.conv2d(...)" },
  { "Winograd's convolution with stride 2", "{ 5, 31, 29, 16 }, { 5, 5, 16, 24 }",
    "(function(x, w) return ops.conv2d(x, w, { strides = { 2, 2 } }) end)(...)" },
  { "Winograd's convolution with many filters", "{ 9, 9, 8, 160 }, { 3, 3, 160, 420 }", "ops.conv2d(...)" },
  { "a product with a transposed factor", "{ 70, 900 }, { 530, 900 }",
    "(function(x, w) return ops.matmul(x, w, { transpose_b = true }) end)(...)" },
  { "a sum over rows", "{ 9001, 7 }", "(...):sum(1)" },
  { "a sum over rows of many channels", "{ 501, 200 }", "(...):sum(1)" },
  { "a sum of everything", "{ 203, 307 }", "(...):sum()" },
  { "batch normalization of few channels", "{ 9001, 7 }",
    "(function(x) return ops.batch_norm(x, ops.moments(x), mgpu.ones { 7 }, mgpu.zeros { 7 }) end)(...)" },
  { "batch normalization of many channels", "{ 5, 21, 19, 200 }",
    "(function(x) return ops.batch_norm(x, ops.moments(x), mgpu.ones { 200 }, mgpu.zeros { 200 }) end)(...)" },
  { "a group over a flat space", "{ 41, 1001 }", "((... * 0.5 + 1):tanh() * ...)" },
  { "a group with a row", "{ 3001, 10 }, { 10 }", "(function(x, b) return (x + b):relu() * x end)(...)" },
  { "a group with a number for each image", "{ 7, 23, 5, 48 }, { 7, 1, 1, 48 }",
    "(function(x, s) return (x * s):tanh() + x end)(...)" },
  { "a permutation", "{ 37, 61, 29 }", "ops.permute(..., { order = { 3, 1, 2 } })" },
  { "a padded tensor", "{ 37, 61, 29 }", "ops.pad(..., { before = { 1, 0, 2 }, after = { 0, 3, 1 } })" },
} do
  local title, shapes, f = unpack(case)
  test(title .. " has the same bits with any number of threads", function()
    local expected = bits_of(1, shapes, f)
    check.matches(expected, "%d+%s+%d+")
    for _, threads in ipairs { 3, 64 } do check.equal(bits_of(threads, shapes, f), expected) end
  end)
end
