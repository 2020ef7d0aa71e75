--- digits(n = 1000, seed = 0) -> train, test: images of digits drawn by code, for tests and for trying things offline.
--
--     local train, test = mgpu.datasets.digits(1000)   -- 1000 and 200 images
--     train.x    -- uint8 {1000, 28, 28}
--     train.y    -- int32 {1000}, class ids 0..9
-- The images are a function of n and seed alone. Errors: n or seed that are not whole numbers.
-- Example:
--     local train, test = mgpu.datasets.digits(100)
--     print(table.concat(train.x:shape(), " "), train.y:dtype(), test.y:count())  --> 100 28 28 int32 20
local core = require "mgpu.core"

local function make_set(n, seed)
  local x, y = core.digits(n, seed)
  return { x = x, y = y, x, y, classes = 10, name = "digits" }
end

--- load_data(n = 1000, seed = 0) -> train, test: see the top.
local function load_data(n, seed)
  n, seed = n or 1000, seed or 0
  if type(n) ~= "number" or n < 1 or n % 1 ~= 0 then
    core.fail("usage", ("digits: the number of images must be a whole number >= 1, got %s"):format(
      tostring(n)))
  end
  if type(seed) ~= "number" or seed < 0 or seed % 1 ~= 0 then
    core.fail("usage", ("digits: the seed must be a whole number >= 0, got %s"):format(
      tostring(seed)))
  end
  return make_set(n, 2 * seed), make_set(math.ceil(n / 5), 2 * seed + 1)
end

return setmetatable({ load_data = load_data, load = load_data },
  { __call = function(_, ...) return load_data(...) end })
