-- Ctrl-C inside a step: of mnist_cnn with batches of 512, and of a large product of matrices. Each must end the step
-- with the error `interrupted` and leave the model usable; with limits on time, within LIMIT of the signal.
local check = require "check"
local core = require "mgpu.core"
local ffi = require "ffi"

ffi.cdef "int kill(int pid, int signal);"

local LIMIT, SIGINT = 0.2, 2 -- seconds; the signal of Ctrl-C
local APART = 2.1 -- seconds between two signals: a second one within two seconds ends the program

-- A process that works until it is interrupted, again and again. For each time it prints its process id before, and
-- afterwards when it caught the error, the error's code, and whether what it computes next is right.
local WORKS = [[
  local mgpu, core = require "mgpu", require "mgpu.core"
  local id = io.open("/proc/self/stat"):read "*n"
  local work, usable
  mgpu.seed(5)
  if arg[1] == "mnist_cnn" then
    local model = mgpu.models.mnist_cnn {}
    model:compile { loss = "mse", optimizer = "adam" }
    local x, y = mgpu.rand { 512, 28, 28, 1 }, mgpu.rand { 512, 10 }
    mgpu.eval(x, y)
    model:fit(x:slice { { 1, 8 } }, y:slice { { 1, 8 } }, { batch_size = 4, verbose = 0 })
    function work() model:fit(x, y, { batch_size = 512, epochs = 1000, verbose = 0 }) end
    function usable()
      local before = tonumber(model.optimizer.iterations:item())
      model:fit(x:slice { { 1, 4 } }, y:slice { { 1, 4 } }, { batch_size = 4, verbose = 0 })
      return tonumber(model.optimizer.iterations:item()) == before + 1
    end
  else
    local x = mgpu.ones { 3000, 3000 }
    mgpu.eval(x)
    function work() while true do x:matmul(x):sum():item() end end
    function usable()
      local part = x:slice { { 1, 4 } }
      return part:matmul(x):sum():item() == 4 * 3000 * 3000
    end
  end
  for _ = 1, tonumber(arg[2]) do
    print("ready", id)
    io.stdout:flush()
    local ok, message = pcall(work)
    local caught, code = core.clock(), not ok and core.error_code()
    print(("%.6f"):format(caught), code, usable(), (tostring(message):gsub("%s+", " ")))
    io.stdout:flush()
  end
]]

-- Interrupts the work n times, at moments that differ. RETURNS the seconds that each took, and a problem or nil.
local function interrupt(n, work, script)
  local times, problem, sent = {}, nil, 0
  local pipe = io.popen(("%s %s %s %d 2>&1"):format(check.program, script, work, n))
  for i = 1, n do
    local line = pipe:read "*l" or "nothing"
    local id = tonumber(line:match "^ready%s+(%d+)")
    if not id then return times, problem or ("%s: %s"):format(work, line) end
    core.sleep(math.max(0.15, sent + APART - core.clock()) + i * 37 % 101 / 200)
    sent = core.clock()
    ffi.C.kill(id, SIGINT)
    line = pipe:read "*l" or "nothing"
    local caught, code, usable = line:match "^([%d.]+)%s+(%w+)%s+(%w+)"
    if code == "interrupted" and usable == "true" then
      times[#times + 1] = tonumber(caught) - sent
    else
      problem = ("%s, interrupt %d: %s"):format(work, i, line)
    end
  end
  pipe:close()
  return times, problem
end

return {
  what = "Ctrl-C inside a step: not ended within 200 ms, or not usable afterwards",
  count = 200,
  few = 4,
  run = function(n, folder, timed)
    local script, failed, note, all = folder .. "/works.lua", 0, nil, {}
    check.write(script, WORKS)
    for _, work in ipairs { "mnist_cnn", "matmul" } do
      local each = math.ceil(n / 2)
      local times, problem = interrupt(each, work, script)
      failed, note = failed + each - #times, problem or note
      for _, seconds in ipairs(times) do
        all[#all + 1] = seconds
        if timed and seconds > LIMIT then failed = failed + 1 end
      end
    end
    table.sort(all)
    return failed, note or ("median %.0f ms, slowest %.0f ms"):format(1000 * all[math.ceil(#all / 2)], 1000 * all[#all])
  end,
}
