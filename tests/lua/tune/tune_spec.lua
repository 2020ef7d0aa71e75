-- mgpu.tune: searches in processes: results, failures, kills, going on, and the trials' own side.

local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local mgpu = require "mgpu"

local test = check.test

check.needs "cpu"

-- A trial that computes its value at once. It notes in the file `runs` that it ran.
local REPORT = [[
  local mgpu = require "mgpu"
  local trial = mgpu.trial { x = 0 }
  local file = io.open(arg[1], "a")
  file:write(trial.number, "\n")
  file:close()
  if trial.x == 13 then error "thirteen is bad luck" end
  if trial.x == 14 then os.execute "kill -9 $PPID" end
  if trial.x == 15 then return end
  if trial.x == 16 then trial:report(1, 0 / 0) return end
  print("seed", trial.seed, mgpu.rng_state().seed)
  for step = 1, 100 do
    if not trial:report(step, (trial.x - 3) ^ 2 + 1 / step) then break end
  end
]]

-- A search with that script. RETURNS the search, and the numbers of the trials that ran, in the order of their starts.
local function search(name, given, text)
  local script, notes = check.path(name .. ".lua"), check.path(name .. ".notes")
  check.write(script, text or REPORT)
  os.remove(notes)
  local found = mgpu.tune(fixtures.with({ script = script, args = { notes }, folder = check.path(name), verbose = 0,
    max_epochs = 4, parallel = 1 }, given))
  return found, core.file_exists(notes) and check.read(notes):gsub("\n", " ") or ""
end

local function values(found)
  local list = {}
  for i, trial in ipairs(found.trials) do list[i] = trial.value or trial.state end
  return list
end

-- ---- results ------------------------------------------------------------------------------------

test("a grid tries all values; the best one is found", function()
  local found, ran = search("grid", { method = "grid", space = { x = { 1, 3, 7 } } })
  check.equal(ran, "1 2 3 ")
  check.equal(values(found), { 4.25, 0.25, 16.25 })
  check.equal({ found:best().number, found:best().parameters.x }, { 2, 3 })
  check.equal(tostring(found):gsub("%s+", " "),
    "trial state val_loss x epochs 2 done 0.25 3 4 1 done 4.25 1 4 3 done 16.25 7 4")
  found = search("rising", { method = "grid", space = { x = { 1, 3, 7 } }, metric = "score", mode = "max" })
  check.equal(found:best().value, 17) -- the best of all steps: the first
end)

test("random trials depend on the seed, not on how many run at a time", function()
  local given = { space = { x = mgpu.tune.uniform(0, 5) }, trials = 6 }
  local one = values(search("random1", given))
  check.equal(values(search("random4", fixtures.with(given, { parallel = 4 }))), one)
  check.truthy(one[1] ~= values(search("random_seed", fixtures.with(given, { seed = 1, trials = 1 })))[1])
end)

test("each trial is a run, and starts with its own seed", function()
  local found = search("runs", { method = "grid", space = { x = { 1, 2 } } })
  local runs = mgpu.runs(check.path "runs", { where = "x=2" })
  check.equal({ #runs, runs[1].state, runs[1].epochs, runs[1].seed }, { 1, "done", 4, found.trials[2].seed })
  check.equal(check.read(found.trials[2].folder .. "/output.txt"), ("seed\t%d\t%d\n"):format(found.trials[2].seed,
    found.trials[2].seed))
end)

test("successive halving goes on with the best, however many run at a time", function()
  local given = { method = "halving", space = { x = mgpu.tune.uniform(0, 9) }, trials = 9, max_epochs = 9 }
  local found, ran = search("halving", given)
  check.equal(select(2, ran:gsub("%d+", "")), 9 + 3 + 1)
  local ranked = {}
  for i, trial in ipairs(found:ranked()) do ranked[i] = trial.epochs end
  check.equal(ranked, { 9, 3, 3, 1, 1, 1, 1, 1, 1 })
  local closest = found.trials[1]
  for _, trial in ipairs(found.trials) do
    if math.abs(trial.parameters.x - 3) < math.abs(closest.parameters.x - 3) then closest = trial end
  end
  check.equal(found:best().number, closest.number)
  check.equal(values(search("halving4", fixtures.with(given, { parallel = 4 }))), values(found))
end)

-- ---- failures -----------------------------------------------------------------------------------

test("trials that fail, are killed, or report nothing are noted, and the search goes on", function()
  local given = { method = "grid", space = { x = { 13, 14, 15, 16, 1 } } }
  local found, ran = search("failing", given)
  check.equal(ran, "1 2 3 4 5 ")
  check.matches(found.trials[1].error, "thirteen is bad luck")
  check.matches(found.trials[2].error, "^killed by signal 9")
  check.matches(found.trials[3].error, 'no value of "val_loss" was reported: it has no history')
  check.matches(found.trials[4].error, "val_loss was never finite")
  check.equal(found:best().number, 5)
  local runs = mgpu.runs(check.path "failing")
  check.equal({ runs[1].state, runs[2].state, runs[5].state }, { "failed", "failed", "done" })
  check.matches(runs[1].error, "thirteen")
  found, ran = search("failing", given)
  check.equal({ ran, found.trials[1].state }, { "", "failed" }) -- they are finished
  found, ran = search("failing", fixtures.with(given, { retry = true }))
  check.equal({ ran, found:best().number }, { "1 2 3 4 ", 5 })
end)

test("a parameter of which the script has no default is an error, since nothing would read it", function()
  local found, ran = search("misspelled", { method = "grid", space = { x = 1, xx = { 1, 2 } } })
  check.equal({ values(found), ran }, { { "failed", "failed" }, "" })
  check.matches(found.trials[1].error, 'misspelled.lua:2: trial: the search tries "xx", of which the script has no '
    .. "default; the only default is x")
end)

test("a search without any value says why", function()
  local found = search("hopeless", { method = "grid", space = { x = 13 } })
  check.raises(function() found:best() end, "no trial has a value: trial 1: .*thirteen", "usage")
end)

test("wrong options are refused", function()
  local script = check.path "any.lua"
  check.write(script, "")
  local function with(more) return fixtures.with({ script = script, space = { x = { 1 } } }, more) end
  for _, case in ipairs { { 5, "options are one table" }, { with { sapce = 1 }, 'unknown option "sapce"' },
    { { space = { x = 1 } }, "give either a function" },
    { { print, script = script, space = { x = 1 } }, "give either" },
    { with { method = "gird" }, '"gird" %(did you mean "grid"' }, { with { metric = "score" }, 'give mode = "max"' },
    { with { method = "grid", trials = 3 }, '"trials" is not for method = "grid"' },
    { with { factor = 3 }, '"factor" is not for method = "random"' },
    { with { method = "halving" }, "needs max_epochs" },
    { with { method = "halving", max_epochs = 2, min_epochs = 3 }, "min_epochs is 3, above max_epochs, 2" },
    { with { folder = "" }, '"folder" must name a folder' }, { with { args = { {} } }, "args: entry 1 is a table" } } do
    check.raises(function() mgpu.tune(case[1]) end, "tune:? .*" .. case[2], "usage")
  end
  check.raises(function() mgpu.tune { script = "nowhere.lua", space = { x = 1 } } end, "cannot open nowhere.lua", "io")
end)

test("a folder with another search, a damaged one, or one that runs is refused", function()
  local given = { method = "grid", space = { x = { 1, 2 } } }
  search("owned", given)
  check.raises(function() search("owned", fixtures.with(given, { seed = 5 })) end,
    "holds a search with seed = 0, this one has 5", "usage")
  check.raises(function() search("owned", fixtures.with(given, { space = { x = { 1, 2 }, y = 1 } })) end,
    "space.y = nil, this one has choice {1}", "usage")
  check.raises(function() search("owned", { method = "grid", space = { y = { 1 } } }) end, "owned holds a search",
    "usage")
  local lock = core.lock_folder(check.path "owned" .. "/.")
  check.raises(function() search("owned", given) end, "another search is running in it", "usage")
  core.unlock_folder(lock)
  check.write(check.path "owned/search.json", "{")
  check.raises(function() search("owned", given) end, "search.json is damaged", "data")
end)

test("a damaged result is one that is not there", function()
  local given = { method = "grid", space = { x = { 1, 2 } } }
  search("results", given)
  for _, text in ipairs { "", "[]", '{"rounds":5}', '{"rounds":[{"state":"done","value":"x"}]}', '{"rounds":[7]}' } do
    check.write(check.path "results/trial-0002/result.json", text)
    local found, ran = search("results", given)
    check.equal({ ran, found.trials[2].value }, { "2 ", 1.25 })
  end
end)

test("more random trials may be asked for later", function()
  local space = { x = mgpu.tune.uniform(0, 5) }
  local first = search("more", { space = space, trials = 2 })
  local found, ran = search("more", { space = space, trials = 4 })
  check.equal(ran, "3 4 ")
  check.equal(found.trials[1].value, first.trials[1].value)
end)

-- ---- functions, fit and stopping ------------------------------------------------------------------

-- A script with a function; it also fits before the search, and has a search before it.
local FUNCTION = [[
  local mgpu, core = require "mgpu", require "mgpu.core"
  local L = mgpu.layers
  local folder, parallel, method, seconds = arg[1], tonumber(arg[2]), arg[3], tonumber(arg[4] or 0)
  mgpu.seed(2)
  local x = mgpu.rand { 64, 3 }
  local y = x:sum { axis = 2, keepdims = true }
  local function model(rate)
    local m = mgpu.Sequential { L.Input { 3 }, L.Dense { 4 }, L.Dense { 1 } }
    m:compile { optimizer = mgpu.optimizers.Adam { rate }, loss = "mse" }
    return m
  end
  model(0.1):fit(x, y, { verbose = 0 })
  local before = mgpu.tune { function(trial) return trial.x end, folder = folder .. "/before", method = "grid",
    space = { x = { 5, 4 } }, parallel = 1, verbose = 0 }
  assert(before:best().value == 4)
  local search = mgpu.tune { function(trial)
    model(trial.rate):fit(x, y, { epochs = trial.epochs, validation_split = 0.25, verbose = 0, callbacks = {
      on_epoch_end = function() core.sleep(seconds) end } })
  end, folder = folder .. "/it", space = { rate = mgpu.tune.loguniform(1e-3, 1e-1) }, trials = 4, parallel = parallel,
    method = method, max_epochs = 6, min_epochs = method == "halving" and 2 or nil, verbose = 0 }
  for _, trial in ipairs(search.trials) do print(trial.number, ("%.17g"):format(trial.value), trial.epochs) end
]]

local function function_command(folder, parallel, method, seconds)
  local path = check.path "function.lua"
  check.write(path, FUNCTION)
  return ("%s '%s' %s %d %s %g"):format(check.program, path, check.path(folder), parallel, method, seconds or 0)
end

test("a function's fits are the trials' runs, with the same numbers for 1 and 4 trials at a time", function()
  local one, status = check.run(function_command("fits1", 1, "random"))
  check.equal({ select(2, one:gsub("\n", "")), status }, { 4, 0 }, one)
  check.equal({ check.run(function_command("fits4", 4, "random")) }, { one, 0 })
  local runs = mgpu.runs(check.path "fits1/it")
  check.equal({ #runs, runs[1].epochs, runs[1].state }, { 4, 6, "done" })
  check.truthy(core.file_exists(check.path "fits1/it/trial-0001/best.safetensors"))
end)

test("halving continues fits from their checkpoints, to the numbers of uninterrupted ones", function()
  local random = check.run(function_command("straight", 2, "random"))
  local halved, status = check.run(function_command("halved", 2, "halving"))
  check.equal(status, 0, halved)
  local number, value = halved:match "(%d+)\t(%S+)\t6\n"
  check.matches(random, ("\n?%s\t%s\t6\n"):format(number, value:gsub("[.+-]", "%%%0")))
end)

-- Stops the script with the signal when a trial has recorded two epochs. RETURNS its output.
local function stopped(command, folder, signal)
  return check.run(("%s & p=$!; while [ $(cat %s/it/*/history.jsonl 2>/dev/null | wc -l) -lt 2 ] && kill -0 $p; "
    .. "do sleep 0.05; done; kill -%s $p; wait $p; echo status $?"):format(command, check.path(folder), signal))
end

for _, case in ipairs { { "INT", 130 }, { "KILL", 137 } } do
  local signal, status = unpack(case)
  test(("after SIG%s no trial runs on, and the search goes on to the numbers of an uninterrupted one"):format(signal),
    function()
      local folder = "stopped" .. signal
      local output = stopped(function_command(folder, 2, "random", 0.2), folder, signal)
      check.matches(output, "status " .. status)
      if signal == "INT" then check.matches(output, "tune: interrupted; %d of 4 trials are complete") end
      local n = 0
      repeat -- with KILL the trials notice the end of their parent by a signal, and save first
        local running = #mgpu.runs(check.path(folder), { where = "state=running" })
        if running > 0 then core.sleep(0.05) end
        n = n + 1
      until running == 0 or n > 2000
      check.truthy(n <= 2000, "the trials end")
      local wanted = check.run(function_command("whole", 2, "random"))
      check.equal({ check.run(function_command(folder, 2, "random")) }, { wanted, 0 })
    end)
end

-- ---- mgpu.trial ---------------------------------------------------------------------------------

test("outside of a search a trial has the script's values", function()
  local trial = mgpu.trial { rate = 0.5 }
  check.equal({ trial.rate, trial.number, trial.epochs }, { 0.5, 0 })
  check.equal(trial:report(1, 2), true)
  check.raises(function() return trial.rte end, 'there is no parameter "rte" %(did you mean "rate"%?%)', "usage")
  check.raises(function() trial:report(1.5, 2) end, "step must be a whole number", "usage")
  check.raises(function() trial:report(1, "x") end, "value must be a number", "usage")
  check.raises(function() mgpu.trial(5) end, "a table of default values", "usage")
end)

test("a trial cannot search, and MGPU_TRIAL must name a trial", function()
  local found = search("nested", { method = "grid", space = { x = 1 } },
    'local mgpu = require "mgpu" mgpu.tune { script = arg[0], space = { x = { 1 } } }')
  check.matches(found.trials[1].error, "a trial cannot begin a search of its own")
  local output = check.run(("MGPU_TRIAL=%s %s -e 'require(\"mgpu\").trial()'"):format(check.path "none", check.program))
  check.matches(output, "none/trial.json does not describe a trial")
end)

test("several ranks cannot search", function()
  local path = check.path "ranks.lua"
  check.write(path, 'require "mgpu".tune { script = arg[0], space = { x = 1 } }')
  local output, status = check.run(("%s --np 2 '%s'"):format(check.program, path))
  check.matches(output, "tune: it starts processes itself")
  check.truthy(status ~= 0)
end)
