-- Autotune: several kernels that compute the same op. Each of them is compared with the reference; the
-- fastest is chosen by timing, once; kernels that fail, lose NaN or lack memory are left out.
local device = require "tests.cuda.device"
local check = require "check"

local test = check.test

local OPS = "'^conv2d'"

-- Runs a command with environment settings -> output, exit status.
local function run(settings, command)
  if not device.real then settings = "MGPU_CUDA_LIBRARIES=build/fake_cuda " .. settings end
  return check.run(("%s %s %s"):format(settings, check.program, command))
end

-- Runs rows of the op table, which must all pass -> the output.
local function check_rows(settings, rows)
  local out, status = run("MGPU_LOG=dispatch " .. settings, "tests/check.lua tests/cuda/ops_spec.lua " .. rows)
  if status ~= 0 then
    local failures = {}
    for line in out:gmatch "FAIL: [^\n]*" do failures[#failures + 1] = line end
    check.fail(table.concat(failures, "\n", 1, math.min(#failures, 5)) .. out:match "\n[^\n]*$")
  end
  check.matches(out, "%d%d+ passed, 0 failed, 0 skipped")
  return out
end

local function run_script(settings, script)
  local path = check.path "script.lua"
  check.write(path, 'local mgpu = require "mgpu"\nlocal core = require "mgpu.core"\n' .. script)
  return run("MGPU_LOG=dispatch " .. settings, path)
end

for number, who in ipairs { "kernels of our own", "cuDNN's" } do
  test(("all rows with candidate %d of each op, %s"):format(number, who), function()
    local out = check_rows("MGPU_CUDA_AUTOTUNE=" .. number, OPS)
    for _, op in ipairs { "conv2d", "conv2d_grad_input", "conv2d_grad_weight" } do
      local line = ("dispatch: cuda:0: %s: "):format(op)
      check.truthy(out:find(line, 1, true), "several kernels should accept " .. op)
      check.equal(out:find(line .. "cuDNN\n", 1, true) ~= nil, number == 2, op)
    end
  end)
end

-- Two ops that have several kernels, with results that are known.
local ALL = [[
core.default_device "cuda:0"
local x, w = mgpu.ones { 2, 9, 9, 2 }, mgpu.ones { 3, 3, 2, 8 }
print("conv2d", core.ops.conv2d(x, w):sum():item())
print("conv2d_grad_weight", core.grad(function(v) return core.ops.conv2d(x, v):sum() end)(w):sum():item())
]]
local SUMS = { conv2d = 14112, conv2d_grad_weight = 14112 }
local MEASURED = { "conv2d", "conv2d_grad_weight" }

-- The fake libraries are exact. On a GPU the convolution may be Winograd's, whose transforms contain thirds,
-- in TF32.
local function check_sums(out)
  for op, sum in pairs(SUMS) do
    local printed = tonumber(out:match("%f[%w]" .. op .. "\t(%S+)\n"))
    check.near(printed or out, sum, device.real and 2 ^ -10 or 0)
  end
end

-- How many kernels were timed for an op, by the log.
local function turns(out, op)
  local n = 0
  for _, verdict in ipairs { "takes", "is out" } do
    n = n + select(2, out:gsub(("cuda:0: %s: [%%w_' ]+ %s%%f[%%s]"):format(op, verdict), ""))
  end
  return n
end

local function cache_of(name)
  return ("MGPU_CUDA_AUTOTUNE= MGPU_CACHE=%s"):format(check.path(name))
end

test("the fastest kernel is chosen by timing, once, and cached", function()
  local out = run_script(cache_of "measured", ALL)
  check_sums(out)
  for _, op in ipairs(MEASURED) do check.equal(turns(out, op), 2, op) end
  local again = run_script(cache_of "measured", ALL)
  check_sums(again)
  for _, op in ipairs(MEASURED) do
    check.equal(turns(again, op), 0, op)
    local winner = ("dispatch: cuda:0: %s: ([%%w_' ]+)\n"):format(op)
    check.truthy(out:match(winner), op)
    check.equal(again:match(winner), out:match(winner), op)
  end
end)

test("deterministic mode times nothing", function()
  local out = run_script(cache_of "deterministic", "mgpu.deterministic(true)\n" .. ALL)
  check_sums(out)
  for _, op in ipairs(MEASURED) do
    check.matches(out, op .. " [^\n]*refuses: mgpu.deterministic%(true%) rules out timing")
    check.equal(turns(out, op), 0, op)
  end
end)

test("a wrong MGPU_CUDA_AUTOTUNE is an error", function()
  for _, wrong in ipairs { "0", "4", "12", "own" } do
    check.matches(run_script("MGPU_CUDA_AUTOTUNE=" .. wrong, ALL),
      ('MGPU_CUDA_AUTOTUNE is "%s": it must be a number from 1 to 3'):format(wrong))
  end
end)

if device.real then return end

-- Both settings make all of cuDNN's candidates unusable; our kernel then computes the convolution.
for what, setting in pairs {
  ["that fails"] = "MGPU_FAKE_CUDA_FAIL=cudnnBackendExecute:-1:3000",
  ["that makes NaN of finite numbers"] = "MGPU_FAKE_CUDA_NAN=made",
} do
  test("a candidate " .. what .. " is left out", function()
    local out = run_script(cache_of(what:gsub(" ", "-")) .. " " .. setting, ALL)
    check_sums(out)
    check.matches(out, "cuda:0: cuDNN's conv2d: candidate 1 is out\n")
    check.matches(out, "cuda:0: conv2d: cuDNN is out: ")
    check.matches(out, "conv2d: few channels\n")
  end)
end

test("cuDNN's plans and cuBLASLt's algorithms are timed too, and the choice is cached", function()
  local script = ALL .. 'mgpu.eval(core.ops.matmul(mgpu.ones { 8, 8 }, mgpu.ones { 8, 8 }))\n'
  local first, second = run_script(cache_of "libraries", script), run_script(cache_of "libraries", script)
  for _, op in ipairs { "cuDNN's conv2d", "cuDNN's conv2d_grad_weight", "cuBLASLt's matmul" } do
    check.truthy(turns(first, op) > 1, op)
    check.equal(turns(second, op), 0, op)
  end
end)

test("without memory for timing the first kernel is used, and nothing is cached", function()
  local settings = cache_of "short"
  local out = run_script(settings .. " MGPU_MEMORY=cuda:0=5K", ALL)
  check.matches(out, "conv2d: few channels\n", out)
  check.equal(turns(out, "conv2d"), 0)
  check.equal(turns(run_script(settings, ALL), "conv2d"), 2)
end)
