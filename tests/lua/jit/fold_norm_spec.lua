-- Folding of batch normalisation: between a relu and convolutions without padding it is folded into the
-- convolutions' weights. Numbers and gradients must be those with the normalised image, which is
-- computed only where another op reads it.

local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local ops = core.ops
-- Sums of some hundred products in another order. In float32 there is cancellation besides: the folded
-- gradient is a sum of dy * x from which the part of the mean is subtracted.
local TOLERANCE = { { "float64", 1e-12 }, { "float32", 2e-5 } }

local function uniform(shape, low, high, dtype)
  local t = (mgpu.rand(shape) * (high - low) + low):to(dtype)
  mgpu.eval(t)
  return t
end

-- The loss of relu, batch normalisation with the batch's moments, and convolutions with the options in
-- `convs`. o.signed leaves out the relu; o.kept makes another op read the normalised image.
local function network(v, convs, o)
  local x = ops.conv2d(v.x, v.w0, {})
  if not o.signed then x = ops.relu(x) end
  local y = ops.batch_norm(x, ops.moments(x), v.gamma, v.beta, { epsilon = 1e-3 })
  local loss = 0
  for i, conv in ipairs(convs) do
    local z = ops.conv2d(y, v.w, conv)
    if i == 1 then z = ops.relu(z + v.b) end
    loss = loss + (z * z * 0.5 + z:sin()):sum()
  end
  if o.kept then loss = loss + (y * 0):sum() end
  return loss
end

-- The largest |a - b| is at most tolerance times the largest |b|.
local function near(a, b, tolerance)
  check.near((a - b):abs():max():item(), 0, tolerance * b:abs():max():item())
end

local NAMES = { "w0", "gamma", "beta", "w", "b" }

local function variables(dtype, groups, rows)
  mgpu.seed(4)
  local own = dtype:match "16$" and "float32" or dtype
  return { x = uniform({ rows or 3, 9, 8, 4 }, -1, 1, dtype), w0 = uniform({ 1, 1, 4, 6 }, -1, 1, dtype),
    gamma = uniform({ 6 }, 0.5, 1.5, own), beta = uniform({ 6 }, -1, 1, own),
    w = uniform({ 3, 2, 6 / (groups or 1), 8 }, -1, 1, dtype), b = uniform({ 8 }, -1, 1, dtype) }
end

-- The loss with its gradients, and the text of the plan.
local function step(convs, o)
  local fixed, list, held = variables(o.dtype, convs[1].groups, o.rows), {}, {}
  for i, name in ipairs(NAMES) do list[i] = core.variable(fixed[name], { name = name }) end
  local run = mgpu.jit(function()
    held.x = fixed.x
    local loss, gradients = mgpu.value_and_grad(function()
      for i, name in ipairs(NAMES) do held[name] = list[i]:value() end
      return network(held, convs, o)
    end, list)()
    return loss, unpack(gradients)
  end)
  return { run() }, run:dump()
end

local function folds(convs, o)
  local _, plan = step(convs, o)
  return not plan:find "batch_norm%("
end

local CONVS = {
  ["one"] = { {} },
  ["with strides"] = { { strides = { 2, 1 } } },
  ["with dilations"] = { { dilations = { 2, 3 } } },
  ["two"] = { {}, { strides = { 1, 2 } } },
}

for name, convs in pairs(CONVS) do
  test("batch normalisation is folded into the convolutions that read it: " .. name, function()
    for _, entry in ipairs(TOLERANCE) do
      local dtype, tolerance = unpack(entry)
      if dtype == "float32" and mgpu.precision() ~= "fast" then break end
      local folded, plan = step(convs, { dtype = dtype })
      local whole, other = step(convs, { dtype = dtype, kept = true })
      check.equal({ plan:find "batch_norm%(" == nil, other:find "batch_norm%(" ~= nil }, { true, true })
      if #convs == 1 then check.falsy(plan:find "batch_norm_reduce", "a pass over image and gradient") end
      for i = 1, #whole do
        local scale = whole[i]:abs():max():item()
        check.truthy(scale > 0, "a gradient")
        local off = (folded[i] - whole[i]):abs():max():item()
        if not (off <= tolerance * scale) then
          check.fail(("%s, %s: off by %g of %g"):format(dtype, NAMES[i - 1] or "loss", off, scale))
        end
      end
    end
  end)
end

test("batch normalisation is not folded where that would be wrong or inaccurate", function()
  check.truthy(folds({ {} }, { dtype = "float64" }), "the plain case is folded")
  check.falsy(folds({ { pads = { 1, 0, 0, 0 } } }, { dtype = "float64" }), "padding")
  check.falsy(folds({ {}, { pads = { 1, 1, 1, 1 } } }, { dtype = "float64" }), "padding in one of two")
  check.falsy(folds({ { groups = 2 } }, { dtype = "float64" }), "groups")
  check.falsy(folds({ {} }, { dtype = "float64", signed = true }), "no relu")
  check.falsy(folds({ {} }, { dtype = "float64", kept = true }), "read by another op")
  check.falsy(folds({ {} }, { dtype = "bfloat16" }), "too few bits")
  check.falsy(folds({ {} }, { dtype = "float64", rows = 1 }), "more weights than image elements")
  local before = mgpu.precision()
  mgpu.precision "highest"
  local folded = folds({ {} }, { dtype = "float32" }) or folds({ {} }, { dtype = "float16" })
  mgpu.precision(before)
  check.falsy(folded, "highest precision")
end)

-- The loss and the gradients of a network in mixed precision, and whether it was folded. With `keep` the normalised
-- image is read by another op.
local function mixed(v, dtype, keep)
  local own, list = dtype == "float64" and "float64" or "float32", {}
  for i, name in ipairs(NAMES) do list[i] = core.variable(v[name]:to(own), { name = name }) end
  local images = v.x:to(dtype)
  mgpu.eval(images)
  local run = mgpu.jit(function()
    local loss, gradients = mgpu.value_and_grad(function()
      local held = {}
      for i, name in ipairs(NAMES) do held[name] = list[i]:value() end
      local x = ops.relu(ops.conv2d(images, held.w0:to(dtype), {}))
      local y = ops.batch_norm(x, ops.moments(x), held.gamma, held.beta, { epsilon = 1e-3 })
      local z = ops.relu(ops.conv2d(y, held.w:to(dtype), {}) + held.b:to(dtype)):to(own)
      local sum = (z * 0.5):sin():sum()
      return keep and sum + (y * 0):to(own):sum() or sum
    end, list)()
    return loss, unpack(gradients)
  end)
  return { run() }, not run:dump():find "batch_norm%("
end

-- The root of the mean square of t, or of t - from.
local function magnitude(t, from)
  local off = from and t:to "float64" - from or t
  return math.sqrt((off * off):mean():item())
end

test("float16 gradients are about as exact with folding as without", function()
  if mgpu.precision() ~= "fast" then check.skip "precision highest" end
  local folded_off, whole_off = {}, {}
  for seed = 1, 4 do
    mgpu.seed(seed)
    local v = { x = uniform({ 12, 14, 14, 4 }, 0, 1, "float64"), w0 = uniform({ 3, 3, 4, 32 }, -0.5, 0.5, "float64"),
      gamma = uniform({ 32 }, 0.5, 1.5, "float64"), beta = uniform({ 32 }, -1, 1, "float64"),
      w = uniform({ 3, 3, 32, 16 }, -0.1, 0.1, "float64"), b = uniform({ 16 }, -1, 1, "float64") }
    local exact = mixed(v, "float64", true)
    local folded, is_folded = mixed(v, "float16", false)
    local whole, whole_is_folded = mixed(v, "float16", true)
    check.equal({ is_folded, whole_is_folded }, { true, false })
    for i, t in ipairs(exact) do
      local scale = magnitude(t)
      folded_off[i] = (folded_off[i] or 0) + magnitude(folded[i], t) / scale / 4
      whole_off[i] = (whole_off[i] or 0) + magnitude(whole[i], t) / scale / 4
    end
  end
  for i = 2, #whole_off do
    local name = NAMES[i - 1]
    check.truthy(whole_off[i] > 0 and folded_off[i] < 2 * whole_off[i],
      ("%s: off by %.2g, and by %.2g without folding"):format(name, folded_off[i], whole_off[i]))
    check.truthy(folded_off[i] < 0.03, ("%s: off by %.2g"):format(name, folded_off[i]))
  end
  check.truthy(folded_off[1] < 5e-4, ("the loss is off by %.2g"):format(folded_off[1]))
end)

test("batch normalisation by learned statistics is folded, too", function()
  local v = variables "float64"
  local mean, variance = uniform({ 6 }, 0, 1, "float64"), uniform({ 6 }, 0.5, 2, "float64")
  local function predict(keep)
    local run = mgpu.jit(function(x, m, d)
      local y = ops.relu(ops.conv2d(x, v.w0, {}))
      local moments = ops.concat(m:reshape { 1, 6 }, d:reshape { 1, 6 }, { axis = 1 })
      y = ops.batch_norm(y, moments, v.gamma, v.beta, { epsilon = 1e-3 })
      return ops.conv2d(y, v.w, {}), keep and y
    end)
    local z = run(v.x, mean, variance)
    return z, run:dump()
  end
  local folded, plan = predict(false)
  check.falsy(plan:find "batch_norm", "a separate batch_norm step")
  local whole = predict(true)
  near(folded, whole, 1e-12)
end)

-- Predicts relu(batch_norm(product(x))). With `keep` the product is a result, too, so it is not folded.
local function predict(product, v, keep)
  local run = mgpu.jit(function(x, m)
    local y = product(x)
    return ops.relu(ops.batch_norm(y, m, v.gamma, v.beta, { epsilon = 1e-3 })), keep and y
  end)
  mgpu.seed(2)
  local z = run(v.x, uniform({ 2, 6 }, 0.5, 2, v.gamma:dtype()))
  return z:to "float64", run:dump()
end

test("16-bit products are not folded at precision highest", function()
  local v, before = variables "bfloat16", mgpu.precision()
  mgpu.precision "highest"
  local _, plan = predict(function(x) return ops.conv2d(x, v.w0, {}) end, v, false)
  mgpu.precision(before)
  check.truthy(plan:find "batch_norm", "a separate batch_norm step")
end)

test("a product that only normalisation reads is computed normalised, with the relu", function()
  -- 16-bit: the unfolded product is rounded once more, to 8 and 11 bits
  local halves = mgpu.precision() == "fast" and { bfloat16 = 1.6e-2, float16 = 2e-3 } or {}
  for dtype, tolerance in pairs { float64 = 1e-12, bfloat16 = halves.bfloat16, float16 = halves.float16 } do
    local v = variables(dtype)
    local dense, bias = uniform({ 4, 6 }, -1, 1, dtype), uniform({ 6 }, -1, 1, dtype)
    for name, product in pairs {
      conv2d = function(x) return ops.conv2d(x, v.w0, { pads = { 1, 1, 1, 1 } }) end,
      biased = function(x) return ops.conv2d(x, v.w0, {}) + bias end,
      matmul = function(x) return ops.matmul(x:reshape { 216, 4 }, dense) end,
    } do
      local folded, plan = predict(product, v, false)
      check.falsy(plan:find "batch_norm", name .. ": a separate batch_norm step")
      check.truthy(plan:find "relu=1", name .. ": the relu is an epilogue of the product")
      local whole = predict(product, v, true)
      near(folded, whole, tolerance)
    end
  end
end)

-- The prediction of a layer followed by batch normalisation with learned statistics.
local function predicted(policy, product)
  local L = mgpu.layers
  mgpu.seed(6)
  local layer, normal
  local model = mgpu.mixed_precision.with_policy(mgpu.mixed_precision.get(policy), function()
    layer = product == "Conv2D" and L.Conv2D { 8, 3 } or L.Dense { 8 }
    normal = L.BatchNormalization { beta_initializer = "ones" }
    return mgpu.Sequential { L.Input { 9, 9, 4 }, layer, normal }
  end)
  normal.moving_mean:assign(uniform({ 8 }, 0, 1, "float32"))
  layer.bias:assign(uniform({ 8 }, -1, 1, "float32"))
  return model:predict(uniform({ 3, 9, 9, 4 }, -1, 1, "float32"), { verbose = 0 }):to "float32"
end

test("16-bit models predict the numbers of float32 models, to rounding", function()
  for _, product in ipairs { "Conv2D", "Dense" } do
    local whole = predicted("float32", product)
    for policy, tolerance in pairs { mixed_bfloat16 = 2e-2, mixed_float16 = 3e-3 } do -- products of rounded numbers
      near(predicted(policy, product), whole, tolerance)
    end
  end
end)

-- The weights after three steps of 10 rows, which 3 and 4 devices share unevenly.
local function trained(devices)
  local L = mgpu.layers
  mgpu.seed(9)
  mgpu.set_floatx "float64"
  local ok, weights = pcall(function()
    local model = mgpu.Sequential { L.Input { 8, 8, 2 },
      L.Conv2D { 5, 3, activation = "relu", name = "a" }, L.BatchNormalization { name = "n" },
      L.Conv2D { 4, 3, activation = "relu", name = "b" }, L.Flatten {}, L.Dense { 3, name = "d" } }
    model:compile { optimizer = "adam", loss = "mse", devices = devices }
    local x, y = uniform({ 10, 8, 8, 2 }, -1, 1, "float64"), uniform({ 10, 3 }, -1, 1, "float64")
    for _ = 1, 3 do model:train_on_batch(x, y) end
    return model:get_weights()
  end)
  mgpu.set_floatx "float32"
  if not ok then error(weights, 0) end
  return weights
end

test("training with folding gives the same weights on 1 to 4 devices", function()
  local kind = core.default_device():match "^%a+"
  local one = trained { kind .. ":0" }
  for _, n in ipairs { 2, 3, 4 } do
    local names = {}
    for i = 1, n do names[i] = ("%s:%s"):format(kind, kind == "cuda" and "0/" .. i - 1 or i - 1) end
    for i, w in ipairs(trained(names)) do
      near(w:to(one[i]:device()), one[i], 1e-9) -- Adam divides by roots of small gradients
    end
  end
end)
