-- fit's option run: what is recorded, continuing, several processes, kills and failing disks.

local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test = check.test

check.needs "cpu"

-- A fit of a line; given: further options of fit.
local function fit(run, given, compile)
  local x, y = fixtures.line(16)
  local model = fixtures.linear(compile)
  return model:fit(x, y, fixtures.with({ epochs = 2, batch_size = 8, verbose = 0, validation_split = 0.25, run = run },
    given or {})), model
end

local function json(path) return core.json_decode(check.read(path)) end

local function lines_of(path)
  local list = {}
  for line in check.read(path):gmatch "[^\n]+" do list[#list + 1] = core.json_decode(line) end
  return list
end

local function listed(folder) return (check.run(("ls %s"):format(folder)):gsub("\n", " "):gsub(" $", "")) end

-- ---- what is recorded ---------------------------------------------------------------------------

test("a run's folder has the configuration, the history, the best model, event files and a report", function()
  local path = check.path "complete"
  local h = fit(path)
  check.equal(listed(path), "best.safetensors checkpoints history.csv history.jsonl model.json report.html run.json "
    .. "script.lua state.json train validation")
  local run, state = json(path .. "/run.json"), json(path .. "/state.json")
  check.equal(run.fit.batch_size, 8)
  check.equal(run.compile.optimizer.class, "SGD")
  check.near(run.compile.optimizer.learning_rate, 0.1, 1e-12)
  check.equal(run.compile.loss, "MeanSquaredError")
  check.equal(run.seed, 1)
  check.equal(run.versions.mgpulua, core.version)
  check.equal(run.script.path, arg[0])
  check.equal(check.run("sha256sum " .. path .. "/script.lua"):match "^%x+", run.script.sha256)
  check.equal(check.read(path .. "/script.lua"), check.read(arg[0]))
  check.equal(state.state, "done")
  check.equal(state.epochs, 2)
  local lines = lines_of(path .. "/history.jsonl")
  check.equal(#lines, 2)
  for epoch, line in ipairs(lines) do
    check.equal(line.epoch, epoch)
    check.equal(line.values.val_loss, h.history.val_loss[epoch])
  end
  check.equal(check.read(path .. "/history.csv"):match "^[^\n]*", "epoch,loss,val_loss")
  check.matches(check.read(path .. "/report.html"), "<h2>Curves</h2>")
  check.equal(json(path .. "/model.json").class_name, "Sequential")
  check.equal(mgpu.load_model(path .. "/best.safetensors"):count_params(), 3)
end)

test("with a slash, or where a folder has no run, a new folder is made; a name is taken as it is", function()
  local runs = check.path "many"
  fit(runs .. "/")
  fit(runs .. "/")
  fit(runs)
  fit { runs, name = "named" }
  local names = listed(runs)
  check.equal(#check.sorted_lines(names:gsub(" ", "\n")), #names)
  local _, n = names:gsub("%d%d%d%d%-%d%d%-%d%d_%d%d%-%d%d%-%d%d_check%S*", "")
  check.equal(n, 3)
  check.matches(names, "named$")
  check.falsy(names:find "history", "nothing is recorded in the folder itself")
end)

test("monitor, best, checkpoints and tensorboard choose what is kept", function()
  local path = check.path "little"
  fit { path, best = false, checkpoints = false, tensorboard = false }
  check.equal(listed(path), "history.csv history.jsonl model.json report.html run.json script.lua state.json")
  fit({ check.path "watched", monitor = "mae", mode = "max" }, nil, { metrics = { "mae" } })
  check.truthy(core.file_exists(check.path "watched/best.safetensors"))
  check.raises(function() fit { check.path "unwatched", monitor = "val_mae" } end, "no value \"val_mae\"")
end)

test("a model that cannot be saved keeps the weights of its best epoch", function()
  local path = check.path "function"
  fit(path, nil, { loss = function(y, p) return ((y - p) ^ 2):mean(2) end })
  check.truthy(core.file_exists(path .. "/best.weights.safetensors"))
  check.equal(json(path .. "/run.json").compile.loss, "function")
end)

test("callbacks, data and values that JSON cannot hold are described", function()
  local path = check.path "described"
  local odd = { on_epoch_end = function(_, _, logs) logs.odd, logs.list = 0 / 0, { 1, math.huge } end }
  local x, y = fixtures.line(8)
  fit(path, { validation_split = 0, validation_data = { x, y }, callbacks = { odd,
    mgpu.callbacks.EarlyStopping { monitor = "loss", patience = 7 } } })
  local run = json(path .. "/run.json")
  check.equal(run.fit.validation_data, { "float32 {8, 2}", "float32 {8, 1}" })
  check.equal(run.fit.callbacks[2].class, "EarlyStopping")
  check.equal(run.fit.callbacks[2].patience, 7)
  local values = lines_of(path .. "/history.jsonl")[1].values
  check.equal(values.odd, "nan")
  check.equal(values.list, { 1, "inf" })
end)

test("the commit of a work tree is read from its files", function()
  local facts, root = require "mgpu.runs.facts", check.path "tree"
  local hash, other = ("1a"):rep(20), ("2b"):rep(20)
  check.run(("mkdir -p %s/.git/refs/heads %s/deep/er %s/linked"):format(root, root, root))
  check.write(root .. "/.git/HEAD", "ref: refs/heads/main\n")
  check.falsy(facts.git_commit(root .. "/deep/er/a.lua"), "no commit yet")
  check.write(root .. "/.git/packed-refs", "# pack-refs\n" .. other .. " refs/heads/main\n")
  check.equal(facts.git_commit(root .. "/deep/er/a.lua"), { commit = other, branch = "main" })
  check.write(root .. "/.git/refs/heads/main", hash .. "\n")
  check.equal(facts.git_commit(root .. "/deep/er/a.lua"), { commit = hash, branch = "main" })
  check.run(("mkdir -p %s/.git/worktrees/l"):format(root))
  check.write(root .. "/linked/.git", "gitdir: ../.git/worktrees/l\n")
  check.write(root .. "/.git/worktrees/l/HEAD", "ref: refs/heads/main\n")
  check.write(root .. "/.git/worktrees/l/commondir", "../..\n")
  check.equal(facts.git_commit(root .. "/linked/a.lua").commit, hash)
  check.write(root .. "/.git/HEAD", other .. "\n")
  check.equal(facts.git_commit(root .. "/a.lua"), { commit = other })
  check.write(root .. "/.git/HEAD", "ref: refs/../../../secret\n")
  check.falsy(facts.git_commit(root .. "/a.lua"))
end)

test("SHA-256 is that of sha256sum, for every place of the padding", function()
  local sha256 = require "mgpu.io.sha256"
  check.equal(sha256 "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
  check.equal(sha256 "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
  for _, n in ipairs { 55, 56, 63, 64, 65, 1000 } do
    local path = check.path "hashed"
    check.write(path, ("a\255"):rep(n):sub(1, n))
    check.equal(sha256(check.read(path)), check.run("sha256sum " .. path):match "^%x+")
  end
end)

-- ---- wrong options ------------------------------------------------------------------------------

test("wrong options are refused before the first step", function()
  local file = check.path "file"
  check.write(file, "")
  for _, case in ipairs { { 5, 'option "run" must be a folder' }, { "", "must name a folder" },
    { { "a", nmae = "b" }, 'unknown option "nmae" %(did you mean "name"%?%)' }, { { "a", name = "../b" }, '"name"' },
    { { "a", name = ".." }, '"name"' }, { {}, '"folder" is missing' }, { file, "Not a directory" },
    { { "a", mode = "mix" }, "unknown value" } } do
    check.raises(function() fit(case[1]) end, "fit:? ?r?u?n?.*" .. case[2])
  end
  check.falsy(core.file_exists "a/state.json")
end)

test("two fits do not record in one folder", function()
  local path, message = check.path "shared", nil
  fit(path, { callbacks = { on_epoch_end = function()
    message = message or check.raises(function() fit(path) end, "another fit is being recorded in it", "usage")
  end } })
  check.truthy(message)
  fit(path) -- and after it, it may
end)

-- ---- states -------------------------------------------------------------------------------------

test("a fit that raises is noted as failed, with its error", function()
  local path = check.path "failed"
  check.raises(function()
    fit(path, { callbacks = { on_epoch_end = function(_, epoch)
      if epoch == 2 then error "broken <b>\27[31m" end
    end } })
  end, "broken")
  local state = json(path .. "/state.json")
  check.equal(state.state, "failed")
  check.matches(state.error, "broken <b>\27%[31m")
  check.equal(#lines_of(path .. "/history.jsonl"), 1)
  check.matches(check.read(path .. "/report.html"), "Curves")
end)

test("a fit that a callback ends is done", function()
  local path = check.path "early"
  fit(path, { epochs = 9, callbacks = mgpu.callbacks.EarlyStopping { monitor = "loss", patience = 0, mode = "max" } })
  local state = json(path .. "/state.json")
  check.equal({ state.state, state.stopped_early, state.epochs < 9 }, { "done", true, true })
end)

-- ---- continuing ---------------------------------------------------------------------------------

test("a folder with a run is continued, with the numbers of an uninterrupted one", function()
  local straight, path = check.path "straight", check.path "continued"
  fit(straight, { epochs = 5 })
  fit(path, { epochs = 2 })
  fit(path .. "/", { epochs = 5 }) -- also with a slash: it holds a run
  local function values(folder)
    local list = {}
    for i, line in ipairs(lines_of(folder .. "/history.jsonl")) do list[i] = { line.epoch, line.values } end
    return list
  end
  check.equal(values(path), values(straight))
  check.equal(check.read(path .. "/history.csv"), check.read(straight .. "/history.csv"))
  check.equal(#json(path .. "/run.json").earlier, 1)
  local before = check.read(path .. "/state.json")
  check.equal(#fit(path, { epochs = 5 }).epoch, 5) -- nothing is left to do
  check.equal(check.read(path .. "/state.json"), before)
end)

test("a fit that does not fit the checkpoint leaves the run as it was", function()
  local path = check.path "other"
  fit(path)
  local before = check.read(path .. "/state.json") .. check.read(path .. "/run.json")
  check.raises(function() fit(path, { batch_size = 4, epochs = 3 }) end, "batch_size = 8, this one has 4")
  check.equal(check.read(path .. "/state.json") .. check.read(path .. "/run.json"), before)
end)

test("a run without checkpoints is not written over", function()
  local path = check.path "precious"
  fit { path, checkpoints = false }
  local before = check.read(path .. "/history.jsonl")
  check.raises(function() fit { path, checkpoints = false } end, "holds a run of 2 epochs, and no checkpoint", "usage")
  check.equal(check.read(path .. "/history.jsonl"), before)
end)

-- ---- processes ----------------------------------------------------------------------------------

local SCRIPT = [[
  local core, fixtures, mgpu = require "mgpu.core", nil, require "mgpu"
  package.path = "tests/?.lua;" .. package.path
  mgpu.seed(1)
  local x = mgpu.rand { 16, 2 }
  local model = mgpu.Sequential { mgpu.layers.Input { 2 }, mgpu.layers.Dense { 1 } }
  model:compile { optimizer = "sgd", loss = "mse" }
  local at = tonumber(arg[2])
  model:fit(x, x:sum { axis = 2, keepdims = true }, { epochs = 4, batch_size = 8, verbose = 0, run = arg[1],
    callbacks = { on_epoch_begin = function(_, epoch)
      if at and epoch == 2 then core.file_fault { at = at, error = "kill" } end
    end } })
]]

local function script()
  local path = check.path "trained.lua"
  check.write(path, SCRIPT)
  return ("%s '%s'"):format(check.program, path)
end

test("whenever a process is killed, its run can be read, is known as killed, and goes on", function()
  local command, straight = script(), check.path "unkilled"
  check.run(("%s %s"):format(command, straight))
  local wanted = check.read(straight .. "/history.csv")
  local killed = 0
  for at = 1, 60, 3 do
    local path = check.path("killed" .. at)
    local _, status = check.run(("%s %s %d"):format(command, path, at))
    local run = mgpu.runs(path)[1]
    check.equal(run.damaged, {})
    check.equal(run.state, status == 137 and "killed" or "done")
    killed = killed + (status == 137 and 1 or 0)
    check.equal({ check.run(("%s %s"):format(command, path)) }, { "", 0 })
    check.equal(check.read(path .. "/history.csv"), wanted)
    check.equal(mgpu.runs(path)[1].state, "done")
    check.equal(#lines_of(path .. "/history.jsonl"), 4)
  end
  check.truthy(killed > 3, "some were killed")
end)

test("processes that start at once record in folders of their own", function()
  local runs = check.path "at_once"
  local one = ("%s %s/ & "):format(script(), runs)
  check.equal(check.run(one:rep(4) .. "wait"), "")
  local list = mgpu.runs(runs)
  check.equal(#list, 4)
  for _, run in ipairs(list) do check.equal({ run.state, run.epochs }, { "done", 4 }) end
end)

test("of processes that start at once with one name, one records and the others say why not", function()
  local path = check.path "one_name"
  local output = check.run((("%s %s & "):format(script(), path)):rep(4) .. "wait")
  for line in output:gmatch "mgpulua: [^\n]*" do check.matches(line, "another fit is being recorded in it") end
  check.equal(mgpu.runs(path)[1].state, "done")
end)

test("a fit that SIGTERM stops is noted as stopped", function()
  local path = check.path "stopped"
  local output = fixtures.signalled(fixtures.READY .. [[
    local model = mgpu.Sequential { L.Input { 2 }, L.Dense { 1 } }
    model:compile { optimizer = "sgd", loss = "mse" }
    model:fit(mgpu.ones { 8, 2 }, mgpu.ones { 8, 1 }, { epochs = 100000, verbose = 0, run = arg[2],
      callbacks = { on_epoch_end = function(_, epoch) if epoch == 2 then ready() end end } })
  ]], "TERM", { arguments = path })
  check.matches(output, "status 75\n$")
  local run = mgpu.runs(path)[1]
  check.equal(run.state, "stopped")
  check.matches(run.error, "stopped by SIGTERM, saved in")
end)

test("of several ranks, rank 0 records, and a folder that cannot be made is an error of all", function()
  local path, file = check.path "ranks", check.path "a_file"
  check.write(file, "")
  local command = script():gsub(" ", " --np 2 --output all ", 1)
  check.equal({ check.run(("%s %s"):format(command, path)) }, { "", 0 })
  local run = mgpu.runs(path)[1]
  check.equal({ run.state, run.epochs, run.config.ranks }, { "done", 4, 2 })
  local output, status = check.run(("%s %s"):format(command, file))
  check.matches(output, "fit: run: cannot make the folder .*a_file: Not a directory")
  check.truthy(status ~= 0)
end)

-- ---- failing disks ------------------------------------------------------------------------------

test("whichever write fails, training goes on and the history is complete in the end", function()
  local straight = check.path "written"
  fit({ straight, checkpoints = false }, { epochs = 3 })
  local wanted = check.read(straight .. "/history.csv")
  for at = 1, 70, 3 do
    local path = check.path("faulty" .. at)
    local text = fixtures.printed(function()
      fit({ path, checkpoints = false }, { epochs = 3, callbacks = { on_epoch_begin = function(_, epoch)
        if epoch == 2 then core.file_fault { at = at, error = "ENOSPC" } end
      end } })
    end)
    if core.file_fault() then check.matches(text, "No space left on device") end
    check.equal(check.read(path .. "/history.csv"), wanted)
    check.equal(#lines_of(path .. "/history.jsonl"), 3)
    check.equal(mgpu.runs(path)[1].damaged, {})
  end
end)

test("a disk that stays full does not end a training", function()
  local path, h = check.path "full", nil
  local text = fixtures.printed(function()
    h = fit(path, { epochs = 3, callbacks = { on_epoch_begin = function(_, epoch)
      if epoch == 2 then core.file_fault { at = 1, error = "ENOSPC", always = true } end
    end } })
  end)
  core.file_fault()
  check.equal(#h.epoch, 3)
  check.matches(text, "run .*full: history.jsonl was not written, it is tried again later: .*No space left")
  check.matches(text, "state.json was not written: ")
end)
