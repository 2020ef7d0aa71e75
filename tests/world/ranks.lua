--- Runs cases of tests/lua/world in several processes and compares the numbers that they write.
--
-- One launch runs all cases; each rank writes its numbers with all digits to a file of its own (run_rank_cases.lua).
local check = require "check"

local M = {}

local FOLDER = check.file:match "^(.*/)" -- of the specs
local OPENMPI = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe -np %d "
  .. check.program
local LAUNCHERS = {
  alone = { command = check.program, module = "cpu" },
  np = { command = check.program .. " --np %d", module = "ucx" },
  openmpi = { command = OPENMPI, module = "openmpi", needs = "mpirun.openmpi" },
  mpich = { command = "mpirun.mpich -np %d " .. check.program, module = "mpich", needs = "mpirun.mpich" },
}

--- lines_of(text) -> values by name, and the names in their order.
function M.lines_of(text)
  local lines, order = {}, {}
  for line in text:gmatch "[^\n]+" do
    local name, values = line:match "^(.-)\t(.*)$"
    lines[name], order[#order + 1] = values, name
  end
  return lines, order
end

--- same_bits(text, expected, who): raises with the first line in which two texts differ.
function M.same_bits(text, expected, who)
  if text == expected then return end
  local a, e, order = M.lines_of(text), M.lines_of(expected)
  for _, name in ipairs(order) do
    if a[name] ~= e[name] then
      check.fail(("%s: %s: got %s, expected %s"):format(who or "bits", name, tostring(a[name]), e[name]))
    end
  end
  check.fail((who or "bits") .. ": some case has more values than expected")
end

-- ---- launches -----------------------------------------------------------------------------------

local function quoted(words)
  local list = {}
  for i, word in ipairs(words) do list[i] = "'" .. word .. "'" end
  return table.concat(list, " ")
end

local n_launches = 0

--- launch(launcher, ranks, module, devices, names) -> the text that each of the ranks has written. Runs cases of a
--- module, all without names. Fails if the texts of the ranks differ.
function M.launch(launcher, ranks, module, devices, names)
  local how = LAUNCHERS[launcher]
  check.needs(("%s/mgpu-%s.so"):format(check.program:match "^'?(.*)/", how.module))
  if how.needs and check.run("command -v " .. how.needs) == "" then check.skip("there is no " .. how.needs) end
  n_launches = n_launches + 1
  local out = check.path("numbers" .. n_launches)
  local text, status = check.run(("timeout -k 5 280 %s %srun_rank_cases.lua %s %s '%s' %s 2>&1 </dev/null")
    :format(how.command:format(ranks), FOLDER, module, out, devices, quoted(names or {})))
  if status ~= 0 then check.fail(("status %d: %s"):format(status, text)) end
  local first = check.read(out .. ".0")
  for r = 1, ranks - 1 do
    M.same_bits(check.read(("%s.%d"):format(out, r)), first, ("rank %d differs from rank 0"):format(r))
  end
  return first
end

-- ---- comparing ------------------------------------------------------------------------------------

local function words_of(text)
  local list = {}
  for word in text:gmatch "%S+" do list[#list + 1] = word end
  return list
end

-- Raises if two lines of numbers differ by more than `bound` times the largest of them.
local function near(name, actual, expected, bound)
  local a, e, largest, off = words_of(actual), words_of(expected), 1e-6, 0
  if #a ~= #e then check.fail(("%s: %d values, expected %d"):format(name, #a, #e)) end
  for i = 1, #e do
    local x, y = tonumber(a[i]), tonumber(e[i])
    if not (x and y) then
      if a[i] ~= e[i] then check.fail(("%s: %s, expected %s"):format(name, a[i], e[i])) end
    elseif x ~= y then
      off, largest = math.max(off, math.abs(x - y)), math.max(largest, math.abs(y))
    end
  end
  if not (off <= bound * largest) then
    check.fail(("%s: off by %g of %g, allowed %g"):format(name, off, largest, bound * largest))
  end
end

--- same_to_rounding(text, expected, bounds): fails unless all values are the expected ones to rounding. bounds: by the
--- names of cases, how far values may differ from the largest of their line; 1e-11 where there is none.
function M.same_to_rounding(text, expected, bounds)
  local a, e, order = M.lines_of(text), M.lines_of(expected)
  for _, name in ipairs(order) do
    local case, what = name:match "^(.-): (.*)$"
    if what == "error" then check.fail(name .. ": " .. e[name]) end
    near(name, a[name] or "", e[name], bounds[case] or 1e-11)
  end
end

--- only(text, names) -> the lines of some cases.
function M.only(text, names)
  local wanted, list = {}, {}
  for _, name in ipairs(names) do wanted[name] = true end
  for line in text:gmatch "[^\n]+\n" do
    if wanted[line:match "^(.-): "] then list[#list + 1] = line end
  end
  return table.concat(list)
end

--- bounds_of(module) -> the bounds of its cases by name.
function M.bounds_of(module)
  local bounds = {}
  for _, case in ipairs(dofile(FOLDER .. module .. ".lua")) do bounds[case.name] = case.bound end
  return bounds
end

return M
