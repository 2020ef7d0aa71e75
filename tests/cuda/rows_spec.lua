-- tests/cuda/rows.lua, as on_gpu.sh runs it: rows that fail, and rows that end the process or the GPU's work.
local cases = require "ops.cases"
local check = require "check"
local device = require "tests.cuda.device"

if device.real then return end -- there on_gpu.sh itself is what runs

local test = check.test

local ROWS = 0 -- of softmax and log_softmax: one for each dtype of a case
for _, case in ipairs(dofile "tests/ops/rows.lua") do
  if case[1]:find "^%a*_?softmax$" and not case.error then ROWS = ROWS + #cases.dtypes(case) end
end

-- Runs these rows -> the output, and what the journals list.
local function run(settings, seconds)
  local work = check.path(tostring(math.random(1e9)))
  local output = check.run(("%s WORK=%s P=%s ONLY='softmax {' GPU_SECONDS=%d sh tests/cuda/on_gpu.sh part rows")
    :format(settings, work, check.program, seconds or 600))
  return output, check.run(("cat %s/journal-*"):format(work))
end

local function count(text, pattern) return select(2, ("\n" .. text):gsub("\n" .. pattern, "")) end

test("rows that pass are listed in the journal only", function()
  local output, journal = run ""
  check.equal(output, ROWS .. " passed, 0 failed: rows\n== end\n")
  check.equal(count(journal, "ok   "), ROWS)
end)

test("a wrong number is told in one line with op, shape, dtype, difference and kernel", function()
  local path = check.path "wrong.lua"
  check.write(path, [[
    local cases = require "ops.cases"
    local flat = cases.flat
    function cases.flat(t)
      local list = flat(t)
      if t:dtype() == "float16" and t:device():find "^cuda" and #list == 6 then list[2] = list[2] + 0.5 end
      return list
    end]])
  local output = check.run(("MGPU_LOG=dispatch %s -e 'package.path = \"tests/?.lua;\" .. package.path "
    .. "dofile %q arg = { %q, %q, \"--only\", \"log_softmax {2,3} float16\" } dofile \"tests/cuda/rows.lua\"' 2>%s")
    :format(check.program, path, check.path "journal", check.path "messages", check.path "messages"))
  check.matches(output, "^FAIL log_softmax {2,3} float16 #%d+: off by 0.5%d* %(allowed [%d.]+%) at element 2 of 6: "
    .. "%S+ ref says %S+; kernel: %S+\n$")
end)

test("behind a row that makes the GPU fail a new process goes on", function()
  local output, journal = run "MGPU_FAKE_CUDA_FAIL=cuLaunchKernel:40:700"
  check.matches(output, "^FAIL %S*softmax {[%d,]+} %S+ #%d+: [^\n]*CUDA_ERROR_ILLEGAL_ADDRESS[^\n]*; kernel: [^\n]*; "
    .. "the GPU does not work any more\n")
  local failed = count(output, "FAIL ")
  check.truthy(failed >= 1 and failed < 10, "a few rows fail")
  check.equal(count(journal, "ok   "), ROWS - failed)
end)

test("behind a row that does not end a new process goes on", function()
  -- The 40th piece of work of each process hangs, and a row may take a second.
  local output, journal = run "ROW_SECONDS=1 MGPU_FAKE_CUDA_HANG=40"
  local failed = count(output, "FAIL ")
  check.matches(output, "^FAIL %S*softmax {[%d,]+} %S+ #%d+: the process ended with status 142\n")
  check.equal(count(journal, "ok   "), ROWS - failed)
end)

test("rows that are not reached are told, and rows that have passed are left out", function()
  local passed, journal = check.path "passed", select(2, run "")
  check.write(passed, journal:match "ok   [^\n]+\n")
  local output = run("PASSED=" .. passed)
  check.equal(output, ROWS - 1 .. " passed, 0 failed: rows\n== end\n")
  output = run("", 0)
  check.matches(output, "FAIL rows: not all rows of part 1/%d were reached")
end)

test("without a GPU there is one failure, not one for each row", function()
  check.equal(count(run "MGPU_CUDA_LIBRARIES=/nowhere", "FAIL "), 1)
end)
