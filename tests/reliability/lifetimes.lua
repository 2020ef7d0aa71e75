-- Models are made, trained for one step, saved and loaded, one after the other, in processes of IN_PROCESS models.
-- Memory must stay flat: the library holds the same after each quarter of a process's models, and the resident size
-- grows by less than GROWTH. Each process is judged alone, so SCALE=0.1, one process, finds the same leaks.
local check = require "check"

local IN_PROCESS = 10000 -- models in one process
local GROWTH = 8 -- MiB of resident size from a quarter of the models to the end: far less than any tensor lost for each

-- A process that makes arg[1] models. Prints after each quarter: bytes, blocks, tensors, and the resident size in KiB.
local MAKES = [[
  local mgpu, core = require "mgpu", require "mgpu.core"
  local L = mgpu.layers
  local n, path = tonumber(arg[1]), arg[2]
  local x, y = mgpu.rand { 4, 6, 6, 1 }, mgpu.rand { 4, 3 }
  mgpu.eval(x, y)
  -- Makes, trains, saves and loads a model.
  local function live(i)
    local model = mgpu.Sequential { L.Input { 6, 6, 1 }, L.Conv2D { 2, 3, activation = "relu" },
      L.BatchNormalization {}, L.Flatten {}, L.Dense { 3 } }
    model:compile { loss = "mse", optimizer = i % 2 == 0 and "adam" or "sgd" }
    model:fit(x, y, { batch_size = 4, verbose = 0 })
    model:save(path)
    local again = mgpu.load_model(path)
    if (again:predict(x) - model:predict(x)):abs():max():item() > 1e-6 then error "other predictions" end
  end
  local function report()
    mgpu.reset_names()
    jit.flush() -- the constants of compiled code keep the model alive in whose life it was recorded
    for _ = 1, 3 do collectgarbage() end
    local memory = core.memory()
    local status = io.open("/proc/self/status"):read "*a"
    print(memory.bytes, memory.blocks, memory.tensors, status:match "VmRSS:%s+(%d+)")
    io.stdout:flush()
  end
  for i = 1, n do
    live(i)
    if i % math.ceil(n / 4) == 0 or i == n then report() end
  end
]]

-- Makes n models in one process. RETURNS a problem or nil, the MiB of resident size at the end, and the growth.
local function make(n, script, path)
  local command = ("%s %s %d '%s' 2>&1"):format(check.program, script, n, path)
  local output = check.run(command)
  local rows = {}
  for bytes, blocks, tensors, resident in output:gmatch "(%d+)\t(%d+)\t(%d+)\t(%d+)\n" do
    rows[#rows + 1] = { held = ("%s bytes in %s blocks, %s tensors"):format(bytes, blocks, tensors),
      resident = tonumber(resident) / 1024 }
  end
  if #rows < 4 then return output end
  local first, last = rows[1], rows[#rows]
  local growth = last.resident - first.resident
  if first.held ~= last.held then return ("held %s, later %s"):format(first.held, last.held), last.resident, growth end
  return growth > GROWTH and ("resident: %.1f MiB, later %.1f"):format(first.resident, last.resident) or nil,
    last.resident, growth
end

return {
  what = "models made, fitted, saved, loaded: memory not flat",
  count = 100000,
  few = 80,
  run = function(n, folder)
    local script, failed, note, made, resident, growth = folder .. "/makes.lua", 0, nil, 0, 0, 0
    check.write(script, MAKES)
    while made < n do
      local now = math.min(n - made, IN_PROCESS)
      local problem, size, more = make(now, script, folder .. "/model.safetensors")
      made = made + now
      if problem then failed, note = failed + 1, problem end
      resident, growth = math.max(resident, size or 0), math.max(growth, more or 0)
    end
    return failed, note or ("at most %.1f MiB resident in processes of %d models; grew by %.2f MiB"):format(resident,
      math.min(n, IN_PROCESS), growth)
  end,
}
