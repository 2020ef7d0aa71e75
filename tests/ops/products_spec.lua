-- The cpu device's own matrix products, and the convolutions that are depthwise or made of such products. They are
-- compared with ref where sums have several blocks, strips and parts, which the small shapes of the op table do not
-- have; and their bits must be the same with any number of threads. They run in processes without oneDNN, whose kernels
-- would come first. Convolutions with dilated columns are products of copied windows; others with few channels and more
-- than one tap are summed without copying.
local check = require "check"
local test = check.test
check.needs "cpu"

-- A script that calls `case` for each case, and prints those whose error is too large, as a share of the largest
-- value, and a sum of the results' bits.
local HEAD = [[
  local core, mgpu = require "mgpu.core", require "mgpu"
  -- Rounding of the results; sums of up to 5000 terms are made 64 terms at a time.
  local TOLERANCE = { float64 = 1e-13, float32 = 2e-6, float16 = 1e-3, bfloat16 = 8e-3 }
  local function results(device, dtype, f, shapes)
    core.default_device(device)
    mgpu.seed(3)
    local operands = {}
    for i, shape in ipairs(shapes) do operands[i] = mgpu.randn(shape):cast(dtype) end
    return mgpu.jit(f)(unpack(operands)):to("float64"):reshape({ -1 }):totable()
  end
  -- Jitted, so that a bias and relu are always part of the product, which rounds halves once.
  local function case(name, dtype, f, ...)
    local got, expected = results("cpu:0", dtype, f, { ... }), results("ref:0", dtype, f, { ... })
    local largest, off, bits = 0, 0, 0
    for i, e in ipairs(expected) do
      largest = math.max(largest, math.abs(e))
      off = math.max(off, math.abs(got[i] - e))
      bits = bits + got[i] * (i % 1021)
    end
    local is_right = #got == #expected and off <= TOLERANCE[dtype] * largest
    print(is_right and "right" or ("WRONG by %g"):format(off / largest), name, dtype, ("%.17g"):format(bits))
  end
  local function matmul(attributes)
    return function(a, b) return core.ops.matmul(a, b, attributes) end
  end
]]

local MATRICES = [[
  for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
    case("blocks", dtype, matmul {}, { 200, 300 }, { 300, 270 })
    case("transposed a", dtype, matmul { transpose_a = true }, { 300, 200 }, { 300, 41 })
    case("transposed b", dtype, matmul { transpose_b = true }, { 13, 259 }, { 65, 259 })
    case("transposed b, pairs of halves", dtype, matmul { transpose_b = true }, { 13, 290 }, { 43, 290 })
    case("transposed b, parts with odd ends", dtype, matmul { transpose_b = true }, { 9, 5002 }, { 17, 5002 })
    case("both", dtype, matmul { transpose_a = true, transpose_b = true }, { 33, 18 }, { 7, 33 })
    case("parts", dtype, matmul {}, { 9, 5000 }, { 5000, 17 })
    case("one column", dtype, matmul {}, { 400, 70 }, { 70, 1 })
    case("bias and relu", dtype, function(a, b, c) return (a:matmul(b) + c):relu() end,
      { 100, 64 }, { 64, 50 }, { 50 })
    case("bias and relu of long sums", dtype, function(a, b, c) return (a:matmul(b) + c):relu() end,
      { 250, 700 }, { 700, 77 }, { 77 })
    case("many", dtype, matmul {}, { 40, 11, 19 }, { 40, 19, 23 })
    case("one b for many a", dtype, matmul {}, { 3, 50, 40 }, { 40, 20 })
  end
]]

-- Each is { name, x, filters, attributes }.
local CONVOLUTIONS = [[
  local cases = {
    { "blocks", { 2, 17, 19, 40 }, { 3, 3, 40, 70 }, { pads = { 1, 0, 2, 1 }, dilations = { 1, 2 } } },
    { "dilated lines", { 2, 17, 19, 40 }, { 3, 3, 40, 70 }, { pads = { 1, 0, 2, 1 }, dilations = { 2, 1 } } },
    { "strides, dilated columns", { 3, 20, 15, 24 }, { 3, 4, 24, 30 },
      { pads = { 1, 2, 0, 3 }, strides = { 2, 3 }, dilations = { 1, 2 } } },
    { "strides", { 3, 20, 15, 24 }, { 3, 4, 24, 30 }, { pads = { 1, 2, 0, 3 }, strides = { 2, 3 } } },
    { "strides and dilations", { 2, 14, 15, 9 }, { 3, 2, 9, 11 },
      { pads = { 2, 2, 1, 1 }, strides = { 2, 3 }, dilations = { 3, 2 } } },
    { "stride over the image", { 2, 5, 3, 6 }, { 2, 2, 6, 5 }, { strides = { 7, 4 } } },
    { "stride beyond the filter", { 2, 13, 12, 8 }, { 1, 2, 8, 20 }, { strides = { 3, 4 } } },
    { "groups", { 2, 12, 13, 24 }, { 3, 3, 8, 18 }, { pads = { 1, 1, 1, 1 }, groups = 3, strides = { 2, 1 } } },
    { "1x1", { 4, 13, 11, 50 }, { 1, 1, 50, 90 }, {} },
    { "3 channels", { 3, 31, 30, 3 }, { 7, 7, 3, 33 }, { pads = { 3, 3, 3, 3 }, strides = { 2, 3 } } },
    { "wide filters", { 2, 30, 31, 3 }, { 9, 12, 3, 20 }, { pads = { 1, 2, 3, 0 }, strides = { 4, 3 } } },
    { "parts", { 9, 30, 31, 5 }, { 6, 1, 5, 9 }, {} },
    { "parts, dilated columns", { 9, 30, 31, 5 }, { 1, 6, 5, 9 }, { dilations = { 1, 2 } } },
    { "long lines", { 1, 9, 301, 4 }, { 2, 3, 4, 20 }, { pads = { 1, 0, 1, 1 } } },
    { "half a strip", { 2, 20, 21, 10 }, { 2, 3, 10, 48 }, {} },
    { "padding larger than the image", { 2, 2, 3, 5 }, { 3, 4, 5, 7 }, { pads = { 4, 3, 5, 2 } } },
    { "groups that fill a strip together", { 2, 9, 8, 16 }, { 3, 2, 2, 32 }, { groups = 8 } },
    { "groups, dilated columns", { 2, 12, 13, 24 }, { 3, 3, 8, 18 },
      { pads = { 1, 1, 1, 1 }, groups = 3, dilations = { 1, 2 } } },
    { "depthwise", { 3, 17, 18, 37 }, { 3, 3, 1, 37 }, { pads = { 1, 1, 1, 1 }, groups = 37 } },
    { "depthwise, strides", { 3, 17, 18, 24 }, { 5, 4, 1, 24 },
      { pads = { 2, 0, 1, 4 }, groups = 24, strides = { 2, 3 }, dilations = { 1, 2 } } },
    { "depthwise, few channels", { 3, 9, 8, 3 }, { 3, 2, 1, 3 }, { groups = 3, strides = { 2, 1 } } },
    { "depthwise, fewer lines than threads", { 1, 5, 17, 331 }, { 3, 3, 1, 331 },
      { pads = { 1, 1, 1, 1 }, groups = 331 } },
    { "several filters for each channel", { 2, 9, 10, 6 }, { 3, 3, 1, 18 }, { groups = 6 } },
  }
  for _, dtype in ipairs { "float32", "float16", "bfloat16" } do
    for _, c in ipairs(cases) do
      local name, x, w, attributes = unpack(c)
      local function with(key, value)
        local all = {}
        for k, v in pairs(attributes) do all[k] = v end
        if key then all[key] = value end
        return all
      end
      local y = core.ops.conv2d(mgpu.zeros(x), mgpu.zeros(w), with()):shape()
      case(name, dtype, function(a, b) return core.ops.conv2d(a, b, with()) end, x, w)
      case(name .. ", bias and relu", dtype,
        function(a, b, bias) return (core.ops.conv2d(a, b, with()) + bias):relu() end, x, w, { w[4] })
      case(name .. ", dx", dtype,
        function(a, b) return core.ops.conv2d_grad_input(a, b, with("input_shape", x)) end, y, w)
      case(name .. ", dw", dtype,
        function(a, b) return core.ops.conv2d_grad_weight(a, b, with("kernel_shape", w)) end, x, y)
    end
  end
]]

for name, body in pairs { ["matrix products"] = MATRICES, ["convolutions"] = CONVOLUTIONS } do
  test(name .. " are right, and their bits do not depend on the number of threads", function()
    local script, expected = check.path "products.lua", nil
    check.write(script, HEAD .. body)
    for _, threads in ipairs { 1, 2, 3, 8 } do
      local output, status = check.run(("MGPU_ONEDNN=no MGPU_THREADS=%d %s %s"):format(threads, check.program, script))
      check.equal(status, 0)
      check.equal(output:match "WRONG[^\n]*", nil)
      check.truthy(select(2, output:gsub("right", "")) >= 36)
      expected = expected or output
      check.equal(output, expected)
    end
  end)
end

test("the cases above reach each kernel", function()
  local script = check.path "reached.lua"
  check.write(script, HEAD .. CONVOLUTIONS)
  local output = check.run("MGPU_LOG=dispatch MGPU_ONEDNN=no " .. check.program .. " " .. script)
  local reached = { ["conv2d float32"] = { "direct", "matrix product", "depthwise" },
    ["conv2d_grad_weight float32"] = { "direct", "matrix product", "depthwise" },
    ["conv2d_grad_input float32"] = { "few channels", "matrix product", "depthwise" },
    ["conv2d bfloat16"] = { "depthwise" }, ["conv2d_grad_weight bfloat16"] = { "depthwise" },
    ["conv2d_grad_input bfloat16"] = { "depthwise" } }
  for op, kernels in pairs(reached) do
    for _, kernel in ipairs(kernels) do
      check.truthy(select(2, output:gsub(op .. "[^\n]*: " .. kernel .. "\n", "")) >= 3, op .. ": " .. kernel)
    end
  end
end)

test("without oneDNN, steps have kernels of the device's own", function()
  local script = check.path "kernels.lua"
  check.write(script, [[
    local core, mgpu = require "mgpu.core", require "mgpu"
    mgpu.eval(core.ops.conv2d(mgpu.ones { 2, 8, 8, 16 }, mgpu.ones { 1, 1, 16, 16 }))
    mgpu.eval(core.ops.conv2d(mgpu.ones { 2, 8, 8, 3 }, mgpu.ones { 3, 2, 3, 16 }))
    mgpu.eval(core.ops.conv2d(mgpu.ones { 2, 8, 8, 16 }, mgpu.ones { 3, 3, 1, 16 }, { groups = 16 }))
    mgpu.eval(core.ops.matmul(mgpu.ones { 8, 8 }, mgpu.ones { 8, 8 }))]])
  local output = check.run("MGPU_LOG=dispatch MGPU_ONEDNN=no " .. check.program .. " " .. script)
  check.matches(output, "conv2d [^\n]*: matrix product\n.*conv2d [^\n]*: direct\n.*conv2d [^\n]*: depthwise\n"
    .. ".*matmul [^\n]*: matrix product\n")
end)
