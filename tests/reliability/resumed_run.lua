-- A training that a test interrupts and starts again, in a process of its own:
--
--     mgpulua tests/reliability/resumed_run.lua FOLDER RESULT [OPTIONS]
-- It saves checkpoints in FOLDER ("none": it saves none), and writes history, weights and the optimizer's variables to
-- the file RESULT, so that two runs can be compared byte by byte. It prints "first EPOCH STEP" for its first step and
-- "saved EPOCH STEP" for each checkpoint that is known to be on disk. OPTIONS is the inside of a Lua table:
--   kill = n          sends itself `signal` (9) after n steps
--   fault = {n, code, always}  the n-th file call from the sixth step on fails (core/io.h); always: later ones, too
--   dataset = true    a shuffled, mapped, prefetched dataset in place of tensors
--   epochs = 3  freq = 5  optimizer = "adam"  validation = true, and others of compile and fit
local core = require "mgpu.core"
local ffi = require "ffi"
local mgpu = require "mgpu"

ffi.cdef [[
  int getpid(void);
  int kill(int, int);
  void mg_io_fail_after(int64_t, int);
  void mg_io_fail_from(int64_t, int);
]]

local L = mgpu.layers
local folder, result = arg[1], arg[2]
local chosen = assert(loadstring("return {" .. (arg[3] or "") .. "}"))()

mgpu.seed(7)
local x, y = mgpu.rand { 90, 6 }, mgpu.randint(0, 3, { 90 })
mgpu.eval(x, y)
local model = mgpu.Sequential { L.Input { 6 }, L.GaussianNoise { 0.1 }, L.Dense { 16, activation = "relu" },
  L.BatchNormalization {}, L.Dropout { 0.3 }, L.Dense { 3, activation = "softmax" } }
model:compile { optimizer = chosen.optimizer or "adam", loss = "sparse_categorical_crossentropy", metrics = "accuracy",
  accumulate = chosen.accumulate, steps_per_execution = chosen.steps_per_execution, devices = chosen.devices,
  strategy = chosen.strategy }

local backup = folder ~= "none" and mgpu.callbacks.BackupAndRestore { folder, save_freq = chosen.freq or 5,
  delete_checkpoint = false } or {}

local watch, steps = { epoch = 0 }, 0
function watch.on_epoch_begin(_, epoch) watch.epoch = epoch end
function watch.on_train_batch_end(_, batch)
  steps = steps + 1
  local saved = backup.last_saved
  if steps == 1 then print("first", watch.epoch, batch) end
  if saved and saved ~= watch.saved then print("saved", saved.epoch, saved.step) end
  watch.saved = saved
  io.flush()
  if steps == 6 and chosen.fault then
    local n, code, always = unpack(chosen.fault)
    if always then ffi.C.mg_io_fail_from(n, code) else ffi.C.mg_io_fail_after(n, code) end
  end
  if steps == chosen.kill then ffi.C.kill(ffi.C.getpid(), chosen.signal or 9) end
end

local options = { epochs = chosen.epochs or 3, batch_size = 8, verbose = 0, steps_per_epoch = chosen.steps_per_epoch,
  shuffle = chosen.shuffle, callbacks = { watch, backup.dir and backup or nil } }
local history
if chosen.dataset then
  options.batch_size = nil
  options.validation_data = mgpu.data.from_tensors { x, y }:shuffle(100):batch(16)
  history = model:fit(mgpu.data.from_tensors { x, y }:shuffle(40):batch(8)
    :map(function(a, b) return a + mgpu.randn(a:shape()) * 0.01, b end):prefetch(2), options)
else
  options.validation_split = 0.2
  history = model:fit(x, y, options)
end

local lines, names = {}, {}
local function add(text) lines[#lines + 1] = text end
for name in pairs(history.history) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do
  for _, value in ipairs(history.history[name]) do add(("%s %.17g"):format(name, value)) end
end
for _, list in ipairs { model.variables, model.optimizer:variables() } do
  for _, v in ipairs(list) do add(core.json_encode(v:value():flatten():totable())) end
end
local file = assert(io.open(result, "w"))
file:write(table.concat(lines, "\n"), "\n")
file:close()
