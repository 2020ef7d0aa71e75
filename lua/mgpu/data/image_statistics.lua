--- Mean, deviation and whitening matrix of a set of images, for ImageDataGenerator's feature-wise switches.
local core = require "mgpu.core"

local M = {}

local MOST_VALUES = 1024 -- of an image, for the whitening: MG_EIGEN_MOST

-- Calls fn(batch) for every batch of some passes over the dataset, as float64 {rows, columns, ...}.
local function each_batch(ds, passes, fn)
  for pass = 0, passes - 1 do
    for x in ds:iter { pass = pass, element = 0 } do fn(x:to "float64") end
  end
end

-- The sum of fn(batch), and the number of images.
local function total(ds, passes, fn)
  local sum, n = nil, 0
  each_batch(ds, passes, function(x)
    local part = fn(x)
    n, sum = n + x:shape()[1], sum and sum + part or part
    core.eval(sum)
  end)
  return sum, n
end

-- An array of numbers as a tensor that broadcasts against a batch along its axis of channels.
local function along_channels(list, channel_axis)
  local shape = { 1, 1, 1, 1 }
  shape[channel_axis] = #list
  return core.ops.reshape(core.tensor(list, { dtype = "float64" }), { shape = shape })
end

-- The means over all values of each channel of fn(batch), as an array.
local function channel_means(ds, passes, channel_axis, fn)
  local others, per_image = {}, 1
  for axis = 1, 4 do
    if axis ~= channel_axis then others[#others + 1] = axis end
  end
  local sum, n = total(ds, passes, function(x)
    local shape = x:shape()
    per_image = shape[others[2]] * shape[others[3]]
    return fn(x):sum(others)
  end)
  return (sum / (n * per_image)):totable()
end

-- The matrix {d, d}, float32, by which flattened, centered images are multiplied.
--
-- With the singular values s and left vectors u of the images as columns: u diag(sqrt(n) / (s + epsilon)) u^T. They
-- come from the eigenvalues s^2 of the covariance.
local function whitening_matrix(ds, passes, centered, epsilon)
  local covariance, n = total(ds, passes, function(x)
    local flat = centered(x)
    local count, a, b, c = unpack(flat:shape())
    local values = a * b * c
    if values > MOST_VALUES then
      core.fail("unsupported", ("ImageDataGenerator: zca_whitening of images of %d values is not possible, at most %d: "
        .. "make the images smaller"):format(values, MOST_VALUES))
    end
    flat = core.ops.reshape(flat, { shape = { count, values } })
    return flat:transpose():matmul(flat)
  end)
  local eigenvalues, vectors = core.eigen_symmetric(covariance)
  local d, scale = covariance:shape()[1], {}
  for i, v in ipairs(eigenvalues:totable()) do
    scale[i] = i <= n and math.sqrt(n) / (math.sqrt(math.max(v, 0)) + epsilon) or 0
  end
  local column = core.ops.reshape(core.tensor(scale, { dtype = "float64" }), { shape = { d, 1 } })
  return vectors:transpose():matmul(vectors * column):to "float32"
end

--- measure(ds, passes, {std =, whitening = epsilon, channel_axis =}) -> mean, std, whitening: arrays of a number for
--- each channel, and a float32 tensor; std and whitening only if asked for. ds gives batches of images.
function M.measure(ds, passes, wanted)
  local axis = wanted.channel_axis
  local mean = channel_means(ds, passes, axis, function(x) return x end)
  local function centered(x) return x - along_channels(mean, axis) end
  local std, whitening
  if wanted.std then
    std = channel_means(ds, passes, axis, function(x)
      local difference = centered(x)
      return difference * difference
    end)
    for i, v in ipairs(std) do std[i] = math.sqrt(v) end
  end
  if wanted.whitening then whitening = whitening_matrix(ds, passes, centered, wanted.whitening) end
  return mean, std, whitening
end

return M
