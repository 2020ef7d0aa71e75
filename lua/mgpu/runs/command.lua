--- mgpulua --runs [FOLDER] [options]: a table of the runs recorded in a folder, what differs between them, charts.
local core = require "mgpu.core"
local runs = require "mgpu.runs"

local USAGE = [[
usage: mgpulua --runs [FOLDER] [options]
  shows the runs that model:fit with the option run has recorded in FOLDER (runs) and below it
  --sort NAME     by a metric, the best first, or by another value: --sort val_accuracy
  --where TEXT    only runs for which this holds: --where 'lr>0.001'; may be repeated
  --diff A B ...  what differs between these runs: options, versions, scripts
  --metric NAME   only this metric in charts; may be repeated
  --plot FILE     draws them together, as FILE.html or FILE.svg
  --show          draws charts in the terminal
  --paths         only the folders of the runs, a line each
  --help          this text
]]

local function fail(message, ...) error("--runs: " .. message:format(...), 0) end

-- What each option does with the words after it: next() gives the next one.
local OPTIONS = {
  sort = function(chosen, next) chosen.sort = next "NAME" end,
  where = function(chosen, next) table.insert(chosen.where, next "TEXT") end,
  metric = function(chosen, next) table.insert(chosen.metrics, next "NAME") end,
  plot = function(chosen, next) chosen.plot = next "FILE" end,
  show = function(chosen) chosen.show = true end,
  paths = function(chosen) chosen.paths = true end,
  help = function(chosen) chosen.help = true end,
  diff = function(chosen, next, peek)
    chosen.diff = { next "A" }
    while peek() and not peek():find "^%-%-" do table.insert(chosen.diff, next "B") end
  end,
}

local function names()
  local list = {}
  for name in pairs(OPTIONS) do list[#list + 1] = "--" .. name end
  table.sort(list)
  return list
end

-- The words of the command line behind --runs.
local function parse(words)
  local chosen, i = { where = {}, metrics = {} }, 1
  while words[i] do
    local word = words[i]
    local name, value = word:match "^%-%-([%w-]+)=(.*)$"
    name = name or word:match "^%-%-([%w-]+)$"
    local function take(what)
      if value then
        local given = value
        value = nil
        return given
      end
      i = i + 1
      return words[i] or fail("%s needs a value: %s %s", word, word, what)
    end
    if name and OPTIONS[name] then
      OPTIONS[name](chosen, take, function() return words[i + 1] end)
      if value then fail("%s takes no value", "--" .. name) end
    elseif word:find "^%-." then
      fail("wrong option %s%s\n%s", word, core.did_you_mean(word, names()), USAGE)
    elseif chosen.folder then
      fail("one folder is expected, got %s and %s", chosen.folder, word)
    else
      chosen.folder = word
    end
    i = i + 1
  end
  return chosen
end

-- The runs that --diff names: by name, by the end of a name that fits one, or by path.
local function find_run(list, name)
  local wanted, found = name:gsub("(.)/+$", "%1"), nil
  for _, run in ipairs(list) do
    if run.name == wanted or run.path == wanted then return run end
    if run.name:sub(-#wanted) == wanted then found = found and fail("%s fits several runs", name) or run end
  end
  if found then return found end
  local known = {}
  for i, run in ipairs(list) do known[i] = run.name end
  fail("there is no run %s%s", name, core.did_you_mean(wanted, known))
end

local function difference(list, wanted)
  if #wanted < 2 then fail("--diff needs two runs or more: --diff A B") end
  local chosen = {}
  for i, name in ipairs(wanted) do chosen[i] = find_run(list, name) end
  return require "mgpu.runs.diff".text(chosen)
end

--- command(words, report): carries out the words behind --runs; report(text) prints. Errors: a wrong option; those of
--- mgpu.runs.
return function(words, report)
  local chosen = parse(words)
  if chosen.help then return report((USAGE:gsub("\n$", ""))) end
  local list = runs.of("--runs", chosen.folder, { sort = chosen.sort, where = chosen.where })
  local metrics = #chosen.metrics > 0 and chosen.metrics or nil
  if chosen.plot then list:plot(chosen.plot, { metrics = metrics }) end
  if chosen.diff then return report(difference(list, chosen.diff)) end
  if chosen.paths then
    for _, run in ipairs(list) do report(core.printable(run.path, true)) end
    return
  end
  report(tostring(list))
  if chosen.show then require "mgpu".show(list, { metrics = metrics }) end
end
