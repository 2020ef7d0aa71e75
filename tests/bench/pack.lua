--- How long packed programs take to start, and what prediction with our own kernels alone costs.
--
--     build/mgpulua tests/bench/pack.lua       prints medians in milliseconds, of the whole process
local core = require "mgpu.core"
local mgpu = require "mgpu"

local program, RUNS = arg[-1], 31
local folder = io.popen("mktemp -d"):read "*l"

local SCRIPTS = {
  { "an empty script", "" },
  { 'require "mgpu"', 'require "mgpu"' },
  { "a prediction of LeNet-5", [[
    local mgpu = require "mgpu"
    local model = mgpu.load_model "lenet5.safetensors"
    print(model:predict(mgpu.ones { 1, 28, 28, 1 }, { verbose = 0 }))]] },
}

local function write(name, text)
  local file = assert(io.open(folder .. "/" .. name, "w"))
  file:write(text)
  file:close()
end

-- The median of the milliseconds that the commands take, one after another in each run.
local function medians(commands)
  local times = {}
  for i = 1, #commands do times[i] = {} end
  for run = 1, RUNS do
    for i, command in ipairs(commands) do
      local start = core.clock()
      os.execute(command .. " >/dev/null")
      times[i][run] = (core.clock() - start) * 1e3
    end
  end
  for i, list in ipairs(times) do
    table.sort(list)
    times[i] = list[(RUNS + 1) / 2]
  end
  return times
end

mgpu.models.lenet5 {}:save(folder .. "/lenet5.safetensors")
local commands, names = { "true" }, { "a shell, and true" }
for i, script in ipairs(SCRIPTS) do
  write(i .. ".lua", script[2])
  local output = ("%s/%d"):format(folder, i)
  os.execute(("%s --pack %s.lua --model lenet5.safetensors -o %s >/dev/null"):format(program, output, output))
  names[#names + 1], commands[#commands + 1] = script[1] .. ", packed", ("%s/%d"):format(folder, i)
  names[#names + 1] = script[1]
  commands[#commands + 1] = ("cd %s && %s %d.lua"):format(folder, io.popen("realpath " .. program):read "*l", i)
end
for i, ms in ipairs(medians(commands)) do print(("%8.1f  %s"):format(ms, names[i])) end

for _, name in ipairs { "lenet5", "mnist_cnn", "resnet18" } do
  mgpu.models[name] {}:save(("%s/%s.safetensors"):format(folder, name))
end
write("speed.lua", [[
  local core, mgpu = require "mgpu.core", require "mgpu"
  for _, name in ipairs { "lenet5", "mnist_cnn", "resnet18" } do
    local model = mgpu.load_model(name .. ".safetensors")
    local shape = model.inputs and model.inputs[1]:shape() or model.built_shape
    local x, best = mgpu.rand { 32, select(2, unpack(shape)) }, math.huge
    for _ = 1, 12 do
      local start = core.clock()
      mgpu.eval(model:predict(x, { verbose = 0 }))
      best = math.min(best, core.clock() - start)
    end
    print(("%8.2f  %s, 32 images, best of 12"):format(best * 1e3, name))
  end]])
os.execute(("cd %s && %s --pack speed.lua --model lenet5.safetensors --model mnist_cnn.safetensors --model "
  .. "resnet18.safetensors -o speed >/dev/null"):format(folder, io.popen("realpath " .. program):read "*l"))
print "packed, without oneDNN:"
io.flush()
os.execute(("cd %s && ./speed"):format(folder))
print "mgpulua:"
io.flush()
os.execute(("cd %s && %s speed.lua"):format(folder, io.popen("realpath " .. program):read "*l"))
os.execute("rm -rf " .. folder)
