--- Checks of the arguments of datasets' methods. Errors begin with the method's name, at the user's line.
local core = require "mgpu.core"
local misuse = require "mgpu.methods"
local options = require "mgpu.options"

local M = {}

local LARGEST = 2 ^ 53
local MOST_THREADS = 1024

--- Options of methods that both kinds of datasets have.
M.BATCH = options.declare { { "drop_remainder", "boolean", default = false } }
M.WINDOW = options.declare { { "shift", "integer", min = 1, max = LARGEST },
  { "stride", "integer", min = 1, max = LARGEST, default = 1 }, { "drop_remainder", "boolean", default = false } }
M.PREFETCH = options.declare { { "threads", "integer", min = 1, max = MOST_THREADS } }
local POSITION = "a position is what iterator:position() gave, a table {pass =, element =}"

--- fail(who, message, ...): raises "who: message", the message being formatted with what follows.
function M.fail(who, message, ...) core.fail("usage", who .. ": " .. message:format(...)) end

--- kind(value) -> the words that messages use for a wrong value: "nil", "a number".
function M.kind(value) return value == nil and "nil" or "a " .. type(value) end

--- forward(who, message): raises again the error of a call that failed with `message`, with `who` before it unless the
--- message begins with it already.
function M.forward(who, message)
  local code = core.error_code()
  if code == "interrupted" or code == "oom" then error(message, 0) end
  local bare = tostring(message):gsub("^[^:]*:%d+: ", ""):gsub("^" .. who .. ": ", "")
  core.fail(code, who .. ": " .. bare)
end

--- count(who, n, least): raises unless n is a whole number of at least `least`.
function M.count(who, n, least)
  if type(n) ~= "number" or n % 1 ~= 0 or n < least or n > LARGEST then
    M.fail(who, "expected a whole number of at least %d, got %s", least, type(n) == "string" and ("%q"):format(n)
      or type(n) == "number" and tostring(n) or M.kind(n))
  end
end

--- options(who, declared, given) -> the chosen options (options.lua); given: a table, or nil for none.
function M.options(who, declared, given)
  if given ~= nil and (type(given) ~= "table" or getmetatable(given)) then
    M.fail(who, "the options must be a table such as {%s = ...}, got %s", declared[1][1], type(given))
  end
  return options.check(who, declared, given or {})
end

--- no_method(name, methods): raises because datasets have no method of that name, with what to write instead.
function M.no_method(name, methods)
  local names = {}
  for known in pairs(methods) do names[#names + 1] = known end
  M.fail("dataset", "there is no method %q%s", name, require "mgpu.foreign_names".hint("dataset", name, names))
end

--- shard(i, n): raises unless n is a number of shards and i, from 1, the number of one of them.
function M.shard(i, n)
  M.count("shard: the number of shards", n, 1)
  M.count("shard: the shard's number", i, 1)
  if i > n then M.fail("shard", "there is no shard %d of %d: they are counted from 1", i, n) end
end

--- is_dataset(value) -> whether it is one of mgpu.data's.
function M.is_dataset(value)
  local meta = debug.getmetatable(value)
  return type(value) == "table" and type(meta) == "table" and rawget(meta, "is_dataset") == true
end

--- is_callable(value) -> whether it is a function, or acts as one: a jitted function, a layer, a model.
function M.is_callable(value)
  local meta = debug.getmetatable(value)
  return type(value) == "function" or type(meta) == "table" and meta.__call ~= nil and not M.is_dataset(value)
end

-- A check of the number of arguments of a method; nil for methods that take any number. (iter of rows has one more.)
local function check_number(name, method)
  local info = debug.getinfo(method, "u")
  local most = info.nparams - 1
  if info.isvararg or name == "iter" then return nil end
  return function(...)
    if select("#", ...) > most then
      M.fail(name, "takes %s, got %d", most == 0 and "no argument" or most == 1 and "one argument"
        or ("at most %d arguments"):format(most), select("#", ...))
    end
  end
end

--- colons(methods): wraps the methods of datasets, so that a dot in place of a colon and too many arguments are errors
--- that explain themselves.
function M.colons(methods)
  for name, method in pairs(methods) do
    methods[name] = misuse.colon(("ds:%s(...)"):format(name), M.is_dataset, method, check_number(name, method))
  end
end

--- not_called(): raises for a dataset in the place of an iterator, as in `for x in ds do`.
function M.not_called() M.fail("dataset", "go through it with ds:iter(), as in `for x, y in ds:iter() do`") end

--- ends(who, ds): raises for a dataset of mgpu.data without end.
function M.ends(who, ds)
  if M.is_dataset(ds) and ds.count == math.huge then M.fail(who, "the dataset has no end: use :take(n)") end
end

--- one_argument(who, example, ...): raises, showing `example`, if there are more arguments.
function M.one_argument(who, example, ...)
  if select("#", ...) > 0 then
    M.fail(who, "expected %s, got %d arguments", example, select("#", ...) + 1)
  end
end

--- position(position, count): raises unless it is a position in a pass of `count` elements (nil: unknown).
function M.position(position, count)
  if type(position) ~= "table" then M.fail("iter", "%s; got %s", POSITION, tostring(position)) end
  for key in pairs(position) do
    if key ~= "pass" and key ~= "element" then M.fail("iter", "%s; got a field %q", POSITION, tostring(key)) end
  end
  M.count("iter: the position's pass", position.pass, 0)
  M.count("iter: the position's element", position.element, 0)
  if count and position.element > count then
    M.fail("iter", "the position is past element %d, but a pass of this dataset has %d", position.element, count)
  end
end

--- destination(device, spread): raises unless they have the types that dataset:iter takes: a device's name, and the
--- devices that share a batch. The C side checks that the devices exist.
function M.destination(device, spread)
  if device ~= nil and type(device) ~= "string" then
    M.fail("iter", 'a device is given by its name, such as "cuda:0"; got %s', M.kind(device))
  end
  if spread == nil then return end
  if type(spread) ~= "table" then
    M.fail("iter", "spread is a table {devices =, weights =}; got %s", M.kind(spread))
  end
  for key, kind in pairs { devices = "string", weights = "number" } do
    local list = spread[key]
    if list ~= nil and type(list) ~= "table" then
      M.fail("iter", "spread.%s is a list of %ss; got %s", key, kind, M.kind(list))
    end
    for i, value in ipairs(list or {}) do
      if type(value) ~= kind then M.fail("iter", "spread.%s[%d] is a %s; got %s", key, i, kind, M.kind(value)) end
    end
  end
end

return M
