-- Tests the split rules of ops that the networks of parallel_spec.lua lack: a step of training on three devices, with
-- shards of 3, 2 and 2 rows or one that is empty, changes the weights as on one device does.
local check = require "check"
local mgpu = require "mgpu"
local in_float64 = require "fixtures".in_float64

local L = mgpu.layers

-- The weights after two steps of a model that applies fn to images {rows, 4, 5, 3}, on `count` devices.
local function train(fn, count, rows)
  mgpu.seed(1)
  local model = mgpu.Sequential { L.Input { 4, 5, 3 }, L.Conv2D { 3, 1, name = "before" }, L.Lambda { fn },
    L.Flatten {}, L.Dense { 2, name = "after" } }
  mgpu.seed(7)
  local x, y = mgpu.rand { rows, 4, 5, 3 }, mgpu.rand { rows, 2 }
  local list = {}
  for i = 1, count do list[i] = "cpu:" .. i - 1 end
  model:compile { optimizer = mgpu.optimizers.SGD { 0.1 }, loss = "mse", devices = list }
  model:fit(x, y, { batch_size = rows, epochs = 2, shuffle = false, verbose = 0 })
  local weights = {}
  for _, w in ipairs(model:get_weights()) do
    for _, v in ipairs(w:reshape { -1 }:totable()) do weights[#weights + 1] = v end
  end
  return weights
end

-- Sums of as many terms in another order, in float64.
local TOLERANCE = 1e-12

local function test(name, fn)
  check.test(name .. " on several devices trains as on one", function()
    in_float64(function()
      for _, rows in ipairs { 7, 2 } do check.near(train(fn, 3, rows), train(fn, 1, rows), TOLERANCE) end
    end)
  end)
end

test("image_resize", function(x) return x:image_resize({ 7, 3 }, "bicubic") end)
test("affine_transform", function(x) return x:affine_transform { 0.9, 0.2, 0.1, -0.3, 1.1, 0.2 } end)
test("affine_transform with a transform for each image", function(x)
  local shift = x:mean { axis = { 2, 3, 4 } }:stop_gradient():reshape { x:shape()[1], 1 }
  return x:affine_transform(mgpu.concat({ shift * 0 + 1, shift, shift, shift * 0, shift, shift * 2 }, 2))
end)
test("sort", function(x) return x:sort(3) end)
test("sort along the batch", function(x) return x:sort(1) end)
test("top_k", function(x) return (x:top_k(2, 2)) end)
test("take_along_axis with ids for each row", function(x) return x:take_along_axis(x:argsort(2), 2) end)
test("take_along_axis with the same ids for all rows", function(x)
  return x:take_along_axis(mgpu.tensor({ 2, 0 }, { dtype = "int32" }):reshape { 1, 2, 1, 1 }, 2)
end)
test("slice_rows", function(x)
  return x:slice_rows((x:slice { {}, 1, 1, { 1, 2 } } * 0.9):abs():to "int32", { 2, 3 })
end)
test("cumprod", function(x) return x:cumprod(2) end)
test("einsum", function(x) return mgpu.einsum("bijc,bikc->bjk", x, x) end)
test("flip, roll and tile", function(x) return x:flip(2):roll(1, { 3 }):tile { 1, 1, 2, 1 } end)
