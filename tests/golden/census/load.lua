-- Loads the models that record.py has written, and compares: see tests/README.md, "Census of Keras".
--
--     build/mgpulua tests/golden/census/load.lua FOLDER FIRST
--
-- from case FIRST on. Each case writes lines "NUMBER <tab> WHAT <tab> VERDICT <tab> MESSAGE" to FOLDER/results.tsv.
-- WHAT: keras and h5 (predictions), training (outputs in training), steps (weights after three steps), ours.keras and
-- ours.h5 (written to FOLDER/ours and read again). VERDICT: agree, refused, differ, fail. A line "NUMBER <tab> begun"
-- is there before, so that a case that ends the process is seen.
package.path = "tests/golden/census/?.lua;" .. package.path
local mgpu = require "mgpu"
local core = require "mgpu.core"
local comparing = require "compare"

local compare = comparing.compare

local folder, first = arg[1], tonumber(arg[2] or 1)
local PREDICTS, TRAINS = 2e-5, 1e-4
local write, try_number = comparing.results(folder .. "/results.tsv")

local function say(case, ...) write(case.number, ...) end

local function try(case, ...) return try_number(case.number, ...) end

local function listed(arrays, prefix)
  local list = {}
  while arrays[prefix .. #list + 1] do list[#list + 1] = arrays[prefix .. #list + 1] end
  return list
end

local function as_list(value, list)
  list = list or {}
  if type(value) ~= "table" then
    list[#list + 1] = value
  elseif value[1] then
    for _, each in ipairs(value) do as_list(each, list) end
  else -- by names, in the order of the names
    local names = {}
    for name in pairs(value) do names[#names + 1] = name end
    table.sort(names)
    for _, name in ipairs(names) do as_list(value[name], list) end
  end
  return list
end

local function single(list) return #list > 1 and list or list[1] end

-- The weights in Keras's order: the trainable ones first.
local function weights_of(model)
  local list = {}
  for _, v in ipairs(model.trainable_variables) do list[#list + 1] = v:value() end
  for _, v in ipairs(model.non_trainable_variables) do list[#list + 1] = v:value() end
  return list
end

local function inputs_of(model, arrays)
  local x = listed(arrays, "x")
  for i, input in ipairs(model.inputs or {}) do
    local is_tensor = type(x[i]) == "userdata"
    if is_tensor and input:dtype() ~= x[i]:dtype() then x[i] = x[i]:to(input:dtype()) end
  end
  return x
end

-- `rows` keeps layers with a fixed batch from more than one batch.
local function predicted(model, arrays)
  local x = inputs_of(model, arrays)
  local rows = type(x[1]) == "userdata" and x[1]:shape()[1] or #x[1]
  return as_list(model:predict(single(x), { verbose = 0, batch_size = math.max(1, rows) }))
end

local function check(case, arrays)
  local model
  for _, ending in ipairs { "keras", "h5" } do
    if case[ending] == "yes" then
      local found = try(case, ending, function()
        local loaded = mgpu.load_model(("%s/%04d.%s"):format(folder, case.number, ending))
        compare(predicted(loaded, arrays), listed(arrays, "y"), PREDICTS)
        return loaded
      end)
      model = model or found
    end
  end
  if not model then return end
  for _, ending in ipairs { "keras", "h5" } do
    try(case, "ours." .. ending, function()
      local path = ("%s/ours/%04d.%s"):format(folder, case.number, ending)
      model:save(path)
      compare(predicted(mgpu.load_model(path), arrays), listed(arrays, "y"), PREDICTS)
    end)
  end
  if arrays.t1 then
    try(case, "training", function()
      local x = inputs_of(model, arrays)
      local y = as_list(model(single(x), { training = true }))
      compare(y, listed(arrays, "t"), PREDICTS)
    end)
  end
  if not arrays.a1 then return end
  try(case, "steps", function()
    local x, zeros = inputs_of(model, arrays), {}
    local loaded = mgpu.load_model(("%s/%04d.%s"):format(folder, case.number, case.keras == "yes" and "keras" or "h5"))
    for i, y in ipairs(listed(arrays, "t")) do zeros[i] = mgpu.zeros(y:shape()) end
    loaded:compile { optimizer = mgpu.optimizers.SGD { 0.01 }, loss = "mse" }
    for _ = 1, 3 do loaded:train_on_batch(single(x), single(zeros)) end
    compare(weights_of(loaded), listed(arrays, "a"), TRAINS)
  end)
end

core.make_folder(folder .. "/ours")
for _, case in ipairs(comparing.read(folder .. "/cases.json")) do
  if case.number >= first and not case.left_out then
    say(case, "begun", "")
    local ok, arrays = pcall(mgpu.load, ("%s/%04d.npz"):format(folder, case.number))
    if ok then
      for name, strings in pairs(case.strings or {}) do arrays[name] = strings end
      check(case, arrays)
    else
      say(case, "arrays", "fail", arrays)
    end
    collectgarbage()
  end
end
