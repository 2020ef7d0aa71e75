--- Runs as a table for the terminal.
local core = require "mgpu.core"

local M = {}

local MOST_METRICS, MOST_OPTIONS, WIDEST = 4, 8, 28 -- columns; characters of a cell

local function shown(value)
  if value == nil then return "" end
  if type(value) == "number" then
    return (value % 1 == 0 and math.abs(value) < 2 ^ 53 and "%d" or "%.5g"):format(value)
  end
  return core.printable(tostring(value), true)
end

local function cell(value)
  local text = shown(value)
  return #text <= WIDEST and text or text:sub(1, WIDEST - 2):gsub("[\192-\255][\128-\191]*$", "") .. ".."
end

local function duration(seconds)
  if not seconds then return "" end
  if seconds < 100 then return ("%.3gs"):format(seconds) end
  if seconds < 6000 then return ("%dm%02ds"):format(seconds / 60, seconds % 60) end
  return ("%dh%02dm"):format(seconds / 3600, seconds % 3600 / 60)
end

-- ---- columns ------------------------------------------------------------------------------------

-- The metrics to show: the one that is sorted by, then those of the validation data, or else all.
local function metrics_of(runs, first)
  local seen, validated, others = {}, {}, {}
  for _, run in ipairs(runs) do
    for name in pairs(run.history) do
      if not seen[name] then table.insert(name:find "^val_" and validated or others, name) end
      seen[name] = true
    end
  end
  local list = #validated > 0 and validated or others
  table.sort(list)
  local chosen = first and seen[first] and { first } or {}
  for _, name in ipairs(list) do
    if name ~= first and #chosen < MOST_METRICS then chosen[#chosen + 1] = name end
  end
  return chosen
end

-- Whether the option differs. Runs that no fit has recorded, as of a trial that failed before, have only the
-- parameters of the trial.
local function differs_in(runs, name)
  local first, any
  for _, run in ipairs(runs) do
    if run.config["fit.epochs"] ~= nil or name:find "^trial%." then
      if any and run.config[name] ~= first then return true end
      first, any = run.config[name], true
    end
  end
  return false
end

--- differing(runs) -> the names of the options that are not the same in all runs, sorted; those of trials come first.
function M.differing(runs)
  local seen, list = {}, {}
  for _, run in ipairs(runs) do
    for name in pairs(run.config) do
      if not seen[name] then
        seen[name] = true
        if differs_in(runs, name) then list[#list + 1] = name end
      end
    end
  end
  table.sort(list, function(a, b)
    local x, y = a:find "^trial%." ~= nil, b:find "^trial%." ~= nil
    if x ~= y then return x end
    return a < b
  end)
  return list
end

-- The last parts of names, where they are not ambiguous.
local function short_names(names)
  local count, short = { run = 1, state = 1, epochs = 1, seed = 1, time = 1, script = 1, last = 1 }, {}
  for _, name in ipairs(names) do
    local last = name:match "([^.]+)$"
    count[last] = (count[last] or 0) + 1
  end
  for i, name in ipairs(names) do
    local last = name:match "([^.]+)$"
    short[i] = count[last] == 1 and last or name
  end
  return short
end

local function differs(runs, value)
  for _, run in ipairs(runs) do
    if value(run) ~= value(runs[1]) then return true end
  end
  return false
end

-- Columns {head, value(run), numeric}, in order.
local function columns_of(runs, sort)
  local list = {}
  local function add(head, value, numeric) list[#list + 1] = { head, value, numeric } end
  add("run", function(run) return run.name end)
  add("state", function(run) return #run.damaged > 0 and run.state ~= "damaged" and run.state .. "!" or run.state end)
  add("epochs", function(run) return run.epochs end, true)
  for _, name in ipairs(metrics_of(runs, sort)) do
    add("best " .. name, function(run) return run.best[name] end, true)
    add("last", function(run) return run.last[name] end, true)
  end
  local options = M.differing(runs)
  local short = short_names(options)
  for i = 1, math.min(#options, MOST_OPTIONS) do
    local name = options[i]
    add(short[i], function(run) return run.config[name] end, true)
  end
  local function seed(run) return run.seed end
  if differs(runs, seed) then add("seed", seed, true) end
  add("time", function(run) return duration(run.seconds) end, true)
  local function script(run) return run.script.sha256 and run.script.sha256:sub(1, 7) end
  if differs(runs, script) then add("script", script) end
  return list, options
end

-- A column of only empty cells is left out.
local function filled(cells, n)
  for i = 2, n do
    if cells[i] ~= "" then return true end
  end
  return false
end

-- Characters of UTF-8 in a text.
local function width(text) return select(2, text:gsub("[^\128-\191]", "")) end

--- text(runs, sort) -> the table, a line for each run. sort: the metric whose columns come first, or nil.
-- A state with "!" has damaged files, which are listed below.
function M.text(runs, sort)
  if #runs == 0 then return "no runs" end
  local columns, options = columns_of(runs, sort)
  local lines = {}
  for i = 1, #runs + 1 do lines[i] = {} end
  for _, column in ipairs(columns) do
    local head, value, numeric = unpack(column, 1, 3)
    local cells, widest = { cell(head) }, 0
    for i, run in ipairs(runs) do cells[i + 1] = cell(value(run)) end
    for _, each in ipairs(cells) do widest = math.max(widest, width(each)) end
    for i, each in ipairs(filled(cells, #runs + 1) and cells or {}) do
      local space = (" "):rep(widest - width(each))
      table.insert(lines[i], numeric and space .. each or each .. space)
    end
  end
  for i, cells in ipairs(lines) do lines[i] = (table.concat(cells, "  "):gsub("%s+$", "")) end
  if #options > MOST_OPTIONS then
    lines[#lines + 1] = ("%d more options differ: --diff shows them"):format(#options - MOST_OPTIONS)
  end
  for _, run in ipairs(runs) do
    local name = core.printable(run.name, true)
    if run.error then lines[#lines + 1] = ("%s: %s"):format(name, core.printable(run.error:sub(1, 300), true)) end
    for _, what in ipairs(run.damaged) do lines[#lines + 1] = ("%s: %s"):format(name, core.printable(what, true)) end
  end
  return table.concat(lines, "\n")
end

return M
