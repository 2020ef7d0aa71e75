-- `mgpulua --attach` in a job that trains, again and again: the commands read weights, predict, draw random numbers and
-- fail. The weights at the end must be those of the same training without them, to the last bit. The remark has the
-- median of a step in both.
local check = require "check"
local core = require "mgpu.core"

-- Trains for arg[2] epochs, or until the file arg[1] .. ".stop" is there. Prints the epochs, the median of a step, how
-- many commands ran in it, and the weights.
local JOB = [[
  local core, mgpu = require "mgpu.core", require "mgpu"
  local L = mgpu.layers
  mgpu.seed(1)
  math.randomseed(1)
  model = mgpu.Sequential { L.Input { 16 }, L.Dense { 64, activation = "relu" }, L.BatchNormalization {},
    L.Dropout { 0.5 }, L.Dense { 1 } }
  model:compile { loss = "mse", optimizer = "adam", metrics = "mae" }
  x, y = mgpu.rand { 256, 16 }, mgpu.rand { 256, 1 }
  local path, epochs, times, last = arg[1], tonumber(arg[2]), {}, nil
  local control = {
    on_train_batch_begin = function() last = core.clock() end,
    on_train_batch_end = function(self, batch)
      times[#times + 1] = core.clock() - last
      if batch == 1 and #times == 1 then core.write_file(path, "ready") end
    end,
    on_epoch_end = function(self, epoch)
      if epoch == epochs or not epochs and core.file_exists(path .. ".stop") then self.model.stop_training = true end
    end,
  }
  local h = model:fit(x, y, { epochs = 1e9, batch_size = 32, verbose = 0, callbacks = control })
  local attached, bits = 0, {}
  for _, a in ipairs(h.attached) do attached = attached + (a.times or 1) end
  for _, w in ipairs(model:get_weights()) do
    for _, v in ipairs(w:to "float64":reshape { -1 }:totable()) do bits[#bits + 1] = ("%.17g"):format(v) end
  end
  table.sort(times)
  print(#h.epoch, times[math.ceil(#times / 2)], attached)
  print(table.concat(bits, " "), math.random(), mgpu.rand({ 1 }):item())
]]

-- A command, and the exit status that it must have.
local COMMANDS = {
  { 'print(job.epoch, job.logs.loss)', 0 },
  { 'for _, w in ipairs(model:get_weights()) do w:sum():item() end', 0 },
  { 'mgpu.rand({ 3 }):sum():item() math.random()', 0 },
  { 'local z = model:predict(x, { verbose = 0 }) z:sum():item()', 0 },
  { 'error "on purpose"', 1 },
  { 'x x', 1 },
  { 'debug.sethook(function() end, "l") collectgarbage() jit.flush()', 0 },
}

local function run_job(folder, name, epochs)
  local path = ("%s/%s"):format(folder, name)
  local command = ("XDG_RUNTIME_DIR=%s MGPU_ATTACH=1 %s %s/job.lua %s %s"):format(folder, check.program, folder, path,
    epochs or "")
  check.run(("{ %s >%s.out 2>&1; : >%s.end; } >/dev/null 2>&1 &"):format(command, path, path))
  return path
end

local function wait_for(path, seconds)
  local deadline = core.clock() + seconds
  while not core.file_exists(path) do
    if core.clock() > deadline then error(path .. " does not come") end
    core.sleep(0.02)
  end
end

return {
  what = "commands of --attach during a training: failed, or its weights differ",
  count = 1000,
  few = 14,
  run = function(n, folder)
    local failed, note = 0, nil
    check.write(folder .. "/job.lua", JOB)
    local visited = run_job(folder, "visited")
    wait_for(visited, 60)
    local pid = check.run(("ls %s/mgpulua"):format(folder)):match "(%d+)%.sock"
    for i = 1, n do
      local command = COMMANDS[(i - 1) % #COMMANDS + 1]
      local output, status = check.run(("XDG_RUNTIME_DIR=%s %s --attach %s -e '%s'"):format(folder, check.program, pid,
        command[1]))
      if status ~= command[2] then failed, note = failed + 1, note or command[1] .. ": " .. output end
    end
    check.write(visited .. ".stop", "")
    wait_for(visited .. ".end", 600)
    local epochs, median, attached = check.read(visited .. ".out"):match "^(%d+)\t(%S+)\t(%d+)\n"
    if not epochs then return failed + 1, check.read(visited .. ".out") end
    if tonumber(attached) ~= n then failed, note = failed + 1, note or attached .. " commands in the history" end
    local alone = run_job(folder, "alone", epochs)
    wait_for(alone .. ".end", 3600)
    local _, median_alone = check.read(alone .. ".out"):match "^(%d+)\t(%S+)"
    if check.read(visited .. ".out"):match "\n.*" ~= check.read(alone .. ".out"):match "\n.*" then
      failed, note = failed + 1, note or "the weights differ"
    end
    return failed, note or ("%d epochs; median of a step %.1f us, alone %.1f us"):format(epochs, 1e6 * median,
      1e6 * median_alone)
  end,
}
