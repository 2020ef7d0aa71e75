-- Several processes with a GPU each, or sharing one: the numbers of one process. On the fake CUDA, whose NCCL connects
-- processes too.

local check = require "check"
local device = require "tests.cuda.device"
local test = check.test

local SCRIPT = check.path "train.lua"
check.write(SCRIPT, [[
  local mgpu = require "mgpu"
  mgpu.seed(3)
  local L, x, y = mgpu.layers, mgpu.rand { 50, 6 }, mgpu.rand { 50, 1 }
  local model = mgpu.Sequential { mgpu.Input { 6 }, L.Dense { 8, activation = "relu" }, L.BatchNormalization {},
    L.Dropout { 0.3 }, L.Dense { 1 } }
  model:compile { optimizer = "sgd", loss = "mse", metrics = { "mae" } }
  local h = model:fit(x, y, { batch_size = 16, epochs = 2, verbose = 0, validation_split = 0.2 })
  local sum = 0
  for _, v in ipairs(model.variables) do sum = sum + v:value():abs():sum():item() end
  local device = mgpu.world().size > 1 and model.compiled.devices[1] or "-"
  print(("%d %s %.6f %.6f %.6f"):format(mgpu.world().rank, device, sum, h.history.loss[2], h.history.val_mae[2]))]])

-- One GPU, also on a real machine with more.
local ONE_GPU = device.real and "CUDA_VISIBLE_DEVICES=0" or "MGPU_FAKE_CUDA_GPUS=1"
local LIBRARIES = device.real and "" or "MGPU_CUDA_LIBRARIES=build/fake_cuda "

-- The lines that the ranks print, sorted.
local function run(settings, n)
  local text, status = check.run(("%s%s %s --np %d --output all %s </dev/null")
    :format(LIBRARIES, settings, check.program, n, SCRIPT))
  check.equal(status, 0, text)
  local lines = {}
  for line in check.sorted_lines(text):gmatch "[^\n]+" do lines[#lines + 1] = line end
  return lines
end

local function numbers(line) return line:match "^%d %S+ (.*)" end

-- Rounding of the sums and at the sixth digit.
local function check_close(line, expected)
  local wanted = {}
  for number in expected:gmatch "%S+" do wanted[#wanted + 1] = tonumber(number) end
  for number in line:gmatch "%S+" do check.near(tonumber(number), table.remove(wanted, 1), 1e-5) end
end

test("ranks with a GPU each train the numbers of one process, by NCCL", function()
  if device.real then check.skip "a real machine may have one GPU only" end
  if #require "mgpu.core".transports() == 0 then check.skip "no transport was built (libucx-dev)" end
  local one, two = run("", 1), run("", 2)
  check.matches(two[1], "^0 cuda:0 ")
  check.matches(two[2], "^1 cuda:1 ")
  check.equal(numbers(two[1]), numbers(two[2]))
  check_close(numbers(two[1]), numbers(one[1]))
end)

test("ranks that share a GPU exchange by way of the host", function()
  if #require "mgpu.core".transports() == 0 then check.skip "no transport was built (libucx-dev)" end
  local one, three = run(ONE_GPU, 1), run(ONE_GPU, 3)
  for i = 1, 3 do check.matches(three[i], ("^%d cuda:0 "):format(i - 1)) end
  check.equal(numbers(three[1]), numbers(three[3]))
  check_close(numbers(three[1]), numbers(one[1]))
end)

test("devices = all deals the GPUs of a host out among its ranks", function()
  if device.real then check.skip "the fake CUDA is tested" end
  if #require "mgpu.core".transports() == 0 then check.skip "no transport was built (libucx-dev)" end
  local path = check.path "all.lua"
  check.write(path, [[
    local mgpu = require "mgpu"
    local list = mgpu.parallel.strategy("mirrored").devices
    print(mgpu.world().rank, table.concat(list, " "))]])
  local function dealt(settings)
    return check.sorted_lines(check.run(("MGPU_CUDA_LIBRARIES=build/fake_cuda %s %s --np 2 --output all %s </dev/null")
      :format(settings, check.program, path)))
  end
  check.equal(dealt "MGPU_FAKE_CUDA_GPUS=5", "0\tcuda:0 cuda:2 cuda:4\n1\tcuda:1 cuda:3")
  check.equal(dealt "MGPU_FAKE_CUDA_GPUS=1", "0\tcuda:0\n1\tcuda:0")
  check.equal(dealt "MGPU_FAKE_CUDA_GPUS=4 MGPU_RANKS_PER_GPU=2", "0\tcuda:0 cuda:1 cuda:2 cuda:3\n"
    .. "1\tcuda:0 cuda:1 cuda:2 cuda:3")
end)
