--- Spaces: which values a parameter of a search can have, and the parameters of its n-th trial.
--
-- What a trial gets depends on the seed, its number and the parameter's name alone: on no state, and not on how many
-- trials run at a time. Numbers are drawn from SHA-256 of these, so the search leaves mgpu's random numbers alone.
local core = require "mgpu.core"
local sha256 = require "mgpu.io.sha256"

local M = {}

local MOST_GRID = 1e5 -- trials

local Space = { is_space = true }
Space.__index = Space

local function fail(message, ...) core.fail("usage", "tune: " .. message:format(...)) end

local function is_finite(x) return type(x) == "number" and x - x == 0 end

local function check_range(what, low, high)
  if not is_finite(low) or not is_finite(high) then
    fail("%s: two numbers are expected, as %s(0.1, 0.5), got %s and %s", what, what, tostring(low), tostring(high))
  elseif low >= high then
    fail("%s: the first number must be below the second, got %.14g and %.14g", what, low, high)
  end
end

-- ---- kinds of spaces ----------------------------------------------------------------------------

--- tune.uniform(low, high) -> numbers from low to high, all equally likely.
-- Errors: arguments that are no numbers in this order.
-- Example:
--     print(mgpu.tune.uniform(0.1, 0.5))  --> uniform(0.1, 0.5)
function M.uniform(low, high)
  check_range("uniform", low, high)
  return setmetatable({ kind = "uniform", low = low, high = high }, Space)
end

--- tune.loguniform(low, high) -> numbers whose logarithms are equally likely, as for learning rates.
-- Errors: also a low that is not above 0.
-- Example:
--     print(mgpu.tune.loguniform(1e-4, 1e-1))  --> loguniform(0.0001, 0.1)
function M.loguniform(low, high)
  check_range("loguniform", low, high)
  if low <= 0 then fail("loguniform: both numbers must be above 0, got %.14g", low) end
  return setmetatable({ kind = "loguniform", low = low, high = high }, Space)
end

--- tune.int(low, high) -> whole numbers, both ends among them.
-- Errors: numbers that are not whole.
-- Example:
--     print(mgpu.tune.int(1, 4))  --> int(1, 4)
function M.int(low, high)
  check_range("int", low, high)
  if low % 1 ~= 0 or high % 1 ~= 0 then fail("int: whole numbers are expected, got %.14g and %.14g", low, high) end
  return setmetatable({ kind = "int", low = low, high = high }, Space)
end

--- tune.choice {a, b, ...} -> one of these values: numbers, texts, booleans, or tables of them. A plain array as
--- parameter of a space means the same.
-- Errors: an empty list; a value that is none of these.
-- Example:
--     print(mgpu.tune.choice { "relu", "tanh" })  --> choice {"relu", "tanh"}
function M.choice(values)
  if type(values) ~= "table" or #values == 0 or core.array_fault(values) then
    fail "choice: an array of values is expected, as choice {16, 32}"
  end
  for i, value in ipairs(values) do
    if not pcall(core.json_encode, { value }) then
      fail("choice: value %d is a %s, or holds what JSON cannot: give numbers, texts, booleans or tables of them", i,
        type(value))
    end
  end
  return setmetatable({ kind = "choice", values = values }, Space)
end

local function shown(value)
  if type(value) == "number" then return ("%.14g"):format(value) end
  return core.json_encode(value)
end

--- tostring(space): how it was made.
function Space:__tostring()
  if self.kind ~= "choice" then return ("%s(%.14g, %.14g)"):format(self.kind, self.low, self.high) end
  local list = {}
  for i, value in ipairs(self.values) do list[i] = shown(value) end
  return "choice {" .. table.concat(list, ", ") .. "}"
end

-- The value at u, from 0 to below 1.
local function value_at(space, u)
  if space.kind == "choice" then return space.values[math.floor(u * #space.values) + 1] end
  if space.kind == "int" then return space.low + math.floor(u * (space.high - space.low + 1)) end
  if space.kind == "uniform" then return space.low + u * (space.high - space.low) end
  local low, high = math.log(space.low), math.log(space.high)
  return math.max(space.low, math.min(space.high, math.exp(low + u * (high - low))))
end

-- All values in order; raises for a range of fractions.
local function all_values(name, space)
  if space.kind == "choice" then return space.values end
  if space.kind ~= "int" then
    fail("space: %s is %s, of which a grid cannot try all values: give a list", name, tostring(space))
  end
  if space.high - space.low >= MOST_GRID then fail("space: %s has more than %d values for a grid", name, MOST_GRID) end
  local list = {}
  for value = space.low, space.high do list[#list + 1] = value end
  return list
end

-- ---- a space of several parameters ----------------------------------------------------------------

-- Fields of a trial, which its parameters must leave alone.
local RESERVED = { number = true, seed = true, epochs = true, folder = true, parameters = true, report = true }

--- check(given) -> array of {name =, space =}, sorted by name. ARGS given: name -> space, array of values, or a value.
function M.check(given)
  if type(given) ~= "table" or getmetatable(given) or next(given) == nil then
    fail "space is a table of parameters, as {lr = mgpu.tune.loguniform(1e-4, 1e-1), units = {32, 64}}"
  end
  local list = {}
  for name, value in pairs(given) do
    if type(name) ~= "string" or not name:find "^[%a_][%w_]*$" then
      fail("space: parameters have names, as {units = {32, 64}}, got the key %s", tostring(name))
    elseif RESERVED[name] then
      fail("space: %q is a field of every trial: give the parameter another name", name)
    end
    local is_space = type(value) == "table" and getmetatable(value) == Space
    local ok, made = true, value
    if not is_space then ok, made = pcall(M.choice, type(value) == "table" and value or { value }) end
    if not ok then
      fail("space: %s: a space of mgpu.tune, an array of values, or one value is expected, got a %s", name, type(value))
    end
    list[#list + 1] = { name = name, space = made }
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

-- A number from 0 to below 1.
local function draw(...)
  local hash = sha256(table.concat({ ... }, "\0"))
  return tonumber(hash:sub(1, 13), 16) / 2 ^ 52
end

--- seed_of(seed, number) -> the seed of a trial.
function M.seed_of(seed, number) return math.floor(draw("seed", seed, number) * 2 ^ 31) end

--- random(list, seed, number) -> the parameters of a trial by name.
function M.random(list, seed, number)
  local found = {}
  for _, each in ipairs(list) do found[each.name] = value_at(each.space, draw("value", seed, number, each.name)) end
  return found
end

--- grid(list) -> array of the parameters of all trials; the last name changes fastest.
function M.grid(list)
  local found = { {} }
  for _, each in ipairs(list) do
    local more = {}
    for _, before in ipairs(found) do
      for _, value in ipairs(all_values(each.name, each.space)) do
        local one = {}
        for name, kept in pairs(before) do one[name] = kept end
        one[each.name] = value
        more[#more + 1] = one
      end
      if #more > MOST_GRID then fail("space: the grid has more than %d trials", MOST_GRID) end
    end
    found = more
  end
  return found
end

return M
