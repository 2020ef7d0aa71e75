-- Scripts that train, save, load and prefetch, on one device and on three, under limits of the process that are from
-- far too tight to nearly enough. Each step must succeed or end with an error; the program must not crash, hang, or be
-- ended by a library. A limit so tight that the program cannot start is told as well.
local check = require "check"

local MB = 1e6
-- The option of prlimit, and the range of values, which the cases go through.
local LIMITS = {
  { "fsize", 0, 300e3 },
  { "as", 8 * MB, 400 * MB },
  { "data", 1 * MB, 120 * MB },
  { "nproc", 1, 12 },
  { "nofile", 6, 20 },
  { "stack", 32 * 1024, 1024 * 1024 },
  { "memlock", 0, 65536 },
  { "core", 0, 65536 },
}
local SECONDS = 120 -- a case takes about two

-- Prints the outcome of each step; the values it computes are checked where memory is not short.
local SCRIPT = [[
  local core, mgpu = require "mgpu.core", require "mgpu"
  local L, folder = mgpu.layers, arg[1]
  local function step(name, fn)
    local ok, message = pcall(fn)
    print(name, ok and "ok" or "error", (tostring(message):gsub("%s+", " ")))
    io.stdout:flush()
  end
  local function make(devices)
    mgpu.seed(2)
    local model = mgpu.Sequential { L.Input { 12, 12, 3 }, L.Conv2D { 8, 3, activation = "relu" }, L.MaxPooling2D {},
      L.Flatten {}, L.Dense { 64, activation = "relu" }, L.Dense { 4 } }
    model:compile { loss = "mse", optimizer = "adam", devices = devices }
    return model
  end
  step("all", function()
    local x, y = mgpu.rand { 48, 12, 12, 3 }, mgpu.rand { 48, 4 }
    local model, three
    step("train", function()
      model = make()
      model:fit(x, y, { batch_size = 16, verbose = 0 })
    end)
    step("devices", function()
      three = make { "cpu:0", "cpu:1", "cpu:2" }
      three:fit(x, y, { batch_size = 15, verbose = 0 })
    end)
    step("prefetch", function()
      model:fit(mgpu.data.from_tensors { x, y }:batch(16):prefetch(4), { verbose = 0 })
    end)
    for _, ending in ipairs { ".safetensors", ".h5", ".keras" } do
      step("save", function() model:save(folder .. "/m" .. ending) end)
      step("load", function()
        local loaded = mgpu.load_model(folder .. "/m" .. ending)
        for i, w in ipairs(model:get_weights()) do
          assert((loaded:get_weights()[i] - w):abs():max():item() == 0, "WRONG weights")
        end
      end)
    end
    step("backup", function()
      model:fit(x, y, { batch_size = 16, verbose = 0, resume = folder .. "/run" })
    end)
    step("product", function()
      local a = mgpu.ones { 300, 300 }
      assert(a:matmul(a):sum():item() == 300 ^ 3, "WRONG product")
    end)
  end)
  print "end"
]]

-- The command that runs another user's process, since the limit on processes does not bind root; nil if there is none.
local function as_user()
  if check.run "id -u" ~= "0\n" then return "" end
  local user = "setpriv --reuid 54321 --clear-groups "
  local text = check.run(("%s %s -e 'print(1)'"):format(user, check.program))
  return text == "1\n" and user or nil
end

-- What is wrong with how the script ended, or nil.
local function problem_in(text, status)
  if text:find "WRONG" then return text:match "[^\n]*WRONG[^\n]*" end
  if status == 124 then return "it hangs" end
  if status >= 128 then return ("ended by signal %d after %s"):format(status - 128, text:match "[^\n]*\n?$") end
  if text:find "libgomp" then return text:match "libgomp[^\n]*" end
  if text:find "\nend\n$" or text:find "mgpulua: [^\n]*%(?limited to" or text:find "error while loading shared" then
    return nil
  end
  return ("status %d without the limit in the message: %s"):format(status, text:sub(-300))
end

return {
  what = "resource limits: a crash, a hang, an end without a message, or wrong numbers",
  count = 200,
  few = 24,
  run = function(n)
    if not check.run("command -v prlimit"):find "prlimit" then return 0, "skipped: there is no prlimit", 0 end
    if not check.program:find "build/mgpulua" then return 0, "skipped: another build", 0 end
    local folder = check.run("mktemp -d"):gsub("\n", "") -- which the other user may enter
    check.run("chmod 777 " .. folder)
    local script, user, failed, note, tried = folder .. "/script.lua", as_user(), 0, nil, 0
    check.write(script, SCRIPT)
    local each = math.ceil(n / #LIMITS)
    for _, limit in ipairs(LIMITS) do
      local name, low, high = unpack(limit)
      local prefix = name == "nproc" and user or ""
      if name == "nproc" and not user then note = "limits on processes are skipped: root is exempt" end
      for i = 1, (name ~= "nproc" or user) and each or 0 do
        local value = math.floor(low + (high - low) * (i - 1) / each)
        local files = ("%s/%s-%d"):format(folder, name, i)
        check.run(("mkdir %s; chmod 777 %s"):format(files, files))
        local text, status = check.run(("timeout %d prlimit --%s=%d -- %s%s %s %s")
          :format(SECONDS, name, value, prefix, check.program, script, files))
        tried = tried + 1
        local problem = problem_in(text, status)
        if problem then failed, note = failed + 1, ("%s=%d: %s"):format(name, value, problem) end
      end
    end
    check.run("rm -rf " .. folder)
    return failed, note, tried
  end,
}
