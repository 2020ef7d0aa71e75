--- Runs cases and writes what they return to OUT.RANK, one line of 17 digits for each array: for ranks_spec.lua.
-- Arguments: the module of the cases, OUT, the devices of compile ("-": none; "a;b": a on rank 0, b on the others;
-- "cpu:0=3,cpu:1=1": with weights), and the names of cases, else all run.
local folder = arg[0]:match "^(.*/)"
package.path = folder .. "?.lua;" .. folder .. "../../?.lua;" .. package.path
local mgpu = require "mgpu"

local module, out, devices = arg[1], arg[2], arg[3]
local rank = mgpu.world().rank
if devices:find ";" then devices = devices:match(rank == 0 and "^[^;]*" or "[^;]*$") end
if devices:find "=" then
  local weights = {}
  for name, weight in devices:gmatch "([^,=]+)=([^,]+)" do weights[name] = tonumber(weight) end
  devices = weights
end
local wanted = {}
for i = 4, #arg do wanted[arg[i]] = true end

local function numbers_of(value, into)
  if type(value) == "userdata" then value = value:totable() end
  if type(value) ~= "table" then
    into[#into + 1] = type(value) == "number" and ("%.17g"):format(value) or tostring(value)
    return into
  end
  if #value > 0 then
    for i = 1, #value do numbers_of(value[i], into) end
    return into
  end
  local names = {}
  for name in pairs(value) do names[#names + 1] = tostring(name) end
  table.sort(names)
  for _, name in ipairs(names) do
    into[#into + 1] = name
    numbers_of(value[name], into)
  end
  return into
end

local function write(f, case, found)
  local names = {}
  for name in pairs(found) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    f:write(case.name, ": ", name, "\t", table.concat(numbers_of(found[name], {}), " "), "\n")
  end
end

local f = assert(io.open(("%s.%d"):format(out, rank), "w"))
for i, case in ipairs(require(module)) do
  if #arg < 4 or wanted[case.name] then
    wanted[case.name] = nil
    mgpu.reset_names()
    mgpu.seed(i)
    mgpu.set_floatx(case.floatx or "float64")
    local ok, found = pcall(mgpu.mixed_precision.with_policy, case.policy or mgpu.policy(), function()
      return case.fn { devices = devices ~= "-" and devices or nil, out = out }
    end)
    if not ok then found = { error = tostring(found):gsub("\n", " | ") } end
    write(f, case, found)
    f:flush()
    if not ok and os.getenv "SHOW" and rank == 0 then io.stderr:write(case.name, ": ", found.error, "\n") end
  end
end
f:close()
if next(wanted) then error("there is no case " .. next(wanted)) end
