-- Several processes beside PyTorch's DistributedDataParallel: `make bench`, or
--
--     build/mgpulua tests/bench/world.lua [--nets mnist_cnn,lenet5] [--rounds 7] [--venv FOLDER]
--
-- Training steps at batch 128: two processes of one thread, which UCX and MPI connect, one process of two threads, and
-- two processes of PyTorch over gloo. Then the all-reduce of each alone, and how much of it a step hides.

local HERE = "tests/bench/"
package.path = "tests/?.lua;" .. HERE .. "?.lua;" .. package.path
local processes = require "world.processes"
local race = require "race"

local options = {
  nets = "mnist_cnn,lenet5", rounds = "7",
  venv = (os.getenv "XDG_CACHE_HOME" or os.getenv "HOME" .. "/.cache") .. "/mgpulua/bench-venv",
}
for i = 1, #arg, 2 do options[arg[i]:gsub("^%-%-", "")] = arg[i + 1] end

local STEPS = { mnist_cnn = 4, lenet5 = 100, mlp = 60 } -- of a round
local program, build = arg[-1], arg[-1]:match "^(.*)/" or "build"
local python = options.venv .. "/bin/python"
local _, status = race.shell(python .. " -c 'import torch'")
local no_torch = status ~= 0 and ("PyTorch: not in %s (tests/bench/run.lua installs it)"):format(options.venv)

-- The command that starts a script as two processes.
local function two(kind, script)
  if kind == "ucx" then return ("%s --np 2 %s"):format(program, script) end
  return processes.command(kind, 2, program .. " " .. script)
end

local function each_kind(fn)
  for _, kind in ipairs { "ucx", "openmpi", "mpich" } do
    local reason = processes.missing(kind, build)
    if reason then print(("skipped: %s: %s"):format(kind, reason)) else fn(kind) end
  end
end

-- ---- training steps -----------------------------------------------------------------------------

local function race_steps(net)
  local list, given = {}, (" --net %s --batch 128"):format(net)
  each_kind(function(kind)
    list[#list + 1] = { name = "2 processes, " .. kind,
      command = "env MGPU_THREADS=1 " .. two(kind, HERE .. "ours.lua" .. given) }
  end)
  list[#list + 1] = { name = "1 process, 2 threads",
    command = ("env MGPU_THREADS=2 %s %sours.lua%s"):format(program, HERE, given) }
  for _, layout in ipairs(no_torch and {} or { "default", "channels_last" }) do
    list[#list + 1] = { name = "DDP, 2 processes, " .. layout,
      command = ("%s %speer_torch_ddp.py --threads 1 --layout %s%s"):format(python, HERE, layout, given) }
  end
  race.report(("%s, training step, batch 128, two processes of one thread each"):format(net),
    race.race(list, tonumber(options.rounds), STEPS[net] or 10))
end

-- ---- sums ---------------------------------------------------------------------------------------

local SIZES = { 4, 1e6, 1e7, 1e8 }

-- The least seconds by bytes of a program that prints "BYTES SECONDS" lines.
local function add_times(row)
  local output = race.shell(row.command .. " 4 1000000 10000000 100000000")
  for bytes, seconds in output:gmatch "(%d+) (%d+%.%d+)" do
    bytes = tonumber(bytes)
    row.seconds[bytes] = math.min(row.seconds[bytes] or math.huge, tonumber(seconds))
  end
  for _, bytes in ipairs(SIZES) do
    if not row.seconds[bytes] then error(("%s: %s"):format(row.name, output), 0) end
  end
end

local function sums()
  local rows, folder = {}, race.shell("mktemp -d"):gsub("\n", "")
  each_kind(function(kind)
    rows[#rows + 1] = { name = kind, command = two(kind, HERE .. "all_reduce.lua"), seconds = {} }
    local peer = folder .. "/" .. kind
    if kind ~= "ucx" and os.execute(("mpicc.%s -O2 -o %s %smpi_allreduce.c"):format(kind, peer, HERE)) == 0 then
      rows[#rows + 1] = { name = kind .. ": MPI_Allreduce", command = processes.command(kind, 2, peer), seconds = {} }
    end
  end)
  if not no_torch then
    rows[#rows + 1] = { name = "PyTorch, gloo", seconds = {},
      command = ("%s %speer_torch_ddp.py --threads 1 --sums"):format(python, HERE) }
  end
  for _ = 1, 3 do -- in turns, so that noise of the machine affects all
    for _, row in ipairs(rows) do add_times(row) end
  end
  os.execute("rm -r " .. folder)
  print(("\n%-34s %8s  %8s  %8s  %8s"):format("sum over two processes, least time", "4 B, us", "1 MB", "10 MB",
    "100 MB, ms"))
  for _, row in ipairs(rows) do
    print(("  %-32s %8.1f  %8.3f  %8.2f  %8.1f"):format(row.name, row.seconds[4] * 1e6, row.seconds[1e6] * 1e3,
      row.seconds[1e7] * 1e3, row.seconds[1e8] * 1e3))
  end
end

print(("load of the machine: %s"):format(io.lines "/proc/loadavg"():match "%S+ %S+ %S+"))
for net in options.nets:gmatch "[^,]+" do race_steps(net) end
sums()
print "\nreductions beside the backward pass, two processes"
for net in options.nets:gmatch "[^,]+" do
  each_kind(function(kind)
    local script = ("%sbeside.lua --net %s --steps %d"):format(HERE, net, STEPS[net] or 10)
    print(("  %-8s %s"):format(kind, race.shell("env MGPU_THREADS=1 " .. two(kind, script)):gsub("\n$", "")))
  end)
end
if no_torch then print("skipped: " .. no_torch) end
