--- The options of ds:padded_batch, checked.
local checks = require "mgpu.data.checks"
local core = require "mgpu.core"
local options = require "mgpu.options"

local PADDED_BATCH = options.declare { { "drop_remainder", "boolean", default = false },
  { "padded_shapes", "table" }, { "padding_values", "number|table" } }

-- The value for each component, as a function of the component's number and of how many there are. A lone value stands
-- for all components.
local function by_component(name, given, is_lone)
  if given == nil then return function() return nil end end
  return function(i, n)
    if is_lone(given) then return given end
    if #given ~= n then
      checks.fail("padded_batch", "%s is for %d components, but the elements have %d", name, #given, n)
    end
    return given[i]
  end
end

local function is_number(value) return type(value) == "number" end
local function is_shape(value) return value[1] == nil or type(value[1]) == "number" end

local function check_shape(shape)
  for _, size in ipairs(shape) do
    if type(size) ~= "number" or size % 1 ~= 0 or size < -1 then
      checks.fail("padded_batch", "padded_shapes: expected sizes from 0 on, or -1 for the largest size, got %s",
        tostring(size))
    end
  end
end

-- Checks the two options, each for all components or an array with an entry for each.
local function check_padding(given)
  local shapes, values = given.padded_shapes, given.padding_values
  for name, list in pairs(given) do
    local fault = type(list) == "table" and core.array_fault(list)
    if fault then checks.fail("padded_batch", "%s: %s", name, fault) end
  end
  if shapes then
    for _, shape in ipairs(is_shape(shapes) and { shapes } or shapes) do
      if type(shape) ~= "table" then
        checks.fail("padded_batch", "padded_shapes: expected an array of sizes for each component, got a %s",
          type(shape))
      end
      check_shape(shape)
    end
  end
  for _, value in ipairs(type(values) == "table" and values or {}) do
    if type(value) ~= "number" then
      checks.fail("padded_batch", "padding_values: expected a number for each component, got a %s", type(value))
    end
  end
end

--- padding(given) -> {drop_remainder =, shapes =, values =}: shapes and values are functions for stack.padded.
return function(given)
  local chosen = checks.options("padded_batch", PADDED_BATCH, given)
  check_padding(chosen)
  return { drop_remainder = chosen.drop_remainder,
    shapes = by_component("padded_shapes", chosen.padded_shapes, is_shape),
    values = by_component("padding_values", chosen.padding_values, is_number) }
end
