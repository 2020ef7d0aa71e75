--- Declared options: what constructors and calls accept, and the errors for everything else.
--
-- A declaration is a list of options in order:
--     options.declare { positional = 2,
--       { "filters", "integer", min = 1, required = true },
--       { "kernel_size", "pair" },
--       { "padding", "string", default = "valid", values = { "valid", "same" } },
--     }
--   type      any integer number boolean string table function single integers pair pair0 triple triple0 margin margins
--             margins3 shape initializer regularizer constraint activation layer layers; several with "|":
--             "string|function". nil always means "not given".
--   default   taken when the option is not given (tables are shared: do not change them)
--   required  not giving it is an error
--   min max   inclusive bounds; above below: exclusive ones; values: the allowed ones
--   positional = n: the first n options may be given by position (default 0; for a plain list that was not declared 1,
--   so that `SGD(0.1)` works)
-- options.check(who, declared, given) RETURNS a new table of the chosen values. `given` is one table, or a single
-- value v in place of {v}. Errors name `who`, the option and the nearest valid name, at the user's line.
local core = require "mgpu.core"

local M = {}

local MOST_SHOWN = 8 -- entries of a table in a message

local function fail(who, message, ...)
  core.fail("usage", who .. ": " .. message:format(...))
end

-- The value in a message: tables of a few numbers or texts are shown, of others the type.
local function show(value)
  if type(value) == "string" then return ("%q"):format(value) end
  if type(value) == "number" then return ("%.14g"):format(value) end
  if type(value) ~= "table" or getmetatable(value) or #value == 0 or #value > MOST_SHOWN then return type(value) end
  local list = {}
  for i, entry in ipairs(value) do
    if type(entry) == "table" then return "table" end
    list[i] = show(entry)
  end
  return "{" .. table.concat(list, ", ") .. "}"
end

-- ---- types: each RETURNS the converted value, or nil and what it expects ----------------------------

local function integers(value, n, least)
  if type(value) ~= "table" or #value ~= n then return nil end
  for _, v in ipairs(value) do
    if type(v) ~= "number" or v % 1 ~= 0 or v < least then return nil end
  end
  return value
end

-- The type of values whose Lua type is `name`.
local function plain(name, article)
  return function(value) return type(value) == name and value or nil, article end
end

local MARGINS = "a whole number, {rows, columns}, or {{top, bottom}, {left, right}}, from 0 on"

local MARGINS_3 = "a whole number, {depth, rows, columns}, or {{front, back}, {top, bottom}, {left, right}}, from 0 on"

-- n pairs of whole numbers from 0 on, or nil.
local function margins(value, n)
  if type(value) == "number" then
    local list = {}
    for i = 1, n do list[i] = value end
    value = list
  end
  if type(value) ~= "table" or #value ~= n then return nil end
  local list = {}
  for i, v in ipairs(value) do
    list[i] = integers(type(v) == "number" and { v, v } or v, 2, 0)
    if not list[i] then return nil end
  end
  return list
end

local types = {
  any = function(value) return value end,
  number = plain("number", "a number"),
  string = plain("string", "a name"),
  table = plain("table", "a table"),
  ["function"] = plain("function", "a function"),
  boolean = function(value)
    if type(value) == "boolean" then return value end
    return nil, "true or false"
  end,
  integer = function(value)
    if type(value) == "number" and value % 1 == 0 then return value end
    return nil, "a whole number"
  end,
  --- {rows, columns}; one number stands for both
  pair = function(value)
    if type(value) == "number" and value % 1 == 0 and value >= 1 then return { value, value } end
    return integers(value, 2, 1), "a whole number of at least 1, or two of them"
  end,
  --- the same from 0 on
  pair0 = function(value)
    if type(value) == "number" and value % 1 == 0 and value >= 0 then return { value, value } end
    return integers(value, 2, 0), "a whole number of at least 0, or two of them"
  end,
  --- {depth, rows, columns}; one number stands for all
  triple = function(value)
    if type(value) == "number" and value % 1 == 0 and value >= 1 then return { value, value, value } end
    return integers(value, 3, 1), "a whole number of at least 1, or three of them"
  end,
  --- the same from 0 on
  triple0 = function(value)
    if type(value) == "number" and value % 1 == 0 and value >= 0 then return { value, value, value } end
    return integers(value, 3, 0), "a whole number of at least 0, or three of them"
  end,
  --- a list of whole numbers, negative ones among them
  integers = function(value)
    return type(value) == "table" and integers(value, #value, -math.huge) or nil,
      "a list of whole numbers"
  end,
  --- one whole number, alone or in a table
  single = function(value)
    if type(value) == "table" and #value == 1 then value = value[1] end
    if type(value) == "number" and value % 1 == 0 then return value end
    return nil, "a whole number"
  end,
  --- {{top, bottom}, {left, right}}; {rows, columns} and one number stand for equal ones
  margins = function(value) return margins(value, 2), MARGINS end,
  --- {{front, back}, {top, bottom}, {left, right}}, likewise
  margins3 = function(value) return margins(value, 3), MARGINS_3 end,
  --- {before, after}; one number stands for both
  margin = function(value)
    return integers(type(value) == "number" and { value, value } or value, 2, 0), "a whole number, or {before, after}"
  end,
  --- a list of sizes; -1 is unknown
  shape = function(value)
    if type(value) == "number" then value = { value } end
    return type(value) == "table" and integers(value, #value, -1) or nil, "a list of sizes"
  end,
}
types.initializer = function(value)
  local t = type(value)
  if t == "string" or t == "function" or t == "table" then return value end
  return nil, "the name of an initializer, or a function"
end
-- Converted to a regularizer here, so that an error names the option.
types.regularizer = function(value)
  local t = type(value)
  if t == "string" or t == "function" or t == "table" then
    return require "mgpu.nn.regularizers".get(value)
  end
  return nil, "the name of a regularizer, one of mgpu.regularizers, or a function"
end
-- Likewise.
types.constraint = function(value)
  local t = type(value)
  if t == "string" or t == "function" or t == "table" then return require "mgpu.nn.constraints".get(value) end
  return nil, "the name of a constraint, one of mgpu.constraints, or a function"
end
types.activation = function(value)
  if type(value) == "string" or type(value) == "function" then return value end
  return nil, "the name of an activation, or a function"
end
-- A layer; in configurations it is {class_name =, config =}. A class has no name.
types.layer = function(value)
  if type(value) == "table" and value.add_weight and value.name then return value end
  return nil, "a layer"
end
types.layers = function(value)
  if type(value) ~= "table" or value.add_weight then return nil, "an array of layers" end
  for _, layer in ipairs(value) do
    if not types.layer(layer) then return nil, "an array of layers" end
  end
  return value
end
M.types = types

-- The types that are arrays: holes and named fields in them are errors, since they would be lost silently.
local LISTS = { integers = true, pair = true, pair0 = true, triple = true, triple0 = true, single = true, margin = true,
  margins = true, margins3 = true, shape = true }

-- The value converted to the first of the option's types that accepts it.
local function convert(who, option, value)
  local wanted = {}
  for name in option[2]:gmatch "[%w_]+" do
    local fault = LISTS[name] and type(value) == "table" and core.array_fault(value)
    if fault then fail(who, "option %q: %s", option[1], fault) end
    local kept, what = assert(types[name], name)(value)
    if kept ~= nil then return kept end
    wanted[#wanted + 1] = what
  end
  fail(who, "option %q must be %s, got %s", option[1], table.concat(wanted, " or "), show(value))
end

local function check_bounds(who, option, value)
  if type(value) ~= "number" then return end
  if value ~= value or (option.min and value < option.min) then
    fail(who, "option %q must be at least %.14g, got %.14g", option[1], option.min or 0, value)
  end
  if option.above and value <= option.above then
    fail(who, "option %q must be above %.14g, got %.14g", option[1], option.above, value)
  end
  if option.max and value > option.max then
    fail(who, "option %q must be at most %.14g, got %.14g", option[1], option.max, value)
  end
  if option.below and value >= option.below then
    fail(who, "option %q must be below %.14g, got %.14g", option[1], option.below, value)
  end
end

local function check_values(who, option, value)
  if not option.values then return end
  for _, allowed in ipairs(option.values) do
    if value == allowed then return end
  end
  fail(who, "option %q: unknown value %s%s; it is one of %s", option[1], show(value),
    core.did_you_mean(value, option.values), table.concat(option.values, ", "))
end

-- ---- declarations -------------------------------------------------------------------------------

-- A declaration from {units = "integer", activation = "linear"}: the name of a type declares a required option of that
-- type, any other value is a default.
local function declare_map(map)
  local list = { positional = 0 }
  for name, value in pairs(map) do
    if type(value) == "string" and types[value] then
      list[#list + 1] = { name, value, required = true }
    else
      list[#list + 1] = { name, type(value) == "table" and "any" or type(value), default = value }
    end
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  if #list == 1 then list.positional = 1 end
  return list
end

--- declare(list) -> a declaration, from a list of options or a map {option = type or default}.
function M.declare(list)
  local is_map = false -- a list without options has only fields about itself
  for key in pairs(list) do is_map = is_map or type(key) == "string" and key ~= "positional" and key ~= "whole" end
  if not list[1] and is_map then return declare_map(list) end
  list.positional = list.positional or 0
  return list
end

local function names_of(declared)
  local names = {}
  for i, option in ipairs(declared) do names[i] = option[1] end
  return names
end

local function find_option(declared, name)
  for i, option in ipairs(declared) do
    if option[1] == name then return option, i end
  end
end

-- Names of other frameworks and older versions that no spelling rule would find.
local OTHER_NAMES = { lr = "learning_rate", nb_epoch = "epochs", bs = "batch_size",
  bias = "use_bias", alpha = "negative_slope", p = "rate", subsample = "strides", border_mode = "padding",
  dim_ordering = "data_format", input_dim = "input_shape", init = "kernel_initializer" }

local FEW = 3 -- options that are listed where none has a similar name

local function fail_unknown(who, declared, name)
  local other = find_option(declared, OTHER_NAMES[name]) and OTHER_NAMES[name]
  local hint = core.did_you_mean(other or name, other and { other } or names_of(declared))
  if hint == "" and #declared <= FEW then hint = core.did_you_mean(name, names_of(declared), "option") end
  fail(who, "unknown option %s%s", type(name) == "string" and ("%q"):format(name) or tostring(name), hint)
end

-- The given options by name: positional fields get the names of the options they stand for.
local function by_name(who, declared, given)
  local positional, result = math.min(declared.positional or 1, #declared), {}
  for key, value in pairs(given) do
    if type(key) ~= "number" then
      if not find_option(declared, key) then fail_unknown(who, declared, key) end
      result[key] = value
    elseif key > positional or key < 1 or key % 1 ~= 0 then
      local names, text = names_of(declared), show(value)
      fail(who, positional == 0 and "%s has no name, but options are given by name, as in {%s = ...}"
        or "%s has no name, but only %s may be given by position", text == type(value) and "a " .. text or text,
        positional == 0 and names[1] or table.concat(names, ", ", 1, positional))
    end
  end
  for i = 1, positional do
    if given[i] ~= nil then
      local name = declared[i][1]
      if result[name] ~= nil then fail(who, "option %q is given twice", name) end
      result[name] = given[i]
    end
  end
  return result
end

-- Argument i of a call without braces, as it is to be written in the table: with a name if it needs one.
local function as_field(declared, i, value)
  local text = show(value)
  if declared.whole or i <= (declared.positional or 1) or not declared[i] then return text end
  return ("%s = %s"):format(declared[i][1], text)
end

--- construct(class, given) -> class.new(given): the __call of classes. Errors: further arguments.
function M.construct(class, given, ...)
  if select("#", ...) > 0 then
    local name, declared = class.class_name or class.class, class.declared or {}
    local list = type(given) == "table" and "..."
      or ("%s, %s"):format(as_field(declared, 1, given), as_field(declared, 2, (...)))
    core.fail("usage", ("%s takes one table of options: write %s {%s}"):format(name, name, list))
  end
  return class.new(given)
end

--- check(who, declared, given) -> the chosen values, see the top. declared.whole = name: the positional fields together
--- are the list for that option (Input, Reshape).
function M.check(who, declared, given)
  if type(given) ~= "table" or getmetatable(given) then given = { given } end
  if type(given.name) == "string" then who = ("%s %q"):format(who, given.name) end
  local list, rest = {}, {}
  for key, value in pairs(declared.whole and given or {}) do
    if type(key) == "number" then list[key] = value else rest[key] = value end
  end
  if next(list) ~= nil then
    if #list == 1 and type(list[1]) == "table" then list = list[1] end
    if rest[declared.whole] ~= nil then fail(who, "option %q is given twice", declared.whole) end
    rest[declared.whole] = list
    given = rest
  end
  local chosen = by_name(who, declared, given)
  for _, option in ipairs(declared) do
    local name, value = option[1], chosen[option[1]]
    if value == nil then
      if option.required then fail(who, "option %q is missing", name) end
      chosen[name] = option.default
    else
      value = convert(who, option, value)
      check_bounds(who, option, value)
      check_values(who, option, value)
      chosen[name] = value
    end
  end
  return chosen
end

return M
