-- Training speed on the CPU beside Keras and PyTorch: `make bench`, or
--
--     build/mgpulua tests/bench/run.lua [--nets mnist_cnn,lenet5,cifar10_cnn,resnet18,gpt] [--rounds 7] [--venv FOLDER]
--
-- With MGPU_ISA=avx2 (or avx512, baseline) all contenders are limited to that instruction set: isa.lua.
-- The peers are installed once, in a virtual environment outside the tree; one that cannot be installed is
-- skipped with the reason. For GPUs see gpu.lua.

local HERE = "tests/bench/"
package.path = HERE .. "?.lua;" .. package.path
local race = require "race"
local isa = require "isa"
local shell, median = race.shell, race.median

local options = {
  nets = "mnist_cnn,lenet5,cifar10_cnn,resnet18,gpt", rounds = "7", threads = "2",
  venv = (os.getenv "XDG_CACHE_HOME" or os.getenv "HOME" .. "/.cache") .. "/mgpulua/bench-venv",
}
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end

-- Steps of a round, which takes a second or two.
local STEPS = { mnist_cnn = 4, lenet5 = 200, mlp = 60, cifar10_cnn = 15, resnet18 = 1, gpt = 8 }
local BATCH = { resnet18 = 32, gpt = 16 } -- others: 128

-- ---- contenders ---------------------------------------------------------------------------------

-- The Python of the virtual environment, which is made if it does not exist; or nil and the reason.
local function venv_python()
  local python = options.venv .. "/bin/python"
  local _, status = shell(python .. " -c 'import torch, keras'")
  if status == 0 then return python end
  print("installing the peers in " .. options.venv .. " (once) ...")
  local output
  output, status = shell(("python3 -m venv '%s' && '%s/bin/pip' install -q -r "
    .. "tests/golden/requirements.txt"):format(options.venv, options.venv))
  if status == 0 then return python end
  return nil, "cannot be installed: " .. (output:match "([^\n]*)\n*$" or "?")
end

-- Whether torch.compile works, which needs a C++ compiler; or nil and the reason.
local function compiles(python)
  local output, status = shell(python .. " -c 'import torch; torch.compile(torch.sin)(torch.ones(8))'")
  return status == 0 or nil, output:match "[%w_.]+Error: [^\n]*" or output:match "([^\n]*)\n*$"
end

local function contenders()
  local list, skipped = { { name = "mgpulua", command = arg[-1] .. " " .. HERE .. "ours.lua" } }, {}
  local python, reason = venv_python()
  local function peer(name, interpreter, script)
    if not interpreter then
      skipped[#skipped + 1] = name .. ": " .. reason
      return
    end
    list[#list + 1] = { name = name, command = interpreter .. " " .. HERE .. script
      .. " --threads " .. options.threads }
  end
  peer("Keras (tensorflow)", python, "peer_keras.py --mode graph")
  peer("Keras (XLA)", python, "peer_keras.py --mode xla")
  peer("PyTorch", python, "peer_torch.py --layout default")
  peer("PyTorch channels_last", python, "peer_torch.py --layout channels_last")
  local compiler = python
  if python then
    local works, problem = compiles(python)
    if not works then compiler, reason = nil, problem end
  end
  peer("PyTorch compiled", compiler, "peer_torch.py --layout default --compile default")
  peer("PyTorch compiled channels_last", compiler, "peer_torch.py --layout channels_last --compile default")
  local _, status = shell "/usr/bin/python3 -c 'import torch'"
  reason = "apt-get install python3-torch"
  local debian = status == 0 and "/usr/bin/python3" or nil
  peer("Debian's PyTorch", debian, "peer_torch.py --layout default")
  peer("Debian's PyTorch channels_last", debian, "peer_torch.py --layout channels_last")
  return list, skipped
end

local function compare(net, all)
  local list = { threads = tonumber(options.threads) }
  local batch = BATCH[net] or 128
  local given = (" --net %s --batch %d"):format(net, batch)
  for i, c in ipairs(all) do list[i] = { name = c.name, command = c.command .. given } end
  list = race.race(list, tonumber(options.rounds), STEPS[net] or 10)
  race.report(("%s, training step, batch %d, %s threads"):format(net, batch, options.threads), list)
end

-- ---- mgpulua alone ---------------------------------------------------------------------------------

local function milliseconds(command, times)
  local list = {}
  for i = 1, times do
    local ns = shell("s=$(date +%s%N); " .. command .. " >/dev/null; echo $(( $(date +%s%N) - s ))")
    list[i] = tonumber(ns) / 1e6
  end
  return median(list)
end

-- Microseconds of a jitted step of ten tiny ops that cannot be fused into one: the overhead of a step.
local function step_overhead()
  local mgpu, core = require "mgpu", require "mgpu.core"
  local x = mgpu.ones { 4 }
  local step = mgpu.jit(function(t)
    for _ = 1, 5 do t = (t * 1.01):sum { keepdims = true } end
    return t
  end)
  for _ = 1, 200 do step(x) end
  local n, before = 20000, core.clock()
  for _ = 1, n do step(x) end
  return (core.clock() - before) / n * 1e6
end

local function alone()
  local program = arg[-1]
  print "\nmgpulua alone"
  print(("  %-52s %8.2f ms"):format("mgpulua -e '', start to end", milliseconds(
    program .. " -e ''", 20)))
  print(("  %-52s %8.2f ms"):format("start to end of the first lenet5 step", milliseconds(
    "echo 'run 1' | " .. program .. " " .. HERE .. "ours.lua --net lenet5", 5)))
  print(("  %-52s %8.2f us"):format("a jitted step of ten tiny ops", step_overhead()))
end

print(isa.text)
local list, skipped = contenders()
for net in options.nets:gmatch "[^,]+" do compare(net, list) end
alone()
for _, text in ipairs(skipped) do print("skipped: " .. text) end
