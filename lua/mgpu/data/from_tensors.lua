--- from_tensors {x, y, ...}: a dataset of the rows of tensors.
--
--     local batches = mgpu.data.from_tensors { train.x, train.y }
--       :shuffle(60000, 1):batch(128):map(function(x, y) return x:to "float32" / 255, y end):prefetch(2)
--     for x, y in batches:iter() do ... end
-- Takes nested tables of numbers too; a data set of mgpu.datasets stands for {x, y}. Rows are copied from host memory:
-- a tensor on another device is copied to the host once, by this call, and its batches go back to its device. The
-- methods are in dataset.lua. Errors: no tensor; different numbers of rows; more than 1024 tensors.
-- Example:
--     local x, y = mgpu.arange(6):reshape { 3, 2 }, mgpu.tensor { 10, 11, 12 }
--     local ds = mgpu.data.from_tensors { x, y }
--     for rows, labels in ds:batch(2):iter() do print(table.concat(rows:shape(), " "), labels[1]:item()) end
--     --> 2 2 10
--     --> 1 2 12
--     for row, label in ds:take(1):iter() do print(row) end
--     --> tensor {2} float32 cpu:0
--     --> {0, 1}
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local Dataset = require "mgpu.data.dataset"
local host_device = require "mgpu.data.host"

local function fail(message, ...) core.fail("usage", "from_tensors: " .. message:format(...)) end

-- Whether it is a data set of mgpu.datasets: they hold their tensors as x, y and as [1], [2].
local function is_data_set(given)
  return given.classes ~= nil and given[1] ~= nil and given[1] == given.x and given[2] == given.y
end

-- The tensors given, as an array without holes.
local function list_of(given)
  if type(given) == "userdata" then return { given } end
  if type(given) ~= "table" then fail("expected tensors, as in {x, y}, got %s", type(given)) end
  if is_data_set(given) then return { given.x, given.y } end
  local n = 0
  for key in pairs(given) do
    if type(key) ~= "number" or key % 1 ~= 0 or key < 1 then
      fail("the tensors are given in order, as in {x, y}, but there is an entry %q", tostring(key))
    end
    n = math.max(n, key)
  end
  if n == 0 then fail "at least one tensor is needed" end
  for i = 1, n do
    if given[i] == nil then fail("entry %d is nil", i) end
  end
  return given
end

local function tensor_of(value, i)
  if type(value) == "table" then return core.tensor(value) end
  if core.is_variable(value) then return value:value() end
  if core.is_tensor(value) then return value end
  fail("entry %d is a %s, not a tensor%s", i, type(value),
    type(value) == "number" and ": one column of numbers is {{1, 2, 3}}" or "")
end

-- The evaluated tensor in host memory, and the device for its batches: the one it was on.
local function on_host(t)
  core.eval(t)
  local device = t:device()
  if core.device_info(device).host_visible then return t, device end
  return core.copy_to(t, host_device()), device
end

--- from_tensors {x, y, ...}: see the top.
return function(given, ...)
  checks.one_argument("from_tensors", "one table of tensors, as in {x, y}", ...)
  local tensors, homes, rows = {}, {}, nil
  for i, value in ipairs(list_of(given)) do
    local t = tensor_of(value, i)
    if t:rank() == 0 then fail("entry %d is a single number, but its first axis must be rows", i) end
    local n = t:shape()[1]
    if rows and n ~= rows then fail("entry 1 has %d rows, entry %d has %d", rows, i, n) end
    rows, tensors[i], homes[i] = n, on_host(t)
  end
  return Dataset.of_source(core.source_tensors(tensors), homes)
end
