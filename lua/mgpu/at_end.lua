--- What is to be done when the program ends: after the script, after an error, and in os.exit (runtime/program/exit.c).
-- A program that is killed, or a stock luajit, does none of it.
local M = {}

local list = {}

local function run_all()
  local first
  for i = #list, 1, -1 do
    local ok, message = pcall(table.remove(list, i))
    if not ok then first = first or message end
  end
  if first then error(first, 0) end
end

--- add(fn): fn() is called at the end, before those that were added earlier. An error of one does not keep the others
--- from being called.
function M.add(fn)
  list[#list + 1] = fn
  debug.getregistry()["mgpu.at_end"] = run_all
end

--- remove(fn): it is not to be called any more.
function M.remove(fn)
  for i = #list, 1, -1 do
    if list[i] == fn then table.remove(list, i) end
  end
end

return M
