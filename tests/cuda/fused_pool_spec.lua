-- The gradient of a max pool in the fused group that makes its dy (kernels/fused_pool.h): the numbers of ref, exactly.
local gpu = require "tests.cuda.device"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test, ops, count = check.test, core.ops, check.count

-- Numbers of few different values, so that windows have several maxima.
local function numbers(shape, dtype, on)
  local values = {}
  for i = 1, count(shape) do values[i] = math.floor((i * 0.6180339887498949) % 1 * 9) / 4 - 1 end
  local t = mgpu.tensor(values, { device = on, dtype = "float64" }):to(dtype):reshape(shape)
  mgpu.eval(t)
  return t
end

-- o: image, size, strides; pads; nan: some elements are NaN; kept: dy is a result, too.
-- RETURNS the gradient as a list, and behind it the sum of dy if it is a result.
local function backward(o, dtype, on)
  local how = { size = o.size, strides = o.strides or o.size, pads = o.pads }
  local x = numbers(o.image, dtype, on)
  if o.nan then x = ops.where(ops.eq(x, -1), x / 0 - x / 0, x) end
  mgpu.eval(x)
  local dy = numbers(ops.max_pool2d(x, how):shape(), dtype, on)
  local step = mgpu.jit(function(image, above)
    local y = ops.max_pool2d(image, how)
    local masked = ops.where(ops.gt(y, 0), above * 0.5 - 1, 0)
    local grad = ops.max_pool2d_grad(image, y, masked, how)
    return grad, o.kept and masked or mgpu.zeros {}
  end)
  local grad, masked = step(x, dy)
  local list = grad:to("float64"):reshape({ grad:count() }):totable()
  list[#list + 1] = masked:to("float64"):sum():item()
  return list
end

local CASES = {
  { image = { 3, 8, 6, 16 }, size = { 2, 2 } },
  { image = { 2, 7, 9, 5 }, size = { 2, 2 } }, -- with a row and a column behind the last windows
  { image = { 2, 7, 9, 4 }, size = { 3, 2 }, strides = { 3, 4 } }, -- with cells between the windows
  { image = { 1, 5, 5, 1 }, size = { 1, 1 }, strides = { 2, 2 } },
  { image = { 2, 6, 6, 8 }, size = { 2, 3 }, nan = true },
  { image = { 2, 8, 8, 24 }, size = { 4, 4 }, kept = true },
  { image = { 2, 7, 7, 8 }, size = { 2, 2 }, pads = { 1, 0, 0, 1 } }, -- a step of its own
  { image = { 2, 6, 6, 8 }, size = { 3, 3 }, strides = { 1, 1 } }, -- the same: windows overlap
}

-- Tests each case in each dtype: compute(o, dtype, device) gives the same list on the GPU and on ref. `kept`: what the
-- name says of cases with o.kept.
local function test_cases(what, kept, compute)
  for _, o in ipairs(CASES) do
    local name = ("%s: image %s, windows %s, strides %s%s%s%s"):format(what, table.concat(o.image, "x"),
      table.concat(o.size, "x"), table.concat(o.strides or o.size, "x"), o.pads and ", padding" or "",
      o.nan and ", NaN" or "", o.kept and kept or "")
    test(name, function()
      for _, dtype in ipairs { "float32", "float16", "bfloat16", "float64" } do
        local got, wanted = compute(o, dtype, "cuda:0"), compute(o, dtype, "ref:0")
        check.equal(#got, #wanted)
        for i = 1, #wanted do
          if not (got[i] == wanted[i] or (got[i] ~= got[i] and wanted[i] ~= wanted[i])) then
            check.fail(("%s: element %d is %g, ref says %g"):format(dtype, i, got[i], wanted[i]))
          end
        end
      end
    end)
  end
end

test_cases("the gradient of a masked max pool", ", dy is read", backward)

-- A group that reads a pooled image. o.kept: the pooled image is a result, too.
local function forward(o, dtype, on)
  local how = { size = o.size, strides = o.strides or o.size, pads = o.pads }
  local x = numbers(o.image, dtype, on)
  if o.nan then x = ops.where(ops.eq(x, -1), x / 0 - x / 0, x) end
  local beside = numbers({ o.image[4] }, dtype, on)
  mgpu.eval(x)
  local step = mgpu.jit(function(image, b)
    local y = ops.max_pool2d(image, how)
    return ops.where(ops.gt(y, b), y * 2, b) - 1, o.kept and y or mgpu.zeros {}
  end)
  local z, y = step(x, beside)
  local list, kept = z:to("float64"):reshape({ z:count() }):totable(), y:to("float64"):reshape({ y:count() }):totable()
  for i = 1, #kept do list[#list + 1] = kept[i] end
  return list
end

test_cases("a group reads a pooled image", ", which is kept", forward)

test("a group reads a pooled image and makes the gradient of another pool", function()
  local function both(on)
    local x, how = numbers({ 2, 8, 8, 8 }, "float32", on), { size = { 2, 2 }, strides = { 2, 2 } }
    local a, b = mgpu.jit(function(image)
      local y = ops.max_pool2d(image, how)
      local dy = ops.where(ops.gt(y, 0), y * 0.5 - 1, 0)
      return ops.max_pool2d_grad(image * 1, y, dy, how), y:sum()
    end)(x)
    return a:reshape({ a:count() }):totable(), b:item()
  end
  local got, sum = both "cuda:0"
  local wanted, wanted_sum = both "ref:0"
  check.equal(got, wanted)
  check.near(sum, wanted_sum, 1e-4)
end)

if gpu.real then return end

-- How many launches a plan has for the pool's gradient.
local function pool_launches(strides, kept)
  local path = check.path "script.lua"
  check.write(path, ([[
local mgpu, core = require "mgpu", require "mgpu.core"
local ops = core.ops
core.default_device "cuda:0"
local how = { size = { 2, 2 }, strides = { %d, %d } }
local x = mgpu.ones { 2, 9, 9, 8 }
local dy = mgpu.ones(ops.max_pool2d(x, how):shape())
mgpu.eval(x, dy)
local a, b = mgpu.jit(function(image, above)
  local y = ops.max_pool2d(image, how)
  local masked = ops.where(ops.gt(y, 0), above, 0)
  return ops.max_pool2d_grad(image, y, masked, how), %s and masked
end)(x, dy)
print("sum", a:sum():item())]]):format(strides, strides, tostring(kept)))
  local output, status = check.run(("MGPU_CUDA_LIBRARIES=build/fake_cuda MGPU_LOG=launches %s %s"):format(check.program,
    path))
  check.equal(status, 0, output)
  local cells = math.floor((9 - 2) / strides) + 1
  check.matches(output, ("sum\t%d\n"):format(2 * 8 * cells * cells))
  return select(2, output:gsub("compute max_pool2d_grad", ""))
end

test("the group makes the pool's gradient unless windows overlap or dy is read by others", function()
  check.equal({ pool_launches(2, false), pool_launches(3, false), pool_launches(1, false), pool_launches(2, true) },
    { 0, 0, 1, 1 })
end)
