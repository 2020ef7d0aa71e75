-- float16 and bfloat16 ("halves") on the cpu device: the rounding of float32 to them, and that ops without
-- a 16-bit kernel run in float32 kernels and not in the reference kernels. tests/ops tests the values of
-- each op, mixed_precision_spec the policies of layers.

local check = require "check"
local core = require "mgpu.core"
local ffi = require "ffi"
local mgpu = require "mgpu"

local test = check.test
local ops = core.ops
local HALVES = { "float16", "bfloat16" }
local TOLERANCE = { float16 = 2e-3, bfloat16 = 1.6e-2 } -- two roundings, to 11 and to 8 bits

local function skip_without_cpu()
  if not core.default_device():match "^cpu" then check.skip "no cpu plug-in" end
end

-- The number of elements in which a and b differ. NaN equals NaN; zeros must have the same sign.
local function different(a, b)
  local both = ops.logical_and(ops.isnan(a), ops.isnan(b))
  local same = ops.logical_or(both, ops.logical_and(ops.eq(a, b), ops.eq(1 / a, 1 / b)))
  return (1 - ops.cast(same, { dtype = "float32" })):sum():item()
end

-- float32 numbers of every sign, exponent and leading mantissa, with the trailing bits that decide the
-- direction of rounding.
local function telling_numbers()
  local bits, list = ffi.new "union { uint32_t u; float f; }", {}
  for high = 0, 0xffff do
    for _, low in ipairs { 0, 1, 0x0fff, 0x1000, 0x1001, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff } do
      bits.u = high * 65536 + low
      local is_number = bits.f == bits.f -- LuaJIT must not see NaN with other bits than its own
      list[#list + 1] = is_number and tonumber(bits.f) or 0 / 0
    end
  end
  list[#list + 1] = 65519.996 -- one more element than fits whole vector registers
  list[#list + 1] = 65520
  list[#list + 1] = -1 / 0
  return list
end

test("float32 is rounded to 16 bits and widened again as on ref", function()
  skip_without_cpu()
  local numbers = telling_numbers()
  local x = mgpu.tensor(numbers)
  for _, dtype in ipairs(HALVES) do
    local on_ref = x:to("ref:0"):to(dtype)
    local here = x:to(dtype)
    mgpu.eval(on_ref, here)
    check.equal({ dtype, different(here:to "float32", on_ref:to("float32"):to(core.default_device())) },
      { dtype, 0 })
    check.equal({ dtype, different(here:to "float32", on_ref:to(core.default_device()):to "float32") },
      { dtype, 0 })
  end
end)

-- ---- in float32 -----------------------------------------------------------------------------------

-- Convolutions by Winograd's algorithm, and one by another.
local function network(device, dtype)
  local function uniform(shape, ordinal)
    core.seed(ordinal)
    return (ops.random { shape = shape, kind = "uniform", a = -0.5, b = 0.5, dtype = "float32" }):to(dtype)
  end
  local previous = core.default_device()
  core.default_device(device)
  local x, a, b, c = uniform({ 3, 14, 14, 32 }, 1), uniform({ 3, 3, 32, 48 }, 2), uniform({ 3, 3, 48, 32 }, 3),
    uniform({ 3, 3, 32, 7 }, 4)
  local function loss(...)
    local from, w, v, u = ...
    local y = ops.relu(ops.conv2d(from, w, {}))
    y = ops.max_pool2d(ops.relu(ops.conv2d(y, v, {})), { size = { 2, 2 } })
    return ops.conv2d(y, u, {}):to("float32"):square():mean(), y
  end
  local gradients = { core.grad(loss)(x, a, b, c) }
  local y = select(2, loss(x, a, b, c))
  local out = { y:to("float64"):totable() }
  for _, g in ipairs(gradients) do
    check.equal(g:dtype(), dtype)
    out[#out + 1] = g:to("float64"):totable()
  end
  core.default_device(previous)
  return out
end

local function flat(t, list)
  for _, v in ipairs(t) do
    if type(v) == "table" then flat(v, list) else list[#list + 1] = v end
  end
  return list
end

test("16-bit convolutions and pools in any memory layout have the numbers and gradients of ref", function()
  skip_without_cpu()
  for _, dtype in ipairs(HALVES) do
    local here, there = network(core.default_device(), dtype), network("ref:0", dtype)
    for i = 1, #there do
      local got, expected, top = flat(here[i], {}), flat(there[i], {}), 0
      for _, v in ipairs(expected) do top = math.max(top, math.abs(v)) end
      check.truthy(top > 0, "values")
      -- a gradient is rounded in each of four layers
      check.near(got, expected, 4 * TOLERANCE[dtype] * top)
    end
  end
end)

test("a 16-bit model does not fall back to the reference kernels", function()
  skip_without_cpu()
  local script = check.path "halves.lua"
  check.write(script, [[
    local mgpu = require "mgpu"
    local L = mgpu.layers
    mgpu.set_policy(arg[1])
    local model = mgpu.Sequential {
      L.Input { 12, 12, 3 },
      L.Conv2D { 16, 3, activation = "relu" }, L.BatchNormalization {}, L.DepthwiseConv2D { 3, padding = "same" },
      L.MaxPooling2D { 2 }, L.SpatialDropout2D { 0.2 }, L.UpSampling2D { 2 }, L.AveragePooling2D { 2 },
      L.Conv2DTranspose { 4, 3, activation = "elu" }, L.GaussianNoise { 0.1 }, L.Flatten {},
      L.Dense { 12, activation = "tanh" }, L.LayerNormalization {}, L.Dropout { 0.2 },
      L.Dense { 10, activation = "softmax" },
    }
    model:compile { optimizer = "adam", loss = "categorical_crossentropy" }
    local x, y = mgpu.ones { 40, 12, 12, 3 }, mgpu.ones { 40, 10 } / 10
    model:fit(x, y, { batch_size = 20, epochs = 2, verbose = 0 })
    print(model:predict(x):dtype())
  ]])
  for _, policy in ipairs { "mixed_float16", "mixed_bfloat16" } do
    local out, status = check.run(("MGPU_LOG=fallback %s %s %s 2>&1"):format(check.program, script, policy))
    check.equal({ out, status }, { policy:match "_(.*)" .. "\n", 0 })
  end
end)

test("uniform numbers of 16 bits are below their upper bound, on every device", function()
  for _, dtype in ipairs { "float16", "bfloat16" } do
    local host
    for _, device in ipairs { "ref:0", "cpu:0" } do
      mgpu.seed(3)
      local t = mgpu.with_device(device, function() return mgpu.rand({ 100000 }, { dtype = dtype }) end)
      check.truthy(t:max():item() < 1 and t:min():item() >= 0, dtype)
      check.near(t:to "float64":mean():item(), 0.5, 3e-3)
      host = host or t:totable()
      check.equal(t, host)
    end
    local t = core.ops.random { shape = { 20000 }, kind = "uniform", a = -3, b = -2.5, dtype = dtype }
    check.truthy(t:max():item() < -2.5 and t:min():item() >= -3, dtype)
  end
end)

test("float64 random numbers have all their digits, alike on every device", function()
  for _, kind in ipairs { "uniform", "normal", "truncated_normal" } do
    local host
    for _, device in ipairs { "ref:0", "cpu:0" } do
      mgpu.seed(3)
      local t = mgpu.with_device(device, function()
        return core.ops.random { shape = { 4096 }, kind = kind, a = 0, b = 1, dtype = "float64" }
      end):totable()
      host = host or t
      check.near(t, host, 1e-15)
      local seen, same, fine = {}, 0, 0
      for _, v in ipairs(t) do
        same, seen[v] = same + (seen[v] and 1 or 0), true
        fine = fine + (v * 2 ^ 40 % 1 ~= 0 and 1 or 0)
      end
      check.equal(same, 0)
      check.truthy(fine > 4000, kind)
    end
  end
end)
