--- --prove N: does a script give the same weights on N processes as on one?
--
-- The script's first training steps are run three times, each in processes of its own: in one process, in one process
-- whose sums are made in another order (the baseline instruction set, without oneDNN), and in N processes. The second
-- run measures how much rounding matters for each weight; the third may differ by a few times as much.
local core = require "mgpu.core"

local M = {}

local STEPS = 5  -- of the first fit; later fits are not reached
local FACTOR = 16 -- times the measured rounding that N processes may differ
local LEAST = 4  -- units in the last place a step that they may differ in any case

-- ---- in a run: MGPU_PROVE names the file for the weights ----------------------------------------

local file, done = os.getenv "MGPU_PROVE", 0

local function weights_of(model)
  local named = {}
  for i, v in ipairs(model.variables) do named[("%04d %s"):format(i, v.name)] = v:value() end
  return named
end

local function write_and_end(model)
  require "mgpu.io.tensor_file".save(file, weights_of(model))
  os.exit(0)
end

--- after_step(model): called by fit after each step; ends the process after the last that is compared.
M.after_step = file and function(model)
  done = done + 1
  if done >= STEPS then write_and_end(model) end
end

--- after_fit(model): a fit has ended before that.
M.after_fit = file and write_and_end

-- ---- comparing ----------------------------------------------------------------------------------

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

-- Runs the script with options and variables before it. RETURNS the weights that it wrote.
local function run(what, variables, options)
  local path = os.tmpname()
  local words = { quoted(arg[0]) }
  for _, word in ipairs(arg) do words[#words + 1] = quoted(word) end
  local command = ([[exe=$(readlink /proc/$PPID/exe); exec env %s MGPU_PROVE=%s "$exe" %s %s >/dev/null]]):format(
    variables, path .. ".npz", options, table.concat(words, " "))
  local status = os.execute(command)
  os.remove(path)
  if status ~= 0 then core.fail("usage", ("--prove: the script failed %s (see above)"):format(what)) end
  if not core.file_exists(path .. ".npz") then
    core.fail("usage", ("--prove: the script made no step of model:fit %s: there is nothing to compare"):format(what))
  end
  local weights = require "mgpu.io.tensor_file".load(path .. ".npz")
  os.remove(path .. ".npz")
  return weights
end

local function wide(t) return core.ops.cast(t, { dtype = "float64" }) end
local function largest(t) return t:abs():max():item() end
local function difference(a, b) return largest(wide(a) - wide(b)) end

local function unit(t) return t:dtype() == "float64" and 2 ^ -52 or 2 ^ -23 end

-- One line of the table. RETURNS whether the weight is the same to rounding.
local function compare(report, name, one, noise, several)
  if not one:dtype():find "^float" then
    local same = difference(one, several) == 0
    report(("%-40s %12s %12s%s"):format(name, same and "0" or "differs", "0", same and "" or "  <--"))
    return same
  end
  local found, size = difference(one, several), largest(wide(one))
  local bound = FACTOR * difference(one, noise) + LEAST * STEPS * unit(one) * size
  local same = found <= bound
  report(("%-40s %12.3g %12.3g%s"):format(name, found, bound, same and "" or "  <--"))
  return same
end

--- compare_runs(n, report) -> whether the weights on n processes equal those on one, to rounding; reports a line each.
-- Errors: the script fails, or has no fit.
function M.compare_runs(n, report)
  if not arg or not arg[-1] then -- without a script, arg[0] is the program
    core.fail("usage", "--prove N: the name of a script must follow")
  elseif not core.file_exists(arg[0]) then
    core.fail("io", ("--prove: cannot open %s: there is no such file"):format(arg[0]))
  end
  local one = run("in one process", "MGPU_LAUNCH=none", "")
  local noise = run("with the baseline instruction set", "MGPU_LAUNCH=none MGPU_ISA=baseline MGPU_ONEDNN=no", "")
  local several = run(("in %d processes"):format(n), "", "--np " .. n)
  local names, same = {}, true
  for name in pairs(one) do names[#names + 1] = name end
  table.sort(names)
  local title = ("after %d steps, %d processes against 1"):format(STEPS, n)
  report(("%-40s %12s %12s"):format(title, "difference", "rounding"))
  for _, name in ipairs(names) do
    same = compare(report, name:sub(6), one[name], noise[name], several[name]) and same
  end
  report(same and ("the weights are the same, to rounding (%d times what another order of sums makes in one "
    .. "process, and %d units in the last place a step)"):format(FACTOR, LEAST)
    or "weights differ by more than rounding")
  return same
end

return M
