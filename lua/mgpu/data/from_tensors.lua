--- mgpu.data.from_tensors {x, y, ...}: a dataset of the rows of up to 8 tensors.
--
--     local batches = mgpu.data.from_tensors { train.x, train.y }
--       :shuffle(60000, 1):batch(128):map(function(x, y) return x:to "float32" / 255, y end):prefetch(2)
--     for x, y in batches:iter() do ... end
-- Nested tables of numbers are taken too, and a data set {x =, y =} of mgpu.datasets stands for {x, y}.
-- Tensors that lie on a device of their own memory are copied to the host once. The methods are in
-- dataset.lua.
local core = require "mgpu.core"
local Dataset = require "mgpu.data.dataset"

local MOST = 8

local function fail(message, ...) core.fail("usage", "from_tensors: " .. message:format(...)) end

-- In host memory, where rows are copied from.
local function on_host(t)
  core.eval(t)
  if t:device():match "^%a+" == "cuda" then return t:to "cpu" end
  return t
end

local function list_of(given)
  if type(given) ~= "table" then fail("expected a table of tensors, got %s", type(given)) end
  if given.x ~= nil and given.y ~= nil then return { given.x, given.y } end
  for key in pairs(given) do
    if type(key) ~= "number" then
      fail("the tensors are given in order, as in {x, y}; %q is a name", tostring(key))
    end
  end
  return given
end

return function(given)
  local list, tensors, rows = list_of(given), {}, nil
  if #list == 0 then fail "at least one tensor is needed" end
  if #list > MOST then fail("at most %d tensors, got %d", MOST, #list) end
  for i, value in ipairs(list) do
    if type(value) ~= "table" and type(value) ~= "userdata" then
      fail("entry %d is a %s, not a tensor", i, type(value))
    end
    local t = type(value) == "table" and core.tensor(value) or value
    if core.is_variable(t) then t = t:value() end
    if t:rank() == 0 then fail("entry %d is a single number, but its first axis must be rows", i) end
    local n = t:shape()[1]
    if rows and n ~= rows then fail("entry 1 has %d rows, entry %d has %d", rows, i, n) end
    rows, tensors[i] = n, on_host(t)
  end
  return Dataset.of_rows(tensors, rows)
end
