-- Folding of padding: zeros around an image become padding of the convolution that reads it, forward and backward.
-- The numbers must be as for the padded image, which is made only where another op reads it.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local ops = core.ops
-- the same products, perhaps by another kernel, which adds them in another order
local TOLERANCE = { float64 = 1e-12, float32 = 2e-5 }

local function uniform(shape, dtype)
  local t = (mgpu.rand(shape) * 2 - 1):to(dtype)
  mgpu.eval(t)
  return t
end

-- What a convolution of the padded image makes, with its gradients; o.kept makes another op read the padded image.
local function step(c, o)
  mgpu.seed(6)
  local image = core.variable(uniform({ 2, 9, 8, c.channels or 3 }, o.dtype))
  local weights = core.variable(uniform(c.weights or { 3, 2, 3, 4 }, o.dtype))
  local run = mgpu.jit(function()
    local loss, gradients = mgpu.value_and_grad(function()
      local padded = ops.pad(image:value() * 2, c.pad)
      local y = ops.conv2d(padded, weights:value(), c.conv or {})
      local sum = (y * y * 0.5 + y:sin()):sum()
      return o.kept and sum + (padded * 0):sum() or sum
    end, { image, weights })()
    return loss, unpack(gradients)
  end)
  return { run() }, run:dump()
end

local function border(top, bottom, left, right, value)
  return { before = { 0, top, left, 0 }, after = { 0, bottom, right, 0 }, value = value or 0 }
end

local CASES = {
  ["on all sides"] = { pad = border(1, 1, 1, 1) },
  ["on some sides"] = { pad = border(0, 2, 1, 0) },
  ["of a convolution with padding"] = { pad = border(1, 0, 0, 1), conv = { pads = { 1, 0, 0, 0 } } },
  ["of a strided convolution"] = { pad = border(1, 1, 0, 1), conv = { strides = { 2, 3 } } },
  ["of a dilated convolution"] = { pad = border(2, 1, 1, 1), conv = { dilations = { 2, 1 } } },
  ["of a grouped convolution"] = { pad = border(1, 1, 1, 1), channels = 4, weights = { 3, 2, 2, 6 },
    conv = { groups = 2 } },
}

for name, case in pairs(CASES) do
  test("zeros around images are folded into the convolution: " .. name, function()
    for dtype, tolerance in pairs(TOLERANCE) do
      local folded, plan = step(case, { dtype = dtype })
      check.equal({ plan:find " pad%(", plan:find " slice%(" }, {})
      local whole, other = step(case, { dtype = dtype, kept = true })
      check.truthy(other:find "pad%(", "the image is padded where another op reads it")
      for i = 1, 3 do
        local largest = whole[i]:abs():max():item()
        check.truthy(largest > 0, "a gradient")
        check.near((folded[i] - whole[i]):abs():max():item(), 0, tolerance * largest)
      end
    end
  end)
end

test("padding stays where a convolution has none like it", function()
  local function pads(case)
    local _, plan = step(case, { dtype = "float64" })
    return plan:find "pad%(" ~= nil
  end
  check.falsy(pads { pad = border(1, 1, 1, 1) }, "the plain case is folded")
  check.truthy(pads { pad = border(1, 1, 1, 1, 0.5) }, "another value than 0")
  check.truthy(pads { pad = border(3, 0, 0, 0) }, "as many rows as the filter")
  check.truthy(pads { pad = { before = { 1, 0, 0, 0 }, after = {} } }, "images of zeros")
  check.truthy(pads { pad = { before = {}, after = { 0, 0, 0, 1 } }, weights = { 3, 2, 4, 4 } }, "channels")
  check.truthy(pads { pad = { before = {}, after = {}, interior = { 0, 1 } } }, "rows between rows")
end)

test("the border of a gradient that another op reads is made", function()
  mgpu.seed(8)
  local dy, w = uniform({ 2, 6, 6, 4 }, "float64"), uniform({ 3, 3, 2, 4 }, "float64")
  local options = { input_shape = { 2, 8, 8, 2 } }
  local function inner(whole) return ops.slice(whole, { start = { 0, 1, 1, 0 }, stop = { 2, 7, 7, 2 } }) end
  local run = mgpu.jit(function()
    local whole = ops.conv2d_grad_input(dy, w, options)
    return inner(whole), whole:sum()
  end)
  local alone = mgpu.jit(function() return inner(ops.conv2d_grad_input(dy, w, options)) end)
  local expected = inner(ops.conv2d_grad_input(dy, w, options))
  mgpu.eval(expected)
  check.near((run() - expected):abs():max():item(), 0, 1e-12)
  check.near((alone() - expected):abs():max():item(), 0, 1e-12)
  check.truthy(run:dump():find "slice%(", "read whole as well")
  check.falsy(alone:dump():find "slice%(", "only the inner part is read")
end)

test("zeros around an image from relu become padding of a max pool, unless something else reads them", function()
  mgpu.seed(9)
  local x, w = uniform({ 2, 9, 8, 3 }, "float32"), uniform({ 3, 3, 3, 4 }, "float32")
  local function pads(image, b, more, kept)
    local options = { size = { 3, 3 }, strides = { 2, 2 }, pads = more }
    local run = mgpu.jit(function(v)
      local padded = ops.pad(image(v), b)
      return ops.max_pool2d(padded, options), kept and padded:sum()
    end)
    local padded = ops.pad(image(x), b)
    mgpu.eval(padded)
    check.near(run(x):totable(), ops.max_pool2d(padded, options):totable(), 1e-5)
    return run:dump():find "pad%(" ~= nil
  end
  local function relu(v) return v:relu() end
  check.falsy(pads(relu, border(1, 1, 1, 1)), "relu")
  check.falsy(pads(function(v) return ops.conv2d(v, w):relu() end, border(0, 1, 2, 1)), "a convolution's relu")
  check.falsy(pads(relu, border(1, 0, 0, 1), { 1, 0, 0, 1 }), "a pool with padding")
  check.truthy(pads(function(v) return v end, border(1, 1, 1, 1)), "negative pixels")
  check.truthy(pads(relu, border(1, 1, 1, 1, 0.5)), "another value than 0")
  check.truthy(pads(relu, border(3, 0, 0, 0)), "as many rows as the window")
  check.truthy(pads(relu, border(1, 1, 1, 1), nil, true), "another reader")
end)
