--- history:plot: the curves of a run as a file.
local core = require "mgpu.core"
local curves = require "mgpu.plot.curves"
local file = require "mgpu.plot.file"
local options = require "mgpu.options"

local M = {}

local PLOT = options.declare {
  { "metrics", "string|table" },
  { "scale", "string", default = "auto", values = { "auto", "linear", "log" } },
  { "title", "string" },
}

-- The names to show, or nil for all. Raises for a name that the history does not have.
local function check_names(history, each, wanted)
  if wanted == nil then return nil end
  local names, known = type(wanted) == "table" and wanted or { wanted }, {}
  for name in each(history.history) do known[#known + 1] = name end
  for i, name in ipairs(names) do
    if type(name) ~= "string" or not history.history[name] then
      core.fail("usage", ("history:plot: option \"metrics\": no value is called %q%s; there are %s"):format(
        tostring(name), core.did_you_mean(tostring(name), known), table.concat(known, ", ")))
    end
    for _, other in ipairs(known) do -- acc and accuracy are one
      if history.history[other] == history.history[name] then names[i] = other end
    end
  end
  return names
end

--- panels(who, history, metrics = all) -> the panels of curves.lua. Errors: no epoch; an unknown name.
function M.panels(who, history, metrics)
  local each = require "mgpu.train.logs".each
  if not history.epoch or #history.epoch == 0 then
    core.fail("usage", who .. ": the history has no epoch")
  end
  local names = metrics and check_names(history, each, metrics)
  local list = curves.panels(history, each, names)
  if #list == 0 then core.fail("usage", who .. ": no value is a number for each epoch") end
  return list
end

--- plot(history, path, given): see History:plot.
function M.plot(history, path, given)
  local chosen = file.check("history:plot", path, ".svg", PLOT, given)
  local panels = M.panels("history:plot", history, chosen.metrics)
  file.write(path, curves.picture(panels, { title = chosen.title, scale = chosen.scale }))
end

return M
