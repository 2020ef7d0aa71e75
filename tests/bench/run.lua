-- Speed, side by side with Keras and PyTorch: `make bench`, or
--
--     build/mgpulua tests/bench/run.lua [--nets mnist_cnn,lenet5] [--rounds 7] [--venv FOLDER]
--
-- Every contender is a process that waits for "run N" on its standard input (see ours.lua and the
-- peer_*.py). They take turns, so that a noisy machine is noisy for all, and the ratio is that of
-- the medians within a round. Peers are installed, once, in a virtual environment outside the tree;
-- one that cannot be had is skipped with the reason.

local ffi = require "ffi"
local HERE = "tests/bench/"

-- A contender that has ended must give an error, not a signal.
ffi.cdef "void (*signal(int, void (*)(int)))(int);"
local SIGPIPE, SIG_IGN = 13, ffi.cast("void (*)(int)", 1)
ffi.C.signal(SIGPIPE, SIG_IGN)
local options = {
  nets = "mnist_cnn,lenet5", rounds = "7", threads = "2",
  venv = (os.getenv "XDG_CACHE_HOME" or os.getenv "HOME" .. "/.cache") .. "/mgpulua/bench-venv",
}
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end

local STEPS = { mnist_cnn = 4, lenet5 = 60, mlp = 60 } -- of a round: a second or two each

local function shell(command)
  local pipe = assert(io.popen("( " .. command .. " ) 2>&1; echo \"@@status $?\""))
  local output, status = pipe:read("*a"):match "^(.*)@@status (%d+)\n$"
  pipe:close()
  return output, tonumber(status)
end

local function median(list)
  local sorted = { unpack(list) }
  table.sort(sorted)
  local n = #sorted
  return n % 2 == 1 and sorted[(n + 1) / 2] or (sorted[n / 2] + sorted[n / 2 + 1]) / 2
end

-- ---- contenders ---------------------------------------------------------------------------------

-- The interpreter of the virtual environment, made if it is not there; nil and the reason.
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
  peer("Keras (tensorflow)", python, "peer_keras.py")
  peer("PyTorch", python, "peer_torch.py --layout default")
  peer("PyTorch channels_last", python, "peer_torch.py --layout channels_last")
  local _, status = shell "/usr/bin/python3 -c 'import torch'"
  reason = "apt-get install python3-torch"
  local debian = status == 0 and "/usr/bin/python3" or nil
  peer("Debian's PyTorch", debian, "peer_torch.py --layout default")
  peer("Debian's PyTorch channels_last", debian, "peer_torch.py --layout channels_last")
  return list, skipped
end

-- Starts a contender for a net, its pipes in `folder`.
local function start(contender, net, folder, i)
  local path = folder .. "/" .. i
  shell(("mkfifo %s.in %s.out"):format(path, path))
  os.execute(("%s --net %s <%s.in >%s.out 2>%s.err &"):format(contender.command, net, path, path,
    path))
  contender.input = assert(io.open(path .. ".in", "w"))
  contender.output = assert(io.open(path .. ".out"))
  contender.input:setvbuf "no"
  contender.log, contender.ms, contender.medians = path .. ".err", {}, {}
end

local function ask(contender, line)
  contender.input:write(line, "\n")
  local answer = contender.output:read "*l"
  if answer then return answer end
  local text = shell("tail -n 1 " .. contender.log)
  error(contender.name .. " ended: " .. text, 0)
end

local function run(contender, steps)
  local ms = {}
  for number in ask(contender, "run " .. steps):match("%[(.*)%]"):gmatch "[%d.eE+-]+" do
    ms[#ms + 1] = tonumber(number)
    contender.ms[#contender.ms + 1] = ms[#ms]
  end
  contender.medians[#contender.medians + 1] = median(ms)
end

-- ---- the comparison -----------------------------------------------------------------------------

-- The share of processor time in use over half a second.
local function busy()
  local function read()
    local total, idle, i = 0, 0, 0
    for n in io.lines("/proc/stat")():gmatch "%d+" do
      i, total = i + 1, total + n
      if i == 4 or i == 5 then idle = idle + n end
    end
    return total, idle
  end
  local total, idle = read()
  os.execute "sleep 0.5"
  local total_after, idle_after = read()
  return 1 - (idle_after - idle) / math.max(total_after - total, 1)
end

local function warn_if_busy()
  local share = busy()
  if share > 0.1 then
    print(("WARNING: the machine is %.0f %% busy with other work: do not trust these figures")
      :format(share * 100))
  end
end

local function report(net, list)
  local ours = list[1]
  print(("\n%s, training step, batch 128, %s threads"):format(net, options.threads))
  print(("  %-32s %9s %9s %8s %10s"):format("", "median ms", "min ms", "ratio", "peak MB"))
  for _, c in ipairs(list) do
    local ratios = {}
    for i = 1, #c.medians do ratios[i] = c.medians[i] / ours.medians[i] end
    print(("  %-32s %9.2f %9.2f %8.2f %10s"):format(c.name, median(c.ms), math.min(unpack(c.ms)),
      median(ratios), c.memory))
  end
end

local function compare(net, all)
  local folder = shell("mktemp -d"):gsub("\n", "")
  local list, steps = {}, STEPS[net] or 10
  for i, c in ipairs(all) do
    local contender = { name = c.name, command = c.command }
    start(contender, net, folder, i)
    local ok, problem = pcall(ask, contender, "run 3") -- warm
    if not ok and i == 1 then error(problem, 0) end -- without us there is nothing to compare
    if ok then list[#list + 1] = contender else print("skipped: " .. problem) end
  end
  warn_if_busy()
  for round = 1, tonumber(options.rounds) do
    for i = 1, #list do run(list[(i + round - 2) % #list + 1], steps) end
  end
  for _, c in ipairs(list) do
    c.memory = ask(c, "memory"):match "([%d.]+)%D*$"
    c.input:close()
    c.output:close()
  end
  os.execute("rm -rf " .. folder)
  report(net, list)
end

-- ---- ours alone ---------------------------------------------------------------------------------

local function milliseconds(command, times)
  local list = {}
  for i = 1, times do
    local ns = shell("s=$(date +%s%N); " .. command .. " >/dev/null; echo $(( $(date +%s%N) - s ))")
    list[i] = tonumber(ns) / 1e6
  end
  return median(list)
end

-- A jitted step of ten tiny ops that do not fuse into one: what a step costs beyond its kernels.
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

local list, skipped = contenders()
for net in options.nets:gmatch "[^,]+" do compare(net, list) end
alone()
for _, text in ipairs(skipped) do print("skipped: " .. text) end
