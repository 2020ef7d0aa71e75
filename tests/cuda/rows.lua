-- The rows of ops and the golden layers on cuda:0, the most used first, each failure in one line. It goes on after a
-- failure; on_gpu.sh starts it again behind a row that ends it.
--
--     mgpulua tests/cuda/rows.lua JOURNAL MESSAGES [--part K/N] [--from I] [--passed FILE] [--only TEXT] [--seconds S]
--
-- JOURNAL   gets `row I NAME` before each row, then `ok   NAME` or the line of the failure, and `end` after the last
-- MESSAGES  the file that standard error goes to; with MGPU_LOG=dispatch it tells the kernel of a failure
-- --part    every N-th row, from the K-th on
-- --from    begins with row I
-- --passed  leaves out rows whose line `ok   NAME` is in the file
-- --only    only rows whose name contains the text
-- --seconds how long a row may take (20) before SIGALRM ends the process
--
-- The status is 0 after the last row, 3 if the GPU does not work any more after a failure.
package.path = "tests/?.lua;" .. package.path
local ffi = require "ffi"
local check = require "check"
local core = require "mgpu.core"
local mgpu = require "mgpu"
local cases = require "ops.cases"

ffi.cdef "unsigned alarm(unsigned seconds);"

local options = { part = "1/1", from = "1", seconds = "20" }
for i = 3, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end
local journal = assert(io.open(arg[1], "a"))
journal:setvbuf "line"
io.stdout:setvbuf "line"

core.default_device "ref:0" -- the golden values are read without the GPU
core.precision "highest" -- no TF32, which would not meet the tolerances of float32

-- ---- the rows -----------------------------------------------------------------------------------

-- The ops of the training steps of CNNs, of which most scripts consist.
local USED = { "conv2d", "conv2d_grad_input", "conv2d_grad_weight", "matmul", "relu", "add", "mul", "sub", "div", "sum",
  "max_pool2d", "max_pool2d_grad", "max_pool2d_pick", "batch_norm", "moments", "batch_norm_reduce", "softmax",
  "softmax_grad", "softmax_cross_entropy", "softmax_cross_entropy_grad", "sparse_softmax_cross_entropy",
  "sparse_softmax_cross_entropy_grad", "random", "cast", "gather", "argmax", "exp", "log", "sqrt", "rsqrt", "where",
  "permute", "pad", "slice", "concat", "broadcast_to", "all_finite", "sigmoid", "tanh", "layer_norm",
  "layer_norm_grad", "layer_norm_reduce", "scatter_add", "avg_pool2d", "avg_pool2d_grad" }
for i, name in ipairs(USED) do USED[name] = i end
local COMMON = { float32 = true, float16 = true, int32 = true }

-- Compares a case on cuda:0 with ref -> what is wrong.
local function compare(case, dtype)
  local expected, got = cases.on_devices(case, dtype, "ref:0", "cuda:0")
  if table.concat(got:shape(), ",") ~= table.concat(expected:shape(), ",") or got:dtype() ~= expected:dtype() then
    return ("%s, ref says %s"):format(tostring(got:dtype()) .. "{" .. table.concat(got:shape(), ",") .. "}",
      tostring(expected:dtype()) .. "{" .. table.concat(expected:shape(), ",") .. "}")
  end
  local a, e = cases.flat(got), cases.flat(expected)
  local allowed = cases.tolerance(case, dtype) * math.max(cases.largest(e), case.scale or 0)
  local off, at = cases.largest_difference(a, e)
  if off <= allowed then return nil end
  return ("off by %.3g (allowed %.3g) at element %d of %d: %.9g, ref says %.9g"):format(off, allowed, at, #a, a[at],
    e[at])
end

local function op_rows(rows)
  for number, case in ipairs(dofile "tests/ops/rows.lua") do
    local shapes = {}
    for i = 2, #case do shapes[#shapes + 1] = "{" .. table.concat(case[i][1], ",") .. "}" end
    for _, dtype in ipairs(case.error and {} or cases.dtypes(case)) do
      local name = ("%s %s %s #%d"):format(case[1], table.concat(shapes, " "), dtype, number)
      rows[#rows + 1] = { op = case[1], name = name, rank = (USED[case[1]] or 200) + (COMMON[dtype] and 0 or 1000),
        run = function() return compare(case, dtype) end }
    end
  end
end

-- The tests of a spec, which are not run yet; their functions raise errors.
local function tests_of(rows, file, rank)
  local run_test = check.test
  function check.test(name, fn)
    rows[#rows + 1] = { name = name, rank = rank, run = function()
      local ok, problem = pcall(fn)
      if not ok and type(problem) ~= "table" then return (tostring(problem):gsub("%s*\n.*", "")) end -- a table: a skip
    end }
  end
  dofile(file)
  check.test = run_test
end

local function all_rows()
  local rows, passed = {}, {}
  op_rows(rows)
  tests_of(rows, "tests/lua/nn/golden_layers_spec.lua", 100)
  for i, row in ipairs(rows) do row.order = i end
  table.sort(rows, function(a, b)
    if a.rank ~= b.rank then return a.rank < b.rank end
    return a.order < b.order
  end)
  for line in options.passed and io.open(options.passed) and io.lines(options.passed) or function() end do
    passed[line:match "^ok   (.*)" or line] = true
  end
  local k, n = options.part:match "^(%d+)/(%d+)$"
  local chosen = {}
  for i, row in ipairs(rows) do
    if i % n == k % n and not passed[row.name] and row.name:find(options.only or "", 1, true) then
      chosen[#chosen + 1] = row
    end
  end
  return chosen
end

-- ---- a row --------------------------------------------------------------------------------------

local function size_of(path)
  local file = io.open(path)
  local size = file and file:seek "end" or 0
  if file then file:close() end
  return size
end

-- The kernel of an op by the messages since `start`: the last line about the op, else about a fused step.
local function kernel(op, start)
  local file, named, fused = io.open(arg[2]), nil, nil
  if not file then return "unknown" end
  file:seek("set", start)
  for line in file:lines() do
    local step, by = line:match "dispatch: %S+ (%S+) .*: ([^:]+)$"
    if step == op then named = by elseif step and step ~= "reshape" then fused = step .. " " .. by end
  end
  file:close()
  return named or fused or "unknown"
end

local function works()
  return pcall(function() assert(mgpu.ones({ 2 }, { device = "cuda:0" }):sum():item() == 2) end)
end

-- Notes the result of a row. Ends the process if the GPU does not work any more.
local function run(index, row)
  local start = size_of(arg[2])
  journal:write(("row %d %s\n"):format(index, row.name))
  ffi.C.alarm(tonumber(options.seconds))
  local ok, problem = pcall(row.run)
  ffi.C.alarm(0)
  if not ok then problem = tostring(problem):gsub("%s*\n.*", ""):gsub("^%S+%.lua:%d+: ", "") end
  if not problem then
    journal:write("ok   ", row.name, "\n")
    return
  end
  local usable = works()
  local line = ("FAIL %s: %s; kernel: %s%s\n"):format(row.name, problem, kernel(row.op, start),
    usable and "" or "; the GPU does not work any more")
  journal:write(line)
  io.write(line)
  if not usable then os.exit(3, false) end -- cleaning up a lost device could wait for it
end

local rows = all_rows()
core.default_device "cuda:0"
for index, row in ipairs(rows) do
  if index >= tonumber(options.from) then run(index, row) end
end
journal:write "end\n"
