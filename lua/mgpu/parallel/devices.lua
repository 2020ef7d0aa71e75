--- The option `devices` of compile and others: names in order, and shares of the rows.
--
--     devices = "cuda:0"                      one device
--     devices = {"cuda:0", "cuda:1"}          a list
--     devices = "cuda:0,1" or "cuda:0-3"      a list as --devices spells it
--     devices = 2                             the first two of mgpu.devices()
--     devices = "all"                         all of mgpu.devices() of the same kind as the first one
--     devices = {["cuda:0"] = 3, ["cpu:0"] = 1}   rows by weight, ordered as mgpu.devices()
--     devices = {{"cuda:0", "cuda:1"}, {"cuda:2", "cuda:3"}}   groups: each holds a whole model, and a layer with
--                                             device = 2 is on the second device of its group
local core = require "mgpu.core"

local M = {}

local function fail(who, message, ...) core.fail("usage", who .. ": " .. message:format(...)) end

local function kind_of(name) return name:match "^%a+" end

--- share_of_rank(names) -> those of the list that this rank takes: the ranks of a host deal its GPUs out among them.
-- MGPU_RANKS_PER_GPU of them take the same ones. Other devices, of which each process has its own, are taken by all.
function M.share_of_rank(names)
  local world, is_gpu = core.world(), {}
  for _, name in ipairs(core.devices "gpu") do is_gpu[name] = true end
  if world.size == 1 or not is_gpu[names[1]] then return names end
  local each = tonumber(os.getenv "MGPU_RANKS_PER_GPU") or 1
  local takers, mine, list = math.ceil(world.local_size / each), math.floor(world.local_rank / each), {}
  for i = mine % #names + 1, #names, takers do list[#list + 1] = names[i] end
  return list
end

-- The devices of the same kind as the first one.
local function all_devices()
  local names, kind = core.devices(), nil
  local list = {}
  for _, name in ipairs(names) do
    kind = kind or kind_of(name)
    if kind_of(name) == kind then list[#list + 1] = name end
  end
  return M.share_of_rank(list)
end

--- visible() -> the names of the visible devices in one string, for messages.
function M.visible() return table.concat(core.devices(), ", ") end

local function first_devices(who, n)
  local names = core.devices()
  if n < 1 or n % 1 ~= 0 then fail(who, "devices must be at least 1, got %s", tostring(n)) end
  if n > #names then
    fail(who, "%d devices were asked for, but %d %s visible: %s", n, #names, #names == 1 and "is" or "are",
      M.visible())
  end
  return { unpack(names, 1, n) }
end

local MOST = 63 -- the largest device number

-- Whether the text before a number names a kind of devices ("cpu", "/device:GPU") or, before "/", a device ("cuda:0").
local function is_kind(text, mark)
  return text:find "^[%w_]+$" or text:find "^/" or mark == "/" and text:find "^[%w_]+:%d+$"
end

--- parse(text, all) -> the names in a list as --devices spells it; nil and the reason if it cannot be read.
-- "cuda:0,1" is cuda:0 and cuda:1; "cpu:0-3" four devices; "cuda:0/0-1" two on one GPU. all(kind) returns the names
-- for a kind without a number; without `all` that is the first device of the kind.
function M.parse(text, all)
  local names, kind, mark = {}, nil, ":"
  for item in text:gmatch "[^,]+" do
    local spelled, between, numbers = item:match "^%s*(.-)([:/]?)([%d-]*)%s*$"
    local low, high = numbers:match "^(%d+)%-(%d+)$"
    low = tonumber(low or numbers:match "^%d+$")
    high = tonumber(high) or low
    if spelled ~= "" then kind, mark = spelled, between ~= "" and between or ":" end
    if low and high > MOST then
      return nil, ("%q: device numbers go up to %d, since a step takes at most %d devices"):format(item, MOST, MOST + 1)
    end
    if not kind or not is_kind(kind, mark) or (not low and numbers .. between ~= "") or (low and high < low) then
      return nil, ("cannot read %q (write cpu, cuda:0,1 or cpu:0-3)"):format(item)
    end
    if low then
      for n = low, high do names[#names + 1] = kind .. mark .. n end
    else
      for _, name in ipairs(all and all(kind) or { kind .. ":0" }) do names[#names + 1] = name end
    end
  end
  return names
end

local function check_array(who, list)
  local fault = core.array_fault(list)
  if fault then fail(who, "devices: %s", fault) end
end

--- spelled(who, list) -> the names in a list of texts: three in {"cpu:0-1", "cpu:4"}.
function M.spelled(who, list)
  local names = {}
  check_array(who, list)
  for i, text in ipairs(list) do
    if type(text) ~= "string" then fail(who, "devices: entry %d is a %s, not a name", i, type(text)) end
    local some, why = M.parse(text)
    if not some or #some == 0 then fail(who, "devices: %s", why or "a name is empty") end
    for _, name in ipairs(some) do names[#names + 1] = name end
  end
  return names
end

-- {name = weight} as names and weights, in the order of mgpu.devices(); names that it does not list come last.
local function by_weight(who, map)
  local place, list, weights = {}, {}, {}
  for i, name in ipairs(core.devices()) do place[name] = i end
  for name, weight in pairs(map) do
    if type(name) ~= "string" or type(weight) ~= "number" or not (weight > 0) or weight == math.huge then
      fail(who, "devices[%s] must be a device's name with a weight above 0, got %s", tostring(name),
        tostring(weight))
    end
    list[#list + 1] = { core.device_name(name), weight }
  end
  table.sort(list, function(a, b)
    local pa, pb = place[a[1]] or math.huge, place[b[1]] or math.huge
    if pa ~= pb then return pa < pb end
    return a[1] < b[1]
  end)
  for i, entry in ipairs(list) do list[i], weights[i] = entry[1], entry[2] end
  return list, weights
end

-- The names in a list, each opened, without repetition.
local function opened(who, list)
  local names, seen = {}, {}
  for i, name in ipairs(M.spelled(who, list)) do
    names[i] = core.device_name(name) -- raises for a device that is not there
    if seen[names[i]] then fail(who, "devices: %s is given twice", names[i]) end
    seen[names[i]] = true
  end
  return names
end

-- {{"a", "b"}, {"c", "d"}}, two replicas of a model in two stages, becomes {"a", "c", "b", "d"} and 2 stages.
local function by_stage(who, groups)
  local stages, list = nil, {}
  check_array(who, groups)
  for i, group in ipairs(groups) do
    group = type(group) == "table" and M.spelled(who, group) or {}
    stages = stages or #group
    if #group ~= stages or stages == 0 then
      fail(who, "devices: group %d must hold %d names, as the first does", i, stages)
    end
    for s, name in ipairs(group) do list[(s - 1) * #groups + i] = name end
  end
  return opened(who, list), nil, stages
end

--- resolve(who, given) -> array of names, weights of the rows (nil: equal), stages (nil: one). nil gives nil.
-- Every device is opened: one that is not there raises, as does a name given twice.
function M.resolve(who, given)
  if given == nil then return nil end
  if type(given) == "number" then return first_devices(who, given) end
  if given == "all" then return all_devices() end
  if type(given) == "string" then return opened(who, { given }) end
  if type(given) ~= "table" or next(given) == nil then
    fail(who, "devices must be a name, a list of names, a count or \"all\", got %s",
      type(given) == "table" and "an empty table" or type(given))
  end
  if #given == 0 then return by_weight(who, given) end
  if type(given[1]) == "table" then return by_stage(who, given) end
  return opened(who, given)
end

return M
