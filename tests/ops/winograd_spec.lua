-- Winograd convolutions of the cpu device: their error, and that sums do not depend on the number of
-- threads. (The op table compares them with ref as well, under every instruction set.)
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local test = check.test
check.needs "cpu"

-- A convolution and its two gradients, by op.
local function passes(c)
  local pads, groups, side, stride = c.pads, c.groups or 1, c.side, c.stride or 1
  local function results(size, padding) return math.floor((size + padding - side) / stride) + 1 end
  local x, kernel = { c.n, c.h, c.w, c.from }, { side, side, c.from / groups, c.to }
  local y = { c.n, results(c.h, pads[1] + pads[2]), results(c.w, pads[3] + pads[4]), c.to }
  local function with(extra)
    extra.pads, extra.groups, extra.strides = pads, groups, { stride, stride }
    return extra
  end
  return {
    conv2d = { x, kernel, with {} },
    conv2d_grad_input = { y, kernel, with { input_shape = x } },
    conv2d_grad_weight = { x, y, with { kernel_shape = kernel } },
  }
end

-- Numbers of dtype `stored`, computed with in dtype `computed`.
local function run(device, op, pass, stored, computed)
  core.default_device(device)
  mgpu.seed(5)
  local function operand(shape) return mgpu.randn(shape):to(stored):to(computed) end
  return core.ops[op](operand(pass[1]), operand(pass[2]), pass[3]):to("float64"):reshape { -1 }:totable()
end

-- The largest error, as a share of the largest value.
local function error_of(op, pass, dtype)
  local got, expected = run("cpu:0", op, pass, dtype, dtype), run("ref:0", op, pass, dtype, "float32")
  local largest, off = 0, 0
  for i, e in ipairs(expected) do
    largest = math.max(largest, math.abs(e))
    off = math.max(off, math.abs(got[i] - e))
  end
  check.equal(#got, #expected)
  return off / largest
end

local function random_pads(most)
  local pads = {}
  for i = 1, 4 do pads[i] = math.random(0, most or 2) end
  return pads
end

local function random_case(seed)
  math.randomseed(seed)
  return { pads = random_pads(), side = 3, n = math.random(2, 5), h = math.random(11, 24),
    w = math.random(11, 24), from = math.random(16, 70), to = math.random(16, 70) }
end

-- Filters of other sizes, with stride 1 and 2.
local function other_filters(seed)
  math.randomseed(seed)
  local stride, few = seed % 3 == 0 and 1 or 2, seed % 4 == 0
  local side = stride == 1 and math.random(2, 5) or math.random(3, 10)
  return { pads = random_pads(side - 1), side = side, stride = stride, n = math.random(6, 9) * stride,
    h = math.random(20, 33), w = math.random(20, 33), from = few and math.random(4, 20) or math.random(16, 50),
    to = math.random(16, 50) }
end

-- The pixels of few channels are gathered first.
local function few_channels_at_stride_2(seed)
  math.randomseed(seed)
  local side, from = math.random(5, 10), math.random(3, 5)
  return { pads = random_pads(side - 1), side = side, stride = 2, n = math.random(6, 9), h = math.random(16, 41),
    w = math.random(16, 41), from = from, to = math.random(50, 70) }
end

-- One side has few results, made by one tile, or by two of different sizes.
local function narrow_case(seed)
  math.randomseed(seed)
  local c = { pads = random_pads(), side = 3, n = math.random(30, 40), h = math.random(3, 13),
    w = math.random(11, 15), from = math.random(16, 40), to = math.random(16, 40) }
  if seed % 2 == 0 then c.h, c.w = c.w, c.h end
  return c
end

-- With enough images for vectors of them.
local function few_channels(seed)
  math.randomseed(seed)
  local groups = math.random(1, 3)
  return { pads = random_pads(), side = seed % 2 == 0 and 3 or 5, groups = groups, n = math.random(24, 40),
    h = math.random(5, 14), w = math.random(5, 14), from = groups * math.random(4, 15),
    to = groups * math.random(2, 20) }
end

local cases = {
  -- filters too many for tiles of 6x6 results
  { pads = { 1, 1, 1, 1 }, side = 3, n = 8, h = 7, w = 9, from = 264, to = 256 },
  { pads = { 2, 2, 2, 2 }, side = 5, n = 8, h = 7, w = 9, from = 264, to = 250 },
  { pads = { 1, 0, 0, 1 }, side = 2, n = 8, h = 8, w = 9, from = 264, to = 250 },
  -- threads share strips of the results, in tiles of 6x6 results
  { pads = { 1, 1, 1, 1 }, side = 3, n = 4, h = 14, w = 13, from = 120, to = 300 },
  -- the filters' gradient is computed in parts
  { pads = { 1, 1, 1, 1 }, side = 3, n = 8, h = 8, w = 7, from = 300, to = 283 },
  { pads = { 1, 0, 0, 1 }, side = 3, stride = 2, n = 4, h = 28, w = 28, from = 130, to = 157 },
  { pads = { 1, 0, 0, 1 }, side = 3, stride = 2, n = 14, h = 28, w = 28, from = 130, to = 157 }, -- too many tiles
}
for seed = 1, 12 do
  for _, draw in ipairs { random_case, few_channels, few_channels_at_stride_2, narrow_case, other_filters } do
    table.insert(cases, draw(seed))
  end
end
for seed = 13, 24 do table.insert(cases, other_filters(seed)) end
local function title(c)
  return ("%d images %dx%dx%d to %d channels, %dx%d, stride %d, pads %s"):format(c.n, c.h, c.w, c.from, c.to, c.side,
    c.side, c.stride or 1, table.concat(c.pads, " "))
end

local function check_errors(c, dtype, most)
  for op, pass in pairs(passes(c)) do
    local off = error_of(op, pass, dtype)
    if not (off <= most) then check.fail(("%s is off by %g of its largest value"):format(op, off)) end
  end
end

for _, c in ipairs(cases) do
  test("Winograd is within 1e-5 of the largest value: " .. title(c), function() check_errors(c, "float32", 1e-5) end)
end

-- float16 and bfloat16 round results once. 140 channels are converted in three parts.
local halves = {
  { pads = { 1, 1, 1, 1 }, side = 3, n = 8, h = 8, w = 7, from = 300, to = 283 },
  { pads = { 1, 0, 0, 1 }, side = 3, stride = 2, n = 14, h = 28, w = 28, from = 130, to = 157 },
  { pads = { 2, 0, 1, 2 }, side = 5, stride = 2, n = 9, h = 33, w = 30, from = 24, to = 38 },
  { pads = { 1, 0, 2, 1 }, side = 3, n = 3, h = 21, w = 18, from = 140, to = 70 },
  { pads = { 0, 1, 1, 0 }, side = 2, n = 4, h = 20, w = 23, from = 17, to = 33 },
}
for seed = 1, 4 do
  table.insert(halves, few_channels_at_stride_2(seed))
  table.insert(halves, other_filters(seed))
end
for dtype, rounding in pairs { float16 = 2 ^ -11, bfloat16 = 2 ^ -8 } do
  for _, c in ipairs(halves) do
    test(("Winograd's results in %s are rounded once: %s"):format(dtype, title(c)), function()
      check_errors(c, dtype, rounding + 1e-5)
    end)
  end
end

-- What the program prints about the choice of kernels when it convolves 32 images.
local function dispatch_of(precision, dtype, channels)
  local script = check.path "dispatch.lua"
  check.write(script, [[
    local core = require "mgpu.core"
    local mgpu = require "mgpu"
    core.default_device "cpu:0"
    mgpu.precision(arg[1])
    local channels = tonumber(arg[3])
    local x, w = mgpu.ones { 32, 10, 10, channels }, mgpu.ones { 3, 3, channels, 8 * channels }
    mgpu.eval(core.ops.conv2d(x:to(arg[2]), w:to(arg[2])))
  ]])
  -- with more threads than vectors of images, "few channels" refuses
  local command = "MGPU_THREADS=2 MGPU_LOG=dispatch %s %s %s %s %d"
  return (check.run(command:format(check.program, script, precision, dtype, channels)))
end

test("Winograd convolves halves without float32 copies, unless a kernel for few channels is faster", function()
  for _, dtype in ipairs { "float16", "bfloat16" } do
    check.matches(dispatch_of("fast", dtype, 32), "}: Winograd\n")
    check.matches(dispatch_of("fast", dtype, 6), "of wider dtypes: Winograd, few channels\n")
  end
end)

test("precision highest does not use Winograd, fast does", function()
  for precision, refusal in pairs { fast = "\n", highest = ' refuses: precision is "highest"\n' } do
    local output = dispatch_of(precision, "float32", 32)
    check.equal(output:match ": Winograd(\n)" or output:match ": Winograd( refuses[^\n]*\n)", refusal)
  end
end)

-- Writes a script that prints a sum for each pass of the convolution; every bit of the results changes it. x, w, y: the
-- shapes of images, filters and results; attributes: as text, of all passes. RETURNS its path.
local function sums_of_passes(name, x, w, y, attributes)
  local path = check.path(name)
  check.write(path, ([[
    local core = require "mgpu.core"
    local mgpu = require "mgpu"
    core.default_device "cpu:0"
    mgpu.seed(3)
    local x, w, y = mgpu.randn { %s }, mgpu.randn { %s }, mgpu.randn { %s }
    local function with(name, value)
      local attributes = { %s }
      if name then attributes[name] = value end
      return attributes
    end
    local results = { core.ops.conv2d(x, w, with()),
      core.ops.conv2d_grad_input(y, w, with("input_shape", x:shape())),
      core.ops.conv2d_grad_weight(x, y, with("kernel_shape", w:shape())) }
    for _, t in ipairs(results) do
      local sum = 0
      for i, v in ipairs(t:reshape({ -1 }):totable()) do sum = sum + v * (i %% 1021) end
      print(("%%.17g"):format(sum))
    end
  ]]):format(x, w, y, attributes or ""))
  return path
end

-- `kernel` takes all three passes, or as many as `passes`. From 300 tiles on there are several blocks, for any number
-- of threads. The filters' gradient of many small images, 2400 tiles, has 12 partial sums: up to three threads divide
-- them among themselves, while 8 or 13 threads compute each of them together.
for name, c in pairs {
  ["a Winograd convolution"] = { "12, 19, 22, 40", "3, 3, 40, 33", "12, 17, 20, 33", kernel = "Winograd" },
  ["a Winograd convolution of many small images"] = { "200, 19, 22, 32", "3, 3, 32, 33", "200, 17, 20, 33",
    kernel = "Winograd" },
  ["a Winograd convolution with stride 2"] = { "32, 29, 28, 32", "5, 5, 32, 40", "32, 13, 12, 40",
    "strides = { 2, 2 }", kernel = "Winograd" },
  ["a Winograd convolution with stride 2 and few channels"] = { "32, 39, 38, 3", "7, 7, 3, 64", "32, 18, 18, 64",
    "strides = { 2, 2 }, pads = { 1, 2, 2, 1 }", kernel = "Winograd", passes = 2 },
  ["a Winograd convolution of strips"] = { "8, 16, 15, 120", "3, 3, 120, 300", "8, 14, 13, 300", kernel = "Winograd" },
  ["a Winograd convolution with many filters"] = { "8, 9, 8, 300", "3, 3, 300, 283", "8, 7, 6, 283",
    kernel = "Winograd" },
  ["a Winograd convolution with stride 2 and many filters"] = { "4, 29, 29, 130", "3, 3, 130, 157",
    "4, 14, 14, 157", "strides = { 2, 2 }", kernel = "Winograd", passes = 1 },
  ["a depthwise convolution"] = { "5, 20, 21, 40", "5, 5, 1, 40", "5, 16, 17, 40", "groups = 40",
    kernel = "depthwise" },
} do
  test("the bits of " .. name .. " do not depend on the number of threads", function()
    local script = sums_of_passes("bits.lua", unpack(c, 1, 4))
    local expected
    for _, threads in ipairs { 1, 2, 3, 8, 13 } do
      local command = "MGPU_LOG=dispatch MGPU_ONEDNN=no MGPU_THREADS=%d %s %s"
      local output, status = check.run(command:format(threads, check.program, script))
      check.equal(status, 0)
      check.equal(select(2, output:gsub(": " .. c.kernel .. "\n", "")), c.passes or 3)
      output = output:match "[^\n]+\n[^\n]+\n[^\n]+\n$"
      expected = expected or output
      check.equal(output, expected)
    end
  end)
end

test("with few channels, the bits depend on the number of threads alone", function()
  local script = sums_of_passes("few.lua", "70, 13, 14, 6", "5, 5, 6, 9", "70, 9, 10, 9")
  for threads = 1, 4 do
    local command = ("MGPU_LOG=dispatch MGPU_THREADS=%d %s %s"):format(threads, check.program, script)
    local output, status = check.run(command)
    check.equal(status, 0)
    local _, found = output:gsub("Winograd, few channels\n", "")
    check.equal(found, 3)
    for _ = 1, 3 do check.equal((check.run(command)), output) end
  end
end)

-- 80 channels fill cache lines, 72 do not.
for _, channels in ipairs { 72, 80 } do
  test(("results too large for the caches are those of parts of the batch, %d channels"):format(channels), function()
    core.default_device "cpu:0"
    mgpu.seed(7)
    local x, w, parts = mgpu.randn { 96, 28, 28, 64 }, mgpu.randn { 3, 3, 64, channels }, {}
    local function conv(images) return core.ops.conv2d(images, w, { pads = { 1, 1, 1, 1 } }) end
    for i = 1, 96, 8 do table.insert(parts, conv(x:slice { { i, i + 7 } })) end
    mgpu.eval(unpack(parts))
    local off = (conv(x) - core.ops.concat(parts, { axis = 1 })):abs():max()
    check.equal(off:item(), 0)
  end)
end
