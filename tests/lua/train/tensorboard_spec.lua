-- The TensorBoard callback: Keras's tags, steps and values (golden set tensorboard), and what happens to its files.

local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local golden = require "golden.load" "tensorboard"
local hash = require "golden.hash"
local mgpu = require "mgpu"
local reader = require "protobuf_reader"

local test = check.test
local L = mgpu.layers
local PLUGIN = { scalars = { dtype = 1, size = 4 }, histograms = { dtype = 2, size = 8 } }

-- ---- reading ------------------------------------------------------------------------------------

-- The event files of a folder, sorted.
local function files_in(folder)
  local list = {}
  for path in io.popen(("ls '%s' 2>/dev/null"):format(folder)):lines() do list[#list + 1] = folder .. "/" .. path end
  return list
end

-- The values of a Summary.Value message as {run, step, tag, plugin, shape, values}; texts for a tensor of strings.
local function decode(run, step, bytes)
  local value = reader.fields(bytes)
  local tensor = reader.fields(value[8][1])
  local plugin = reader.fields(reader.fields(value[9][1])[1][1])[1][1]
  local shape = {}
  for i, dim in ipairs(reader.fields(tensor[2][1])[2] or {}) do shape[i] = reader.fields(dim)[1][1] end
  local known = PLUGIN[plugin]
  if known then check.equal(tensor[1], { known.dtype }) end
  return { run = run, step = step, tag = value[1][1], plugin = plugin, shape = shape, texts = tensor[8],
    values = known and reader.numbers(tensor[4][1], known.size) }
end

-- The events in log_dir, in the order of the files.
local function events_of(log_dir)
  local list = {}
  for _, run in ipairs { "train", "validation" } do
    for _, path in ipairs(files_in(log_dir .. "/" .. run)) do
      check.matches(path, "/events%.out%.tfevents%.%d+%.[%w_-]+%.%d+%.%d+%.v2$")
      local first = true
      for record in reader.records(check.read(path)) do
        local event = reader.fields(record)
        check.truthy(math.abs(event[1][1] - os.time()) < 3600, "wall_time")
        if first then check.equal(event[3], { "brain.Event:2" }) end
        first = false
        for _, bytes in ipairs(event[5] and reader.fields(event[5][1])[1] or {}) do
          list[#list + 1] = decode(run, event[2][1], bytes)
        end
      end
    end
  end
  return list
end

-- {"train batch_loss 2", ...}: run, tag and step of the events with this tag (a pattern), in the order of the files.
local function steps_of(log_dir, tag)
  local list = {}
  for _, e in ipairs(events_of(log_dir)) do
    if e.tag:find(tag) then list[#list + 1] = ("%s %s %d"):format(e.run, e.tag, e.step) end
  end
  return list
end

-- ---- against Keras ------------------------------------------------------------------------------

local function logs_at(case, epoch, batch)
  local logs = require "mgpu.train.logs".new()
  logs.loss, logs.accuracy = 1 / 2 ^ (epoch + case) + batch / 64, epoch / 4 + batch / 128
  return logs
end

-- Gives the callback the logs of the case, as fit would.
local function replay(callback, index, case)
  local kernel, bias = mgpu.variable(mgpu.zeros { 5, 3 }, { name = "d/kernel" }),
    mgpu.variable(mgpu.zeros { 3 }, { name = "d/bias" })
  local steps = 0
  callback.model = { class_name = "Sequential", name = "net", built = false, variables = { kernel, bias },
    optimizer = { learning_rate = 0.25, steps_taken = function() return steps end } }
  callback:on_train_begin()
  for epoch = 0, golden.epochs - 1 do
    kernel:assign(mgpu.tensor(hash.array(15, 1 + epoch)):reshape { 5, 3 })
    bias:assign(mgpu.full({ 3 }, epoch))
    callback:on_epoch_begin(epoch + 1)
    for batch = 1, golden.batches do
      steps = steps + 1
      if callback.on_train_batch_end then
        callback:on_train_batch_begin(batch)
        callback:on_train_batch_end(batch, logs_at(index, epoch, batch))
      end
    end
    local values = logs_at(index, epoch, 0)
    if case.validates then
      local found = logs_at(index, epoch, 5)
      callback:on_test_end(found)
      values.val_loss, values.val_accuracy = found.loss, found.accuracy
    end
    callback:on_epoch_end(epoch + 1, values)
  end
  callback:on_train_end()
  core.eval(kernel:value(), bias:value()) -- so that nothing keeps the tensors of the assignments
end

for i, case in ipairs(golden.cases) do
  test(("case %d: tags, steps, shapes and numbers are those that Keras writes"):format(i), function()
    local args = { log_dir = check.path("keras" .. i) }
    for key, value in pairs(case.args) do args[key] = value end
    replay(mgpu.callbacks.TensorBoard(args), i - 1, case)
    local events = events_of(args.log_dir)
    table.sort(events, function(a, b)
      if a.run ~= b.run then return a.run < b.run end
      if a.tag ~= b.tag then return a.tag < b.tag end
      return a.step < b.step
    end)
    check.equal(#events, #case.events)
    for k, wanted in ipairs(case.events) do
      local got = events[k]
      check.equal({ got.run, got.tag, got.step, got.plugin, got.shape },
        { wanted.run, wanted.tag, wanted.step, wanted.plugin, wanted.shape })
      local values = case.values[k]
      check.near(got.values, type(values) == "table" and values or { values }, 1e-6) -- edges of buckets in float32
    end
  end)
end

-- ---- in a fit -----------------------------------------------------------------------------------

-- Fits the line for 2 epochs of 3 batches, with validation.
local function fit(args, more)
  local x, y = fixtures.line(12)
  local given = { batch_size = 4, epochs = 2, verbose = 0, validation_data = { x, y } }
  for key, value in pairs(more or {}) do given[key] = value end
  given.callbacks = given.callbacks or { mgpu.callbacks.TensorBoard(args) }
  return fixtures.linear():fit(x, y, given)
end

test("a fit writes its values, and the values of the validation data into a folder of their own", function()
  local log_dir = check.path "fit"
  local h = fit { log_dir, update_freq = 2, write_steps_per_second = true }
  check.equal(steps_of(log_dir, "epoch_loss"), { "train epoch_loss 0", "train epoch_loss 1",
    "validation epoch_loss 0", "validation epoch_loss 1" })
  check.equal(steps_of(log_dir, "^evaluation"),
    { "validation evaluation_loss_vs_iterations 3", "validation evaluation_loss_vs_iterations 6" })
  check.equal(steps_of(log_dir, "^batch_loss"), { "train batch_loss 2", "train batch_loss 4", "train batch_loss 6" })
  check.equal(#steps_of(log_dir, "^batch_steps_per_second"), 3)
  check.equal(steps_of(log_dir, "^epoch_steps_per_second"),
    { "train epoch_steps_per_second 0", "train epoch_steps_per_second 1" })
  for _, e in ipairs(events_of(log_dir)) do
    local values = e.tag == "epoch_loss" and h.history[e.run == "train" and "loss" or "val_loss"]
    if values then check.near(e.values[1], values[e.step + 1], 1e-6) end
  end
end)

test("evaluate alone writes its results, at the optimizer's step", function()
  local log_dir, x, y = check.path "evaluated", fixtures.line(12)
  local model = fixtures.linear()
  model:fit(x, y, { batch_size = 4, verbose = 0 })
  local loss = model:evaluate(x, y, { verbose = 0, callbacks = mgpu.callbacks.TensorBoard { log_dir } }).loss
  local events = events_of(log_dir)
  check.equal(steps_of(log_dir, "."), { "validation evaluation_loss_vs_iterations 3" })
  check.near(events[1].values[1], loss, 1e-6)
end)

test("several devices: the histograms are as on one device", function()
  local log_dir, x, y = check.path "devices", fixtures.line(12)
  local model = fixtures.linear { devices = { "cpu:0", "ref:0" } }
  local callback = mgpu.callbacks.TensorBoard { log_dir, histogram_freq = 1 }
  model:fit(x, y, { batch_size = 4, verbose = 0, callbacks = callback })
  check.equal(#steps_of(log_dir, "kernel/histogram$"), 1)
  check.equal(steps_of(log_dir, "^epoch_loss"), { "train epoch_loss 0" })
end)

test("the model's layers are in the conceptual graph", function()
  local log_dir = check.path "graph"
  local a, b = mgpu.Input { 2, name = "a" }, mgpu.Input { 2, name = "b" }
  local inner = mgpu.Sequential { L.Input { 4 }, L.Dense { 3, name = "first" }, name = "inner" }
  local y = L.Dense { 1, name = "last" } (inner(L.Concatenate { name = "both" } { a, b }))
  local model = mgpu.Model { inputs = { a, b }, outputs = y, name = "two" }
  model:compile { optimizer = "sgd", loss = "mse" }
  local x = mgpu.ones { 4, 2 }
  model:fit({ x, x }, mgpu.ones { 4, 1 }, { verbose = 0, callbacks = mgpu.callbacks.TensorBoard { log_dir } })
  local event = events_of(log_dir)[1]
  check.equal({ event.tag, event.step, event.plugin }, { "keras", 0, "graph_keras_model" })
  local graph = core.json_decode(event.texts[1])
  local names, feeds = {}, {}
  for i, layer in ipairs(graph.config.layers) do
    names[i] = layer.class_name .. " " .. layer.name
    for _, node in ipairs(layer.inbound_nodes or {}) do
      for _, arg in ipairs(node.args[1]) do feeds[#feeds + 1] = arg.config.keras_history[1] .. " -> " .. layer.name end
    end
  end
  check.equal(graph.config.layers[2].inbound_nodes, {}) -- or TensorBoard takes the layer before it for its input
  check.equal({ graph.class_name, graph.config.input_layers }, { "Functional", { "a", "b" } })
  check.equal(names, { "InputLayer a", "InputLayer b", "Concatenate both", "Sequential inner", "Dense last" })
  check.equal(feeds, { "a -> both", "b -> both", "both -> inner", "inner -> last" })
  check.equal(graph.config.layers[4].config.layers[2].config.name, "first")
end)

test("histograms count finite numbers, and equal numbers in the last bucket", function()
  local buckets = require "mgpu.train.tensorboard.events".buckets
  local function counts(t)
    local list, total = buckets(t), 0
    check.equal(#list, 90)
    for i = 3, 90, 3 do total = total + list[i] end
    return total, list
  end
  check.equal(counts(mgpu.tensor { 1, 2, 0 / 0, 1 / 0, -1 / 0, 3 }), 3)
  check.equal(counts(mgpu.tensor { 0 / 0 }), 0)
  check.equal(counts(mgpu.zeros { 0, 3 }), 0)
  local total, list = counts(mgpu.full({ 4 }, 2.5))
  check.equal({ total, list[1], list[89], list[90] }, { 4, 2.5, 2.5, 4 })
end)

test("images of weights have Keras's forms and pixels", function()
  local log_dir, encoded = check.path "images", pcall(mgpu.image.encode_png, mgpu.zeros { 1, 1 })
  if not encoded then check.skip "no libpng" end
  local model = mgpu.Sequential { L.Input { 5, 4, 2 }, L.Conv2D { 4, { 3, 2 }, name = "a" },
    L.Conv2D { 1, 2, name = "b" }, L.Flatten {}, L.Dense { 2, name = "c" }, name = "net" }
  model:compile { optimizer = mgpu.optimizers.SGD { 0 }, loss = "mse" }
  local kernel = { { -1, 2 }, { 0.5, 0 / 0 }, { 0.25, 1 }, { 0, 0.1 } }
  model:get_layer "c":set_weights { mgpu.tensor(kernel), mgpu.ones { 2 } }
  local callback = mgpu.callbacks.TensorBoard { log_dir, histogram_freq = 1, write_images = true }
  callback.model = model
  callback:on_train_begin()
  callback:on_epoch_begin(1)
  callback:on_epoch_end(1, require "mgpu.train.logs".new())
  local found = {}
  for _, e in ipairs(events_of(log_dir)) do
    if e.plugin == "images" then
      check.equal(e.shape, { #e.texts })
      found[#found + 1] = ("%s %sx%s %d"):format(e.tag, e.texts[1], e.texts[2], #e.texts - 2)
      local pixels = mgpu.image.decode(e.texts[3])
      check.equal({ pixels:shape()[2], pixels:shape()[1] }, { tonumber(e.texts[1]), tonumber(e.texts[2]) })
      if e.tag == "net/c/kernel/image" then
        check.equal(pixels:reshape { -1 }:totable(), { 0, 127, 63, 0, 255, 0, 255, 25 })
      end
    end
  end
  -- columns x rows, and how many: of a {3, 2, 2, 4} the first axis counts the images, as in Keras
  check.equal(found, { "net/a/kernel/image 2x2 3", "net/a/bias/image 1x4 1", "net/b/kernel/image 2x2 3",
    "net/c/kernel/image 4x2 1", "net/c/bias/image 1x2 1" })
end)

test("the projector gets the tables of embeddings as text", function()
  local log_dir = check.path "projector"
  local model = mgpu.Sequential { L.Input { 3 }, L.Embedding { 4, 2, name = "words" }, L.Flatten {}, L.Dense { 1 } }
  model:compile { optimizer = mgpu.optimizers.SGD { 0 }, loss = "mse" }
  model:fit(mgpu.zeros { 2, 3 }, mgpu.zeros { 2, 1 }, { verbose = 0, callbacks = mgpu.callbacks.TensorBoard {
    log_dir, embeddings_freq = 1, embeddings_metadata = { words = "words.txt" } } })
  check.equal(check.read(log_dir .. "/projector_config.pbtxt"), [[
embeddings {
  tensor_name: "words/embeddings"
  tensor_shape: 4
  tensor_shape: 2
  tensor_path: "words.tsv"
  metadata_path: "words.txt"
}
]])
  local numbers = {}
  for row in check.read(log_dir .. "/words.tsv"):gmatch "[^\n]+" do
    numbers[#numbers + 1] = {}
    for cell in row:gmatch "[^\t]+" do table.insert(numbers[#numbers], tonumber(cell)) end
  end
  check.near(numbers, model:get_weights()[1]:totable(), 1e-8)
end)

test("names with markup and control characters stay text in what TensorBoard reads", function()
  local log_dir = check.path "names"
  local name = "<script>\"'&</script>\27[31m\r\n1\\"
  local model = mgpu.Sequential { name = name, L.Input { 3 }, L.Embedding { 4, 2, name = name }, L.Flatten {},
    L.Dense { 1 } }
  model:compile { optimizer = mgpu.optimizers.SGD { 0 }, loss = "mse" }
  model:fit(mgpu.zeros { 2, 3 }, mgpu.zeros { 2, 1 }, { verbose = 0, callbacks = mgpu.callbacks.TensorBoard {
    log_dir, embeddings_freq = 1, histogram_freq = 1 } })
  local text = events_of(log_dir)[1].texts[1]
  local graph = core.json_decode(text)
  check.falsy(text:find "%c", "a control character in the JSON")
  check.equal({ graph.name, graph.config.layers[2].config.name }, { name, name })
  check.equal(#steps_of(log_dir, (name .. "/embeddings/histogram"):gsub("%p", "%%%0") .. "$"), 1)
  local config = check.read(log_dir .. "/projector_config.pbtxt")
  check.falsy(config:gsub("\n", ""):find "%c", "a control character in the projector's configuration")
  check.truthy(config:find('tensor_path: "%3Cscript%3E%22%27%26%3C%2Fscript%3E%1B%5B31m%0D%0A1%5C.tsv"', 1, true))
  local quoted = config:match '\n  tensor_name: ("[^\n]*")\n' -- protobuf's text format: three octal digits
  check.equal(quoted, [["<script>\"'&</script>\033[31m\015\0121\\/embeddings"]])
end)

-- ---- files --------------------------------------------------------------------------------------

-- Catches what is printed while fn runs.
local function printed(fn)
  local lines, before = {}, mgpu.output
  mgpu.output = function(text) lines[#lines + 1] = text end
  local ok, message = pcall(fn)
  mgpu.output = before
  if not ok then error(message, 0) end
  return table.concat(lines)
end

test("whichever write fails, training goes on and no event is lost or written twice", function()
  local clean = check.path "clean"
  fit { clean, update_freq = 1 }
  local wanted = steps_of(clean, ".")
  for at = 1, 40 do
    local log_dir, hit = check.path("failing" .. at), nil
    local breaker = { on_epoch_begin = function(_, epoch)
      if epoch == 1 then core.file_fault { at = at, error = at % 2 == 0 and "ENOSPC" or "short" } end
    end }
    local text = printed(function()
      fit(nil, { callbacks = { breaker, mgpu.callbacks.TensorBoard { log_dir, update_freq = 1 } } })
      hit = core.file_fault()
    end)
    if at % 2 == 0 and hit then check.matches(text, "TensorBoard: events were not written") end
    local got = steps_of(log_dir, ".")
    table.sort(got)
    local sorted = { unpack(wanted) }
    table.sort(sorted)
    check.equal(got, sorted)
  end
end)

test("a disk that stays full ends in one complaint an epoch", function()
  local breaker = { on_epoch_begin = function(_, epoch)
    if epoch == 1 then core.file_fault { at = 1, error = "ENOSPC", always = true } end
  end }
  local ok, text = pcall(printed, function()
    fit(nil, { callbacks = { breaker, mgpu.callbacks.TensorBoard { check.path "full", update_freq = 1 } } })
  end)
  core.file_fault()
  check.truthy(ok, text)
  check.equal(select(2, text:gsub("No space left", "")), 4) -- the first batch, two epochs, the end
end)

test("events are dropped when a disk refuses more than 64 MiB of them", function()
  local protobuf = require "mgpu.io.protobuf"
  local file = require "mgpu.train.tensorboard.events".EventFile.new(check.path "large")
  core.file_fault { at = 1, error = "ENOSPC", always = true }
  file:add(1, { protobuf.message():bytes(1, ("x"):rep(2 ^ 20)) })
  local first = file:write()
  file:add(2, { protobuf.message():bytes(1, ("x"):rep(2 ^ 26)) })
  local second, third = file:write(), file:write()
  core.file_fault()
  check.matches(first, "they are written later")
  check.matches(second, "they are dropped")
  check.falsy(third)
end)

test("after a kill the events before it can be read", function()
  local script = check.path "killed.lua"
  check.write(script, [[
    local mgpu, core = require "mgpu", require "mgpu.core"
    local model = mgpu.Sequential { mgpu.layers.Input { 2 }, mgpu.layers.Dense { 1 } }
    model:compile { optimizer = "sgd", loss = "mse" }
    local killer = { on_train_batch_end = function(_, batch)
      if batch == 7 then core.file_fault { at = tonumber(arg[2]), error = "kill" } end
    end }
    model:fit(mgpu.ones { 20, 2 }, mgpu.ones { 20, 1 }, { batch_size = 2, verbose = 0,
      callbacks = { mgpu.callbacks.TensorBoard { arg[1], update_freq = 1 }, killer } })
  ]])
  for at = 1, 4 do
    local log_dir = check.path("killed" .. at)
    check.run(("%s '%s' '%s' %d"):format(check.program, script, log_dir, at))
    check.truthy(#steps_of(log_dir, "^batch_loss") >= 7)
  end
end)

test("files that are removed during training are begun anew", function()
  local log_dir = check.path "removed"
  local remover = { on_epoch_begin = function(_, epoch)
    if epoch == 2 then check.run("rm -r '" .. log_dir .. "'") end
  end }
  fit(nil, { callbacks = { remover, mgpu.callbacks.TensorBoard { log_dir } } })
  check.equal(steps_of(log_dir, "epoch_loss"), { "train epoch_loss 1", "validation epoch_loss 1" })
end)

test("a fit that continues from a checkpoint continues the files without repeated events", function()
  local log_dir, dir = check.path "resumed", check.path "checkpoints"
  local function run(stop_at)
    local stopper = { on_train_batch_end = function(self, batch)
      self.seen = (self.seen or 0) + 1
      if self.seen == stop_at then error("stopped at " .. batch) end
    end }
    return pcall(fit, nil, { epochs = 3, callbacks = { mgpu.callbacks.TensorBoard { log_dir, update_freq = 1 },
      mgpu.callbacks.BackupAndRestore { dir, save_freq = 2 }, stopper } })
  end
  check.falsy(run(4)) -- after the checkpoint of batch 2; batch 4 is written already
  check.equal(#steps_of(log_dir, "^batch_loss"), 4)
  check.truthy(run())
  local list = {}
  for i = 1, 9 do list[i] = "train batch_loss " .. i end
  check.equal(steps_of(log_dir, "^batch_loss"), list)
  check.equal(#steps_of(log_dir, "^keras$"), 1)
  check.equal(#steps_of(log_dir, "^epoch_loss"), 6)
end)

test("with update_freq = epoch no method is called for a batch", function()
  local callback = mgpu.callbacks.TensorBoard { check.path "quiet" }
  check.falsy(callback.on_train_batch_begin)
  check.falsy(callback.on_train_batch_end)
end)

-- ---- wrong calls --------------------------------------------------------------------------------

test("options that cannot be served are refused, before the first step", function()
  local TensorBoard = mgpu.callbacks.TensorBoard
  check.raises(function() TensorBoard { update_freq = "step" } end, 'update_freq" must be "epoch", "batch"', "usage")
  check.raises(function() TensorBoard { log_dir = "" } end, "must name a folder", "usage")
  check.raises(function() TensorBoard { profile_batch = 2 } end, "profile_batch", "unsupported")
  check.raises(function() TensorBoard { histogram_frq = 1 } end, 'did you mean "histogram_freq"', "usage")
  local blocked = check.path "blocked"
  check.write(blocked, "")
  check.raises(function() fit { blocked } end, "%d: fit: TensorBoard: cannot make the folder .*blocked", "io")
  check.raises(function() fit { check.path "none", embeddings_freq = 1 } end, "no Embedding layer", "usage")
  local model = mgpu.Sequential { L.Input { 3 }, L.Embedding { 4, 2, name = "words" }, L.Flatten {}, L.Dense { 1 } }
  model:compile { optimizer = "sgd", loss = "mse" }
  check.raises(function()
    model:fit(mgpu.zeros { 2, 3 }, mgpu.zeros { 2, 1 }, { verbose = 0, callbacks = TensorBoard {
      check.path "words", embeddings_freq = 1, embeddings_metadata = { word = "x" } } })
  end, 'no Embedding layer "word"', "usage")
end)
