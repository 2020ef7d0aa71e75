-- mgpu.runs and mgpulua --runs: reading, sorting, filtering, comparing and drawing runs, damaged and hostile ones too.

local check = require "check"
local core = require "mgpu.core"
local fixtures = require "fixtures"
local mgpu = require "mgpu"
local xml = require "xml"

local test = check.test

-- A run's folder, written by hand. ARGS fields: of run.json; values: array of tables, one for each epoch.
local function write_run(path, fields, values, state)
  check.run("mkdir -p '" .. path .. "'")
  local lines = {}
  for epoch, each in ipairs(values) do lines[epoch] = core.json_encode { epoch = epoch, values = each } .. "\n" end
  check.write(path .. "/history.jsonl", table.concat(lines))
  check.write(path .. "/run.json", core.json_encode(fields))
  check.write(path .. "/state.json", core.json_encode(state or { state = "done", seconds = 2 }))
end

local function fields(rate, more)
  return fixtures.with({ seed = 3, fit = { epochs = 2, batch_size = 32 }, compile = { loss = "MeanSquaredError",
    optimizer = { class = "SGD", learning_rate = rate } } }, more or {})
end

local made
local function folder()
  if made then return made end
  made = check.path "runs"
  write_run(made .. "/a", fields(0.1), { { val_loss = 3, val_accuracy = 0.5 }, { val_loss = 2, val_accuracy = 0.7 } })
  write_run(made .. "/b", fields(0.01), { { val_loss = 1, val_accuracy = 0.4 }, { val_loss = 4, val_accuracy = 0.9 } })
  write_run(made .. "/deep/er/c", fields(0.01, { seed = 4 }), { { val_loss = 2.5, val_accuracy = 0.6 } })
  check.write(made .. "/a/script.lua", "one\ntwo\nthree\nfour\nfive\nsix\n")
  check.write(made .. "/b/script.lua", "one\ntwo\n3\nfour\nfive\nsix\nseven\n")
  return made
end

local function names(list)
  local found = {}
  for i, run in ipairs(list) do found[i] = run.name end
  return table.concat(found, " ")
end

local function command(arguments) return check.run(("%s --runs %s"):format(check.program, arguments)) end

-- ---- reading ------------------------------------------------------------------------------------

test("runs are found below the folder, with their values", function()
  local list = mgpu.runs(folder())
  check.equal(names(list), "a b deep/er/c")
  check.equal({ list[1].state, list[1].epochs, list[1].seed, list[1].seconds }, { "done", 2, 3, 2 })
  check.equal(list[1].history.val_loss, { 3, 2 })
  check.equal({ list[2].best.val_loss, list[2].best_epoch.val_loss, list[2].last.val_loss }, { 1, 1, 4 })
  check.equal({ list[2].best.val_accuracy, list[2].best_epoch.val_accuracy }, { 0.9, 2 })
  check.equal(list[1].config["optimizer.learning_rate"], 0.1)
  check.equal(list[1].config["fit.batch_size"], 32)
  check.equal(names(mgpu.runs(folder() .. "/a/")), "a")
end)

test("sort puts the best first, where filters", function()
  local function sorted(name) return names(mgpu.runs(folder(), { sort = name })) end
  check.equal(sorted "val_loss", "b a deep/er/c")
  check.equal(sorted "val_accuracy", "b a deep/er/c")
  check.equal(sorted "val_acc", "b a deep/er/c")
  check.equal(sorted "seed", "a b deep/er/c")
  check.equal(sorted "lr", "b deep/er/c a")
  local function filtered(where) return names(mgpu.runs(folder(), { where = where })) end
  check.equal(filtered "lr>0.01", "a")
  check.equal(filtered " learning_rate >= 0.01 ", "a b deep/er/c")
  check.equal(filtered { "lr=0.01", "seed~=3" }, "deep/er/c")
  check.equal(filtered "class=SGD", "a b deep/er/c")
  check.equal(filtered 'name="b"', "b")
  check.equal(filtered "val_loss<=2", "a b")
  check.equal(filtered "epochs!=2", "deep/er/c")
  check.equal(filtered "state>5", "") -- a text and a number
end)

test("wrong calls say what is wrong", function()
  check.raises(function() mgpu.runs(5) end, "runs: expected the name of a folder, got a number", "usage")
  check.raises(function() mgpu.runs(folder(), { srot = "x" }) end, 'unknown option "srot" %(did you mean "sort"',
    "usage")
  check.raises(function() mgpu.runs(folder(), { sort = "val_los" }) end, 'no run has a value "val_los" %(did you mean '
    .. '"val_loss"%?%)', "usage")
  check.raises(function() mgpu.runs(folder(), { where = "lr" }) end, "is no comparison", "usage")
  check.raises(function() mgpu.runs(folder(), { where = "lr=~3" }) end, "is no comparison", "usage")
  check.raises(function() mgpu.runs(check.path "nowhere") end, "there is no folder", "io")
  check.raises(function() mgpu.runs(folder(), { where = "name=a" }):diff() end, "there are 1", "usage")
  check.raises(function() mgpu.runs(folder()):plot(check.path "x.png") end, "must end in .svg", "usage")
  check.raises(function() mgpu.runs(folder()):plot(check.path "x.svg", { metrics = "los" }) end, 'metric "los"',
    "usage")
end)

test("a folder that cannot be read is an error", function()
  if check.run "id -u" == "0\n" then check.skip "root may read every folder" end
  local path = check.path "closed"
  check.run(("mkdir %s; chmod 0 %s"):format(path, path))
  check.raises(function() mgpu.runs(path) end, "cannot be entered", "io")
end)

test("a run that says it runs is killed if its process is gone, or is another one", function()
  local facts, path = require "mgpu.runs.facts", check.path "states"
  local function state(more)
    write_run(path, fields(1), {}, fixtures.with({ state = "running", host = facts.host() }, more))
    return mgpu.runs(path)[1].state
  end
  local pid = facts.pid()
  check.equal(state { pid = pid, process_start = facts.process_start(pid) }, "running")
  check.equal(state { pid = pid, process_start = facts.process_start(pid) - 1 }, "killed")
  check.equal(state { pid = 2 ^ 22 + 7 }, "killed")
  check.equal(state { pid = 2 ^ 22 + 7, host = "another" }, "running")
  check.equal(state { pid = -1 }, "running")
  check.equal(state { pid = "x" }, "running")
end)

-- ---- damaged and hostile runs -------------------------------------------------------------------

test("damaged files make a run damaged, not the reader", function()
  for i, case in ipairs { { "state.json", "" }, { "state.json", "[]" }, { "state.json", "5" }, { "run.json", "{" },
    { "run.json", ("["):rep(5000) }, { "run.json", "\0\0" }, { "run.json", '"text"' },
    { "history.jsonl", "{}\nnonsense\n" }, { "history.jsonl", '{"epoch":"x","values":3}\n' },
    { "history.jsonl", ("x"):rep(2 ^ 20 + 5) .. "\n" } } do
    local path = check.path("damaged" .. i)
    write_run(path, fields(1), { { loss = 1 } })
    check.write(path .. "/" .. case[1], case[2])
    local run = mgpu.runs(path)[1]
    local is_damaged = #run.damaged > 0 or run.state == "damaged"
    check.truthy(is_damaged, case[1] .. " " .. case[2]:sub(1, 20))
    check.matches(tostring(mgpu.runs(path)), "damaged")
  end
end)

test("fields of other types than expected are left out", function()
  local path = check.path "types"
  write_run(path, { fit = 5, compile = { loss = { { {} } }, optimizer = "adam", x = core.null }, seed = "seven",
    script = { sha256 = {}, git = "x", path = 3 }, versions = 3, machine = { devices = 5 }, command = { {}, true },
    environment = "HOME", trial = { "a" }, samples = {} }, {}, { state = "failed", error = { "x" }, seconds = "1",
      epochs = {}, host = 5, started = 3 })
  check.write(path .. "/history.jsonl", table.concat({
    '{"epoch":1,"values":{"loss":1,"a":{},"b":"x","c":[1,"nan"],"d":["x"],"e":true}}', '{"epoch":2.5}',
    '{"epoch":1e300}', '{"epoch":2,"values":[1,2]}', '{"epoch":3,"values":{"loss":"inf"}}', '{"epoch":4,"val' }, "\n"))
  write_run(path .. "2", {}, {})
  local list = mgpu.runs(path)
  local run = list[1]
  check.equal({ run.state, run.epochs, run.seed, run.error }, { "failed", 3 })
  check.equal(run.history.loss, { 1, math.huge })
  check.equal(run.best.loss, 1)
  check.falsy(run.history.a or run.history.b or run.history.d or run.history.e)
  check.truthy(#tostring(list) > 0)
  check.truthy(#require "mgpu.runs.diff".text { run, mgpu.runs(path .. "2")[1] } > 0)
end)

test("names with markup, control characters and patterns are shown harmlessly", function()
  local root = check.path "hostile[*]?"
  local name = "<script>\27[31m&\"'%s%d"
  check.run(("mkdir -p '%s/%s'"):format(root, (name:gsub("'", "'\\''"))))
  check.write(root .. "/" .. name .. "/state.json", '{"state":"done"}')
  check.write(root .. "/" .. name .. "/history.jsonl", core.json_encode { epoch = 1,
    values = { ["<b>\27]0;x\7"] = 1, loss = 2 } } .. "\n")
  check.write(root .. "/" .. name .. "/run.json", core.json_encode { fit = { ["a\27"] = "b\27<i>" } })
  write_run(root .. "/plain", fields(1), { { loss = 3 } })
  local list = mgpu.runs(root)
  check.equal(#list, 2)
  local shown = tostring(list) .. list:diff() .. fixtures.printed(mgpu.show, list, { width = 40 })
  check.falsy(shown:find("\27]", 1, true), "no control sequence of a name")
  check.falsy(shown:find("\27[31m&", 1, true))
  for _, ending in ipairs { "svg", "html" } do
    local path = check.path("hostile." .. ending)
    list:plot(path)
    local text = check.read(path)
    check.falsy(text:find "<script" or text:find "\27", "it is escaped")
    xml((text:gsub("^<!DOCTYPE html>\n", "")))
  end
end)

test("a huge file, a pipe and a folder in place of a file do not stop the reader", function()
  local path = check.path "huge"
  write_run(path, fields(1), { { loss = 1 } })
  check.run(("truncate -s 20M %s/run.json; rm %s/history.jsonl; mkfifo %s/history.jsonl"):format(path, path, path))
  local run = mgpu.runs(path)[1]
  check.matches(run.damaged[1], "run.json: it cannot be read, or is larger than 16 MiB")
  check.equal(run.epochs, 0)
  check.run(("rm %s/history.jsonl; mkdir %s/history.jsonl"):format(path, path))
  check.equal(mgpu.runs(path)[1].epochs, 0)
end)

-- ---- comparing and drawing ----------------------------------------------------------------------

test("diff shows the values and the lines of the scripts that differ", function()
  local text = mgpu.runs(folder(), { where = { "epochs=2" } }):diff()
  check.matches(text, "optimizer.learning_rate%s+0.1%s+0.01\n")
  check.falsy(text:find "batch_size")
  check.matches(text, "\nscript, a %-> b\n@@ 1\n one\n two\n%-three\n%+3\n four\n five\n six\n%+seven$")
end)

test("texts of any kind have the right differences", function()
  local texts = require "mgpu.runs.diff".texts
  check.equal(texts("a\nb\n", "a\nb\n"), {})
  check.equal(texts("", "a\n"), { "@@ 1", "+a" })
  check.equal(texts("a\nb", "a\n"), { "@@ 1", " a", "-b" })
  check.equal(texts("x\n" .. ("=\n"):rep(20) .. "y\n", "X\n" .. ("=\n"):rep(20) .. "Y\n"),
    { "@@ 1", "-x", "+X", " =", " =", "@@ 20", " =", " =", "-y", "+Y" })
  local long = ("line\n"):rep(20000)
  check.equal(#texts(long .. "a\n", long .. "b\n"), 5)
end)

test("pictures have a curve for each run and metric, and a legend", function()
  local path = check.path "all.svg"
  mgpu.runs(folder()):plot(path, { title = "All <runs>" })
  local text = check.read(path)
  check.matches(text, "All &lt;runs&gt;")
  check.equal(select(2, text:gsub(">deep/er/c<", "")), 1)
  check.equal(select(2, text:gsub('<path class="curve s%d"', "")), 3 + 2 * 3) -- the legend; c has one point
  mgpu.runs(folder()):plot(check.path "all.html", { metrics = { "val_loss" } })
  text = check.read(check.path "all.html")
  check.matches(text, "<th[^>]*>best val_loss</th>")
  check.falsy(text:find "<script")
end)

test("mgpu.show draws runs in the terminal", function()
  local text = fixtures.printed(mgpu.show, mgpu.runs(folder()), { metrics = "val_loss", width = 60, height = 5 })
  check.matches(text, "^val_loss   %* a  o b  %+ deep/er/c\n")
end)

-- ---- the command --------------------------------------------------------------------------------

test("mgpulua --runs prints the table", function()
  local text, status = command(folder() .. " --sort val_loss")
  check.equal(status, 0)
  local lines = {}
  for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line:gsub("%s+", " ") end
  check.equal(lines[1], "run state epochs best val_loss last best val_accuracy last learning_rate seed time")
  check.equal(lines[2], "b done 2 1 4 0.9 0.9 0.01 3 2s")
  check.equal(#lines, 4)
  check.equal(command(folder() .. " --where lr=0.1 --paths"), folder() .. "/a\n")
  check.matches(command("--where=seed=4 " .. folder()), "deep/er/c")
  check.equal(command(folder() .. " --where seed=9"), "no runs\n")
end)

test("mgpulua --runs compares and draws", function()
  check.matches(command(folder() .. " --diff a c"), "optimizer.learning_rate%s+0.1%s+0.01")
  check.matches(command(("%s --plot=%s --show --metric val_loss"):format(folder(), check.path "c.html")), "val_loss")
  check.matches(check.read(check.path "c.html"), "^<!DOCTYPE html>")
end)

test("mgpulua --runs explains wrong options", function()
  for arguments, message in pairs { ["--srot x"] = 'wrong option %-%-srot %(did you mean "%-%-sort"%?%)',
    ["--sort"] = "%-%-sort needs a value: %-%-sort NAME", [folder() .. " b"] = "one folder is expected",
    [folder() .. " --diff a"] = "%-%-diff needs two runs or more",
    [folder() .. " --diff a nothing"] = "there is no run nothing",
    [folder() .. " --sort nothing"] = 'no run has a value "nothing"',
    ["--show=5 " .. folder()] = "%-%-show takes no value" } do
    local text, status = command(arguments)
    check.matches(text, "mgpulua: %-%-runs: " .. message)
    check.equal(status, 1)
  end
  local text, status = command(check.path "nowhere")
  check.matches(text, "there is no folder")
  check.equal(status, 74)
  text, status = command "--help"
  check.matches(text, "^usage: mgpulua %-%-runs")
  check.equal(status, 0)
end)
