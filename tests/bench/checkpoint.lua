-- Files beside PyTorch's, and what a checkpoint costs a step of fit.
--
--     build/mgpulua tests/bench/checkpoint.lua [--rounds 7] [--venv FOLDER]
--
-- Save: the weights of mnist_cnn and Adam's state (28 MB), by model:save, as one of a fit's checkpoints, and by
-- torch.save. Load: 512 MB in 8 tensors, by store_load and by torch.load, from the page cache. The files lie in memory
-- (/dev/shm), so that the disk is not measured. The last races save to the disk, where PyTorch syncs its file as we
-- always do. That time depends on the disk, so the processor time of all threads is compared as well: a save takes it
-- away from the training that goes on meanwhile.
--
-- `--serve KIND --folder FOLDER` is our side of a race (the protocol of peer_protocol.py).

local HERE = "tests/bench/"
package.path = HERE .. "?.lua;" .. package.path
local core = require "mgpu.core"
local mgpu = require "mgpu"

local options = { rounds = "7",
  venv = (os.getenv "XDG_CACHE_HOME" or os.getenv "HOME" .. "/.cache") .. "/mgpulua/bench-venv" }
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end

-- mnist_cnn after a step with Adam, on 8 rows.
local function trained()
  mgpu.seed(1)
  local model = mgpu.models.mnist_cnn {}
  model:compile { optimizer = "adam", loss = "sparse_categorical_crossentropy" }
  model:train_on_batch(mgpu.rand { 8, 28, 28, 1 }, mgpu.randint(0, 10, { 8 }))
  return model
end

-- ---- one side of a race ---------------------------------------------------------------------------

local kinds = {}

function kinds.save(folder)
  local model = trained()
  return function() model:save(folder .. "/ours.safetensors") end
end

-- From the fourth on, each checkpoint overwrites an old one, like most checkpoints of a fit.
function kinds.checkpoint(folder)
  local model, state, path = trained(), {}, folder .. "/run"
  for i, v in ipairs(model.variables) do state["weights/" .. i] = v:value() end
  for i, v in ipairs(model.optimizer:variables()) do state["optimizer/" .. i] = v:value() end
  local writer = core.checkpoint_writer(path, 2)
  local function save()
    writer:start(state, { fit = "{}" })
    local message = writer:wait().message
    if message then error(message) end
  end
  for _ = 1, 3 do save() end
  return save
end

function kinds.load(folder)
  local path, tensors = folder .. "/ours.safetensors", {}
  for i = 1, 8 do tensors["t" .. i] = mgpu.rand { 4096, 4096 } end
  core.store_save(path, tensors)
  tensors = nil -- luacheck: no unused
  return function()
    local loaded = core.store_load(path)
    for _, t in pairs(loaded) do t:free() end
  end
end

local function memory()
  for line in io.lines "/proc/self/status" do
    local kb = line:match "^VmHWM:%s*(%d+)"
    if kb then return tonumber(kb) / 1024 end
  end
end

local function serve(act, clock)
  act()
  for line in io.lines() do
    local n = line:match "^run (%d+)$"
    local ms = {}
    for i = 1, tonumber(n or 0) do
      local start = clock()
      act()
      ms[i] = ("%.4f"):format((clock() - start) * 1e3)
    end
    if line == "quit" then return end
    print(n and ('{"ms": [%s]}'):format(table.concat(ms, ", ")) or ('{"mb": %.1f}'):format(memory()))
    io.flush()
  end
end

if options.serve then
  return serve(kinds[options.serve](options.folder), options.clock == "processor" and os.clock or core.clock)
end

-- ---- a save during fit ------------------------------------------------------------------------------

local race = require "race"
local shell, median = race.shell, race.median
local memory_folder = select(2, shell "test -w /dev/shm") == 0 and "/dev/shm" or "/tmp"

local function in_folder(where, fn)
  local folder = shell(("mktemp -d -p %s"):format(where)):gsub("\n", "")
  local ok, message = pcall(fn, folder)
  os.execute("rm -rf " .. folder)
  if not ok then print("skipped: " .. message) end
end

-- Times of steps of fit: of those after which a save begins, and of all others. Also the time that beginning a save
-- takes by itself.
local function stall(folder)
  local model, EVERY, STEPS, ROWS = trained(), 8, 96, 32
  local x, y = mgpu.rand { STEPS * ROWS, 28, 28, 1 }, mgpu.randint(0, 10, { STEPS * ROWS })
  local Backup = require "mgpu.train.checkpoint.backup"
  local after_step, begin, plain, saving, last = Backup.after_step, {}, {}, {}, nil
  function Backup.after_step(...)
    local start = core.clock()
    after_step(...)
    begin[#begin + 1] = core.clock() - start
  end
  local timer = { on_train_batch_end = function(_, batch)
    local now = core.clock()
    if last and batch > EVERY then
      local list = batch % EVERY == 1 and saving or batch % EVERY == EVERY - 1 and plain
      if list then list[#list + 1] = now - last end
    end
    last = now
  end }
  model:fit(x, y, { batch_size = ROWS, verbose = 0,
    callbacks = { timer, mgpu.callbacks.BackupAndRestore { folder .. "/run", save_freq = EVERY } } })
  Backup.after_step = after_step
  table.sort(begin)
  local saves = { unpack(begin, #begin - STEPS / EVERY + 1) }
  print(("\nmnist_cnn with Adam, a checkpoint of 28 MB every %d steps of %d rows"):format(EVERY, ROWS))
  print(("  %-52s %8.2f ms"):format("beginning a save (goal: 2 ms)", median(saves) * 1e3))
  print(("  %-52s %8.2f ms"):format("a step while a checkpoint is written, median", median(saving) * 1e3))
  print(("  %-52s %8.2f ms"):format("a step otherwise, median", median(plain) * 1e3))
end

-- ---- races ------------------------------------------------------------------------------------------

local function compare(title, kind, where, clock, sync)
  in_folder(where, function(folder)
    local ours = ("%s %scheckpoint.lua --serve %s --folder %s --clock %s"):format(arg[-1], HERE, kind, folder, clock)
    local peer = ("%s/bin/python %speer_torch_files.py --kind %s --folder %s --clock %s%s"):format(options.venv, HERE,
      kind == "load" and "load" or "save", folder, clock, sync and " --sync" or "")
    race.report(title, race.race({ { name = "mgpulua", command = ours }, { name = "PyTorch", command = peer } },
      tonumber(options.rounds), 5))
  end)
end

in_folder(memory_folder, stall)
compare("saving 28 MB to memory (goal: ratio 2.5)", "save", memory_folder, "wall")
compare("a checkpoint of 28 MB to memory (goal: ratio 2.5)", "checkpoint", memory_folder, "wall")
compare("loading 512 MB from memory (goal: ratio 4)", "load", memory_folder, "wall")
compare("saving 28 MB to disk, synced", "save", "/tmp", "wall", true)
compare("saving 28 MB to disk, synced: processor time", "save", "/tmp", "processor", true)
compare("a checkpoint of 28 MB to disk, synced", "checkpoint", "/tmp", "wall", true)
compare("a checkpoint of 28 MB to disk, synced: processor time", "checkpoint", "/tmp", "processor", true)
