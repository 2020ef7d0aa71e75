--- runs(folder = "runs", {sort =, where =}) -> the runs recorded in the folder and up to three levels below it.
--
-- model:fit with the option run records them. An array, which prints as a table and which mgpu.show draws; each run has
--   name, path, state      "running", "done", "stopped" (by a signal), "failed", "killed" (it says running, but its
--                          process is gone), or "damaged"
--   error                  of a failed one
--   epochs, epoch          how many; their numbers
--   history, epochs_of     arrays of values by name, and their epochs, as in what fit returns
--   last, best, best_epoch by name; best where the name tells which is better, as of losses, errors and accuracies
--   config                 options by full name: ["fit.batch_size"], ["optimizer.learning_rate"], ["trial.units"], ...
--   seed, seconds, started, ended, host, command, versions, machine, script {path, sha256, commit}
--   damaged                array of what is wrong with its files; empty
-- sort: a name; the best value of a metric first, others ascending. where: a comparison as "lr>0.001", or an array of
-- them. Names are those of config, the last part of one, metrics (their best value), or state, epochs, seconds, seed.
-- runs:plot(path, {metrics =, scale =, title =}) draws all in an .svg or .html file; runs:diff() is what differs, as
-- text.
-- Errors: a folder that is not there or cannot be read; a name that no run has.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     for _, size in ipairs { 16, 32 } do
--       model:fit(mgpu.rand { 64, 4 }, mgpu.rand { 64, 1 }, { batch_size = size, verbose = 0, run = "runs/" })
--     end
--     local runs = mgpu.runs("runs", { where = "batch_size=32" })
--     print(#runs, runs[1].state, runs[1].config["fit.batch_size"])  --> 1 done 32
local core = require "mgpu.core"
local folder = require "mgpu.runs.folder"
local options = require "mgpu.options"
local read = require "mgpu.runs.read"
local select_runs = require "mgpu.runs.select"

local Runs = { class = "Runs" }
Runs.__index = Runs

local RUNS = options.declare { { "sort", "string" }, { "where", "string|table" } }
local PLOT = options.declare { { "metrics", "string|table" }, { "title", "string" },
  { "scale", "string", default = "auto", values = { "auto", "linear", "log" } } }

--- tostring(runs): a table of them.
function Runs:__tostring() return require "mgpu.runs.table".text(self, self.sort) end

--- runs:diff() -> what differs between them, as text: options, versions, scripts. Errors: fewer than two.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     for epochs = 1, 2 do
--       model:fit(mgpu.rand { 8, 4 }, mgpu.rand { 8, 1 }, { epochs = epochs, verbose = 0, run = "runs/" .. epochs })
--     end
--     print(mgpu.runs():diff():match "fit.epochs%s+1%s+2" ~= nil)  --> true
function Runs:diff()
  if #self < 2 then core.fail("usage", ("runs:diff: two or more runs are compared, there are %d"):format(#self)) end
  return require "mgpu.runs.diff".text(self)
end

--- runs:plot(path, {metrics =, scale = "auto", title =}): draws the values of the epochs of all runs, a chart for each
--- metric, into an .svg or .html file. Errors: another ending, no epoch, an unknown metric, the disk.
-- Example:
--     local model = mgpu.Sequential { mgpu.Input { 4 }, L.Dense { 1 } }
--     model:compile { loss = "mse" }
--     model:fit(mgpu.rand { 8, 4 }, mgpu.rand { 8, 1 }, { epochs = 3, verbose = 0, run = "runs/first" })
--     mgpu.runs():plot("runs.svg", { metrics = "loss" })
--     print(io.open("runs.svg"):read(4))  --> <svg
function Runs:plot(path, given)
  local svg = require "mgpu.plot.svg"
  local html = type(path) == "string" and path:lower():sub(-5) == ".html"
  local chosen = svg.check_file("runs:plot", path, html and ".html" or ".svg", PLOT, given)
  require "mgpu.runs.pictures".write("runs:plot", self, path, chosen)
end

-- Raises unless the folder can be listed.
local function check_folder(who, path)
  if not folder.exists(path) then
    core.fail("io", ("%s: there is no folder %s, or it cannot be entered"):format(who, path))
  end
  local file, reason = io.open(path) -- a folder can be opened by whoever may list it
  if not file then core.fail("io", ("%s: cannot read %s"):format(who, reason)) end
  file:close()
end

--- of(who, path, given) -> the runs; who begins errors.
function Runs.of(who, path, given)
  path = path or "runs"
  if type(path) ~= "string" or path == "" or path:find "%z" then
    core.fail("usage", ("%s: expected the name of a folder, got %s"):format(who, type(path) == "string"
      and ("%q"):format(path) or "a " .. type(path)))
  end
  if given ~= nil and type(given) ~= "table" then
    core.fail("usage", ("%s: options are a table, as {sort = \"val_loss\"}, got a %s"):format(who, type(given)))
  end
  local chosen, list = options.check(who, RUNS, given or {}), {}
  check_folder(who, path)
  for i, each in ipairs(read.find(path)) do list[i] = read.read(each.path, each.name) end
  if chosen.where then list = select_runs.filtered(who, list, chosen.where) end
  if chosen.sort then list = select_runs.sorted(who, list, chosen.sort) end
  list.sort = chosen.sort
  return setmetatable(list, Runs)
end

return setmetatable({ of = Runs.of }, { __call = function(_, path, given) return Runs.of("runs", path, given) end })
