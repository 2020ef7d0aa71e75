--- Values of runs by name; sorting and filtering by them.
local core = require "mgpu.core"
local direction = require "mgpu.runs.direction"

local M = {}

local FIELDS = { "name", "state", "epochs", "seconds", "seed", "started", "host" }
local OTHER_NAMES = { lr = "learning_rate", acc = "accuracy", val_acc = "val_accuracy" }

local is_field = {}
for _, name in ipairs(FIELDS) do is_field[name] = true end

-- The values of the configuration whose name ends in `name`, as learning_rate in optimizer.learning_rate. RETURNS the
-- value of the first by its full name, which is the shortest.
local function by_ending(config, name)
  local found
  for key in pairs(config) do
    if key:sub(-#name - 1) == "." .. name and (not found or #key < #found or #key == #found and key < found) then
      found = key
    end
  end
  if found then return config[found] end
end

--- value(run, name) -> its field, best value of the metric, or option of this name; nil if it has none.
-- A trial's parameters come before other options of the same last name; lr is learning_rate.
function M.value(run, name)
  if is_field[name] then return run[name] end
  if run.history[name] then return run.best[name] or run.last[name] end
  local value = run.config[name]
  if value == nil then value = run.config["trial." .. name] end
  if value == nil then value = by_ending(run.config, name) end
  if value == nil and OTHER_NAMES[name] then return M.value(run, OTHER_NAMES[name]) end
  return value
end

-- Every name that value knows in one of the runs.
local function names_of(runs)
  local seen, list = {}, { unpack(FIELDS) }
  local function add(name)
    if not seen[name] then list[#list + 1] = name end
    seen[name] = true
  end
  for _, run in ipairs(runs) do
    for name in pairs(run.history) do add(name) end
    for name in pairs(run.config) do add(name:match "([^.]+)$") end
  end
  table.sort(list)
  return list
end

-- Raises unless one of the runs has a value of this name.
local function check_name(who, runs, name)
  for _, run in ipairs(runs) do
    if M.value(run, name) ~= nil then return end
  end
  if #runs == 0 then return end
  core.fail("usage", ("%s: no run has a value %q%s"):format(who, name, core.did_you_mean(name, names_of(runs))))
end

--- sorted(who, runs, name) -> a sorted copy: the best value of a metric first, other values ascending; runs without the
--- value last. Errors: no run has it.
function M.sorted(who, runs, name)
  check_name(who, runs, name)
  local more, copy, place = direction(name) and not is_field[name], { unpack(runs) }, {}
  for i, run in ipairs(runs) do place[run] = i end
  table.sort(copy, function(a, b)
    local x, y = M.value(a, name), M.value(b, name)
    if type(x) ~= type(y) then
      if x == nil or y == nil then return y == nil end
      return type(x) < type(y)
    end
    if (type(x) == "number" or type(x) == "string") and x ~= y and x == x and y == y then
      if more then return x > y end
      return x < y
    end
    if x ~= x or y ~= y then return x == x and y ~= y end
    return place[a] < place[b]
  end)
  return copy
end

-- ---- filters ------------------------------------------------------------------------------------

local COMPARE = {
  ["="] = function(a, b) return a == b end,
  ["~="] = function(a, b) return a ~= b end,
  ["<"] = function(a, b) return type(a) == type(b) and a < b end,
  ["<="] = function(a, b) return type(a) == type(b) and a <= b end,
  [">"] = function(a, b) return type(a) == type(b) and a > b end,
  [">="] = function(a, b) return type(a) == type(b) and a >= b end,
}
COMPARE["=="], COMPARE["!="] = COMPARE["="], COMPARE["~="]

-- name, operator, value of "lr > 0.001".
local function parse(who, text)
  local name, operator, value = text:match "^%s*([%w_.-]+)%s*([<>=~!]+)%s*(.-)%s*$"
  if not name or not COMPARE[operator] or value == "" then
    core.fail("usage", ("%s: where: %q is no comparison, as lr>0.001 or state=done; operators are = ~= < <= > >=")
      :format(who, text))
  end
  value = value:match '^"(.*)"$' or value:match "^'(.*)'$" or tonumber(value) or value
  return name, operator, value
end

--- filtered(who, runs, where) -> the runs for which all comparisons hold. where: a text or an array of texts. A run
--- without the value is left out. Errors: a text that is no comparison; a value that no run has.
function M.filtered(who, runs, where)
  for _, text in ipairs(type(where) == "table" and where or { where }) do
    if type(text) ~= "string" then
      core.fail("usage", ("%s: where: expected a text as lr>0.001, got a %s"):format(who, type(text)))
    end
    local name, operator, wanted = parse(who, text)
    check_name(who, runs, name)
    local kept = {}
    for _, run in ipairs(runs) do
      local value = M.value(run, name)
      if type(wanted) == "string" and type(value) == "boolean" then value = tostring(value) end
      if value ~= nil and COMPARE[operator](value, wanted) then kept[#kept + 1] = run end
    end
    runs = kept
  end
  return runs
end

return M
