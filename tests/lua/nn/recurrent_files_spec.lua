-- Files of Keras with recurrent layers (golden/recurrent), loaded, saved and loaded again.
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"

local test = check.test
local FOLDER = "tests/golden/recurrent/"

local can, problem = pcall(core.h5_read, FOLDER .. "keras2_chain.h5")
if not can and core.error_code() == "unsupported" then check.skip(problem) end

-- The largest difference between what the model predicts and what Keras did.
local function difference(model, data)
  local xs, largest = {}, 0
  while data["x" .. #xs] do xs[#xs + 1] = data["x" .. #xs] end
  local ys = model:predict(#xs > 1 and xs or xs[1])
  for i, y in ipairs(type(ys) == "table" and ys or { ys }) do
    largest = math.max(largest, (y - data["y" .. i - 1]):abs():max():item())
  end
  return largest
end

local paths = {}
for _, ending in ipairs { "keras", "h5" } do
  for _, path in ipairs(core.glob(FOLDER .. "*." .. ending)) do paths[#paths + 1] = path end
end

for _, path in ipairs(paths) do
  test(path:sub(#FOLDER + 1) .. " predicts as in Keras, also after it was saved in each format", function()
    local data = mgpu.load((path:gsub("%.%w+$", ".npz")))
    local model = mgpu.load_model(path, { compile = false })
    -- float32 on both sides, whose sums have other orders
    check.near(difference(model, data), 0, 2e-5)
    for _, ending in ipairs { ".keras", ".h5", ".safetensors" } do
      local saved = check.path("again" .. ending)
      model:save(saved)
      check.near(difference(mgpu.load_model(saved), data), 0, 2e-5)
    end
  end)
end

test("there are files to compare", function() check.truthy(#paths > 6, "model files") end)
