-- fit, evaluate and predict over datasets whose steps need values: filters, generators, zipped inputs; resuming in the
-- middle of an epoch; several devices.

local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers
local line, linear = fixtures.line, fixtures.linear

local quiet = { verbose = 0 }

-- The rows of the line with a first coordinate above 0.3, as a dataset and as tensors.
local function filtered(n)
  local x, y = line(n)
  local rows, kept = mgpu.data.from_tensors { x, y }, { {}, {} }
  for i = 1, n do
    local row = x:slice { i, {} }:totable()
    if row[1] > 0.3 then
      kept[1][#kept[1] + 1], kept[2][#kept[2] + 1] = row, y:slice { i, {} }:totable()
    end
  end
  local function above(p) return p:slice { 1 }:gt(0.3) end
  return rows:filter(above), mgpu.tensor(kept[1]), mgpu.tensor(kept[2])
end

local function weights_of(model)
  local list = {}
  for i, w in ipairs(model:get_weights()) do list[i] = w:totable() end
  return list
end

test("a dataset with a filter trains as the filtered tensors do", function()
  local ds, x, y = filtered(40)
  local a, b = linear(), linear()
  check.equal(ds:batch(4):length(), nil)
  local of_ds = a:fit(ds:batch(4), { epochs = 3, verbose = 0, validation_data = ds:batch(8) }).history
  local of_tensors = b:fit(x, y, { epochs = 3, batch_size = 4, shuffle = false, verbose = 0, validation_data = { x, y },
    validation_batch_size = 8 }).history
  -- float32 sums in another order: batches are gathered by the step or come whole
  check.near(of_ds.loss, { unpack(of_tensors.loss) }, 1e-6)
  check.near(of_ds.val_loss, { unpack(of_tensors.val_loss) }, 1e-6)
  check.near(a:evaluate(ds:batch(4), quiet).loss, b:evaluate(x, y, { verbose = 0, batch_size = 4 }).loss, 1e-6)
  check.near(a:predict(ds:batch(4)), b:predict(x):totable(), 1e-5)
end)

test("an epoch of unknown length has its steps counted, and the next epoch knows them", function()
  local ds, x = filtered(40)
  local lines, output = {}, mgpu.output
  mgpu.output = function(text) lines[#lines + 1] = text end
  local ok, message = pcall(function() linear():fit(ds:batch(4), { epochs = 2, verbose = 2 }) end)
  mgpu.output = output
  if not ok then error(message, 0) end
  local steps = math.ceil(x:shape()[1] / 4)
  local _, count = table.concat(lines):gsub(("%d/%d"):format(steps, steps), "")
  check.equal(count, 2)
end)

test("weights of rows, several inputs and outputs, by position and by name", function()
  local a, b = mgpu.Input { 2, name = "a" }, mgpu.Input { 1, name = "b" }
  local both = L.Concatenate {} { a, b }
  local function model()
    mgpu.seed(3)
    local m = mgpu.Model { inputs = { a, b },
      outputs = { L.Dense { 1, name = "p" }(both), L.Dense { 2, name = "q" }(both) } }
    m:compile { optimizer = "sgd", loss = "mse" }
    return m
  end
  local x, y = line(12)
  local z = mgpu.concat(y, y, { axis = 2 })
  local function rows(t) return mgpu.data.from_tensors { t } end
  local options = { epochs = 2, batch_size = 4, shuffle = false, verbose = 0 }
  local expected = model():fit({ x, y }, { y, z }, options).history.loss
  local by_position = mgpu.data.zip { mgpu.data.zip { rows(x), rows(y) }, mgpu.data.zip { rows(y), rows(z) } }
  local by_name = mgpu.data.zip { { b = rows(y), a = rows(x) }, { p = rows(y), q = rows(z) } }
  for _, ds in ipairs { by_position, by_name } do
    local history = model():fit(ds:batch(4), { epochs = 2, verbose = 0 }).history
    check.near(history.loss, { unpack(expected) }, 1e-6)
  end
  local w = mgpu.arange(12) / 12
  local weighted = mgpu.data.zip { rows(x), rows(y), rows(w) }:batch(4)
  local of_tensors = linear():fit(x, y, { sample_weight = w, batch_size = 4, shuffle = false, verbose = 0 })
  check.near(linear():fit(weighted, quiet).history.loss, { unpack(of_tensors.history.loss) }, 1e-6)
end)

test("datasets are told where batches are wanted", function()
  check.needs "cpu"
  local x, y = line(8)
  local ds, asked = mgpu.data.from_tensors { x, y }:batch(4), {}
  rawset(ds, "iter", function(self, position, device)
    asked[#asked + 1] = device or "several"
    return getmetatable(self).__index(self, "iter")(self, position, device)
  end)
  local model = linear { devices = "cpu:1" }
  model:fit(ds, quiet)
  model:evaluate(ds, quiet)
  model:predict(ds)
  linear { devices = { "cpu:0", "cpu:1" } }:fit(ds, quiet)
  check.equal(asked, { "cpu:1", "cpu:1", "cpu:1", "several" })
end)

test("functions that give rows train through mgpu.data.generator, without a number of steps", function()
  local x, y = line(12)
  local ds = mgpu.data.generator(function()
    local i = 0
    return function()
      i = i + 1
      if i <= 12 then return x:slice { i, {} }, y:slice { i, {} } end
    end
  end)
  local of_tensors = linear():fit(x, y, { epochs = 2, batch_size = 5, shuffle = false, verbose = 0 })
  local history = linear():fit(ds:batch(5), { epochs = 2, verbose = 0 }).history
  check.near(history.loss, { unpack(of_tensors.history.loss) }, 1e-6)
  check.raises(function() linear():fit(ds, quiet) end,
    "fit: the dataset is not batched: x of its elements has shape {2}", "usage")
end)

test("a dataset without end needs a number of steps, one of unknown length does not", function()
  local endless, model = filtered(20):cycle():batch(4), linear()
  check.raises(function() model:fit(endless, quiet) end,
    "fit: the dataset has no end: give steps_per_epoch, or use :take%(n%)",
    "usage")
  check.raises(function() model:evaluate(endless, quiet) end, "evaluate: the dataset has no end: give steps", "usage")
  check.raises(function() model:fit(endless:take(3), { verbose = 0, validation_data = endless }) end,
    "the dataset has no end: give validation_steps", "usage")
  check.equal(#model:fit(endless, { verbose = 0, steps_per_epoch = 3, epochs = 2, validation_data = endless,
    validation_steps = 2 }).history.val_loss, 2)
  local x, y = line(4)
  local own = { iter = function() return function() return x, y end end }
  check.raises(function() model:fit(own, quiet) end, "fit: the dataset does not tell its length, so it may be endless",
    "usage")
end)

test("what cannot be trained on is an error that says where", function()
  local ds = filtered(20)
  local texts = mgpu.data.generator(function() return coroutine.create(function() coroutine.yield("a", 1) end) end)
  check.raises(function() linear():fit(texts:batch(1), quiet) end,
    "flow_fit_spec.lua:%d+: fit: component 1 of the dataset's batches is "
    .. "text: make numbers of it with map", "usage")
  check.raises(function() linear():fit(ds:filter(function(x) return x:gt(5):all() end):batch(2), quiet) end,
    "fit: the dataset is empty: it gave no batch", "usage")
  local broken = ds:map(function(x, y)
    if x:shape()[1] == 2 then error "cannot read this" end
    return x, y
  end):batch(2)
  check.raises(function() linear():fit(broken, quiet) end,
    "flow_fit_spec.lua:%d+: cannot read this %(map: the function at .*flow_fit_spec.lua:%d+, element 1, row 2%)")
end)

-- ---- resuming -----------------------------------------------------------------------------------

-- Filter, shuffle, batch, and more; each a function that makes the dataset anew, as another program would.
local function rows()
  local x, y = line(40)
  return mgpu.data.from_tensors { x, y }
end
local function above(x) return x:slice { 1 }:gt(0.3) end
local pipelines = {
  filter = function() return rows():filter(above):shuffle(6, 3):batch(4) end,
  shuffled_rows = function() return rows():shuffle(40, 5):filter(above):batch(3, { drop_remainder = true }) end,
  cached = function() return rows():shuffle(40, 5):filter(above):cache():shuffle(9, 1):batch(4):prefetch(2) end,
  joined = function()
    local some = rows():filter(above):shuffle(5, 1)
    return mgpu.data.interleave { some, rows():shuffle(10, 2), some:concatenate(rows():take(5)) }:batch(8)
  end,
  zipped = function()
    local x, y = line(30)
    local zipped = mgpu.data.zip { mgpu.data.from_tensors { x }:shuffle(30, 1), mgpu.data.from_tensors { y } }
    return zipped:filter(above):padded_batch(4, { padded_shapes = { { 2 }, { 1 } } }):shuffle(3, 3)
  end,
  generated = function()
    return mgpu.data.generator(function()
      local it = rows():iter()
      return function() return it() end
    end):shuffle(8, 4):batch(4)
  end,
}

-- Fits for three epochs, or stops with an error after `stop` steps. RETURNS all numbers of model and history.
local function run(pipeline, dir, stop, devices)
  mgpu.seed(9)
  local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 5, activation = "relu" }, L.Dropout { 0.3 }, L.Dense { 1 } }
  model:compile { optimizer = "adam", loss = "mse", metrics = "mae", devices = devices }
  local steps = 0
  local callbacks = { { on_train_batch_end = function()
    steps = steps + 1
    if steps == stop then error("stop", 0) end
  end } }
  callbacks[2] = dir and mgpu.callbacks.BackupAndRestore { backup_dir = dir, save_freq = math.max(1, (stop or 99) - 1) }
  local ok, history = pcall(model.fit, model, pipeline(), { epochs = 3, verbose = 0, callbacks = callbacks,
    validation_data = rows():filter(above):batch(5) })
  if not ok then return history end
  local numbers = { history = core.json_encode(history.history), steps = steps, weights = weights_of(model) }
  for i, v in ipairs(model.optimizer:variables()) do numbers["optimizer " .. i] = v:value():totable() end
  return numbers
end

for name, pipeline in pairs(pipelines) do
  test("a fit that is resumed within an epoch has the numbers of one that was not: " .. name, function()
    local straight = run(pipeline)
    local total = straight.steps
    check.truthy(total > 9, total .. " steps")
    for _, stop in ipairs { 2, math.floor(total / 3) + 2, total - 1 } do
      local dir = check.path(name .. stop)
      check.equal(run(pipeline, dir, stop), "stop")
      local resumed = run(pipeline, dir)
      check.truthy(resumed.steps < total, "steps were left out")
      resumed.steps = total
      check.equal(resumed, straight) -- bit for bit
    end
  end)
end

test("one, two and three devices train alike", function()
  check.needs "cpu"
  local one = run(pipelines.filter, nil, nil, { "cpu:0" })
  for _, devices in ipairs { { "cpu:0", "cpu:1" }, { "cpu:0", "cpu:1", "cpu:2" } } do
    local several = run(pipelines.filter, nil, nil, devices)
    check.equal(several.steps, one.steps)
    for i, w in ipairs(several.weights) do check.near(w, one.weights[i], 1e-5) end -- sums in another order
  end
end)
