-- The cpu device under every instruction set that this processor has (MGPU_ISA): the op rows and the
-- golden layers, in processes of their own, and with 1, 2 and 3 threads. All other tests, among them ops_spec.lua
-- and golden_layers_spec.lua, run with the widest set only.
local check = require "check"
local test = check.test
check.needs "cpu"

-- MGPU_ISA's names, and what the description of the device and oneDNN call them. On aarch64 oneDNN has no limit.
local SETS = jit.arch == "arm64" and { { "neon", "NEON" } } or {
  { "avx512", "AVX-512", "Intel AVX-512" },
  { "avx2", "AVX2", "Intel AVX2" },
  { "baseline", "baseline vectors", "Intel SSE4.1" },
}

local DESCRIBE = [[print(require("mgpu.core").device_info("cpu:0").text)]]
local CONVOLVE = [[
  local core, mgpu = require "mgpu.core", require "mgpu"
  mgpu.eval(core.ops.conv2d(mgpu.ones { 2, 8, 8, 16 }, mgpu.ones { 3, 3, 16, 16 }))
]]

local function run_script(settings, text)
  local script = check.path "script.lua"
  check.write(script, text)
  return check.run(settings .. " " .. check.program .. " " .. script)
end

local default_set = run_script("", DESCRIBE)

local function is_there(set)
  local output = run_script("MGPU_ISA=" .. set, DESCRIBE)
  return not output:find("lacks that instruction set", 1, true)
end

local function needs_set(set)
  if not is_there(set) then check.skip("this processor lacks " .. set) end
end

local function needs_onednn()
  if not default_set:find("oneDNN", 1, true) then check.skip "built without oneDNN" end
end

-- Runs a test file, or the part K/N of it, and fails with its output if one of its tests does.
local function run_tests(settings, file, part)
  local command = ("%s %s tests/check.lua %s%s"):format(settings, check.program, file,
    part and " --part " .. part or "")
  local output, status = check.run(command)
  local passed, failed = output:match "(%d+) passed, (%d+) failed"
  if status ~= 0 or failed ~= "0" or tonumber(passed) == 0 then check.fail(command .. ":\n" .. output) end
end

for _, names in ipairs(SETS) do
  local set, title, onednn = unpack(names)
  local settings = "MGPU_ISA=" .. set .. " "

  test(("%s is what the device's description says when it is asked for"):format(set), function()
    needs_set(set)
    check.matches(run_script(settings, DESCRIBE), " threads, " .. title)
  end)

  test(("%s limits oneDNN too"):format(set), function()
    if not onednn then check.skip "there is no narrower one" end
    needs_onednn()
    needs_set(set)
    local output, status = run_script(settings .. "ONEDNN_VERBOSE=1", CONVOLVE)
    check.equal(status, 0)
    check.matches(output, "cpu,isa:" .. onednn)
  end)

  if not default_set:find(" threads, " .. title, 1, true) then
    test(("the op rows are right with %s"):format(set), function()
      check.slow()
      needs_set(set)
      run_tests(settings, "tests/ops/ops_spec.lua")
    end)

    test(("the golden layers are right with %s"):format(set), function()
      needs_set(set)
      run_tests(settings, "tests/lua/nn/golden_layers_spec.lua")
    end)
  end

  test(("without oneDNN, the op rows and the golden layers are right with %s"):format(set), function()
    needs_set(set)
    local without = settings .. "MGPU_ONEDNN=no"
    check.truthy(not run_script(without, DESCRIBE):find("oneDNN", 1, true))
    run_tests(without, "tests/lua/nn/golden_layers_spec.lua")
    for part = 1, 6, 5 do run_tests(without, "tests/ops/ops_spec.lua", part .. "/6") end
  end)

  for threads = 1, 3 do
    test(("a sixth of the op rows is right with %s and %d threads"):format(set, threads), function()
      needs_set(set)
      run_tests(("%s MGPU_THREADS=%d"):format(settings, threads), "tests/ops/ops_spec.lua", threads .. "/6")
    end)
  end
end

test("oneDNN keeps the limit that the user has set", function()
  needs_set "avx2"
  needs_onednn()
  local output = run_script("MGPU_ISA=avx2 ONEDNN_MAX_CPU_ISA=SSE41 ONEDNN_VERBOSE=1", CONVOLVE)
  check.matches(output, "cpu,isa:Intel SSE4.1")
end)

test("the instruction set of another kind of processor is refused", function()
  local other, widest = "neon", "the widest it has is "
  if jit.arch == "arm64" then other, widest = "avx2", widest .. "neon" end
  check.matches(run_script("MGPU_ISA=" .. other, DESCRIBE),
    "MGPU_ISA=" .. other .. ": this processor lacks that instruction set; " .. widest)
end)

test("an unknown instruction set is an error that names the choices", function()
  local output = run_script("MGPU_ISA=mmx", DESCRIBE)
  check.matches(output, "MGPU_ISA=mmx: unknown instruction set; choose avx512, avx2 or baseline")
  output = run_script("MGPU_ISA=mmx", 'print(pcall(require("mgpu").ones, { 2 }))') -- not ref:0 in silence
  check.matches(output, "false%s+.*MGPU_ISA=mmx: unknown instruction set")
end)

-- The time of a step is not tested, since it depends on the machine; libgomp tells what it was told.
test("idle threads spin for a moment, also while there are more of them than cores", function()
  local settings = "env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose"
  local output = run_script(settings, [[
    require("mgpu.core").device_info "cpu:0"
    print(os.getenv "OMP_WAIT_POLICY", os.getenv "GOMP_SPINCOUNT")]])
  if not output:find "GOMP_SPINCOUNT" then check.skip "OpenMP is not libgomp's" end
  check.matches(output, "OMP_WAIT_POLICY = 'ACTIVE'")
  check.matches(output, "GOMP_SPINCOUNT = '1000'")
  check.matches(output, "nil\tnil\n") -- programs that are started from here are not affected
  local passive = run_script("OMP_WAIT_POLICY=passive OMP_DISPLAY_ENV=verbose",
    [[require("mgpu.core").device_info "cpu:0"]])
  check.matches(passive, "OMP_WAIT_POLICY = 'PASSIVE'")
end)

test("OMP_PROC_BIND, which binds the first thread to a core, leaves the number of threads as it is", function()
  check.equal(run_script("OMP_PROC_BIND=true", DESCRIBE), run_script("OMP_PROC_BIND=false", DESCRIBE))
end)
