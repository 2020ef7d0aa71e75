-- BackupAndRestore and fit's option resume: a fit that was stopped goes on as if nothing had happened.

local check = require "check"
local core = require "mgpu.core"
local ffi = require "ffi"
local mgpu = require "mgpu"

local test = check.test
local L = mgpu.layers

ffi.cdef [[
  int setenv(const char *, const char *, int);
  void mg_io_fail_after(int64_t, int);
  void mg_io_fail_from(int64_t, int);
  bool mg_io_fail_stop(void);
  bool mg_stop_request(int);
]]
local EIO, ENOSPC = 5, 28

-- Checkpoints are synced to disk; where files are in memory, that takes no time.
if select(2, check.run "test -w /dev/shm") == 0 then ffi.C.setenv("TMPDIR", "/dev/shm", 1) end

local RUN = ("%s %s"):format(check.program, "tests/reliability/resumed_run.lua")

local function output_of(fn)
  local before, parts = mgpu.output, {}
  mgpu.output = function(text) parts[#parts + 1] = text end
  local ok, message = pcall(fn)
  mgpu.output = before
  if not ok then error(message, 0) end
  return table.concat(parts)
end

-- ---- in one process -----------------------------------------------------------------------------

local EPOCHS, STEPS = 3, 9 -- steps of an epoch

local function data()
  mgpu.seed(2)
  return mgpu.rand { 80, 4 }, mgpu.rand { 80, 1 }
end

-- A model made by the same code each time, so with other automatic names, but the same random numbers.
local function network(options)
  mgpu.seed(9)
  local model = mgpu.Sequential { L.Input { 4 }, L.Dense { 7, activation = "relu" }, L.Dropout { 0.4 }, L.Dense { 1 } }
  options = options or {}
  model:compile { optimizer = options.optimizer or "adam", loss = "mse", metrics = "mae",
    accumulate = options.accumulate, steps_per_execution = options.steps_per_execution, devices = options.devices,
    strategy = options.strategy, precision = options.precision }
  return model
end

-- Fits, or raises "stop" after `stop` steps. RETURNS history and model.
local function fit(options, callback, stop)
  local x, y = data()
  local model, steps = network(options), 0
  local callbacks = { unpack(options.callbacks and options.callbacks() or {}) }
  callbacks[#callbacks + 1] = callback
  callbacks[#callbacks + 1] = { on_train_batch_end = function()
    steps = steps + 1
    if steps == stop then error("stop", 0) end
  end }
  local given = { epochs = options.epochs or EPOCHS, batch_size = 8, validation_split = 0.1, verbose = 0,
    callbacks = callbacks, steps_per_epoch = options.steps_per_epoch, resume = options.resume,
    shuffle = options.shuffle }
  local ok, result = pcall(model.fit, model, x, y, given)
  if not ok and not (stop and result == "stop") then error(result, 0) end
  return ok and result or nil, model
end

local function numbers(history, model)
  local list = { core.json_encode { history = history.history, epoch = history.epoch } }
  for _, variables in ipairs { model.variables, model.optimizer:variables() } do
    for _, v in ipairs(variables) do list[#list + 1] = core.json_encode(v:value():totable()) end
  end
  return table.concat(list, "\n")
end

local function backup(dir, options)
  options = options or {}
  options.backup_dir = dir
  return mgpu.callbacks.BackupAndRestore(options)
end

-- Compares fits that were stopped after each of the given numbers of steps, and continued, with one that was not.
local function continues(name, options, stops)
  local straight = numbers(fit(options))
  for _, stop in ipairs(stops) do
    local dir = check.path(name .. stop)
    local save_freq = options.save_freq or math.max(1, stop - 1) -- few saves: syncing a disk takes its time
    fit(options, backup(dir, { save_freq = save_freq }), stop)
    check.truthy(#core.checkpoint_list(dir) > 0, "checkpoints")
    check.equal(numbers(fit(options, backup(dir, { save_freq = 20 }))), straight)
    check.equal(#core.checkpoint_list(dir), 0) -- a completed fit removes them
  end
end

test("a fit that was stopped after any step has the numbers of one that was not", function()
  continues("any", {}, { 2, 5, 9, 10, 11, 18, 19, 26, 27 })
end)

test("with a save every few steps, and after each epoch", function()
  continues("few", { save_freq = 4 }, { 6, 13, 22 })
  continues("epochs", { save_freq = "epoch" }, { 12, 20 })
end)

test("with accumulation, several batches a call, and steps_per_epoch that does not divide a pass", function()
  continues("sums", { accumulate = 4 }, { 3, 7, 15 })
  continues("calls", { steps_per_execution = 2 }, { 3, 7 })
  continues("parts", { steps_per_epoch = 7 }, { 5, 8, 17 })
  continues("sorted", { shuffle = false }, { 5, 14 })
end)

test("with schedules, averages, and a loss scale", function()
  for name, optimizer in pairs {
    schedule = function() return mgpu.optimizers.SGD { mgpu.schedules.CosineDecay { 0.1, decay_steps = 20 } } end,
    averages = function() return mgpu.optimizers.Nadam { 0.01, use_ema = true, ema_overwrite_frequency = 4 } end,
    scale = function() return mgpu.optimizers.LossScaleOptimizer { "adam", dynamic_growth_steps = 5 } end } do
    local options = setmetatable({}, { __index = function(_, key)
      return key == "optimizer" and optimizer() or nil -- a new one for each fit
    end })
    continues(name, options, { 12 })
  end
end)

test("with stateful layers, whose states go on from batch to batch", function()
  local function run(dir, stop, rows)
    mgpu.seed(6)
    local x, y, steps = mgpu.rand { 24, 5, 2 }, mgpu.rand { 24, 1 }, 0
    local model = mgpu.Sequential { L.Input { 5, 2, batch_size = rows or 4 }, L.LSTM { 3, stateful = true },
      L.Dense { 1 } }
    model:compile { optimizer = "adam", loss = "mse" }
    local callbacks = { { on_train_batch_end = function()
      steps = steps + 1
      if steps == stop then error("stop", 0) end
    end } }
    callbacks[2] = dir and backup(dir, { save_freq = 4 })
    local ok, history = pcall(model.fit, model, x, y, { epochs = 3, batch_size = 4, verbose = 0, shuffle = false,
      callbacks = callbacks })
    return ok and numbers(history, model) or error(history, 0)
  end
  local straight = run()
  check.raises(function() run(check.path "stateful", 10) end, "stop")
  check.raises(function() run(check.path "stateful", nil, 2) end, "keeps states {4, 3} of a stateful layer, this model "
    .. "keeps {2, 3}: use the same layers and batch_size", "usage")
  check.equal(run(check.path "stateful"), straight)
end)

test("with the callbacks that count epochs and keep the best weights", function()
  continues("callbacks", { epochs = 8, callbacks = function()
    return { mgpu.callbacks.EarlyStopping { monitor = "val_loss", patience = 2, min_delta = 0.02,
        restore_best_weights = true },
      mgpu.callbacks.ReduceLROnPlateau { monitor = "loss", patience = 1, min_delta = 0.05 },
      mgpu.callbacks.LearningRateScheduler { function(_, rate) return rate * 0.9 end } }
  end }, { 4, 12, 25 })
end)

test("with averages that are in the model at the end of an epoch", function()
  local options = setmetatable({ save_freq = "epoch", epochs = 4, callbacks = function()
    return { mgpu.callbacks.SwapEMAWeights { swap_on_epoch = true } }
  end }, { __index = function(_, key)
    return key == "optimizer" and mgpu.optimizers.SGD { 0.1, use_ema = true, ema_momentum = 0.5 } or nil
  end })
  continues("swapped", options, { 12, 20 })
  collectgarbage() -- what training ended with waits for an evaluation, even of models that are gone
  mgpu.ones({ 1 }):item()
end)

test("without jit, with several outputs, weights of rows, and metrics that keep more than two sums", function()
  local function run(dir, stop)
    mgpu.seed(6)
    local x = mgpu.Input { 4 }
    local hidden, steps = L.Dropout { 0.3 }(L.Dense { 6, activation = "relu" }(x)), 0
    local model = mgpu.Model { inputs = x, outputs = { L.Dense { 1, name = "a" }(hidden),
      L.Dense { 1, name = "b", activation = "sigmoid" }(hidden) } }
    model:compile { optimizer = "rmsprop", loss = { a = "mse", b = "binary_crossentropy" }, run_eagerly = dir == nil,
      metrics = { b = { mgpu.metrics.AUC { num_thresholds = 9 }, mgpu.metrics.Precision {} } } }
    local rows = { mgpu.rand { 40, 4 }, mgpu.rand { 40, 1 }, mgpu.randint(0, 2, { 40, 1 }):to "float32",
      mgpu.rand { 40 } }
    local callbacks = { { on_train_batch_end = function()
      steps = steps + 1
      if steps == stop then error("stop", 0) end
    end } }
    callbacks[2] = dir and backup(dir, { save_freq = 7 })
    local ok, history = pcall(model.fit, model, rows[1], { a = rows[2], b = rows[3] }, { epochs = 3, batch_size = 8,
      verbose = 0, sample_weight = { a = rows[4] }, callbacks = callbacks })
    return ok and history or error(history, 0), model
  end
  local straight, model = run()
  check.raises(function() run(check.path "outputs", 9) end, "stop")
  local history, again = run(check.path "outputs")
  for name, list in pairs(straight.history) do check.near(history.history[name], { unpack(list) }, 1e-6) end
  for i, w in ipairs(model:get_weights()) do check.near(again:get_weights()[i], w:totable(), 1e-5) end
end)

test("a fit in a callback of another may save, too", function()
  local dir = check.path "outer"
  fit({ epochs = 2, callbacks = function()
    return { { on_epoch_end = function(_, epoch)
      fit({ epochs = 1 }, backup(check.path("inner" .. epoch)))
      check.truthy(ffi.C.mg_stop_request(15), "the outer fit listens")
      check.truthy(core.stop_requested(), "the wish")
      core.stop_listen(true) -- forgets it
    end } }
  end }, backup(dir))
  check.falsy(ffi.C.mg_stop_request(15), "a listener")
end)

test("on several devices, and with the weights on one of them", function()
  check.needs "cpu"
  continues("mirrored", { devices = { "cpu:0", "cpu:1", "cpu:2" } }, { 12 })
  continues("central", { devices = { "cpu:0", "cpu:1" }, strategy = "central" }, { 12 })
end)

test("after a change of the number of devices, up to rounding", function()
  check.needs "cpu"
  local function with(n)
    local names = {}
    for i = 1, n do names[i] = "cpu:" .. i - 1 end
    return { devices = names }
  end
  local straight, serial = fit(with(1))
  for _, pair in ipairs { { 4, 2 }, { 1, 3 }, { 2, 1 } } do
    local dir = check.path(("change%d%d"):format(unpack(pair)))
    fit(with(pair[1]), backup(dir, { save_freq = 13 }), 14)
    local history, model = fit(with(pair[2]), backup(dir))
    check.near(history.history.loss, { unpack(straight.history.loss) }, 1e-5)
    for i, w in ipairs(model:get_weights()) do check.near(w, serial:get_weights()[i]:totable(), 1e-4) end
  end
end)

test("asynchronous training is saved after epochs only", function()
  check.needs "cpu"
  local options = { devices = { "cpu:0", "cpu:1" }, strategy = "async" }
  check.raises(function() fit(options, backup(check.path "async", { save_freq = 3 })) end,
    'with strategy "async" there is a common state only at the end of an epoch', "usage")
  local dir = check.path "async"
  fit(options, backup(dir), 12)
  local history, model = fit(options, backup(dir))
  check.equal(#history.epoch, EPOCHS)
  check.equal(model.optimizer:steps_taken(), EPOCHS * STEPS)
end)

test("a model that is built by its first batch, and datasets of own making", function()
  local function run(dir, stop)
    mgpu.seed(4)
    local model, passes = mgpu.Sequential { L.Dense { 5 }, L.Dropout { 0.5 }, L.Dense { 1 } }, 0
    model:compile { optimizer = "adam", loss = "mse" }
    local x, y = data()
    local own = { iter = function()
      local i = 0
      passes = passes + 1
      return function()
        i = i + 1
        if i <= 10 then return x:slice { { 8 * i - 7, 8 * i }, {} }, y:slice { { 8 * i - 7, 8 * i }, {} } end
      end
    end }
    local steps = 0
    local callbacks = { { on_train_batch_end = function()
      steps = steps + 1
      if steps == stop then error("stop", 0) end
    end } }
    callbacks[2] = dir and backup(dir, { save_freq = 6 })
    local ok, history = pcall(model.fit, model, own, { epochs = 3, verbose = 0, steps_per_epoch = 8,
      callbacks = callbacks })
    return ok and numbers(history, model) or history
  end
  local straight = run()
  check.equal(run(check.path "own", 13), "stop")
  check.equal(run(check.path "own"), straight)
end)

test("generators are called from their beginning, and go on where they were", function()
  local function run(dir, stop)
    mgpu.seed(4)
    local model, steps = mgpu.Sequential { L.Input { 3 }, L.Dropout { 0.5 }, L.Dense { 1 } }, 0
    model:compile { optimizer = "adam", loss = "mse" }
    local function batches(salt)
      return coroutine.create(function()
        for i = 1, math.huge do coroutine.yield(mgpu.full({ 4, 3 }, i * salt % 7), mgpu.full({ 4, 1 }, i % 3)) end
      end)
    end
    local callbacks = { { on_train_batch_end = function()
      steps = steps + 1
      if steps == stop then error("stop", 0) end
    end } }
    callbacks[2] = dir and backup(dir, { save_freq = 7 })
    local ok, history = pcall(model.fit, model, batches(1), { epochs = 3, verbose = 0, steps_per_epoch = 5,
      validation_data = batches(2), validation_steps = 3, callbacks = callbacks })
    return ok and numbers(history, model) or history
  end
  local straight = run()
  check.equal(run(check.path "generator", 9), "stop")
  check.equal(run(check.path "generator"), straight)
end)

-- ---- resume, and what the user sees -------------------------------------------------------------

test("resume saves after each epoch, and returns at once for a fit that is complete", function()
  local dir = check.path "resume"
  local options = { resume = dir }
  local straight = numbers(fit {})
  fit(options, nil, 20)
  local text = output_of(function() check.equal(numbers(fit(options)), straight) end)
  check.equal(text, "")
  check.equal(#core.checkpoint_list(dir), 2)
  local history, model = fit(options, { on_epoch_begin = function() error "an epoch" end })
  check.equal(numbers(history, model), straight)
  options.epochs = 4 -- one more
  check.equal(numbers(fit(options)), numbers(fit { epochs = 4 }))
end)

test("fit says where it continues from", function()
  local dir = check.path "says"
  fit({}, backup(dir, { save_freq = 3 }), 14) -- raises before a save after step 14
  local x, y = data()
  local text = output_of(function()
    network():fit(x, y, { epochs = 3, batch_size = 8, validation_split = 0.1, verbose = 2, callbacks = backup(dir) })
  end)
  check.matches(text, ("fit: continues from %s/checkpoint-000004: epoch 2, step 3\n"):format(dir))
end)

test("own callbacks keep their state, whatever plain data it is", function()
  local dir, seen = check.path "own_state", nil
  local state = { best = math.huge, worst = -math.huge, odd = 0 / 0, list = { 1, { 2.5, "text" } }, [3] = true,
    [false] = { -0.0 }, weights = { mgpu.tensor { 1, 2 } }, empty = {}, long = {} }
  for i = 1, 100 do state.long[i] = i / 3 end
  state.long[7] = -math.huge
  local function own()
    return { get_state = function() return state end, set_state = function(_, s) seen = s end,
      on_epoch_end = function() end }
  end
  fit({ callbacks = function() return { own() } end }, backup(dir, { save_freq = 1 }), 4)
  fit({ callbacks = function() return { own() } end }, backup(dir))
  check.equal({ seen.best, seen.worst, seen.list, seen[3], 1 / seen[false][1] },
    { math.huge, -math.huge, { 1, { 2.5, "text" } }, true, -math.huge })
  check.truthy(seen.odd ~= seen.odd, "not a number")
  check.equal({ seen.weights[1], seen.empty, seen.long }, { { 1, 2 }, {}, state.long })
  local function nothing() end
  local bad = { get_state = function() return { nothing } end, set_state = nothing, on_epoch_end = nothing }
  bad.on_epoch_begin = nothing
  bad.on_train_batch_begin = function() error "a step" end
  check.raises(function() fit({ callbacks = function() return { bad } end }, backup(check.path "bad_state")) end,
    "the state of the callback table 1: it holds a function, which cannot be saved", "usage")
end)

test("options and folders are checked before the first step", function()
  local function refused(options, expected)
    check.raises(function() mgpu.callbacks.BackupAndRestore(options) end, "BackupAndRestore: " .. expected, "usage")
  end
  refused({}, 'option "backup_dir" is missing')
  refused({ "a", dir = "b" }, "give only one")
  refused({ "a", save_freq = "batch" }, 'option "save_freq" must be "epoch" or a number of batches, got "batch"')
  refused({ "a", keep = 1 }, 'option "keep" must be at least 2')
  refused({ "a", save_fre = 1 }, 'unknown option "save_fre" %(did you mean "save_freq"%?%)')
  local never = { on_epoch_begin = function() error "an epoch" end }
  check.write(check.path "plain", "")
  check.raises(function() fit({ callbacks = function() return { never } end }, backup(check.path "plain/in")) end,
    "fit: the checkpoints: cannot make the folder .*plain", "io")
  check.raises(function() fit({ resume = check.path "r" }, backup(check.path "b")) end, "give only one of resume",
    "usage")
  check.raises(function()
    fit({ callbacks = function() return { backup(check.path "b") } end }, backup(check.path "c"))
  end, "there are two BackupAndRestore", "usage")
end)

test("a checkpoint of another fit is refused, and says why", function()
  local dir = check.path "other"
  fit({}, backup(dir, { save_freq = 1 }), 5)
  check.raises(function() fit({ optimizer = "sgd" }, backup(dir)) end,
    "checkpoint%-000004 was made by a fit with optimizer = Adam, this one has SGD", "usage")
  check.raises(function() fit({ accumulate = 2 }, backup(dir)) end, "with accumulate = 1, this one has 2", "usage")
  local x, y = data()
  local wide = mgpu.Sequential { L.Input { 4 }, L.Dense { 9 }, L.Dropout { 0.4 }, L.Dense { 1 } }
  wide:compile { optimizer = "adam", loss = "mse", metrics = "mae" }
  check.raises(function()
    wide:fit(x, y, { epochs = 3, batch_size = 8, validation_split = 0.1, verbose = 0, callbacks = backup(dir) })
  end, "checkpoint%-000004: .*by order, weight 1 is ", "data")
end)

-- ---- failures -----------------------------------------------------------------------------------

local function flip(path, at)
  local bytes = check.read(path)
  check.write(path, bytes:sub(1, at - 1) .. string.char(bit.bxor(bytes:byte(at), 4)) .. bytes:sub(at + 1))
end

test("a damaged checkpoint is skipped with a sentence, and the one before is used", function()
  local straight, dir = numbers(fit {}), check.path "damaged"
  for _, file in ipairs { "checkpoint-000002/state.safetensors", "checkpoint-000002/manifest", "latest" } do
    fit({}, backup(dir, { save_freq = 3 }), 8)
    flip(dir .. "/" .. file, 40)
    local text = output_of(function() check.equal(numbers(fit({}, backup(dir))), straight) end)
    check.matches(text, file == "latest" and "latest is damaged: .*the numbers of the checkpoints tell"
      or "fit: .*checkpoint%-000002 is skipped: .*" .. file:match "[^/]*$" .. " is damaged")
  end
  fit({}, backup(dir, { save_freq = 3 }), 8)
  for _, number in ipairs(core.checkpoint_list(dir)) do
    flip(("%s/checkpoint-%06d/manifest"):format(dir, number), 3)
  end
  output_of(function()
    check.raises(function() fit({}, backup(dir)) end, "none of the checkpoints in .* is whole", "data")
  end)
end)

test("a save does not make a fit run out of memory that would have enough without it", function()
  check.needs "cpu"
  local script = check.path "memory.lua"
  check.write(script, [[
    local mgpu = require "mgpu"
    local L, dir = mgpu.layers, ...
    mgpu.seed(1)
    local x, y = mgpu.rand { 40, 500 }, mgpu.rand { 40, 1 }
    local model = mgpu.Sequential { L.Input { 500 }, L.Dense { 1000 }, L.Dense { 1 } }
    model:compile { optimizer = "adam", loss = "mse" }
    local backup = dir ~= "none" and mgpu.callbacks.BackupAndRestore { dir, save_freq = 1 } or nil
    local h = model:fit(x, y, { epochs = 2, batch_size = 4, verbose = 0, callbacks = backup })
    print(("%.17g"):format(h.history.loss[2]))]])
  local function run(megabytes, dir)
    return check.run(("MGPU_MEMORY=cpu:0=%dM %s %s %s"):format(megabytes, check.program, script, dir))
  end
  local least, straight, status = 6, nil, 1
  while status ~= 0 and least < 60 do
    least = least + 1
    straight, status = run(least, "none")
  end
  check.equal({ run(least, check.path "tight") }, { straight, 0 })
end)

-- Fits with a fault at the n-th file call from step 3 of the second epoch to its end. RETURNS the printed text.
local function fit_with_fault(dir, fail, n, code, straight)
  local epoch
  return output_of(function()
    local found = numbers(fit({ callbacks = function()
      return { { on_epoch_begin = function(_, e) epoch = e end,
        on_train_batch_end = function(_, batch) if epoch == 2 and batch == 3 then fail(n, code) end end,
        on_epoch_end = function() ffi.C.mg_io_fail_stop() end } }
    end }, backup(dir, { save_freq = 4, delete_checkpoint = false })))
    check.equal(found, straight)
  end)
end

test("a save that fails is reported, the old checkpoint stays, and training goes on", function()
  local straight = numbers(fit {})
  for n = 1, 45, 4 do
    local dir = check.path("fault" .. n)
    local fail = n % 3 == 0 and ffi.C.mg_io_fail_from or ffi.C.mg_io_fail_after
    local text = fit_with_fault(dir, fail, n, n % 2 == 0 and EIO or ENOSPC, straight)
    if text ~= "" then
      check.matches(text, "fit: epoch %d, .*cannot .*; training goes on, the newest checkpoint is ")
    end
    local list = core.checkpoint_list(dir)
    for _, number in ipairs(list) do core.checkpoint_verify(dir, number) end
    check.truthy(#list >= 2, "checkpoints")
  end
end)

test("a killed process continues from the last checkpoint it knew of, with the same numbers", function()
  local straight, result = check.path "straight", check.path "result"
  for _, options in ipairs { "", "dataset=true" } do
    check.run(("%s none %s '%s'"):format(RUN, straight, options))
    local dir, known = check.path("killed" .. #options), 0
    for _, kill in ipairs { 7, 9, 3, 100 } do
      local text = check.run(("%s %s %s 'kill=%d,%s'"):format(RUN, dir, result, kill, options))
      local epoch, step = text:match "first%s+(%d+)%s+(%d+)"
      check.truthy(epoch * 1000 + step > known, "the first step")
      for e, s in text:gmatch "saved%s+(%d+)%s+(%d+)" do known = e * 1000 + s end
    end
    check.equal(check.read(result), check.read(straight))
  end
end)

test("SIGTERM and SIGUSR1 save after the current step and end the program with 75", function()
  local straight, result = check.path "straight", check.path "result"
  check.run(("%s none %s"):format(RUN, straight))
  for name, number in pairs { SIGTERM = 15, SIGUSR1 = 10 } do
    local dir = check.path(name)
    local text, status = check.run(("%s %s %s 'freq=100,kill=13,signal=%d'"):format(RUN, dir, result, number))
    check.equal(status, 75)
    check.matches(text, ("fit: epoch 2, step 4: stopped by %s, saved in %s/checkpoint-000001; run it again"):format(
      name, dir))
    check.falsy(text:find "traceback", "a traceback")
    text, status = check.run(("%s %s %s"):format(RUN, dir, result))
    check.equal(status, 0)
    check.matches(text, "first%s+2%s+5")
    check.equal(check.read(result), check.read(straight))
  end
  local _, status = check.run(("%s none %s 'kill=13,signal=15'"):format(RUN, result))
  check.equal(status, 143)
  _, status = check.run(("%s none %s 'kill=13,signal=10'"):format(RUN, result))
  check.equal(status, 138)
end)

test("a signal whose save fails ends the program with 74, and the checkpoint before is there", function()
  local dir, result = check.path "failing", check.path "result"
  local text, status = check.run(("%s %s %s 'freq=2,fault={1,%d,true},kill=8,signal=15'"):format(RUN, dir, result,
    ENOSPC))
  check.equal(status, 74)
  check.matches(text, "fit: epoch 1, step 8: the checkpoint could not be saved: cannot .*No space left on device; the "
    .. "newest checkpoint is .*checkpoint%-00000%d")
  check.matches(text, "stopped by SIGTERM, but the checkpoint could not be saved %(see above%)")
  core.checkpoint_verify(dir, core.checkpoint_list(dir)[1])
end)

test("a signal in the validation saves, and the validation is done again", function()
  local script, dir = check.path "validation.lua", check.path "validating"
  check.write(script, [[
    local ffi, mgpu = require "ffi", require "mgpu"
    ffi.cdef "int getpid(void); int kill(int, int);"
    local L, dir, stop = mgpu.layers, ...
    mgpu.seed(1)
    local x, y = mgpu.rand { 20, 3 }, mgpu.rand { 20, 1 }
    local model = mgpu.Sequential { L.Input { 3 }, L.Dense { 1 } }
    model:compile { optimizer = "adam", loss = "mse" }
    local tests = 0
    local h = model:fit(x, y, { epochs = 3, batch_size = 4, validation_data = { x, y }, verbose = 0,
      resume = dir ~= "none" and dir or nil,
      callbacks = { on_test_batch_end = function()
        tests = tests + 1
        if tests == 7 and stop == "stop" then ffi.C.kill(ffi.C.getpid(), 15) end
      end } })
    for i = 1, 3 do print(("%.17g %.17g"):format(h.history.loss[i], h.history.val_loss[i])) end]])
  local straight = check.run(("%s %s none"):format(check.program, script))
  local text, status = check.run(("%s %s %s stop"):format(check.program, script, dir))
  check.equal(status, 75)
  check.matches(text, "epoch 2, step 5: stopped by SIGTERM")
  check.equal((check.run(("%s %s %s"):format(check.program, script, dir))), straight)
end)

-- ---- the program --------------------------------------------------------------------------------

test("--resume is for the fits of a script, one folder each; --verify checks them", function()
  local script, dir = check.path "two.lua", check.path "two"
  check.write(script, [[
    local mgpu = require "mgpu"
    local L, stop = mgpu.layers, ...
    mgpu.seed(1)
    local x, y = mgpu.rand { 20, 3 }, mgpu.rand { 20, 1 }
    local model, epochs = mgpu.Sequential { L.Input { 3 }, L.Dropout { 0.5 }, L.Dense { 1 } }, 0
    model:compile { optimizer = "adam", loss = "mse" }
    for n = 1, 2 do
      model:fit(x, y, { epochs = 3, batch_size = 4, verbose = 0, callbacks = { on_epoch_end = function()
        epochs = epochs + 1
        if epochs == tonumber(stop) then os.exit(9, true) end
      end } })
    end
    for _, w in ipairs(model:get_weights()) do
      for _, v in ipairs(w:flatten():totable()) do print(("%.17g"):format(v)) end
    end
    print(epochs)]])
  local function weights(text) return (text:gsub("\n%d\n$", "")) end
  local straight = weights((check.run(("%s %s"):format(check.program, script))))
  local resume = ("%s --resume %s %s "):format(check.program, dir, script)
  check.equal({ check.run(resume .. "5") }, { "", 9 })
  local text, status = check.run(resume)
  check.equal({ weights(text), status }, { straight, 0 })
  check.truthy(tonumber(text:match "(%d)\n$") <= 3, "the first fit is not done again: the epochs")
  text, status = check.run(("%s --verify %s"):format(check.program, dir))
  check.equal(status, 0)
  check.matches(text, dir .. "/checkpoint-000003  whole: epoch 3, complete\n")
  check.matches(text, dir .. "/fit%-2/checkpoint%-00000%d  whole: epoch 3, complete\n")
  flip(dir .. "/fit-2/latest", 2)
  text, status = check.run(("%s --verify %s"):format(check.program, dir))
  check.equal(status, 74)
  check.matches(text, dir .. "/fit%-2/latest  .*is damaged")
  text, status = check.run(("%s --verify %s"):format(check.program, check.path "nowhere"))
  check.equal({ text, status }, { check.path "nowhere" .. " holds no checkpoint\n", 74 })
end)
