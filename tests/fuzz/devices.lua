-- Compares the cpu device with ref on random ops and networks: `make fuzz` runs it.
--
--     build/mgpulua tests/fuzz/devices.lua [SECONDS = 20] [SEED = the time]
--     build/mgpulua tests/fuzz/devices.lua --cases FIRST COUNT      those cases, in this process
--
-- A case is an op with inputs and attributes (random_cases.lua), a training step of a small network
-- (random_networks.lua), or a loop, written out on ref (random_loops.lua); the number of the case is its seed. Its
-- result and gradients are computed on ref and twice on cpu: ref and cpu must agree within the tolerance of the case,
-- and both cpu results bit for bit. Cases run in separate processes, 100 in each, in turn with every instruction set
-- that this processor has and with 1, 2 and 3 threads.
-- After a failure, a crash or a hang it prints the command that repeats the case.
package.path = "tests/?.lua;" .. package.path
local check = require "check"

local COUNT, PATIENCE = 100, 200 -- cases of a process, and the seconds after which it hangs

-- ---- the parent ---------------------------------------------------------------------------------

local program = "'" .. arg[-1]:gsub("'", "'\\''") .. "'"

-- The settings of the processes: each instruction set of this processor, with 1 to 3 threads.
local function all_settings()
  local list = {}
  for _, set in ipairs { "avx512", "avx2", "baseline" } do
    local output, status = check.run(("MGPU_ISA=%s %s -e 'require(\"mgpu.core\").device_info \"cpu:0\"'"):format(set,
      program))
    if status == 0 then
      for threads = 1, 3 do list[#list + 1] = ("MGPU_ISA=%s MGPU_THREADS=%d"):format(set, threads) end
    elseif not output:find("lacks that instruction set", 1, true) then
      error(output, 0)
    end
  end
  return list
end

-- Prints what a process said about its last case, and how to repeat it; ends this one.
local function fail(output, status, setting, first)
  local last, text = first, output
  for at, number in output:gmatch "()case (%d+): " do last, text = tonumber(number), output:sub(at) end
  print(("FAIL: status %d with %s\n%s"):format(status, setting, text))
  print(("  repeat it: %s %s %s --cases %d 1"):format(setting, program, arg[0], last))
  print(("  if it passes alone: --cases %d %d"):format(first, last - first + 1))
  os.exit(1)
end

local function run_all(seconds, seed)
  local settings, begun, n, refused = all_settings(), os.time(), 0, 0
  repeat
    for _, setting in ipairs(settings) do
      local output, status = check.run(("%s timeout -k 5 %d %s %s --cases %d %d"):format(setting, PATIENCE, program,
        arg[0], seed, COUNT))
      if status ~= 0 then fail(output, status, setting, seed) end
      seed, n, refused = seed + COUNT, n + COUNT, refused + select(2, output:gsub("  refused: ", ""))
      if os.time() - begun >= seconds then break end
    end
  until os.time() - begun >= seconds
  print(("  fuzz devices: %d cases, cpu agrees with ref (%d refused by both)"):format(n, refused))
end

if arg[1] ~= "--cases" then
  run_all(tonumber(arg[1]) or 20, tonumber(arg[2]) or os.time())
  os.exit(0)
end

-- ---- the child ----------------------------------------------------------------------------------

local core = require "mgpu.core"
local cases = require "ops.cases"
local loops = require "fuzz.random_loops"
local networks = require "fuzz.random_networks"
local random_case = require "fuzz.random_cases"

local differentiable = {}
for _, row in ipairs(core.op_rows()) do differentiable[row.name] = row.differentiable end

local FLOATING = { float32 = true, float64 = true, float16 = true, bfloat16 = true }

-- The gradients of sum(result * weights) w.r.t. the first floating-point inputs, as lists.
local function gradients(case, list)
  local found = {}
  for i = 1, math.min(#list, 4) do -- concat has cases of 255 inputs
    local input = list[i]
    if FLOATING[input:dtype()] and not case[i + 1].choose and not case[i + 1].pooled then
      local gradient = core.grad(function(x)
        local arguments = { unpack(list) }
        arguments[i] = x
        local y = cases.apply(case, arguments)
        return (y * cases.tensor(cases.fill({ y:shape(), -1, 1 }, 99), y:shape(), y:dtype())):sum()
      end)(input)
      found[#found + 1] = gradient and cases.flat(gradient) or {}
    end
  end
  return found
end

-- The most elements that one sum of the case can have: as many as its largest input or its result has.
local function longest(list, y)
  local n = y:count()
  for _, t in ipairs(list) do n = math.max(n, t:count()) end
  return n
end

-- The largest difference of float64 sums in two orders, relative to the largest result: a sum of n terms of either sign
-- has an error of about sqrt(n) u times the sum of their magnitudes, which is about sqrt(n) times the sum itself. The
-- factor 4 is a safety margin.
local function sum_error(dtype, n) return dtype == "float64" and 4 * 2 ^ -53 * (n or 0) or 0 end

-- The result on a device: shape, dtype, numbers and gradients.
local function compute(case, dtype, device)
  return cases.with_device(device, function()
    if case[1] == "loop" then return loops.compute(case, device) end
    if case[1] == "network" then return networks.compute(case) end
    local list = cases.inputs(case, dtype, device)
    local y = cases.apply(case, list)
    local result = { shape = y:shape(), dtype = y:dtype(), values = cases.flat(y), gradients = {},
      longest = longest(list, y) }
    if differentiable[case[1]] and FLOATING[y:dtype()] then result.gradients = gradients(case, list) end
    return result
  end)
end

local function compare(case, dtype)
  local ok, expected = pcall(compute, case, dtype, "ref:0")
  local fine, got = pcall(compute, case, dtype, "cpu:0")
  if ok ~= fine or not ok and got ~= expected then
    error(("ref: %s, cpu: %s"):format(ok and "computed" or expected, fine and "computed" or got), 0)
  end
  if not ok and case[1] == "loop" then error(expected, 0) end -- all drawn loops are right
  if not ok then return print("  refused: " .. expected) end
  check.equal({ got.shape, got.dtype }, { expected.shape, expected.dtype })
  local tolerance = cases.tolerance(case, dtype) + sum_error(dtype, expected.longest)
  cases.compare(case, got.values, expected.values, tolerance)
  case.scale = math.max(case.scale or 0, 1)
  for i, gradient in ipairs(got.gradients) do
    cases.compare(case, gradient, expected.gradients[i], 4 * tolerance, case[1] .. ", gradient " .. i)
  end
  check.equal(compute(case, dtype, "cpu:0"), got) -- the same bits again
end

local UNSHOWN = { dtypes = true, why = true, grad = true }

local function shown(value)
  if type(value) ~= "table" then return tostring(value) end
  local parts = {}
  for i, v in ipairs(value) do parts[i] = shown(v) end
  local names = {}
  for name in pairs(value) do if type(name) == "string" and not UNSHOWN[name] then names[#names + 1] = name end end
  table.sort(names)
  for _, name in ipairs(names) do parts[#parts + 1] = name .. " = " .. shown(value[name]) end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

io.stdout:setvbuf "no"
for seed = tonumber(arg[2]), tonumber(arg[2]) + tonumber(arg[3]) - 1 do
  local case, dtype = random_case(seed, cases.dtypes)
  print(("case %d: %s %s"):format(seed, dtype, shown(case)))
  compare(case, dtype)
  collectgarbage()
end
