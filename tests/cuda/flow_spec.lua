-- Steps of datasets that work on elements as values, with tensors on the GPU: they are stacked in host memory, and the
-- batches are on the GPU again.

require "tests.cuda.device"
local check = require "check"
local mgpu = require "mgpu"

dofile "tests/lua/data/flow_golden_spec.lua"
dofile "tests/lua/data/flow_cache_spec.lua"

check.test("batches, their rows, and cached elements are where the elements were", function()
  local ds = mgpu.data.from_tensors { mgpu.arange(6), mgpu.arange(6):to "cpu" }:filter(function(x) return x:ge(0) end)
  local path = check.path "devices.cache"
  for _, chain in ipairs { ds, ds:batch(3), ds:padded_batch(2), ds:batch(3):unbatch(), ds:window(2), ds:cache(path) } do
    local x, y = chain:iter()()
    check.equal({ x:device(), y:device() }, { "cuda:0", "cpu:0" })
  end
end)

check.test("a dataset with a filter trains on the GPU as on ref", function()
  local fixtures = require "fixtures"
  local function loss(device)
    local x, y = fixtures.line(20)
    local ds = mgpu.data.from_tensors { x:to(device), y:to(device) }:filter(function(row) return row:sum():gt(0.5) end)
    return fixtures.linear { devices = device }:fit(ds:shuffle(5, 1):batch(4), { epochs = 2, verbose = 0 }).history.loss
  end
  check.near(loss "cuda:0", { unpack(loss "ref:0") }, 1e-5) -- float32 sums in another order
end)
