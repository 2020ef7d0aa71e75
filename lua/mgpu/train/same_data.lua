--- With several processes: whether all ranks have the same data, asked before the first step on them.
--
-- Each rank computes its rows of batches that are made of the data of all, so a rank whose data are others would
-- silently train on the wrong rows. Compared are fingerprints (runtime/data/fingerprint.h): one number for everything,
-- and only if it differs, part by part.
local bit = require "bit"
local core = require "mgpu.core"
local world = require "mgpu.parallel.world"

local M = {}

local ADVICE = "give all ranks the same data in the same order, as they share the rows of each batch"

-- Raises on all ranks if the number differs from that of rank 0 on some rank.
local function check_same(what, number, text, advice)
  local rank = world.odd_rank(number)
  if rank then core.fail("usage", ("%s: %s: %s"):format(what, text:format(rank), advice)) end
end

-- A whole number below 2^46 for all of them.
local function combined(items)
  local hash = #items
  for _, item in ipairs(items) do hash = (hash * 33 + item.number % 2 ^ 52) % 2 ^ 46 end
  return hash
end

-- Raises on all ranks if the items of some rank are not those of rank 0. items: an array of {number, text = what
-- differs}; of_number: what differs if there are not equally many.
local function compare(what, items, of_number, advice)
  if not world.odd_rank(combined(items)) then return end
  check_same(what, #items, of_number, advice)
  for _, item in ipairs(items) do check_same(what, item.number, item.text, advice) end
end

-- ---- tensors ------------------------------------------------------------------------------------

local function hash_of_text(text)
  local hash = #text
  for i = 1, #text do hash = (hash * 33 + text:byte(i)) % 2 ^ 46 end
  return hash
end

local function add(items, number, text) items[#items + 1] = { number = number, text = text } end

local function add_tensor(items, name, t)
  local form = ("%s {%s}"):format(t:dtype(), table.concat(t:shape(), ", "))
  add(items, hash_of_text(form), name .. " of rank %d is not that of rank 0: its shape or dtype differs")
  add(items, core.fingerprint(t), name .. " of rank %d is not that of rank 0: its values differ")
end

local function add_class_weight(items, weights)
  local list = {}
  for class, weight in pairs(weights) do list[#list + 1] = ("%s=%.17g"):format(class, weight) end
  table.sort(list)
  add(items, hash_of_text(table.concat(list, " ")), "class_weight of rank %d is not that of rank 0")
end

-- A batch at a time is compared at the first, second, fourth, ... call, as the others would take longer for it than for
-- a small step.
local function is_due(what, model)
  local compiled = model.compiled
  local spread = compiled and compiled.spread
  if not (spread and spread.joint and world.is_joint()) then return false end
  if not what:find "_on_batch$" then return true end
  local n = (compiled.batches_given or 0) + 1
  compiled.batches_given = n
  if bit.band(n, n - 1) ~= 0 then return false end
  core.world_begin() -- the others may train another model, with another number of calls
  return true
end

--- check_tensors(what, model, parts): raises on all ranks if some of them have other tensors than rank 0. parts: an
--- array of {label(i) -> the name of tensor i, its tensors by number, their number}. Called by all ranks together.
-- class_weight: as given to fit, or nil.
function M.check_tensors(what, model, parts, class_weight)
  if not is_due(what, model) then return end
  local items = {}
  for _, part in ipairs(parts) do
    local label, tensors, n = unpack(part)
    for i = 1, n do
      if tensors[i] then add_tensor(items, label(i), tensors[i]) end
    end
  end
  if class_weight then add_class_weight(items, class_weight) end
  compare(what, items, "rank %d has not as many tensors as rank 0", ADVICE)
end

-- ---- datasets -----------------------------------------------------------------------------------

local DATASET = "the dataset of rank %d is not that of rank 0: "

local CHANGES = { passes = true } -- as the dataset is used

-- Adds the numbers with which a step was made.
local function add_step(items, stage)
  local list = {}
  for name, value in pairs(stage) do
    if type(value) == "number" and not CHANGES[name] then list[#list + 1] = ("%s=%.17g"):format(name, value) end
  end
  table.sort(list)
  local kind = rawget(stage, "kind") or rawget(stage, "seed") and "shuffle" or rawget(stage, "index") and "shard"
  local where = kind and ":" .. kind or "the options of a step"
  add(items, hash_of_text(table.concat(list, " ")), DATASET .. "they differ in " .. where)
end

-- Adds what is known without reading all: the steps, the number of elements, and samples of the rows.
local function add_dataset(items, dataset)
  for _, stage in ipairs(rawget(dataset, "stages") or { dataset }) do add_step(items, stage) end
  local count, source, input = rawget(dataset, "count"), rawget(dataset, "source"), rawget(dataset, "input")
  add(items, count and count < math.huge and count or 2 ^ 45, DATASET .. "it has another number of elements")
  if type(source) == "userdata" then
    add(items, core.source_fingerprint(source), DATASET .. "its rows differ")
  end
  for _, before in ipairs(input and { input } or rawget(dataset, "inputs") or {}) do add_dataset(items, before) end
end

--- check_dataset(what, dataset): raises on all ranks if a dataset of mgpu.data of some of them has other rows than that
--- of rank 0, or another order. Called by all ranks together.
function M.check_dataset(what, dataset)
  local items = {}
  add_dataset(items, dataset)
  compare(what, items, DATASET .. "it is made in other steps",
    "give all ranks the same dataset, as the ranks share the rows of each batch")
end

return M
