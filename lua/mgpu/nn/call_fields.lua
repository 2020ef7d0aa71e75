--- What a call of a model depends on besides its input and the values of its variables: the fields of its layers.
--
-- A repeated call may use the plan of an earlier one only while none of these has changed. Fields that are there are
-- compared one by one; a layer counts fields that are added (Layer.added_fields), since comparing would not find them.
local activations = require "mgpu.nn.activations"
local core = require "mgpu.core"

local M = {}

-- Fields that no call reads, or that calls and training set themselves.
local IGNORED = {}
for name in ([[name stream_name built_shape container nodes graph shapes is_trainable states_policy scoped strategy
  known_batch state_variables compiled optimizer loss host_part call_losses known_prediction known_key known_batches
  repeated_call prediction stop_training stop_evaluating stop_predicting saved_optimizer]]):gmatch "%S+" do
  IGNORED[name] = true
end

local function is_ignored(key)
  return IGNORED[key] or type(key) == "string"
    and (key:find "_initializer$" or key:find "_constraint$" or key:find "[^y]_regularizer$")
end

-- Tables of which only the identity is compared: the graph of a functional model, which does not change.
local OPAQUE = { order = true, inputs = true, outputs = true, pattern = true }

-- Functions that give the same for the same input. Those of the user may do anything at each call.
local known_functions
local function is_known(fn)
  if not known_functions then
    known_functions = {}
    for _, list in ipairs { activations, core.ops } do
      for _, value in pairs(list) do known_functions[value] = true end
    end
  end
  return known_functions[fn]
end

-- Whether the layer's class is one of ours.
local function is_ours(layer)
  if layer.is_network then return not rawget(layer, "call") and not rawget(layer, "apply") end
  local known = rawget(require "mgpu.nn.layers", layer.class_name)
  return known and layer.meta == known.meta
end

local function add(kept, object, key, value)
  local n = kept.n + 1
  kept.n, kept.objects[n], kept.keys[n], kept.values[n] = n, object, key, value
end

-- Adds the fields of a table. RETURNS whether none of them is a function of the user.
local function add_fields(kept, object, depth)
  for key, value in pairs(object) do
    if not is_ignored(key) then
      if type(value) == "function" and not is_known(value) then return false end
      add(kept, object, key, value)
      local plain = type(value) == "table" and not getmetatable(value) and not OPAQUE[key]
      if plain and (depth == 0 or not add_fields(kept, value, depth - 1)) then return false end
    end
  end
  return true
end

-- The methods of its class that a call runs, which a program may replace.
local function add_methods(kept, layer, seen)
  local class = layer.meta.class
  while class and not seen[class] do
    seen[class] = true
    for _, name in ipairs { "call", "apply" } do
      if rawget(class, name) then add(kept, class, name, rawget(class, name)) end
    end
    class = rawget(class, "super")
  end
end

local function list_fields(model, added)
  local kept, usable, seen = { objects = {}, keys = {}, values = {}, n = 0, added = added.n }, true, {}
  model:each_layer(function(layer)
    add(kept, layer, "call", nil)
    add(kept, layer, "apply", nil)
    usable = usable and is_ours(layer) and not layer.device and not rawget(layer, "activity_regularizer")
      and not layer.reads_values and add_fields(kept, layer, 2)
    if usable then add_methods(kept, layer, seen) end
  end)
  return usable and kept or nil
end

-- Whether both lists have the same fields with the same values, in any order.
local function equals(a, b)
  if a.n ~= b.n then return false end
  local values = {}
  for i = 1, a.n do
    local object = a.objects[i]
    values[object] = values[object] or {}
    values[object][a.keys[i]] = a.values[i]
  end
  for i = 1, b.n do
    local own = values[b.objects[i]]
    if not own or own[b.keys[i]] ~= b.values[i] then return false end
  end
  return true
end

-- ---- comparing ----------------------------------------------------------------------------------

-- Comparisons of one function: LuaJIT compiles a function of this length as one trace.
local IN_ONE = 60

-- A function that compares the fields first .. last. A loop over them would meet values of another type in each round,
-- which takes LuaJIT a trace of its own for each; straight-line code with constant keys takes a tenth of the time.
local function comparison(kept, first, last)
  local values, terms = {}, {}
  for i = first, last do
    local at, key = 3 * (i - first), kept.keys[i]
    values[at + 1], values[at + 2], values[at + 3] = kept.objects[i], kept.values[i], key
    local name = type(key) == "string" and ("%q"):format(key) or ("v[%d]"):format(at + 3)
    terms[#terms + 1] = ("rawequal(rawget(v[%d], %s), v[%d])"):format(at + 1, name, at + 2)
  end
  return loadstring(("local v, rawget, rawequal = ... return function() return %s end"):format(
    table.concat(terms, " and ")), "=call_fields")(values, rawget, rawequal)
end

local function comparisons(kept)
  local list = {}
  for first = 1, kept.n, IN_ONE do
    list[#list + 1] = comparison(kept, first, math.min(first + IN_ONE - 1, kept.n))
  end
  return list
end

--- of(model) -> what is_same compares; nil for a model whose calls may depend on more: layers of the user's own
--- classes, functions of the user, layers on devices that they name, losses that a call adds.
function M.of(model)
  local kept = list_fields(model, model.added_fields)
  if kept then kept.same = comparisons(kept) end
  return kept
end

--- is_same(model, kept): whether the model's fields are as they were at the call of `of` that returned kept.
function M.is_same(model, kept)
  local same = kept.same
  for i = 1, #same do
    if not same[i]() then return false end
  end
  local added = model.added_fields
  if kept.added == added.n then return true end
  local now = list_fields(model, added)
  if not now or not equals(kept, now) then return false end
  kept.added = added.n
  return true
end

return M
