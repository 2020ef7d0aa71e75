-- Convolutions with 8-bit weights: the same bits with each instruction set and number of threads, numbers that are not
-- finite, and scales that no quantization gives. That they agree with the reference is tested by int8_rows.lua.
local check = require "check"
local mgpu = require "mgpu"
local core = require "mgpu.core"
local test = check.test
check.needs "cpu"

local ops = core.ops

-- Prints a checksum of the results of a convolution and of a product with a scale for each row.
local SCRIPT = [[
  local mgpu, core, ffi = require "mgpu", require "mgpu.core", require "ffi"
  local ops = core.ops
  mgpu.seed(3)
  local function bytes(shape) return (mgpu.rand(shape) * 255):floor():to "uint8" end
  local function print_bits(y)
    mgpu.eval(y)
    local bits, sum, n = ffi.cast("const uint32_t *", y:pointer()), 0, y:count()
    for i = 0, n - 1 do sum = (sum * 31 + bits[i]) % 4294967296 end
    print(n, sum)
  end
  print_bits(ops.conv2d_int8(mgpu.randn { 5, 21, 19, 12 }, bytes { 3, 9, 75, 4 }, mgpu.rand { 75 } + 50,
    mgpu.randn { 75 }, mgpu.tensor { 30, 120 }, { size = { 3, 3 }, pads = { 1, 1, 1, 1 } }))
  print_bits(ops.conv2d_int8(mgpu.randn { 101, 1, 1, 400 }, bytes { 1, 100, 131, 4 }, mgpu.rand { 131 } + 50,
    mgpu.randn { 131 }, mgpu.zeros { 0 }, { activation = "relu" }))
]]

test("instruction sets and numbers of threads give the same bits", function()
  local script, first = check.path "script.lua", nil
  check.write(script, SCRIPT)
  for _, isa in ipairs { "", "avx2", "baseline" } do
    for _, threads in ipairs { 1, 3 } do
      local command = ("MGPU_ISA=%s MGPU_THREADS=%d %s %s"):format(isa, threads, check.program, script)
      local output, status = check.run(command)
      if not output:find("lacks that instruction set", 1, true) and not output:find("unknown instruction", 1, true) then
        check.equal(status, 0)
        first = first or output
        check.equal(output, first)
      end
    end
  end
  check.matches(first, "149625")
end)

-- 4 weights 1, 2, 3, -1 of one filter.
local function product(x, scale, range, device)
  local function place(values, dtype) return mgpu.tensor(values, { dtype = dtype, device = device }) end
  local none = mgpu.zeros({ 0 }, { device = device })
  return ops.conv2d_int8(place(x):reshape { -1, 1, 1, 4 }, place({ { { { 1, 2, 3, 255 } } } }, "uint8"),
    place { scale }, place { 0 }, range and place(range) or none):reshape { -1 }:totable()
end

test("numbers that are not finite make the results of their image NaN", function()
  for _, device in ipairs { "cpu:0", "ref:0" } do
    for _, bad in ipairs { 0 / 0, 1 / 0, -1 / 0 } do
      for _, range in ipairs { false, { 10, 100 } } do
        local y = product({ { 1, 2, 3, 4 }, { 1, bad, 3, 4 }, { 1, 2, 3, 4 } }, 1, range or nil, device)
        check.near(y[1], 10, 0.1)
        check.equal(y[2] ~= y[2], true)
        check.equal(y[3], y[1])
      end
    end
  end
end)

test("scales that are no scales give the same on all devices", function()
  for _, scale in ipairs { 0, -1, 0 / 0, 1 / 0 } do
    for _, range in ipairs { { scale, 100 }, { 10, scale * 1000 }, { 10, 300 }, { 1e38, 3 } } do
      local a = product({ { 1, 2, 3, 4 } }, scale, range, "cpu:0")[1]
      local b = product({ { 1, 2, 3, 4 } }, scale, range, "ref:0")[1]
      check.equal(tostring(a):gsub("-nan", "nan"), (tostring(b):gsub("-nan", "nan")))
    end
  end
end)

test("there is no gradient", function()
  local x, kernel = mgpu.variable(mgpu.ones { 1, 1, 1, 4 }), mgpu.ones({ 1, 1, 2, 4 }, { dtype = "uint8" })
  local step = mgpu.value_and_grad(function()
    return ops.conv2d_int8(x, kernel, mgpu.ones { 2 }, mgpu.ones { 2 }, mgpu.zeros { 0 }):sum()
  end, { x })
  check.raises(function() return step() end, "conv2d_int8: not differentiable")
  mgpu.eval(mgpu.ones { 1 }) -- drops what the step has recorded
end)
