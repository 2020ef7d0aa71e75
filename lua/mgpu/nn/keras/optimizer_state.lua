--- The optimizer's variables in Keras's files <-> the tensors of train/compiled_state.lua ("optimizer/3/momentum").
--
-- Keras 3 writes: iteration; learning_rate, unless it is a schedule; with use_ema the averages; with
-- gradient_accumulation_steps the sums of gradients; then the slots, for
-- each variable all of PER_VARIABLE, and after these each of GROUPED for all variables; last the rule's own. Keras 2
-- has the same slots under shorter names, in several orders, and no learning rate. So names decide where a file has
-- them. A LossScaleOptimizer has an iteration and a learning rate without meaning, its own two variables, and the
-- variables of its inner optimizer. A MultiOptimizer has an iteration, a learning rate without meaning, and the
-- variables of each of its optimizers: in the order of the keys in the configuration, then the default.
local core = require "mgpu.core"
local ordered_keys = require "mgpu.ordered_keys"

local M = {}

-- The slots that are written for one variable after the other.
local PER_VARIABLE = { SGD = { "momentum" }, RMSprop = {}, Adagrad = { "accumulator" },
  Adadelta = { "accumulated_grad", "accumulated_delta_var" }, Adamax = { "momentum", "norm" },
  Adam = { "momentum", "velocity" }, AdamW = { "momentum", "velocity" }, Nadam = { "momentum", "velocity" },
  Lion = { "momentum" }, Lamb = { "momentum", "velocity" }, Ftrl = { "accumulator", "linear" },
  ScheduleFreeAdamW = { "momentum", "velocity" }, Adafactor = { "r", "c", "velocity" },
  Muon = { "momentum", "velocity" } }
-- Optimizers that have some of these slots for some of the variables only.
local VARYING = { Muon = true }
local GROUPED = { Adam = { "velocity_hat" }, AdamW = { "velocity_hat" },
  RMSprop = { "velocity", "momentum", "average_gradient" } }

-- Ends and parts of the names of weights: those of Keras 3, of Keras 2, and of the optimizers before 2.11.
local PATTERNS = {
  average = { "_average$" },
  gradient_accumulator = { "_gradient_accumulator$" },
  momentum = { "_momentum$", "^%w+/m/", "/m:0$", "^%w+/momentum/", "/momentum:0$" },
  velocity = { "_velocity$", "^%w+/v/", "/v:0$", "^%w+/velocity/", "/rms:0$" },
  velocity_hat = { "_velocity_hat$", "^%w+/vhat/", "/vhat:0$" },
  accumulator = { "_accumulator$", "^%w+/accumulator/", "/accumulator:0$" },
  accumulated_grad = { "_accumulated_grad$", "^%w+/accumulated_grad/", "/accum_grad:0$" },
  accumulated_delta_var = { "_accumulated_delta_var$", "^%w+/accumulated_delta_var/", "/accum_var:0$" },
  linear = { "_linear$", "^%w+/linear/", "/linear:0$" },
  norm = { "_norm$", "^%w+/u/", "/v:0$" },
  average_gradient = { "_average_gradient$", "^%w+/average_gradient/", "/mg:0$" },
  learning_rate = { "learning_rate$", "/learning_rate:0$" },
  iteration = { "iteration$", "^iteration:0$", "/iter:0$" },
  u_product = { "/variable$", "/momentum_cache:0$" },
  step_counter = { "/step_counter$" },
  dynamic_scale = { "/dynamic_scale$" },
}

-- The slots of the Keras that was not yet part of TensorFlow, each for all variables; of velocity_hat the last may be
-- without meaning. Before them: iterations, which some do not have, and Nadam's product.
local OLD_GROUPED = { SGD = { "momentum" }, RMSprop = { "velocity" }, Adagrad = { "accumulator" },
  Adadelta = { "accumulated_grad", "accumulated_delta_var" }, Adam = { "momentum", "velocity", "velocity_hat" },
  Adamax = { "momentum", "norm" }, Nadam = { "momentum", "velocity" } }
local SCALARS = { "iteration", "learning_rate", "u_product", "step_counter", "dynamic_scale" }

local UNUSED = "" -- our name for a variable of Keras without meaning

-- The optimizer inside a LossScaleOptimizer, or the optimizer itself.
local function rule_of(optimizer) return optimizer.config.inner_optimizer or optimizer end

-- The slots that an optimizer of this configuration has. SGD of Keras 2 has momentum in any case.
local function wanted_slots(optimizer, keras2)
  local options, wanted = optimizer.config, {}
  for _, list in ipairs { PER_VARIABLE[optimizer.class_name] or {}, GROUPED[optimizer.class_name] or {} } do
    for _, slot in ipairs(list) do wanted[slot] = true end
  end
  if optimizer.class_name == "SGD" or optimizer.class_name == "RMSprop" then
    wanted.momentum = (options.momentum or 0) > 0 or (keras2 and optimizer.class_name == "SGD") or nil
  end
  if not options.amsgrad then wanted.velocity_hat = nil end
  if not options.centered then wanted.average_gradient = nil end
  wanted.average = options.use_ema or nil
  wanted.gradient_accumulator = options.gradient_accumulation_steps
  return wanted
end

-- The positions in model.variables of the variables that are trained.
local function trained_positions(model)
  local position, list = {}, {}
  for i, v in ipairs(model.variables) do position[v] = i end
  for _, v in ipairs(model.trainable_variables) do list[#list + 1] = position[v] end
  return list
end

local function made_of(optimizer) return require "mgpu.nn.optimizers"[optimizer.class_name](optimizer.config) end

-- Whether an optimizer of VARYING has the slot for the variable; true for others, with made = false.
local function has_slot(made, v, slot)
  if not made then return true end
  local own = slot == "average" or slot == "gradient_accumulator"
  for _, name in ipairs(made:slot_names(v)) do own = own or name == slot end
  return own
end

-- Array of our names of the variables of an optimizer with slots, in the order in which Keras 3, or 2, has them.
-- positions: of its variables; prefix: of the names that are no slots.
local function rule_layout(model, optimizer, keras2, positions, prefix)
  local list = { ("optimizer/%siterations"):format(prefix) }
  local wanted = wanted_slots(optimizer, keras2)
  local made = VARYING[optimizer.class_name] and made_of(optimizer)
  local function add(position, slot)
    if wanted[slot] and has_slot(made, model.variables[position], slot) then
      list[#list + 1] = ("optimizer/%d/%s"):format(position, slot)
    end
  end
  if not keras2 and type(optimizer.config.learning_rate) ~= "table" then
    list[2] = ("optimizer/%slearning_rate"):format(prefix)
  end
  for _, slot in ipairs { "average", "gradient_accumulator" } do
    for _, position in ipairs(positions) do add(position, slot) end
  end
  for _, position in ipairs(positions) do
    for _, slot in ipairs(PER_VARIABLE[optimizer.class_name]) do add(position, slot) end
  end
  for _, slot in ipairs(GROUPED[optimizer.class_name] or {}) do
    for _, position in ipairs(positions) do add(position, slot) end
  end
  if not keras2 and optimizer.class_name == "Nadam" then list[#list + 1] = ("optimizer/%su_product"):format(prefix) end
  return list
end

-- The keys in the order in which the text of a configuration has them; nil if some are not found.
local function in_order(keys, text)
  local place = {}
  for _, key in ipairs(keys) do
    local pattern = core.json_encode(key):gsub("%p", "%%%0") .. ":%s*{"
    place[key] = text:find(pattern)
    if not place[key] then return nil end
  end
  table.sort(keys, function(a, b) return place[a] < place[b] end)
  return keys
end

-- The optimizers of a MultiOptimizer in the order of the file: {class_name =, config =, positions = of their variables,
-- prefix = of their names}; nil if that is not known. One that stands in the map twice is two, as training.lua writes
-- it. text: of the file's configuration; nil: the order is ours.
local function parts_of(model, optimizer, text)
  local config, made = optimizer.config.optimizer_map.config, made_of(optimizer)
  made:train_model(model)
  made:build(model.trainable_variables)
  local keys = ordered_keys(config.optimizer_map)
  if text then keys = in_order(keys, text) end
  if not keys then return nil end
  local parts, of_key = {}, {}
  local function add(entry, own)
    entry = entry.same_as and config.optimizer_map[entry.same_as] or entry
    local part = { class_name = entry.class_name, config = entry.config, positions = {} }
    for i, each in ipairs(made.optimizers) do
      if each == own then part.prefix = ("inner_%d_"):format(i) end
    end
    parts[#parts + 1] = part
    return part
  end
  for _, key in ipairs(keys) do of_key[key] = add(config.optimizer_map[key], made.map[key]) end
  local default = add(config.default_optimizer, made.map.default_optimizer)
  for _, position in ipairs(trained_positions(model)) do
    local v = model.variables[position]
    local _, key = made.map:find(v, made.paths[v])
    table.insert((key and of_key[key] or default).positions, position)
  end
  return parts
end

-- As layout, of a MultiOptimizer; the second result is as parts_of.
local function multi_layout(model, optimizer, text)
  local parts, list, classes = parts_of(model, optimizer, text), { "optimizer/iterations", UNUSED }, {}
  if not parts then return nil end
  for _, part in ipairs(parts) do
    if not PER_VARIABLE[part.class_name] then return nil end
    part.first = #list + 1
    for _, name in ipairs(rule_layout(model, part, false, part.positions, part.prefix)) do
      list[#list + 1], classes[name] = name, part.class_name
    end
    part.last = #list
  end
  return list, classes, parts
end

-- The same for any optimizer, a table of the class that each of a MultiOptimizer's names belongs to, and its parts; nil
-- for an optimizer of another class. text: see parts_of.
local function layout(model, optimizer, keras2, text)
  local rule, list, classes, parts = rule_of(optimizer), nil, {}, nil
  if rule.class_name == "MultiOptimizer" then
    list, classes, parts = multi_layout(model, rule, text)
  elseif PER_VARIABLE[rule.class_name] then
    list = rule_layout(model, rule, keras2, trained_positions(model), "")
  end
  if not list or rule == optimizer then return list, classes, parts end
  local whole = { UNUSED, UNUSED, "optimizer/step_counter", "optimizer/dynamic_scale", unpack(list) }
  for _, part in ipairs(parts or {}) do part.first, part.last = part.first + 4, part.last + 4 end
  return whole, classes, parts
end

-- ---- from Keras ---------------------------------------------------------------------------------

local function matches(name, what)
  for _, pattern in ipairs(PATTERNS[what]) do
    if name:find(pattern) then return true end
  end
  return false
end

-- The slot that the name is of, or nil. An Adagrad's "accumulator" is the end of "gradient_accumulator" too.
local function slot_of(name, wanted)
  if matches(name, "gradient_accumulator") then return "gradient_accumulator" end
  for slot in pairs(wanted) do
    if matches(name, slot) then return slot end
  end
end

-- Our names for Keras's, by their patterns: the n-th momentum belongs to the n-th trained variable that has one.
local function by_names(model, optimizer, names)
  local found, counts, rule = {}, {}, rule_of(optimizer)
  local positions, made = trained_positions(model), VARYING[rule.class_name] and made_of(rule)
  for i, name in ipairs(names) do
    for _, what in ipairs(SCALARS) do
      local ours = what == "iteration" and "iterations" or what
      if matches(name, what) then found[i] = "optimizer/" .. ours end
    end
    local slot = not found[i] and slot_of(name, wanted_slots(rule))
    if slot then
      repeat
        counts[slot] = (counts[slot] or 0) + 1
        local v = model.variables[positions[counts[slot]]]
      until not v or has_slot(made, v, slot)
      found[i] = ("optimizer/%s/%s"):format(positions[counts[slot]], slot)
    end
  end
  return found
end

-- Our names in the order of OLD_GROUPED for that many variables; nil if there is no such order.
local function old_layout(model, optimizer, count)
  local positions, slots, list = trained_positions(model), { unpack(OLD_GROUPED[optimizer.class_name] or {}) }, {}
  if slots[3] and count < 3 * #positions then slots[3] = nil end -- Adam before Keras 2.1
  local before = count - #slots * #positions
  if #slots == 0 or before < 0 or before > 2 then return nil end
  if before > 0 then list[1] = "optimizer/iterations" end
  if before > 1 then list[2] = "optimizer/u_product" end
  for _, slot in ipairs(slots) do
    for _, position in ipairs(positions) do list[#list + 1] = ("optimizer/%d/%s"):format(position, slot) end
  end
  return list
end

-- Adds what Keras does not store: how many steps a loss scale has skipped; in files of Keras 2 the learning rate of the
-- configuration, and Nadam's product of the factors beta_1 (1 - 0.96^t / 2) of all steps t so far. Where the count of
-- steps is missing (Keras 1 and 2.0), Keras starts again at 0.
local function add_missing(found, optimizer)
  local rule = rule_of(optimizer)
  if rule.class_name == "MultiOptimizer" then return end -- it is of Keras 3, whose files have all
  found["optimizer/iterations"] = found["optimizer/iterations"] or core.tensor(0, { dtype = "int64" })
  local steps = found["optimizer/iterations"]
  local made = made_of(rule)
  if not made.schedule and not found["optimizer/learning_rate"] then
    found["optimizer/learning_rate"] = core.tensor(made.learning_rate)
  end
  if rule.class_name == "Nadam" and steps and steps:rank() == 0 and not found["optimizer/u_product"] then
    local product = 1
    for t = 1, math.min(tonumber(steps:item()), 1e5) do
      product = product * made.options.beta_1 * (1 - 0.5 * 0.96 ^ (t * made.options.schedule_decay))
    end
    found["optimizer/u_product"] = core.tensor(product, { dtype = "float64" })
  end
end

-- The tensors by our names, or nil.
local function named_tensors(model, optimizer, tensors, names, at)
  local ours, found
  if rule_of(optimizer).class_name == "MultiOptimizer" then
    ours = not names and layout(model, optimizer, false, at.text) or nil
  elseif names and at.before_tensorflow then
    ours = old_layout(model, optimizer, #tensors)
  else
    ours = names and by_names(model, optimizer, names) or layout(model, optimizer, at.keras2)
  end
  if not ours or not names and #ours ~= #tensors then return nil end
  found = {}
  for i, t in ipairs(tensors) do
    if ours[i] then found[ours[i]] = t end
  end
  add_missing(found, optimizer)
  return found
end

-- Keras writes a LossScaleOptimizer that it has made itself as the optimizer inside.
local function with_loss_scale(model, optimizer, tensors, names)
  local scaled = { class_name = "LossScaleOptimizer", config = { inner_optimizer = optimizer } }
  if optimizer.config.inner_optimizer or optimizer.config.optimizer_map then return optimizer end
  for _, name in ipairs(names or {}) do
    if matches(name, "step_counter") then return scaled end
  end
  local has_scale = not names and #tensors == #layout(model, scaled) and #tensors ~= #layout(model, optimizer)
  return has_scale and scaled or optimizer
end

local DTYPES = { iterations = "int64", step_counter = "int64", dynamic_scale = "float32" }

--- from_keras(model, optimizer, tensors, names, at) -> our tensors by name, or nil if they are not those of the
--- optimizer; and the optimizer that they belong to: a LossScaleOptimizer around it, if there is one in the file.
-- ARGS optimizer: {class_name =, config =}; tensors: in Keras's order; names: Keras's, or nil; at: see objects.lua.
function M.from_keras(model, optimizer, tensors, names, at)
  if #tensors == 0 or not layout(model, optimizer) then return nil, optimizer end
  local scaled = with_loss_scale(model, optimizer, tensors, names)
  local found, state = named_tensors(model, scaled, tensors, names, at), {}
  local list, classes = layout(model, scaled)
  for _, name in ipairs(found and list or {}) do
    local class = require "mgpu.nn.optimizers"[classes[name] or rule_of(optimizer).class_name]
    local t, position, slot = found[name], name:match "/(%d+)/(.*)"
    local v = model.variables[tonumber(position)]
    if name ~= UNUSED then
      local shape = v and class.slot_shape(slot, v:shape()) or {}
      if not t or model.shape_text(t:shape()) ~= model.shape_text(shape) then return nil, optimizer end
      state[name] = t:cast(v and v:dtype() or DTYPES[name:match "/(.*)":gsub("^inner_%d+_", "")] or "float64")
    end
  end
  if found and scaled.config.inner_optimizer then
    state["optimizer/skipped"] = core.tensor(0, { dtype = "int64" })
  end
  return found and state, scaled
end

--- is_untrained(tensors) -> whether Keras saved the optimizer before its first step: it has no slots of variables yet,
--- and its count of steps is 0.
function M.is_untrained(tensors)
  for _, t in ipairs(tensors) do
    if t:rank() > 0 then return false end
  end
  return #tensors == 0 or tensors[1]:item() == 0
end

-- ---- to Keras -----------------------------------------------------------------------------------

--- to_keras(model, compiled) -> Keras's names and the tensors, in Keras 3's order, how many of them belong to the
--- optimizer around another, and the optimizers of a MultiOptimizer, {class_name =, first =, last = positions of their
--- tensors}. Nothing if not all are there.
function M.to_keras(model, compiled)
  local optimizer, names, tensors = compiled.config.optimizer, {}, {}
  local outer = optimizer.config.inner_optimizer and 4 or 0
  local list, _, parts = layout(model, optimizer)
  for i, name in ipairs(list or {}) do
    local t, position, slot = compiled.tensors[name], name:match "/(%d+)/(.*)"
    local prefix = (i > outer and rule_of(optimizer) or optimizer).class_name:lower() .. "/"
    if name == UNUSED then
      t = core.tensor(0, { dtype = i == 1 and "int64" or "float32" })
      names[i] = prefix .. (i == 1 and "iteration" or "learning_rate")
    elseif not t then
      return {}, {}, 0
    elseif slot then
      names[i] = prefix .. model.variables[tonumber(position)].name:gsub("/", "_") .. "_" .. slot
    else
      names[i] = prefix .. (name:match "/(.*)":gsub("^inner_%d+_", ""):gsub("iterations", "iteration")
        :gsub("u_product", "variable"))
    end
    tensors[i] = t:dtype() == "float64" and not slot and t:cast "float32" or t
  end
  return names, tensors, outer, parts
end

return M
