-- Layers that draw random numbers: Dropout, SpatialDropout2D, GaussianNoise. Their rates and moments, the axes
-- along which numbers are shared, and the influence of the seed.

local check = require "check"
local mgpu = require "mgpu"
local each_device = require "fixtures".each_device

local test = check.test
local L = mgpu.layers
local TRAINING = { training = true }

local function mean(t) return t:to("float64"):mean():item() end

-- The largest difference allowed between a fraction of n independent draws and its probability: 5 standard
-- deviations.
local function spread(p, n) return 5 * math.sqrt(p * (1 - p) / n) end

local function is_close(actual, expected, allowed, what)
  check.truthy(math.abs(actual - expected) <= allowed,
    ("%s: %g, expected %g within %g:"):format(what, actual, expected, allowed))
end

-- ---- Dropout ------------------------------------------------------------------------------------

test("Dropout zeroes elements at its rate and scales the others", function()
  each_device(function()
    mgpu.seed(1)
    for _, rate in ipairs { 0.1, 0.25, 0.5, 0.9 } do
      local y = L.Dropout { rate } (mgpu.ones { 100, 100 }, TRAINING)
      is_close(mean(y:eq(0):to "float32"), rate, spread(rate, 10000), "zeroed")
      check.near(mgpu.where(y:gt(0), y, 1 / (1 - rate)), mgpu.full({ 100, 100 }, 1 / (1 - rate)):totable())
    end
  end)
end)

test("Dropout of rate 0 changes nothing, and of rate 1 gives zeros", function()
  local x = mgpu.rand { 4, 5 }
  check.equal(L.Dropout { 0 } (x, TRAINING), x:totable())
  check.equal(L.Dropout { 1 } (x, TRAINING), mgpu.zeros { 4, 5 }:totable())
  check.raises(function() L.Dropout { 1.1 } end, 'option "rate" must be at most 1', "usage")
end)

test("Dropout zeroes neighbours independently of each other", function()
  mgpu.seed(2)
  local kept = L.Dropout { 0.5 } (mgpu.ones { 200, 200 }, TRAINING):gt(0):to "float32"
  for axis = 1, 2 do
    local first, second = { {}, {} }, { {}, {} }
    first[axis], second[axis] = { 1, 199 }, { 2, 200 }
    is_close(mean(kept:slice(first) * kept:slice(second)), 0.25, spread(0.25, 39800), "both kept")
  end
end)

test("Dropout's gradient has the same mask and scale as its output", function()
  local layer, x = L.Dropout { 0.4 }, mgpu.rand { 10, 10 } + 1
  local y
  local slope = mgpu.grad(function(input)
    y = layer(input, TRAINING)
    return y:sum()
  end)(x)
  check.near(slope * x, y:totable(), 1e-5) -- one more product in float32
end)

test("Dropout with a noise_shape shares its mask along the axes of size 1", function()
  mgpu.seed(3)
  local y = L.Dropout { 0.5, noise_shape = { -1, 1, -1 } } (mgpu.ones { 30, 7, 40 }, TRAINING)
  check.equal(y:max(2), y:min(2):totable())
  is_close(mean(y:eq(0):to "float32"), 0.5, spread(0.5, 1200), "zeroed")
  local all = L.Dropout { 0.5, noise_shape = { 1, 1 } } (mgpu.ones { 30, 7 }, TRAINING)
  check.equal(all:max():item(), all:min():item())
end)

-- ---- SpatialDropout2D ---------------------------------------------------------------------------

test("SpatialDropout2D drops whole feature maps, different ones in each image", function()
  each_device(function()
    mgpu.seed(4)
    for format, axes in pairs { channels_last = { 2, 3 }, channels_first = { 3, 4 } } do
      local shape = { 40, 6, 6, 6 }
      local y = L.SpatialDropout2D { 0.25, data_format = format } (mgpu.ones(shape), TRAINING)
      local maps = y:max(axes)
      check.equal(maps, y:min(axes):totable())
      check.equal(maps:shape(), { 40, 6 })
      is_close(mean(maps:eq(0):to "float32"), 0.25, spread(0.25, 240), "dropped")
      check.near(maps:max():item(), 1 / 0.75)
      local images = mgpu.stack({ maps:slice { { 1, 39 } }, maps:slice { { 2, 40 } } }, 1)
      check.falsy(images:max(1):eq(images:min(1)):all():item(), "each image like the one before")
    end
  end)
end)

-- ---- GaussianNoise ------------------------------------------------------------------------------

test("GaussianNoise adds normal numbers of mean 0 and its standard deviation", function()
  each_device(function()
    mgpu.seed(5)
    local n = 40000
    for _, stddev in ipairs { 0.1, 2 } do
      local x = mgpu.full({ 200, 200 }, 3)
      local noise = (L.GaussianNoise { stddev } (x, TRAINING):to "float64" - 3) / stddev
      is_close(mean(noise), 0, 5 / math.sqrt(n), "mean")
      is_close(mean(noise * noise), 1, 5 * math.sqrt(2 / n), "variance")
      is_close(mean(noise * noise * noise), 0, 5 * math.sqrt(15 / n), "third moment")
      is_close(mean(noise:abs():lt(1):to "float32"), 0.6827, spread(0.6827, n), "within one")
    end
  end)
end)

test("GaussianNoise passes the gradient unchanged", function()
  local layer = L.GaussianNoise { 0.5 }
  check.equal(mgpu.grad(function(x) return layer(x, TRAINING):sum() end)(mgpu.rand { 3, 4 }),
    mgpu.ones { 3, 4 }:totable())
  local wide = mgpu.rand({ 2, 3 }, { dtype = "float64" })
  check.equal(layer(wide, TRAINING):dtype(), "float32")
  check.equal(L.GaussianNoise { 0.5, dtype = "float64" } (wide, TRAINING):dtype(), "float64")
end)

-- ---- all of them --------------------------------------------------------------------------------

local function all(seed, name)
  return {
    L.Dropout { 0.5, seed = seed, name = name }, L.SpatialDropout2D { 0.5, seed = seed, name = name },
    L.GaussianNoise { 1, seed = seed, name = name },
  }
end

local X = function() return mgpu.ones { 6, 2, 2, 8 } end

test("at inference no random numbers are drawn", function()
  for _, layer in ipairs(all()) do
    local before = mgpu.rng_state()
    check.equal(layer(X()), X():totable())
    check.equal(layer(X(), { training = false }), X():totable())
    check.equal(mgpu.rng_state(), before)
  end
end)

test("each call draws new numbers, and the same seed and name repeat them", function()
  for i, layer in ipairs(all(7, "a")) do
    mgpu.seed(1)
    local first, second = layer(X(), TRAINING):totable(), layer(X(), TRAINING)
    check.falsy(second:eq(mgpu.tensor(first)):all():item(), "drawn twice the same")
    mgpu.seed(1)
    check.equal(layer(X(), TRAINING), first)
    mgpu.seed(1)
    check.equal(all(7, "a")[i](X(), TRAINING), first)
    mgpu.seed(2)
    check.falsy(layer(X(), TRAINING):eq(mgpu.tensor(first)):all():item(), "the same after another seed")
  end
end)

test("layers with another name or seed draw other numbers", function()
  local here = all(7, "a")
  for _, others in ipairs { all(8, "a"), all(7, "b"), all(nil, "a") } do
    for i, layer in ipairs(others) do
      mgpu.seed(1)
      local first = here[i](X(), TRAINING):totable()
      mgpu.seed(1)
      check.falsy(layer(X(), TRAINING):eq(mgpu.tensor(first)):all():item(), "drawn the same")
    end
  end
end)

test("a compiled step draws new numbers each time, the same as without jit", function()
  for i, layer in ipairs(all(7, "a")) do
    local step = mgpu.jit(function(x) return layer(x, TRAINING) end)
    layer:ensure_built { -1, 2, 2, 8 }
    mgpu.seed(1)
    local first, second = step(X()):totable(), step(X()):totable()
    mgpu.seed(1)
    local outside = all(7, "a")[i]
    check.equal(outside(X(), TRAINING), first)
    check.equal(outside(X(), TRAINING), second)
    check.falsy(mgpu.tensor(first):eq(mgpu.tensor(second)):all():item(), "drawn twice the same")
  end
end)

-- Trains a model of unnamed layers for a few steps; returns its initial weights, and losses that depend on
-- the dropout masks.
local function seeded_run(seed)
  mgpu.seed(seed)
  local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 8 }, L.Dropout { 0.5 }, L.GaussianNoise { 0.1 },
    L.Dense { 1 } }
  local first = model.layers[1].kernel:totable()
  model:compile { loss = "mse", optimizer = "sgd" }
  local h = model:fit(mgpu.ones { 16, 4 }, mgpu.ones { 16, 1 }, { verbose = 0, epochs = 2, batch_size = 4 })
  return { first, { unpack(h.history.loss) } }
end

test("after the same seed the same code gives the same weights and masks, also twice in a process", function()
  local before = seeded_run(42)
  check.equal(seeded_run(42), before)
  check.falsy(seeded_run(43)[2][2] == before[2][2], "the same loss with another seed")
end)

test("after mgpu.seed the first unnamed Dense has the weights of one named \"dense\"", function()
  mgpu.reset_names()
  mgpu.seed(1)
  local unnamed = L.Dense { 3 }
  unnamed(mgpu.ones { 1, 2 })
  mgpu.seed(1)
  local named = L.Dense { 3, name = "dense" }
  named(mgpu.ones { 1, 2 })
  check.equal(unnamed.kernel:value(), named.kernel:totable())
end)

test("two unnamed layers made after one seed differ in weights and masks", function()
  mgpu.seed(1)
  local x = mgpu.ones { 1, 64 }
  local state = mgpu.rng_state()
  local function drawn(layer) -- from the same place in the sequence of draws
    mgpu.rng_state(state)
    return layer(x, TRAINING):totable()
  end
  local a, b = L.Dense { 4 }, L.Dense { 4 }
  check.falsy(drawn(a)[1][1] == drawn(b)[1][1], "the same weights")
  local c, d = L.Dropout { 0.5 }, L.Dropout { 0.5 }
  check.falsy(table.concat(drawn(c)[1]) == table.concat(drawn(d)[1]), "the same mask")
end)

test("reset_names restarts the numbering of layer names", function()
  mgpu.reset_names()
  local first = L.Flatten {}.name
  check.equal(L.Flatten {}.name, first .. "_1")
  mgpu.reset_names()
  check.equal(L.Flatten {}.name, first)
end)

test("masks are made on the device of the input, with many draws not evaluated yet", function()
  check.needs "cpu"
  local x, drop = mgpu.ones({ 2, 2, 2, 4 }):to "cpu:1", L.SpatialDropout2D { 0.5 }
  for _ = 1, 1500 do drop(x, TRAINING) end -- enough that pending draws are evaluated in between
  check.equal(drop(x, TRAINING):device(), "cpu:1")
end)

test("RandomGrayscale makes all, half or none of the images gray, with Keras's weights, in training only", function()
  local x = mgpu.rand { 400, 2, 2, 3 }
  local gray = (x * mgpu.tensor { 0.2989, 0.587, 0.114 }):sum(4, true)
  local expected = gray:broadcast_to { 400, 2, 2, 3 }
  local always = L.RandomGrayscale { 1 }
  -- one sum of three float32 numbers in another order
  check.near((always(x, { training = true }) - expected):abs():max():item(), 0, 1e-6)
  check.equal((always(x) - x):abs():max():item(), 0)
  check.equal((L.RandomGrayscale { 0 } (x, { training = true }) - x):abs():max():item(), 0)
  local first = L.RandomGrayscale { 1, data_format = "channels_first" } (x:permute { 1, 4, 2, 3 }, { training = true })
  check.near((first:permute { 1, 3, 4, 2 } - expected):abs():max():item(), 0, 1e-6)
  local half = L.RandomGrayscale { 0.5 } (x, { training = true })
  -- the number of gray images is 200 with a standard deviation of 10
  check.near((half - expected):abs():max { axis = { 2, 3, 4 } }:lt(1e-6):to "float32":sum():item(), 200, 50)
  check.raises(function() always(mgpu.zeros { 1, 2, 2, 2 }, { training = true }) end,
    "images need 1 or 3 channels, got 2")
end)

test("Solarization inverts what is not below the threshold, after the addition, as Keras does", function()
  local x = mgpu.tensor { 0, 60, 100, 130, 200, 255 }:reshape { 1, 2, 3, 1 }
  local function numbers(t) return t:reshape { 6 }:totable() end
  check.near(numbers(L.Solarization {} (x, TRAINING)), { 255, 195, 155, 125, 55, 0 }, 1e-4)
  -- a width of 510, in the middle of which is 0
  local layer = L.Solarization { 0, 0, value_range = { -255, 255 } }
  check.near(numbers(layer(x, TRAINING)), { 0, -60, -100, -130, -200, -255 }, 1e-4)
  layer = L.Solarization { 0.1, 0.5 }
  local moved = layer:transform(x, mgpu.tensor { 25.5 }, mgpu.tensor { 127.5 })
  check.near(numbers(moved), { 25.5, 85.5, 125.5, 99.5, 29.5, 0 }, 1e-4)
  check.equal((L.Solarization { 1, 1 } (x) - x):abs():max():item(), 0)
  check.raises(function() L.Solarization { 1.5 } end, "from 0 to 1")
end)
